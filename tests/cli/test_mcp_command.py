"""``toolpost mcp`` and ``toolpost serve``, started by a person without a client or a config."""

from __future__ import annotations

from pathlib import Path

from tests.cli.program import Terminal


def test_on_a_terminal_mcp_says_what_it_waits_for_and_ctrl_d_ends_it(tmp_path: Path) -> None:
    with Terminal("mcp", cwd=tmp_path) as terminal:
        terminal.read_until("toolpost serve")
        assert "an MCP client starts it" in " ".join(terminal.written.split())
        terminal.press(b"\x04")
        assert terminal.ended() == 0


def test_without_a_config_serve_says_what_it_serves_and_how_to_serve_your_own(
    tmp_path: Path,
) -> None:
    with Terminal("serve", "--port=0", cwd=tmp_path) as terminal:
        terminal.read_until("MCP client")
        assert "no toolpost.toml here" in terminal.written
        assert "toolpost init" in terminal.written
        terminal.press(b"\x03")
        assert terminal.ended() == 0
