"""The paper's form of a layer: its own kernel, one pixel a call, sums through memory at every step."""

import pytest

from bitsynth.bench.low_bit_layers import codes_of, layer_of, require_exact
from bitsynth.bench.resnet18 import ResNetLayer
from bitsynth.errors import SpecError
from bitsynth.isa import load
from bitsynth.layers.layer import Layer
from bitsynth.layers.library import compile_library
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.matmul import get_kernel
from bitsynth.proof import checker
from bitsynth.run.runner import runner_for

SMALL = ResNetLayer("small", 5, 72, 20, 3, 1)
PAPER = LayerSchedule("neon", "popcount", 0, "direct", sketch="paper", flush_steps=1)


def executed(widths, schedule):
    """Instructions of the layer under unicorn, its sums checked."""
    act_bits, w_bits = widths
    result, codes = layer_of(SMALL, "neon", act_bits, w_bits, 1, schedule), codes_of(SMALL, act_bits)
    runner = runner_for(load.load("neon"), compile_library(result.kernel), needs=result.kernel.needs, count=True)
    call, out = Layer(result.packed, runner, result.pool).bind(codes)
    call()
    require_exact(SMALL, result, codes, out)
    return runner.instructions


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setenv("BITSYNTH_RUNNER", "unicorn")


@pytest.mark.slow
@pytest.mark.parametrize("widths", [(1, 1), (2, 1), (2, 2)], ids=str)
def test_the_papers_form_is_exact_and_executes_more(widths):
    ours, paper = executed(widths, None), executed(widths, PAPER)
    assert ours < executed(widths, LayerSchedule("neon", "popcount", 0, "direct", sketch="paper")) < paper


@pytest.mark.parametrize(("act_bits", "w_bits"), [(1, 1), (2, 1), (2, 2)])
def test_five_operations_a_plane_pair(act_bits, w_bits):
    kernel = get_kernel("neon", act_bits, w_bits, sketch="paper").entry.kernel
    (loop,) = kernel.passes
    counted = [step for step in loop.step.steps if step.op.startswith(("cnt.", "bic.", "and.", "sub."))]
    extra = [step for step in loop.step.steps if step.op == "add.u8x16" and step.args[0] == step.args[1]]
    registers = kernel.column_registers(128)
    assert len(counted) + len(extra) == 5 * registers * act_bits * w_bits
    assert kernel.rows == 1


@pytest.mark.parametrize("method", ["popcount", "lookup"])
@pytest.mark.parametrize("steps", [1, 7, 100, 1 << 20])
def test_sums_go_to_memory_as_often_as_asked(method, steps):
    kernel = get_kernel("neon", 2, 1, method=method, channels=64)
    flushed = kernel.with_flushes(steps).entry.kernel
    assert checker.check(flushed)
    for loop, before in zip(flushed.passes, kernel.entry.kernel.passes, strict=True):
        most = 1
        for nested, whole in zip(loop.loops, before.loops, strict=True):
            assert nested.trip_count <= whole.trip_count
            most *= nested.trip_count
        assert most <= steps


def test_a_flush_of_no_steps_and_one_too_rare_to_change_anything():
    kernel = get_kernel("neon", 2, 1, channels=64, method="lookup")
    with pytest.raises(SpecError, match="steps between flushes must be a whole number of at least 1, not 0"):
        kernel.with_flushes(0)
    assert kernel.with_flushes(1 << 30) is kernel


def test_a_schedule_says_what_it_is():
    assert str(PAPER) == "neon popcount of the paper sketch, a flush every 1 step, direct, pixels first"
    with pytest.raises(SpecError, match="unknown sketch 'papers' of a schedule; known: exact, paper"):
        LayerSchedule("neon", "popcount", 0, "direct", sketch="papers")
