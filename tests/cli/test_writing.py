"""Files that a command makes or adds to: all of it, or nothing."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from toolpost.cli.bringing import _appended
from toolpost.cli.writing import write_new
from toolpost.config import find

UNWRITABLE = "\ud800"


def test_what_cannot_be_written_to_its_end_leaves_nothing_behind(tmp_path: Path) -> None:
    files = {tmp_path / "a": "whole", tmp_path / "b": UNWRITABLE}
    with pytest.raises(UnicodeEncodeError):
        write_new(files)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays_and_so_does_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError):
        write_new({tmp_path / "a": "new", tmp_path / "b": "new"})
    assert [file.name for file in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b").read_text(encoding="utf-8") == "mine"


def test_a_config_stays_whole_where_there_is_no_room_to_add_to_it(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    before = b'# mine\r\nstate = "kept"'
    file.write_bytes(before)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 4, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            _appended(find(file), '\n[[sources]]\nkind = "builtin"\n')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == before
    config = _appended(find(file), '\n[[sources]]\nkind = "builtin"\n')
    assert (config.settings.state, len(config.settings.sources)) == ("kept", 1)
    assert file.read_bytes().startswith(before)
