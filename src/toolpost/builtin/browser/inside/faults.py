"""What can go wrong with a page, in words for a model; Playwright's own are not shown to one.

Above: everything in here. Below: Playwright's errors. Pages write into those: of their texts only
the names of network errors are taken over.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from playwright.async_api import Error
from playwright.async_api import TimeoutError as Late

Kind = Literal[
    "busy", "crashed", "download", "elsewhere", "empty", "failed", "form", "large", "late",
    "missing", "selector", "slow", "unloadable", "unreachable",
]  # fmt: skip

ANOTHER_FORM: Final = "That input wants its value in another form: dates are 2026-11-30."
_NETWORK: Final = re.compile(r"net::(ERR_[A-Z0-9_]+)")
_FOR_GOOD: Final = re.compile(
    r"ERR_(?:INVALID_|TOO_MANY_REDIRECTS|UNSAFE_|UNKNOWN_URL|DISALLOWED_URL|CERT_|SSL_"
    r"|BLOCKED_BY_|RESPONSE_HEADERS_|CONTENT_DECODING_)"
)
"""Those that the next attempt would meet as well."""
_MANY: Final = re.compile(r"resolved to (\d+) elements")
_AMISS: Final = re.compile(r"(?i)selector|unexpected token|unknown engine|queryselector")
_NOT_HERE: Final = re.compile(r"(?i)crashed|has been closed|(?:target|connection) closed")
_NOT_SO: Final = (
    ("not an <input>", "That element takes no text: choose an input, a text area or a list."),
    ("cannot be filled", "That input takes no text: click it instead."),
    ("Malformed value", ANOTHER_FORM),
    ("Cannot type text into", "That input takes numbers only."),
)


class Fault(Exception):
    """Why it could not be done."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


def fault_of(error: Error) -> Fault:
    """What an error of Playwright's amounts to."""
    said = error.message
    if "Download is starting" in said:
        return Fault("download", "That is a file to download, and downloads are refused.")
    if found := _NETWORK.search(said):
        kind: Kind = "unloadable" if _FOR_GOOD.match(found[1]) else "unreachable"
        return Fault(kind, f"The page could not be loaded ({found[1]}).")
    if found := _MANY.search(said):
        many = f"{found[1]} elements match. Choose one: use a ref of browser_snapshot."
        return Fault("selector", many)
    for part, message in _NOT_SO:
        if part in said:
            return Fault("selector", message)
    if isinstance(error, Late):
        return Fault(
            "missing", "There is no such element, or it cannot be used now. See browser_snapshot."
        )
    if _NOT_HERE.search(said):
        return Fault("crashed", "The page crashed and was closed.")
    if _AMISS.search(said):
        return Fault("selector", "That is no selector: write CSS, or a ref of browser_snapshot.")
    return Fault("failed", "The page would not have it.")
