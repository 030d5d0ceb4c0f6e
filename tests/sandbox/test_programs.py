"""The programs people have run inside as they do outside, wherever the home folder is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.elsewhere import IS_ROOT, NOBODY, as_ordinary_user, in_a_container

pytestmark = pytest.mark.timeout(240)

PROGRAM = """
import asyncio, json, os, sys
from toolpost.sandbox import Confinement, Sandbox
from toolpost.sandbox.view import interpreter

SCRIPTS = {
    "sh": ["sh", "-c", "echo works > file; cat file"],
    "script": ["./script.sh", "works"],
    "python": [interpreter()[0], "-c", "import ssl, json, tempfile, subprocess; "
        "print(subprocess.run(['echo', 'works'], capture_output=True, text=True).stdout, end='')"],
    "git": ["sh", "-c", "git init -q . && git config user.email a@b && git config user.name c && "
        "git add script.sh && git commit -qm works && git log --format=%s"],
    "curl": ["sh", "-c", "echo works > page; curl -sS file://$PWD/page"],
    "node": ["node", "-e", "const fs = require('fs'); fs.writeFileSync('n', 'works'); "
        "console.log(fs.readFileSync('n', 'utf8'))"],
}

async def main(folder, wanted):
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/script.sh", "w") as file:
        file.write('#!/bin/sh\\necho "$1"\\n')
    os.chmod(folder + "/script.sh", 0o755)
    found = {}
    async with await Sandbox.open() as sandbox:
        confinement = Confinement(write=(folder,), memory=512 * 2**20, processes=64)
        sandbox.check(confinement)
        for name in wanted:
            child = await sandbox.spawn(SCRIPTS[name], confinement)
            async with asyncio.timeout(60):
                await child.wait()
            found[name] = (child.stdout.tail + child.stderr.tail).decode()
        print(json.dumps([sandbox.level, found]))

asyncio.run(main(sys.argv[1], sys.argv[2].split()))
"""

WANTED = ["sh", "script", "python", "git", "curl"] + ["node"] * (shutil.which("node") is not None)
WORKS = dict.fromkeys(WANTED, "works\n")


@pytest.mark.req("FM-7")
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_programs_run_from_the_home_of_an_ordinary_user(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=mode)
    text = as_ordinary_user(PROGRAM, str(home / "work"), " ".join(WANTED), home=home)
    level, found = json.loads(text)
    assert found == WORKS
    assert level in ("I2", "I3")


@pytest.mark.req("FM-7")
@pytest.mark.skipif(not IS_ROOT, reason="what root does with its own home")
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_programs_run_from_the_home_of_root(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=mode)
    argv = [sys.executable, "-c", PROGRAM, str(home / "work"), " ".join(WANTED)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[1] == WORKS


@pytest.mark.req("FM-7")
@pytest.mark.skipif(not IS_ROOT, reason="a container's root is made by root")
@pytest.mark.parametrize("user", [0, NOBODY])
def test_programs_run_in_a_container(user: int) -> None:
    text = in_a_container(PROGRAM, "/data/work", " ".join(WANTED), user=user)
    level, found = json.loads(text)
    assert found == WORKS
    assert level in (("I2", "I3") if user == 0 else ("I1", "I2")), "a masked /proc leaves Landlock"
