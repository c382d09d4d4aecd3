"""Why nodes became plain C: the reason of the matcher that came nearest, and the lines that the commands show."""

from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len
from support.fusion_cases import Small
from support.onnx_files import QONNX, model, node

from bitsynth.cli import output
from bitsynth.cli.reports.network_cells import plain_reasons
from bitsynth.graph.types import Integers, Reals
from bitsynth.network.compiling import network_of
from bitsynth.network.declines import Declines, Stage
from bitsynth.network.def_use import NetworkTarget
from bitsynth.progress import silent


def report_of(graph):
    target = NetworkTarget("avx2")
    return network_of(graph, target, target.threads, silent, {}).report()


def unquantized(small):
    return (small.add("tanh", small.codes("x", (1, 4, 3, 3), 0, 3, 0.5)),)


def read_twice(small):
    edge = small.add("tanh", small.codes("x", (1, 4, 3, 3), 0, 3, 0.5))
    return small.quantized(edge, 0.01), small.add("neg", edge)


def wide(small):
    return (small.quantized(small.add("tanh", small.codes("x", (1, 4, 3, 3), 0, 4000, 0.5)), 0.01),)


def two_inputs(small):
    edge = small.add("mul", small.codes("x", (1, 4, 3, 3), 0, 3, 0.5), small.codes("y", (1, 4, 3, 3), 0, 4000, 0.5))
    return (small.quantized(edge, 0.01),)


def by_pixel(small):
    ramp = small.constant(np.arange(1.0, 10.0, dtype=np.float32).reshape(3, 3))
    return (small.quantized(small.add("mul", small.codes("x", (1, 4, 3, 3), 0, 3, 0.5), ramp), 0.01),)


CASES = {
    "no quantizer follows": (unquantized, "no quantizer follows before an output of the network"),
    "two readers": (read_twice, "2 nodes read a result before it is quantized"),
    "wide integers": (wide, "it reads no codes of at most 8 bits"),
    "one operand of two": (two_inputs, "its two operands are not both codes of at most 8 bits"),
    "a constant a pixel": (by_pixel, "constants of mul differ along another axis than channels"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reason_of_a_step_of_plain_c(case):
    build, reason = CASES[case]
    small = Small()
    found = report_of(small.build(build(small)))
    assert reason in [step.reason for step in found.steps if step.kind == "plain"]
    assert reason in [step["reason"] for step in found.as_json()["steps"]]


def test_steps_that_are_no_fallback_have_no_reason():
    small = Small()
    found = report_of(
        small.build((small.quantized(small.add("tanh", small.codes("x", (1, 4, 3, 3), 0, 3, 0.5)), 0.01),))
    )
    assert [step.reason for step in found.steps] == [""] * len(found.steps)
    assert plain_reasons(found) == []


def test_the_nearest_decline_counts_and_of_equals_the_first():
    declines = Declines()
    declines.add("a", Stage.CHAIN, "first")
    declines.add("a", Stage.OPERANDS, "farther off")
    declines.add("a", Stage.CHAIN, "second")
    declines.add("b", Stage.FORMULA, lambda: "nearest")
    assert declines.reason(["a"]) == "first"
    assert declines.reason(["a", "b", "c"]) == "nearest"
    assert declines.reason(["c"]) == ""


def test_lines_fit_80_columns():
    small = Small()
    names = [f"{'x' * 90}{k}" for k in range(9)]
    found = report_of(small.build(tuple(small.add("tanh", small.codes(name, (1, 4), 0, 3, 0.5)) for name in names)))
    lines = plain_reasons(found)
    assert max(map(len, lines)) <= 80
    assert len(lines) == 6
    assert lines[-1] == "4 more in plain C; --json has their reasons"


def test_the_commands_say_it(ended, tmp_path):
    nodes = [node("Quant", "x s z b", "q", domain=QONNX, signed=0, narrow=0), node("Tanh", "q", "y")]
    given = {"s": np.float32(0.25), "z": np.float32(0), "b": np.float32(2)}
    path = tmp_path / "net.onnx"
    path.write_bytes(model(nodes, {"x": (1, 3)}, given).SerializeToString())
    line = "y: plain C: no quantizer follows before an output of the network"
    out, _ = ended(0, "inspect", str(path), "--isa", "avx2")
    assert line in out.splitlines()
    out, _ = ended(0, "compile", str(path), "--isa", "avx2", "-o", str(tmp_path / "out"))
    assert line in out.splitlines()


def rows(small, count):
    """A product of more rows than an image of a layer has pixels along an axis, if `count` says so."""
    weights = small.constant(np.ones((4, 3)), Integers.between(0, 3, 1.0, 0.0))
    return (small.quantized(small.add("matmul", small.codes("x", (count, 4), 0, 3, 0.5), weights), 0.5),)


@pytest.mark.parametrize(
    ("count", "reason"), [(32767, ""), (32768, "32,768 rows; a layer takes at most 32,767")], ids=str
)
def test_a_batch_beyond_the_limit_of_a_layer_is_the_reason(count, reason):
    small = Small()
    found = report_of(small.build(rows(small, count)))
    assert [step.kind for step in found.steps if "matmul" in step.nodes[0:1] or step.macs] == ["layer"] * (not reason)
    assert [step.reason for step in found.steps if step.reason] == [reason] * bool(reason)


def test_the_callers_numbers_that_are_passed_on_are_a_reason():
    small = Small("onnxruntime")
    given = small.input("x", (2, 6), "float32", Reals())
    found = report_of(small.build((given, small.add("reshape", given, sizes=(2, 2, 3)))))
    assert {(step.kind, step.reason) for step in found.steps} == {("plain", "it passes on the caller's numbers")}


def test_wide_letters_take_two_columns(monkeypatch):
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    small = Small()
    result = report_of(small.build((small.add("tanh", small.codes("量" * 90, (1, 4), 0, 3, 0.5)),)))
    named = replace(result, steps=tuple(replace(step, edge="量" * 90) for step in result.steps))
    lines = plain_reasons(named)
    assert lines
    assert max(map(cell_len, lines)) <= 80
    assert all(cell_len(output.cut_name("层" * 30 + "/x/量", room)) <= room for room in range(4, 60))
