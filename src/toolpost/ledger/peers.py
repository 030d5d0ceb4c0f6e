"""What a chain says of those beside it: how far each had come when it was last looked at.

Above: who writes a chain and puts this into its own records, and who verifies one. Below: the
anchors. A chain that is deleted together with its anchor is still named by the others, and goes on
to be: who takes a chain up says again what was said in it last, whatever retention drops.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.ledger.anchor import Anchor, anchors, files
from toolpost.ledger.record import AuditRecord
from toolpost.seal import Verifier

Heads = Mapping[str, tuple[int, str]]
"""Writer → the number of the last record in its chain, and the link there."""
_CHAINS: Final = "chains"
_TELLING: Final = frozenset(("start", "checkpoint"))


class Peers:
    """The chains in a folder but for that of ``writer``. ``told``: what it said of them before."""

    def __init__(
        self, folder: Path, writer: str, *, keys: Mapping[str, Verifier], told: Heads
    ) -> None:
        self._folder, self._writer, self._keys = folder, writer, keys
        self._told = dict(told)
        self._sure: dict[str, Anchor] = {}
        self._changed, self._all_sure = 0, False

    def details(self) -> dict[str, Any] | None:
        """For a record: how far each has come by now."""
        self._look()
        return {_CHAINS: self._told} if self._told else None

    def news(self) -> bool:
        """Whether a chain has begun of which nothing was told yet. Mostly a glance at the folder:
        a file in it is made once, and then written in place.
        """
        if self._all_sure and self._folder_changed() == self._changed:
            return False
        before = len(self._told)
        self._look()
        return len(self._told) > before

    def _look(self) -> None:
        try:
            self._changed = self._folder_changed()
            found = anchors(self._folder)
            sure = [self._is_sure(path.name, found) for path in files(self._folder)]
            self._all_sure = all(sure)
        except OSError:  # a file went away just now, or all of them: what is known stays
            self._all_sure = False

    def _is_sure(self, file: str, found: Mapping[str, Anchor | None]) -> bool:
        """Take down what an anchor says, if it was signed here and there is something to say."""
        anchor = found.get(file)
        if anchor is None or not anchor.number:
            return False
        if anchor.writer == self._writer or anchor == self._sure.get(file):
            return True
        if not anchor.holds(self._keys):
            return False
        self._sure[file] = anchor
        if anchor.number > self._told.get(anchor.writer, (0, ""))[0]:
            self._told[anchor.writer] = (anchor.number, anchor.link)
        return True

    def _folder_changed(self) -> int:
        try:
            return self._folder.stat().st_mtime_ns
        except OSError:
            return 0


def heads_in(record: AuditRecord) -> Heads:
    """What a record says of the other chains."""
    if record.kind not in _TELLING or not isinstance(record.details, dict):
        return {}
    try:
        return msgspec.convert(record.details.get(_CHAINS, {}), dict[str, tuple[int, str]])
    except msgspec.ValidationError:
        return {}
