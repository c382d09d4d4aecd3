"""Glue on a board behind a real ssh server: its self-test is right there, or the command says that it is wrong."""

import pytest
from support import ssh_server

from bitsynth.cli import main
from bitsynth.device import Device
from bitsynth.device.program import glue_target
from bitsynth.errors import Refuted, ToolError
from bitsynth.layers.glue import Add, MaxPool2d

pytestmark = pytest.mark.toolchains


def test_glue_is_checked_on_a_board(server):
    with Device("board") as board:
        assert board.run_glue(Add(5, 2, 3, 2, layout="packed")) == board.facts().title
    assert server.left() == []


def test_wrong_glue_is_refuted(server, monkeypatch):
    monkeypatch.setattr(MaxPool2d, "meaning", lambda _, codes: codes[:, ::3, ::3] * 0)
    with Device("board") as board, pytest.raises(Refuted, match="the self-test of the layer is wrong on board"):
        board.run_glue(MaxPool2d(5, 2, 3))


def test_a_board_that_does_not_run_the_set_is_told(server):
    other = "neon" if glue_target(MaxPool2d(5, 2, 3)).arch == "x86_64" else "avx2"
    with Device("board") as board, pytest.raises(ToolError, match=f"it does not run {other} code"):
        board.run_glue(MaxPool2d(5, 2, 3, isa=other))


@pytest.mark.slow
def test_the_command_on_a_board(server, tmp_path, capsys, skip_isa):
    server.tool("board-emulator", ssh_server.tool_of(ssh_server.emulator("neon", skip_isa)))
    board = ["--device", "board", "--device-runner", "board-emulator", "--isa", "neon"]
    assert main(["emit-glue", "MaxPool2d(64, 2, 2)", "--name", "pool", "-o", str(tmp_path), *board]) == 0
    assert "the self-test is right on board-emulator" in capsys.readouterr().out
    assert (tmp_path / "pool.c").exists()
