"""A client for a gateway: its tools as if they were here.

Above: programs, and the command line with ``--url``. Below: the REST API, over the guarded HTTP
client of ``net``, which takes the extra ``http``. It refuses to know how a gateway is made.
"""

from toolpost.client.client import Client
from toolpost.client.values import Approval

__all__ = ["Approval", "Client"]
