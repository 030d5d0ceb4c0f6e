"""The file that the code of a Python tool is in, and its digest.

``backend.py`` asks: an approval and the lock file are bound to this digest. A worker verifies the
digest of what it loads by itself (``child.py``). Only the file of the function's own module counts;
what that module imports does not.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from toolpost.digest import content_digest
from toolpost.errors import Conflict

_OWN: Final = str(Path(__file__).parents[2]) + "/"


def located(module: str, search_path: Sequence[str]) -> str | None:
    """The file of a module that is not imported here; ``None`` if there is none."""
    found: ModuleSpec | None = None
    path: Sequence[str] | None = search_path
    for end, part in enumerate(parts := module.split("."), 1):
        if path is None:
            return None
        found = PathFinder.find_spec(".".join(parts[:end]), list(path))
        if found is None and end == 1:
            found = _elsewhere(part)
        if found is None:
            return None
        path = found.submodule_search_locations
    file = None if found is None else found.origin
    return file if file is not None and Path(file).is_file() else None


def file_of(function: Any) -> str | None:
    """The file of the module that a function of this process was defined in."""
    name = getattr(inspect.unwrap(function), "__module__", None)
    file: str | None = getattr(sys.modules.get(name or ""), "__file__", None)
    return file


def ships_with_toolpost(file: str) -> bool:
    """Whether it is a built-in tool, whose code changes with the version of toolpost."""
    return file.startswith(_OWN)


class LoadedCode:
    """The digest of a function that runs in this process: of its module's file, as it was when the
    module was loaded. A file that was edited since is not what runs.
    """

    def __init__(self, function: Any) -> None:
        self._function = inspect.unwrap(function)
        self._digest: str | None = None
        self._known = False

    def digest(self) -> str | None:
        if not self._known:
            self._digest, self._known = self._read(), True
        return self._digest

    def _read(self) -> str | None:
        file = file_of(self._function)
        try:
            content = None if file is None else Path(file).read_bytes()
        except OSError:
            content = None
        if file is None or content is None:
            return None
        code = getattr(self._function, "__code__", None)
        loader = getattr(sys.modules[self._function.__module__], "__loader__", None)
        # another loader may make other code of the same text
        if type(loader) is SourceFileLoader and getattr(code, "co_filename", None) == file:
            _verify_loaded(code, content, file)
        return content_digest(content)


def _elsewhere(name: str) -> ModuleSpec | None:
    """A package that is on no path: an editable install has a finder of its own."""
    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None


def _verify_loaded(code: Any, content: bytes, file: str) -> None:
    """Compare the function in memory with the one in the file."""
    try:
        compiled = compile(content, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        compiled = None
    if compiled is None or code not in _codes(compiled):
        raise Conflict(
            "The file with the code of this tool was changed after it was loaded: what a person "
            "would approve is not what would run. Restart the program, then ask again.",
            remedy="stop",
        )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
