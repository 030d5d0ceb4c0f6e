"""The browser tool of the Nachos contract: one tool with an ``action``, on the built-in browser.

Above: ``contract`` users, ``bringing.py``. Below: ``toolpost.builtin.browser``, which needs the
extra ``browser``. Chromium runs in a sandbox that leads where the config says.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Literal

import msgspec

from toolpost import Call, Health, Image, Injected, Limits, Output
from toolpost import Tool as OurTool
from toolpost.bridges.nachos.builtin import Builtin
from toolpost.bridges.nachos.config import ToolConfig
from toolpost.bridges.nachos.contract import (
    HealthStatus,
    ParameterSchema,
    SecurityTier,
    ToolParameters,
)
from toolpost.builtin.browser.browser import Browser
from toolpost.builtin.browser.settings import Settings
from toolpost.options import options_from
from toolpost.plugins import SharedSandbox
from toolpost.registry import Entry

_ACTIONS: Final = ("navigate", "screenshot", "extract")
_PICTURE: Final = Limits(output=16 * 1024 * 1024)
_TOLD: Final = {
    "navigate": ("url", "title", "status"),
    "screenshot": ("url", "title", "width", "height"),
    "extract": ("url", "title", "count", "items", "truncated"),
}
Shared = Injected[SharedSandbox]


class _Browsing(
    OurTool,
    name="browser",
    tier=1,
    effects="idempotent",
    timeout=45,
    limits=_PICTURE,
    labels={"external": "true"},
):
    """Open a web page, take a picture of it or read a part of it."""

    def __init__(self, settings: Settings) -> None:
        self.browser = Browser(settings)

    async def initialize(self) -> None:
        self.browser.join()

    async def health(self, sandbox: Shared = None) -> Health:  # type: ignore[assignment]
        return await self.browser.health(sandbox)

    async def close(self) -> None:
        await self.browser.leave()

    async def run(
        self,
        url: str,
        action: Literal["navigate", "screenshot", "extract"],
        selector: str | None = None,
        *,
        call: Call,
        sandbox: Shared = None,  # type: ignore[assignment]
    ) -> Output:
        given: dict[str, Any] = {"url": url}
        if action == "screenshot":
            given |= {"target": selector, "full_page": False}
        elif action == "extract":
            given |= {"selector": selector or "body", "attributes": (), "limit": 50}
            given["max_chars"] = 20_000
        done = await self.browser.do(action, call, given, sandbox)
        about = {name: done[name] for name in _TOLD[action]}
        parts = (Image(base64.b64decode(done["png"])),) if action == "screenshot" else ()
        return Output(about, parts)


class BrowserTool(Builtin):
    """``config`` may have what ``[sources.browser]`` has: ``egress``, ``program``, ``idle`` …"""

    tool_id = "browser"
    name = "Browser"
    description = "Open a web page, take a picture of it, or extract text by a CSS selector"
    security_tier = SecurityTier.STANDARD
    parameters: ClassVar[ParameterSchema] = {
        "type": "object",
        "properties": {
            "url": {"type": "string", "format": "uri", "description": "URL to navigate to"},
            "action": {
                "type": "string",
                "enum": list(_ACTIONS),
                "description": "Action to perform",
            },
            "selector": {"type": "string", "description": "CSS selector (for extract action)"},
        },
        "required": ["url", "action"],
    }

    def entry(self, config: ToolConfig) -> Entry:
        settings = options_from(config.config, Settings, "the browser")
        spec = msgspec.structs.replace(
            _Browsing.spec,
            title=self.name,
            description=self.description,
            input_schema={**self.parameters},
            output_schema=None,
            egress=settings.egress,
        )
        return Entry(spec, _Browsing(settings))

    def faults(self, params: ToolParameters) -> Iterator[str]:
        if not isinstance(params.get("url"), str):
            yield "url must be a string"
        if params.get("action") not in _ACTIONS:
            yield f"action must be one of {', '.join(_ACTIONS)}"
        if not isinstance(params.get("selector"), str | None):
            yield "selector must be a string"

    async def health_check(self) -> HealthStatus:
        said = await (await self.here()).health(self.tool_id)
        return HealthStatus(said.healthy, said.error)
