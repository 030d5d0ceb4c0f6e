"""Asking a person for a yes, durably: what is asked, who may answer, what an answer is worth.

Above: the ring that asks, and every place where people answer (command line, callback, webhook,
later gateway and console). Below: ``Records``. It refuses to know how a person is reached.
"""

from toolpost.approvals.desk import Approvals, Edited
from toolpost.approvals.values import Channel, Decision, Lasting, Request, Settled, Standing, Vote

__all__ = [
    "Approvals",
    "Channel",
    "Decision",
    "Edited",
    "Lasting",
    "Request",
    "Settled",
    "Standing",
    "Vote",
]
