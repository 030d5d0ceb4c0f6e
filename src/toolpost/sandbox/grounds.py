"""What a grant must not reach: what says what the tools are, and what a tool could lead elsewhere.

Above: ``sandbox.py``. Below: the file system. Whoever can write to a folder can put a link there,
and a grant that follows it would be of anything. It refuses to know where tools come from.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from toolpost.errors import SetupError
from toolpost.sandbox.confinement import Confinement, within

_MOST_LINKS: Final = 40
"""As many as the kernel follows."""


class Grounds(Protocol):
    """What is known of all the tools there are."""

    def taboo(self, folder: str) -> str | None:
        """Why no tool may write to this folder, a real path, if there is a reason."""

    def written(self) -> Iterable[str]:
        """The folders that tools may write to."""


def check_grounds(
    confinement: Confinement,
    real: Mapping[str, str],
    grounds: Grounds | None,
    seen: Iterable[str],
) -> None:
    """``real`` is path → its real path, of all that is granted; ``seen``: where tools that were
    checked before may write, which is all that is known where nobody knows all tools.
    """
    for path in confinement.write:
        if grounds is not None and (why := grounds.taboo(real[path])) is not None:
            raise SetupError(
                f"{path} cannot be writable in a sandbox: {why}; give the tool a folder of its own",
                at=("write",),
            )
    linked = [path for path in real if real[path] != path]
    if not linked:
        return
    known = () if grounds is None else grounds.written()
    written = {os.path.realpath(one) for one in (*known, *seen)}
    for path in linked:
        for link in links_on(path):
            tree = next((one for one in written if within(link, one)), None)
            if tree is not None:
                raise SetupError(
                    f"{path} leads over {link}, a link in {tree}, where a tool may write: whoever "
                    "can write there could lead it anywhere",
                    at=("write" if path in confinement.write else "read",),
                )


def links_on(path: str) -> Iterator[str]:
    """The links that are followed on the way, each by its real place."""
    place, ahead, followed = "", path.split("/")[::-1], 0
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            place = place.rpartition("/")[0]
            continue
        here = f"{place}/{part}"
        try:
            leads_to = str(Path(here).readlink())
        except OSError:  # it is none
            place = here
            continue
        yield here
        followed += 1
        if followed == _MOST_LINKS:
            return
        if leads_to.startswith("/"):
            place = ""
        ahead += leads_to.split("/")[::-1]
