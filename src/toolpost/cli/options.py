"""What may be asked of every command, and the option that every command has.

Above: ``main.py`` makes one ``Asked`` out of the options before the command; commands get it.
Below: click. It knows nothing of tools, so that ``toolpost --help`` loads none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options before the command."""

    config: str | None = None
    color: bool = True
    debug: bool = False
    url: str | None = None
    """The gateway whose tools are meant, and not those of a config."""
    api_key: str | None = field(default=None, repr=False)

    @property
    def program(self) -> str:
        """How a command is begun that goes on from this one."""
        return "toolpost" if self.url is None else f"toolpost --url {self.url}"


pass_asked = click.make_pass_decorator(Asked, ensure=True)


def only_here(what: str) -> click.UsageError:
    """A gateway has no such thing to offer."""
    return click.UsageError(f"`{what}` works where the gateway runs: leave out --url.")


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
