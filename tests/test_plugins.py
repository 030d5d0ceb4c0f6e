"""Parts by name: what is installed, what is missing, what is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolpost import ConfigError, MissingPart
from toolpost.contracts import Services
from toolpost.plugins import BUILT_IN, Backends, installed, load

pytestmark = pytest.mark.anyio


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a package that offers backends; each as a module of one line."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(package: str, code: str, **points: str) -> None:
        (tmp_path / f"{package}.py").write_text(code, encoding="utf-8")
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[toolpost.backends]", *lines]))

    return add


@pytest.mark.parametrize(("socket", "name"), BUILT_IN, ids="-".join)
def test_every_part_of_our_own_can_be_loaded(socket: str, name: str) -> None:
    assert isinstance(load(socket, name), type)


def test_a_part_of_another_package_is_found_by_its_entry_point(install: Any) -> None:
    install("offer_one", "class One: pass\n", one="offer_one:One")
    assert load("backends", "one").__name__ == "One"
    assert "one" in {point.name for point in installed("backends")}


def test_a_name_that_nobody_offers_is_answered_with_those_there_are() -> None:
    with pytest.raises(MissingPart, match=r"no kind of tool 'pithon'.*did you mean 'python'"):
        load("backends", "pithon")
    with pytest.raises(MissingPart, match=r"no source 'zzz' is installed .*files"):
        load("sources", "zzz")


def test_a_part_that_needs_another_package_says_which(install: Any) -> None:
    install("offer_two", "import no_such_package.deep\n", two="offer_two:Two")
    with pytest.raises(MissingPart, match=r"needs 'no_such_package'. Install it with: pip install"):
        load("backends", "two")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise OSError('no disk')\n", "OSError: no disk"),
        ("x = 1\n", "AttributeError"),
        ("syntax error\n", "SyntaxError"),
    ],
    ids=["raises", "has no such name", "is no Python"],
)
def test_a_part_that_is_broken_says_how(install: Any, code: str, says: str) -> None:
    package = f"offer_{says[:6].lower()}"
    install(package, code, broken=f"{package}:Broken")
    with pytest.raises(MissingPart, match=f"is installed but cannot be loaded.*{says}"):
        load("backends", "broken")


def test_a_name_that_two_packages_offer_is_refused(install: Any) -> None:
    for package in ("offer_three", "offer_four"):
        install(package, "class Same: pass\n", same=f"{package}:Same")
    with pytest.raises(ConfigError, match="is offered by offer_four and offer_three"):
        load("backends", "same")


def test_another_package_does_not_take_the_place_of_ours(install: Any) -> None:
    install("offer_five", "class Fake: pass\n", python="offer_five:Fake")
    assert load("backends", "python").__name__ == "PythonBackend"


async def test_backends_are_made_once_and_all_are_closed() -> None:
    closed = []

    class Given:
        def __init__(self, name: str, *, breaks: bool = False) -> None:
            self.name, self.breaks = name, breaks

        def bind(self, spec: Any, target: Any) -> Any:
            raise NotImplementedError

        async def close(self) -> None:
            closed.append(self.name)
            if self.breaks:
                raise OSError("stuck")

    backends = Backends(
        {"a": Given("a"), "b": Given("b", breaks=True), "c": Given("c")}, Services()
    )
    assert backends["python"] is backends["python"]
    assert backends["a"].name == "a"
    with pytest.raises(OSError, match="stuck"):
        await backends.close()
    assert sorted(closed) == ["a", "b", "c"]
