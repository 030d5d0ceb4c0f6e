"""``toolpost completion``: the script that lets a shell complete commands, tools and parameters.

Above: ``main.py``. Below: click's completion scripts. Our own part is one thing: a shell that has
just completed ``a=`` must not put a space behind it.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from toolpost.cli.options import json_option
from toolpost.cli.terminal import out, print_json

SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_TOOLPOST_COMPLETE"
_NO_SPACE: Final = """\
_toolpost_words() {
    _toolpost_completion "$@"
    if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace; fi
}
complete -o nosort -F _toolpost_words toolpost
"""


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
@click.pass_context
def command(ctx: click.Context, *, shell: str, as_json: bool) -> None:
    """Print the script that completes words in your shell.

    \b
    bash:  eval "$(toolpost completion bash)"
    zsh:   eval "$(toolpost completion zsh)"
    fish:  toolpost completion fish | source

    Put the line into your shell's start-up file to have it always.
    """
    root = ctx.find_root()
    made = get_completion_class(shell)
    assert made is not None, "click knows these three"
    script = made(root.command, {}, "toolpost", _VARIABLE).source()
    if shell == "bash":
        script += f"\n{_NO_SPACE}"
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        out(script)
