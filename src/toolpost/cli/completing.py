"""What a shell may complete: the names of tools, and a tool's parameters as ``name=``.

Above: ``show.py`` and ``call.py``, whose arguments ask here. Below: ``opening.py``. A shell that
completes words must not be disturbed: whatever goes wrong, there is nothing to complete.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from toolpost.cli.opening import loaded, run, uncalled
from toolpost.cli.options import Asked
from toolpost.cli.remote import connected
from toolpost.cli.terminal import one_line
from toolpost.config import find
from toolpost.schema.parameters import parameters
from toolpost.spec import ToolSpec


def tool_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(spec.name, help=one_line(spec.description))
        for spec in _specs(ctx)
        if spec.name.startswith(incomplete)
    ]


def parameter_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    spec = next((s for s in _specs(ctx) if s.name == ctx.params.get("name")), None)
    if spec is None or "=" in incomplete:
        return []
    given = {word.partition("=")[0].removesuffix(":") for word in ctx.params.get("words") or ()}
    return [
        CompletionItem(f"{one.name}=", help=one_line(one.description))
        for one in parameters(spec.input_schema).values()
        if one.name.startswith(incomplete) and (one.name not in given or "array" in one.types)
    ]


def _specs(ctx: click.Context) -> tuple[ToolSpec, ...]:
    given = ctx.find_root().params
    url, api_key = given.get("url"), given.get("api_key")
    asked = Asked(config=given.get("config"), url=url, api_key=api_key)

    async def listed() -> tuple[ToolSpec, ...]:
        if url is not None:
            async with connected(asked) as client:
                return await client.list()
        async with loaded(uncalled(find(asked.config)), asked) as runtime:
            return runtime.list()

    try:
        return run(asked, listed())
    except Exception:  # noqa: BLE001 - a prompt is no place for an error message
        return ()
