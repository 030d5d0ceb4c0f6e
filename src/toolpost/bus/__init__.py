"""The bus: what gateways and workers say to each other over NATS.

Above: the backend ``nats``, the worker, and the gateway's door. Below: nats-py, the seal. What a
call is allowed, and what runs it, is not known here. ``docs/reference/wire.md`` says the same for
workers in other languages.
"""
