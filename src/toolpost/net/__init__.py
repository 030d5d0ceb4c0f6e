"""Guarded HTTP: where a connection may lead (``destination``), what a URL may say (``url``), and a
client that connects nowhere else (``client``, which needs the extra ``http``).

Above: the backends and sources that fetch, and the proxy of the sandbox. Below: the resolver and
httpcore2. It refuses to know tools.
"""
