"""What a call says to a gateway: the body and the headers.

Above: ``client.py`` and the jobs of ``parts.py``. Below: ``plain.py``, which says what is not JSON.
Whether the arguments fit the tool is for the gateway to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolpost.client.exchange import header
from toolpost.errors import InvalidArguments
from toolpost.given import as_arguments
from toolpost.plain import NotPlain, measure


def wanted(
    arguments: Mapping[str, Any] | None,
    *,
    session_id: str | None,
    timeout: float | None,
    phase: str | None,
    key: str | None,
    grant: str | None,
) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """The body and the headers of a call."""
    body: dict[str, Any] = {"arguments": as_arguments(arguments)}
    more = {"session_id": session_id, "timeout": timeout, "phase": phase, "grant": grant}
    body |= {name: value for name, value in more.items() if value is not None}
    try:
        measure(body)
    except NotPlain as fault:
        raise InvalidArguments(f"{fault}.") from None
    return body, key_header(key)


def key_header(key: str | None) -> tuple[tuple[str, str], ...]:
    """The header of an idempotency key, if there is one: with quotes, so that blanks at its ends
    stay.
    """
    return () if key is None else (("Idempotency-Key", f'"{header("key", key)}"'),)
