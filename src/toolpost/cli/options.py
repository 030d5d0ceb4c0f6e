"""What may be asked of every command, and the option that every command has.

Above: ``main.py`` makes one ``Asked`` out of the options before the command; commands get it.
Below: click. It knows nothing of tools, so that ``toolpost --help`` loads none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options before the command."""

    config: str | None = None
    color: bool = True
    debug: bool = False


pass_asked = click.make_pass_decorator(Asked, ensure=True)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
