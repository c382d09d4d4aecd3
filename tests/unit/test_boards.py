"""Boards at work: which are lost, who goes on, and when all are stopped."""

import threading
import time
from typing import Any

import pytest

from bitsynth.device import Facts
from bitsynth.device.ssh import TimedOut
from bitsynth.errors import NoKernel, Refuted, ToolError
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.tuned import TuningTask
from bitsynth.tune import boards as boards_module
from bitsynth.tune.boards import Boards
from bitsynth.tune.measurer import TaskOperands, TrialFailed
from bitsynth.tune.space import space


class Pretended:
    """A device whose work may be stopped."""

    def __init__(self, host, features=()):
        self.host, self.features, self.stopped = host, frozenset(features), threading.Event()

    def facts(self):
        return Facts(processor="A53", features=self.features)

    def stop(self):
        self.stopped.set()


@pytest.fixture
def messages():
    """What is said of boards that are lost."""
    return []


@pytest.fixture
def boards(messages):
    pretended: list[Any] = [Pretended("left"), Pretended("right")]
    return Boards(pretended, messages.append)


def failing(*hosts):
    """Work that fails on `hosts`."""

    def work(device):
        if device.host in hosts:
            raise ToolError(f"{device.host} is gone")
        return device.host

    return work


def test_one_that_fails_is_left_out(boards):
    boards.each(failing("left"))
    left, right = boards.devices
    assert boards.lost == {left: "left is gone"}
    assert boards.left == [right]
    seen = []
    boards.each(lambda device: seen.append(device.host))
    assert seen == ["right"]
    assert boards.one(lambda device: device.host) == "right"


def test_the_next_one_takes_over(boards, messages):
    assert boards.one(failing("left")) == "right"
    assert list(boards.lost.values()) == messages == ["left is gone"]


def test_a_loss_is_told_while_others_work(boards, messages):
    def work(device):
        if device.host == "left":
            raise ToolError("left is gone")
        end = time.monotonic() + 60
        while not messages:
            assert time.monotonic() < end, "not told"
            time.sleep(0.1)

    boards.each(work)
    assert messages == ["left is gone"]


@pytest.mark.parametrize("way", ["each", "one"])
def test_none_is_left(boards, way):
    with pytest.raises(ToolError, match=r"^no board is left: (left|right) is gone; (left|right) is gone$"):
        getattr(boards, way)(failing("left", "right"))


def test_a_single_board_speaks_for_itself():
    alone: list[Any] = [Pretended("left")]
    with pytest.raises(ToolError, match=r"^left is gone$"):
        Boards(alone, pytest.fail).each(failing("left"))


@pytest.mark.parametrize("error", [Refuted, KeyboardInterrupt])
def test_anything_else_ends_the_work_of_all(boards, error):
    """The other board works until it is stopped."""

    def work(device):
        if device.host == "left":
            raise error
        assert device.stopped.wait(60)
        raise ToolError("stopped")

    with pytest.raises(error):
        boards.each(work)
    assert all(device.stopped.is_set() for device in boards.devices)


def test_kernels_are_those_that_all_boards_have(tmp_path, monkeypatch):
    """Whatever this machine has."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    task = TuningTask("avx512", 2, 1, Geometry(64, 64, 1, (1, 1), (1, 1), (0,) * 4, (1, 1)), (4, 4), 1)
    base, more = ["avx512f", "avx512bw"], ["avx512_vnni", "avx512vbmi"]
    counting, tables = Pretended("left", [*base, "avx512_vpopcntdq"]), Pretended("right", [*base, *more])
    both = Pretended("both", [*base, *more, "avx512_vpopcntdq"])

    def methods(*boards):
        return {found.method for found in space(task, Boards(boards, pytest.fail).have).kernels.values()}

    assert methods(both) == {"popcount", "lookup", "multiply", "dot"}
    assert methods(both, counting) == {"popcount", "multiply"}
    assert methods(both, tables) == {"lookup", "multiply", "dot"}
    assert methods(counting, tables) == {"multiply"}
    with pytest.raises(NoKernel, match="no kernel of 2-bit unsigned x 1-bit bipolar for layers on avx512"):
        methods(both, Pretended("narrow", base[:1]))


class Late(Pretended):
    """Runs nothing in time; it may be `gone` for good."""

    def __init__(self, gone):
        super().__init__("late")
        self.gone = gone

    def run(self, *work):
        raise TimedOut("late: did not end within 5 s")

    def facts_now(self):
        if self.gone:
            raise ToolError("late: the connection was lost")
        return self.facts()


@pytest.mark.parametrize(
    ("gone", "kind", "message"),
    [(False, TrialFailed, "late: took longer than 5 s"), (True, ToolError, "late: the connection was lost")],
)
def test_a_schedule_takes_too_long_only_on_a_board_that_is_there(gone, kind, message, monkeypatch):
    monkeypatch.setattr(boards_module, "compile_program", list)
    task = TuningTask("avx2", 2, 1, Geometry(64, 64, 1, (1, 1), (1, 1), (0,) * 4, (1, 1)), (4, 4), 1)
    operands, default = TaskOperands(task), space(task).priors[0]
    late: Any = Late(gone)
    with pytest.raises(kind) as caught:
        boards_module.BoardMeasurer(late, operands, boards_module.default_work(operands, default), 5).measure(
            default, 1
        )
    assert str(caught.value) == message
