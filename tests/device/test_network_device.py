"""A network on a board behind a real ssh server: its self-test right there, times of the whole and of each step."""

import json
from pathlib import Path

import pytest
from support import ssh_server
from support.fusion_cases import Small

from bitsynth.cli import main
from bitsynth.device import Device
from bitsynth.device.measured import read_network
from bitsynth.errors import Refuted, ToolError
from bitsynth.network.check import draw
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.run import Network

pytestmark = pytest.mark.toolchains

FASHION = Path(__file__).parents[2] / "examples" / "fashion" / "fashion_a2w2_qonnx.onnx"


def small(isa):
    """A network of one step of plain C."""
    result = Small()
    return Network(
        lower(result.build((result.add("neg", result.codes("x", (1, 64), -1, 1, 0.5)),)), NetworkTarget(isa))
    )


@pytest.mark.slow
def test_a_network_is_checked_under_an_emulator_and_not_timed(server, skip_isa):
    server.tool("board-emulator", ssh_server.tool_of(ssh_server.emulator("neon", skip_isa)))
    with Device("board", emulator="board-emulator") as board:
        answer = board.run_network(net := small("neon"), draw(net.graph, 1)[0], repeats=3)
    assert server.left() == []
    assert (answer.ns, answer.steps, answer.emulator) == ((), (), "board-emulator")


@pytest.mark.slow
def test_the_commands_on_a_board(server, tmp_path, capsys, skip_isa):
    """This processor times a network and its steps; by an emulator its self-test is right."""
    server.tool("python3", "exit 1")
    facts = tmp_path / "x.json"
    assert main(["bench", "network", str(FASHION), "--device", "board", "--rounds", "2", "--json", str(facts)]) == 0
    found = json.loads(facts.read_text())["network"]
    assert [p["name"] for p in found["peers"]] == ["bitsynth"]
    assert all(s["nanoseconds"] > 0 and s["parts"] is None for s in found["steps"])
    assert set(found["board"]) == {"before", "after"}
    assert sum(found["shares"].values()) == pytest.approx(1)
    server.tool("board-emulator", ssh_server.tool_of(ssh_server.emulator("neon", skip_isa)))
    board = ["--device", "board", "--device-runner", "board-emulator", "--isa", "neon"]
    capsys.readouterr()
    assert main(["bench", "network", str(FASHION), *board]) == 0
    assert "run by board-emulator, so no times" in capsys.readouterr().out.replace("\n", " ")
    assert main(["check", str(FASHION), "--count", "1", *board]) == 0
    assert "the self-test is right on board-emulator" in capsys.readouterr().out


def test_a_wrong_self_test_is_told_by_its_step():
    message = '{"network": 1}\nstep 3, conv: codes differs\n\n{"right": false}\n'
    with pytest.raises(Refuted, match="wrong on board: step 3, conv: codes differs"):
        read_network(message, 4, "board")


def test_an_answer_that_is_cut_short_is_refused():
    with pytest.raises(ToolError, match="answered for 1 of 3 parts"):
        read_network('{"network": 1}\n{"right": true}\n{"ns": [1.0]}\n', 3, "board")
