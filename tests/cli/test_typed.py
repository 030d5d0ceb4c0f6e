"""What a person types: questions, and texts up to Ctrl-D."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.program import Terminal

QUESTION = """
from toolpost.cli.typed import chosen
print("it is", chosen("colour? ", {"r": "red", "": "none"}))
"""
UNHEARD = """
import signal, sys, threading
from toolpost.cli import typed

def elsewhere():
    while sys._current_frames()[main].f_code is not typed._piece.__code__:
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

main = threading.get_ident()
try:
    threading.Thread(target=elsewhere).start()
    typed.{ask}
except KeyboardInterrupt:
    print("heard")
"""


def asking(code: str, cwd: Path) -> Terminal:
    return Terminal(cwd=cwd, program=(sys.executable, "-c", code))


def test_a_question_is_asked_until_the_answer_is_one(tmp_path: Path) -> None:
    with asking(QUESTION, tmp_path) as terminal:
        terminal.read_until("colour? ")
        terminal.press(b"blue\n")
        terminal.read_until("Answer one of: r.\r\ncolour? ")
        terminal.press(b" R \n")
        assert terminal.ended() == 0
    assert "it is red" in terminal.written


def test_no_answer_is_one_too(tmp_path: Path) -> None:
    with asking(QUESTION, tmp_path) as terminal:
        terminal.read_until("colour? ")
        terminal.press(b"\n")
        assert terminal.ended() == 0
    assert "it is none" in terminal.written


def test_ctrl_d_answers_nothing(tmp_path: Path) -> None:
    with asking(QUESTION, tmp_path) as terminal:
        terminal.read_until("colour? ")
        terminal.press(b"\x04")
        assert terminal.ended() == 1
    assert "Abort" in terminal.written and "it is" not in terminal.written


def test_a_text_goes_on_to_ctrl_d_and_is_cut_where_it_is_too_long(tmp_path: Path) -> None:
    code = "from toolpost.cli import typed; print([typed.text(9), typed.text(9), typed.text(1)])"
    with asking(code, tmp_path) as terminal:
        terminal.press("ä\nb\n".encode() + b"\x04" + b"\x04" + b"long\n")
        assert terminal.ended() == 0
    assert "['ä\\nb\\n', '', 'long\\n']" in terminal.written


@pytest.mark.parametrize("ask", ["text(9)", "confirmed('Sure?')"])
def test_ctrl_c_that_does_not_end_the_read_is_heard_all_the_same(tmp_path: Path, ask: str) -> None:
    """As when it comes the moment before that begins: here another thread has it."""
    with asking(UNHEARD.format(ask=ask), tmp_path) as terminal:
        assert terminal.ended() == 0
    assert "heard" in terminal.written
