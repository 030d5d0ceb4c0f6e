"""Who asks: API keys, tokens of an issuer, or nobody but the owner of this machine.

Above: the routes, which hand over a header and get a ``Caller``. Below: ``Records``, where keys are
kept, and ``net``, over which the keys of issuers are fetched. What a caller may do is decided on
the road; what was presented goes no further than here.
"""

from toolpost.gateway.identity.callers import Identity, Unidentified
from toolpost.gateway.identity.origins import Origins, refused_binding, refused_origin
from toolpost.gateway.identity.settings import AuthSettings, IssuerSettings, auth_from

__all__ = [
    "AuthSettings",
    "Identity",
    "IssuerSettings",
    "Origins",
    "Unidentified",
    "auth_from",
    "refused_binding",
    "refused_origin",
]
