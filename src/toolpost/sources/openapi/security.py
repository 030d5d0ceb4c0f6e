"""The security of an operation, as the ``auth`` of a binding.

Above: ``converting.py``. Below: ``description.py``. A document says how it is proved who asks; it
never says with what. The name of a secret is made of the host it goes to and of the scheme, so that
no document can name a variable that is meant for somebody else, unless the config says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolpost.net.url import Url
from toolpost.sources.openapi.description import (
    Description,
    Object,
    Operation,
    Place,
    Unfit,
    mapping_in,
)
from toolpost.sources.openapi.parameters import Key
from toolpost.wording import short

_SEPARATED: Final = {".": "_", ":": "_", "-": "___", "_": "____"}
"""Two hosts never share a name, and none holds the two lines that stand before the scheme."""


def auth_of(
    description: Description, operation: Operation, url: Url, secrets: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What is sent to prove who asks: nothing, or all of these."""
    holder: tuple[Object, Place] = (description.data, ())
    if "security" in operation.written:
        holder = (operation.written, operation.at)
    ways, at = holder[0].get("security"), (*holder[1], "security")
    if not isinstance(ways, list) or not ways:
        return []
    usable, why = [], ""
    for way in ways:
        try:
            usable.append((way, _sent(description, way, url, secrets, at)))
        except Unfit as fault:
            why = why or fault.why
    if not usable:
        raise Unfit(why, at)
    told = [sent for way, sent in usable if sent and set(way) <= set(secrets)]
    return told[0] if told else usable[0][1]


def keys_in(auth: list[dict[str, Any]]) -> Iterator[Key]:
    """The parameters that are sent as credentials."""
    for one in auth:
        if "api_key" in one:
            yield one["api_key"]["in"], one["api_key"]["name"].lower()


def _sent(
    description: Description, way: Any, url: Url, secrets: Mapping[str, str], at: Place
) -> list[dict[str, Any]]:
    if not isinstance(way, Mapping):
        raise Unfit("a way to prove who asks is a mapping of schemes", at)
    components = mapping_in(description.data, "components", ())
    schemes = mapping_in(components, "securitySchemes", ("components",))
    sent = []
    for name in way:
        if name not in schemes:
            raise Unfit(f"there is no security scheme {short(name)!r}", at)
        scheme, there = description.followed(schemes[name], ("components", "securitySchemes", name))
        sent.append(_one(name, scheme, there, secrets.get(name) or secret_name(url, name)))
    return sent


def _one(name: str, scheme: Object, at: Place, secret: str) -> dict[str, Any]:
    kind, how = scheme.get("type"), str(scheme.get("scheme")).lower()
    if kind in ("oauth2", "openIdConnect") or (kind == "http" and how == "bearer"):
        return {"bearer": secret}
    if kind == "http" and how == "basic":
        return {"basic": {"user_secret": f"{secret}_USER", "password": f"{secret}_PASSWORD"}}
    wire, where = scheme.get("name"), scheme.get("in")
    if kind == "apiKey" and isinstance(wire, str) and where in ("header", "query", "cookie"):
        return {"api_key": {"secret": secret, "in": where, "name": wire}}
    said = f"{kind} {how}" if kind == "http" else str(kind)
    raise Unfit(
        f"the security scheme {short(name)!r} is {short(said)!r}, which is not done here", at
    )


def secret_name(url: Url, scheme: str) -> str:
    """``API_EXAMPLE_COM__BEARER_AUTH``: the host, two lines, the scheme."""
    authority = url.header.strip("[]").lower()
    host = "".join(_SEPARATED.get(one, one if one.isalnum() else "_") for one in authority)
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", scheme)
    words = re.sub(r"[^A-Za-z0-9]+", "_", apart).strip("_") or "KEY"
    name = f"{host}__{words}".upper()
    return f"HOST_{name}" if name[0].isdigit() else name
