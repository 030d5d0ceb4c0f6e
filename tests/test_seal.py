"""Keys and signatures: made once, kept from others, good for what they were made for."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost import ConfigError, MissingPart
from toolpost.seal import can_sign_publicly, from_text, new_seal, open_seal, to_text, verifiers

WITHOUT = "import sys; sys.modules['cryptography'] = sys.modules['nacl'] = None\n"


def without_cryptography(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + program, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_the_key_is_made_once_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    one, two = (open_seal(tmp_path / "state", "audit") for _ in range(2))
    assert one.key == two.key
    assert one.algorithm == "ed25519"
    file = tmp_path / "state" / "audit.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert {f.name for f in (tmp_path / "state").iterdir()} == {"audit.key", f"{one.key}.pub"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    open_seal(tmp_path, "audit")
    (tmp_path / "audit.key").chmod(mode)
    with pytest.raises(ConfigError, match="others may read"):
        open_seal(tmp_path, "audit")


def test_a_key_behind_a_link_is_refused(tmp_path: Path) -> None:
    open_seal(tmp_path / "a", "audit")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "audit.key").symlink_to(tmp_path / "a" / "audit.key")
    with pytest.raises(OSError, match="symbolic links"):
        open_seal(tmp_path / "b", "audit")


@pytest.mark.parametrize(
    "text", ["", "ed25519", "ed25519 A", "ed25519 AAAA", "rot13 " + "A" * 43 + "=", "é"]
)
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "audit.key").write_text(text)
    (tmp_path / "audit.key").chmod(0o600)
    with pytest.raises(ConfigError, match=r"not a key|no way to sign"):
        open_seal(tmp_path, "audit")


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_signature_is_good_for_its_message_only(one: bytes, two: bytes) -> None:
    seal = new_seal()
    signature = seal.sign(one)
    assert seal.verifier.check(one, signature)
    assert seal.verifier.check(two, signature) == (one == two)
    assert not new_seal().verifier.check(one, signature)


@pytest.mark.parametrize("signature", ["", "AAAA", "not base64 !", "é"])
def test_what_is_no_signature_is_not_good(signature: str) -> None:
    assert not new_seal().verifier.check(b"message", signature)


def test_signatures_of_a_key_that_was_replaced_can_still_be_checked(tmp_path: Path) -> None:
    old = open_seal(tmp_path, "audit")
    signature = old.sign(b"message")
    (tmp_path / "audit.key").unlink()
    new = open_seal(tmp_path, "audit")
    keys = verifiers(tmp_path, "audit")
    assert set(keys) == {old.key, new.key}
    assert keys[old.key].check(b"message", signature)
    assert not keys[new.key].check(b"message", signature)


def test_without_cryptography_a_shared_key_signs(tmp_path: Path) -> None:
    assert can_sign_publicly()
    made = without_cryptography(
        "from pathlib import Path\n"
        "from toolpost.seal import open_seal, verifiers\n"
        "folder = Path(sys.argv[1])\n"
        "seal = open_seal(folder, 'audit')\n"
        "signature = seal.sign(b'message')\n"
        "assert verifiers(folder, 'audit')[seal.key].check(b'message', signature)\n"
        "assert not seal.verifier.check(b'other', signature)\n"
        "print(seal.algorithm, signature)",
        tmp_path,
    )
    algorithm, signature = made.split()
    assert algorithm == "hmac-sha256"
    seal = open_seal(tmp_path, "audit")  # with it, the key stays what it is
    assert seal.algorithm == "hmac-sha256"
    assert seal.verifier.check(b"message", signature)
    assert not seal.verifier.check(b"message", "é")


def test_when_cryptography_is_gone_new_keys_are_shared_and_public_ones_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verifiers(tmp_path, "audit") == {}
    public = open_seal(tmp_path / "public", "audit")
    for missing in ("", ".ed25519"):
        name = f"cryptography.hazmat.primitives.asymmetric{missing}"
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "nacl", None)
    assert not can_sign_publicly()
    assert open_seal(tmp_path / "shared", "audit").algorithm == "hmac-sha256"
    (tmp_path / "public" / "audit.key").unlink()
    with pytest.raises(MissingPart, match=r"toolpost\[seal\]"):
        verifiers(tmp_path / "public", "audit")
    assert public.algorithm == "ed25519"


def test_it_does_not_matter_which_library_signs_and_which_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sodium = open_seal(tmp_path, "audit")
    monkeypatch.setitem(sys.modules, "nacl", None)
    other = open_seal(tmp_path, "audit")
    assert other.key == sodium.key
    assert other.sign(b"text") == sodium.sign(b"text")
    for verifier in (sodium.verifier, other.verifier):
        assert verifier.check(b"text", sodium.sign(b"text"))
        right, other_text = sodium.sign(b"text"), sodium.sign(b"other")
        for wrong in ("", "x", other_text, right[:-4], to_text(b"x" * 64)):
            assert not verifier.check(b"text", wrong)


def test_a_public_key_without_cryptography_says_what_to_install(tmp_path: Path) -> None:
    open_seal(tmp_path, "audit")
    said = without_cryptography(
        "from pathlib import Path\n"
        "from toolpost.errors import MissingPart\n"
        "from toolpost.seal import open_seal\n"
        "try:\n    open_seal(Path(sys.argv[1]), 'audit')\n"
        "except MissingPart as exc:\n    print(exc)",
        tmp_path,
    )
    assert 'pip install "toolpost[seal]"' in said
    assert issubclass(MissingPart, Exception)


def test_of_many_who_start_at_once_one_makes_the_key(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from toolpost.seal import open_seal\n"
        "sys.stdin.readline(); print(open_seal(Path(sys.argv[1]), 'audit').key)"
    )
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for one in racing:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    assert len({one.communicate(timeout=60)[0] for one in racing}) == 1


def spelt_otherwise(text: str) -> list[str]:
    """What a lenient reader of base64 takes for the same as this."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    bare = text.rstrip("=")
    unused = {2: 4, 1: 2}.get(len(text) - len(bare), 0)
    value = letters.index(bare[-1])
    ends = [bare[:-1] + letters[value ^ more] for more in range(1, 1 << unused)]
    pads = "=" * (len(text) - len(bare))
    return [
        *(f"{one}{pads}" for one in ends),
        f"{text}\n",
        f" {text}",
        f"{text[:5]}\n{text[5:]}",
        f"{text[:5]}!{text[5:]}",
        f"{text}=",
        bare,
        text.replace("-", "+").replace("_", "/") if set("-_") & set(text) else f"{text}====",
    ]


@given(st.binary(max_size=64))
def test_attack_a_signature_has_one_spelling(message: bytes) -> None:
    seal = new_seal()
    signature = seal.sign(message)
    assert seal.verifier.check(message, signature)
    for other in spelt_otherwise(signature):
        assert not seal.verifier.check(message, other), other


@given(st.binary(min_size=1, max_size=64))
def test_a_text_of_bytes_is_read_in_one_spelling(data: bytes) -> None:
    text = to_text(data)
    assert from_text(text) == data
    for other in spelt_otherwise(text):
        if other != text:
            with pytest.raises(ValueError, match=r".*"):
                from_text(other)


def test_a_shared_key_knows_one_spelling_too(tmp_path: Path) -> None:
    program = (
        "from toolpost.seal import new_seal\nseal = new_seal()\nsigned = seal.sign(b'm')\n"
        "others = [signed[:-1], signed + '\\n', ' ' + signed, signed + '\\ud800', signed + 'é']\n"
        "check = seal.verifier.check\n"
        "print(check(b'm', signed), any(check(b'm', one) for one in others))"
    )
    assert without_cryptography(program, tmp_path) == "True False"
