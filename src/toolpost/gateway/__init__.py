"""The gateway: REST and MCP over HTTP, on the same road as everything else.

Above: the command line. Below: the wiring. A door turns bytes into a name, arguments and a
``Caller``, and a ``Result`` into bytes; what a call may do is decided on the road and not here.
"""
