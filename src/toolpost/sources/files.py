"""Spec files: tools declared in YAML, JSON or TOML.

A file holds ``tools:`` with a list, or just the list. Two spellings of a tool are understood: our
own, which is ``ToolSpec`` field by field, and the one with ``tool_type``, ``implementation_config``
and ``metadata``. A fault is reported as ``file:line:column: what is wrong and how to mend it``.

Relative paths start at the config's folder and stay beneath it. The modules of Python tools are
looked up beside the file that declares them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

from toolpost.contracts import Declared, Tell
from toolpost.document import Document, read
from toolpost.errors import InvalidSpec, SourceError
from toolpost.options import Options, options_from
from toolpost.plugins import verify_binding
from toolpost.spec import nearest, short, spec_from
from toolpost.verified import verified

LOOK_EVERY: Final = 0.5
_WILD: Final = frozenset("*?[")


Place = tuple[str | int, ...]


class _Options(Options, frozen=True):
    paths: tuple[str, ...]


class FilesSource:
    """``[[sources]] kind = "files", paths = ["tools.yaml", "more/*.json"]``."""

    def __init__(self, paths: Iterable[str | Path], *, base: Path | None = None) -> None:
        self._paths = tuple(map(str, paths))
        self._base = base or Path.cwd()
        self._loaded: object = None
        """What the files looked like when they were last read."""

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        return cls(options_from(options, _Options, "source files").paths, base=base)

    async def load(self, tell: Tell) -> Iterable[Declared]:
        """Reads in a thread: a big file does not hold up the calls that are under way."""
        return await asyncio.to_thread(self._load, tell)

    async def changes(self) -> AsyncIterator[None]:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if (now := await asyncio.to_thread(self._fingerprint)) != self._loaded:
                self._loaded = now
                yield

    def _load(self, tell: Tell) -> list[Declared]:
        self._loaded = self._fingerprint()  # before reading: what changes meanwhile is seen later
        places: dict[str, tuple[Document, Place]] = {}
        tools: list[Declared] = []
        for file in self._files():
            document = read(file, progress=tell)
            for place, tool in _tools_in(document, str(file.resolve().parent)):
                first = places.setdefault(tool.spec.name, (document, place))
                if first != (document, place):
                    raise SourceError(
                        f"{document.where(place)}: there is a tool {tool.spec.name!r} already, at "
                        f"{first[0].where(first[1])}: rename one of them"
                    )
                tools.append(tool)
        return tools

    def _files(self) -> list[Path]:
        return list(dict.fromkeys(chain.from_iterable(map(self._matching, self._paths))))

    def _matching(self, path: str) -> list[Path]:
        if Path(path).is_absolute():
            root, pattern = Path(path).parent, Path(path).name
        else:
            root, pattern = self._base, path
        if ".." in Path(pattern).parts:
            raise SourceError(f"{short(path)}: a path of spec files must not leave its folder")
        try:
            found = sorted(root.glob(pattern)) if _WILD & set(pattern) else [root / pattern]
            strays = [f for f in found if not f.resolve().is_relative_to(root.resolve())]
        except (OSError, RuntimeError, ValueError) as exc:  # a loop of links, a NUL, a bad pattern
            raise SourceError(f"{short(path)}: not a path of spec files: {exc}") from exc
        if strays:
            raise SourceError(f"{strays[0]}: this link leads out of {root}: copy the file instead")
        if not found:
            raise SourceError(f"{short(path)}: no file matches (looked in {root})")
        return found

    def _fingerprint(self) -> object:
        try:
            stats = [(f, f.stat()) for f in self._files()]
        except (OSError, SourceError) as exc:
            return str(exc)
        return [(f, s.st_mtime_ns, s.st_size, s.st_ino) for f, s in stats]


def _tools_in(document: Document, folder: str) -> Iterator[tuple[Place, Declared]]:
    data: Any = document.data
    at: Place = ()
    if isinstance(data, Mapping) and "tools" in data:
        for key in data:
            if key != "tools":
                raise SourceError(
                    f"{document.where((key,), key=True)}: unknown key {short(key)!r} beside 'tools'"
                )
        data, at = data["tools"], ("tools",)
    if not isinstance(data, list):
        raise SourceError(
            f"{document.where(at)}: expected a list of tools, or a mapping with the key 'tools'"
        )
    for index, item in enumerate(data):
        place = (*at, index)
        try:
            spec = verified(spec_from(_own(item)))
            verify_binding(spec)
            yield place, Declared(spec, folder)
        except InvalidSpec as fault:
            where = document.where((*place, *_as_written(fault.at, item)))
            raise SourceError(f"{where}: {fault.message}") from None


# The other spelling: where its fields go in ours.
_FOREIGN: Final = {"tool_type": "kind", "implementation_config": "binding"}
_METADATA: Final = (
    "version",
    "category",
    "permissions",
    "tags",
    "timeout",
    "is_dangerous",
    "requires_approval",
)
_KINDS: Final = {"sandbox": "shell"}


def _own(item: Any) -> Any:
    """A tool in our own spelling. What is said twice is refused: one of the two would not count."""
    if not isinstance(item, Mapping) or not ({*_FOREIGN, "metadata"} & set(item)):
        return item
    own: dict[str, Any] = {}
    for key, value in item.items():
        if key != "metadata":
            _say(own, _FOREIGN.get(key) or key, value, at=(key,))
    if isinstance(kind := own.get("kind"), str):
        own["kind"] = _KINDS.get(kind, kind)
    binding = own.get("binding")
    if isinstance(binding, Mapping) and "function_name" in binding:
        own["binding"] = {
            ("function" if k == "function_name" else k): v for k, v in binding.items()
        }
    metadata = item.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidSpec("metadata is a mapping", at=("metadata",))
    for key, value in metadata.items():
        _say_metadata(own, key, value)
    return own


def _say_metadata(own: dict[str, Any], key: str, value: Any) -> None:
    at = ("metadata", key)
    if key not in _METADATA:
        raise InvalidSpec(f"unknown metadata {short(key)!r}{nearest(key, _METADATA)}", at=at)
    if key == "is_dangerous":
        if not isinstance(value, bool):
            raise InvalidSpec("is_dangerous is true or false", at=at)
        if value and own.setdefault("tier", 3) in (0, 1, 2):
            raise InvalidSpec("is_dangerous means tier 3 or 4, and the tier here is lower", at=at)
    elif key == "permissions" and isinstance(value, list):
        _say(own, key, {"roles": value}, at=at)
    else:
        _say(own, key, value, at=at)


def _say(own: dict[str, Any], field: str, value: Any, *, at: Place) -> None:
    if field in own:
        raise InvalidSpec(f"{field!r} is said twice, once as {'.'.join(map(str, at))!r}", at=at)
    own[field] = value


def _as_written(at: Place, item: Any) -> Place:
    """The path of a fault as the file spells it."""
    if not at or not isinstance(item, Mapping) or at[0] in item:
        return at
    for theirs, ours in _FOREIGN.items():
        if at[0] == ours and theirs in item:
            return (theirs, *at[1:])
    return ("metadata", *at)
