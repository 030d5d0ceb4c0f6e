"""A project with tools of every behaviour, for the command line to work on."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFIG = """
[[sources]]
kind = "files"
paths = ["tools.yaml"]
"""

SPECS = """
- name: add
  title: Sum
  description: Add two numbers.
  category: other
  tags: [maths]
  tier: 0
  effects: read
  input_schema:
    type: object
    properties:
      a: {type: integer, description: The first number.}
      b: {type: integer, default: 10, description: The second number.}
    required: [a]
    additionalProperties: false
  output_schema: {type: integer}
  examples: [{"a": 1}]
  binding: {module: tools_of_the_test, function: add}
- name: join
  description: Join words.
  category: file
  input_schema:
    type: object
    properties:
      words: {type: array, items: {type: string}}
      separator: {type: string, default: " "}
    required: [words]
  binding: {module: tools_of_the_test, function: join}
- name: paint
  description: "Give back text that a terminal would obey: \\e[31m [bold]not bold[/bold] \\u202e"
  category: "web\\a"
  binding: {module: tools_of_the_test, function: paint}
- name: picture
  description: Give back an image.
  category: web
  binding: {module: tools_of_the_test, function: picture}
- name: refuse
  description: Fail, and say why.
  tier: 2
  binding: {module: tools_of_the_test, function: refuse}
- name: break
  description: Fail without saying why.
  binding: {module: tools_of_the_test, function: break_}
- name: talk
  description: Report progress and pieces of output.
  binding: {module: tools_of_the_test, function: talk}
- name: chatter
  description: Print where only the program itself should.
  isolation: thread
  binding: {module: tools_of_the_test, function: chatter}
- name: wait
  description: Never end, in a thread.
  timeout: 60
  isolation: thread
  binding: {module: tools_of_the_test, function: wait}
- name: hang
  description: Leave a daemon behind, and never end.
  timeout: 60
  input_schema:
    type: object
    properties: {marker: {type: string}}
    required: [marker]
  binding: {module: tools_of_the_test, function: hang}
"""

MODULE = '''
import subprocess
import sys
import threading

from toolpost import Call, Image, Output, ToolFailed

DAEMON = """
import os, signal, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
print("up", flush=True)
signal.pause()
"""

def add(a: int, b: int) -> int:
    return a + b

def join(words: list[str], separator: str) -> str:
    return separator.join(words)

def paint() -> str:
    first = "\\x1b[31mred\\x1b[0m \\x9b2J \\u202eback\\u202c [bold]x[/bold]"
    return first + "\\nnext\\tline\\r\\nlast \\U000e0041"

def picture() -> Output:
    return Output(parts=(Image(b"\\x89PNG not really"),))

def refuse() -> None:
    raise ToolFailed("The printer is out of \\x1b[31mpaper. Add some.")

def break_() -> None:
    raise KeyError("internal detail")

def talk(call: Call) -> str:
    call.progress(1, 2, "half way")
    call.partial("first piece\\n")
    call.partial({"second": 2})
    call.warn("mind the gap")
    return "all of it"

def chatter() -> int:
    print("noise")
    return 1

def wait(call: Call) -> None:
    call.progress(0, 1, "it waits")
    threading.Event().wait()

def hang(marker: str, call: Call) -> None:
    argv = [sys.executable, "-I", "-S", "-c", DAEMON, marker]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        call.progress(0, 1, "it hangs")
        threading.Event().wait()
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "toolpost.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "tools.yaml").write_text(SPECS, encoding="utf-8")
    (tmp_path / "tools_of_the_test.py").write_text(MODULE, encoding="utf-8")
    return tmp_path
