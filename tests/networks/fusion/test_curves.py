"""Tables of breakpoints behind sums: codes of the reference for every sum, or there is no table."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fusion_cases import Small
from support.lane_texts import evaluated
from support.onnx_files import model, node

import bitsynth
from bitsynth.errors import ToolError
from bitsynth.graph import run
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.formulas import Oracle, curves, find_chain
from bitsynth.network.formulas.curves import CodesOf, Curve, find_code_breakpoints, find_curve
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.fusion.curves import CurveGroup
from bitsynth.network.fusion.lookup import find_forks
from bitsynth.network.program import Buffer, NetworkProgram, PlainStep
from bitsynth.network.run import Network

CHANNELS, END = 6, 900
SHAPE = (2, CHANNELS, 3, 5)
GRIDS = [(-128, 127, -9), (0, 255, 25), (0, 15, 3), (-8, 7, 0)]
STEP = 0.0217


def bent(gains, biases, grid, scale=STEP, function="sigmoid", reference="exact"):
    """A graph of sums, a line a channel, that times a function of it, a quantizer; its chain; and what codes are."""
    small = Small(reference)
    low, high, zero = grid
    x = small.codes("x", SHAPE, -END, END, 1 / 128)
    gain, bias = (small.constant(np.array(k, np.float32).reshape(1, -1, 1, 1)) for k in (gains, biases))
    line = small.add("add", small.add("mul", x, gain), bias)
    edge = small.add("mul", line, small.add(function, line))
    graph = small.build((small.quantized(edge, scale, float(zero), low, high),))
    def_use = DefUse(graph, NetworkTarget("avx2"))
    return def_use, next(find_forks(def_use, "x", graph.nodes[0])), operand_of(graph.edges[graph.outputs[0]])


numbers = st.sampled_from([0.0, 0.5, -0.25, 1.0]) | st.floats(-4, 4, width=32)
lists = st.lists(numbers, min_size=CHANNELS, max_size=CHANNELS)
scales = st.sampled_from([2.0**-5, STEP, 1 / 3, 0.5])
functions = st.sampled_from(["sigmoid", "tanh"])


@settings(max_examples=25)
@given(lists, lists, st.sampled_from(GRIDS), scales, functions)
def test_what_is_found_is_the_reference_for_every_sum(gains, biases, grid, scale, function):
    """Falling channels, ties at 0 and channels without a line on purpose."""
    def_use, chain, operand = bent(gains, biases, grid, scale, function)
    every = np.repeat(np.arange(-END, END + 1)[:, None], CHANNELS, 1)
    if found := find_curve(def_use.graph, chain, operand):
        wanted = Oracle(def_use.graph, chain)(every)
        np.testing.assert_array_equal(operand.offset + operand.scale * found.codes(every), wanted)


@pytest.mark.parametrize("function", ["sigmoid", "tanh", "leaky_relu"])
@pytest.mark.parametrize("scale", [1 / 128, np.geomspace(1 / 300, 1 / 90, CHANNELS).reshape(1, -1, 1, 1)])
def test_sums_with_scales_alone_have_a_curve(scale, function):
    """Nothing affine comes before the function: the scales of the sums, one or one a channel, are its line."""
    small = Small()
    x = small.codes("x", SHAPE, -END, END, np.asarray(scale, np.float32))
    bend: dict[str, Any] = {"alpha": -0.3} if function == "leaky_relu" else {}
    graph = small.build((small.quantized(small.add("mul", x, small.add(function, x, **bend)), STEP, 25.0),))
    chain = next(find_forks(DefUse(graph, NetworkTarget("avx2")), "x", graph.nodes[0]))
    operand = operand_of(graph.edges[graph.outputs[0]])
    found = find_curve(graph, chain, operand)
    every = np.repeat(np.arange(-END, END + 1)[:, None], CHANNELS if chain.varies else 1, 1)
    assert found is not None
    np.testing.assert_array_equal(operand.offset + operand.scale * found.codes(every), Oracle(graph, chain)(every))


def hard_swish(gains, biases, grid, scale):
    """A graph of sums, a line a channel, and its hard swish in elementary operators; its chain; and what codes are."""
    small = Small()
    low, high, zero = grid
    x = small.codes("x", SHAPE, -END, END, 1 / 128)
    gain, bias = (small.constant(np.array(k, np.float32).reshape(1, -1, 1, 1)) for k in (gains, biases))
    line = small.add("add", small.add("mul", x, gain), bias)
    gate = small.add("clip", small.add("add", line, small.constant(np.float32(3))), low=0.0, high=6.0)
    edge = small.add("div", small.add("mul", line, gate), small.constant(np.float32(6)))
    graph = small.build((small.quantized(edge, scale, float(zero), low, high),))
    def_use = DefUse(graph, NetworkTarget("avx2"))
    return def_use, next(find_forks(def_use, "x", graph.nodes[0])), operand_of(graph.edges[graph.outputs[0]])


@pytest.mark.parametrize("settle", [True, False])
def test_breakpoints_are_moved_to_the_side_of_ties(monkeypatch, settle):
    """Gains and scales of few bits: every fourth sum from 3 on is halfway between two codes."""
    if not settle:
        monkeypatch.setattr(curves, "_settle_ties", lambda curve, near, wanted: curve)
    def_use, chain, operand = hard_swish((1, 2, 0.5, -1, 0.75, 1.5), (0, 0.5, 0, 0.25, -0.5, 1), GRIDS[1], 3 / 64)
    found = find_curve(def_use.graph, chain, operand)
    assert (found is not None) == settle
    if found is not None:
        every = np.repeat(np.arange(-END, END + 1)[:, None], CHANNELS, 1)
        wanted = Oracle(def_use.graph, chain)(every)
        np.testing.assert_array_equal(operand.offset + operand.scale * found.codes(every), wanted)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("function", ["sigmoid", "tanh"])
def test_curves_are_found_at_every_width(rng, grid, function):
    gains, biases = rng.uniform(0.4, 2, CHANNELS), rng.normal(size=CHANNELS)
    def_use, chain, operand = bent(gains, biases, grid, function=function)
    assert find_curve(def_use.graph, chain, operand) is not None


def test_c_is_the_reference(rng):
    def_use, chain, operand = bent(rng.uniform(-2, 2, CHANNELS), rng.normal(size=CHANNELS), GRIDS[0])
    graph = def_use.graph
    group = CurveGroup(def_use, chain, find_curve(graph, chain, operand), operand)
    buffer = Buffer(chain.end, graph.edges[chain.end], group.writes(chain.end)[0], "output")
    buffers = {"x": Buffer("x", graph.edges["x"], group.reads("x")[0], "input"), chain.end: buffer}
    net = Network(NetworkProgram(graph, "avx2", 1, (group.step(buffers),), buffers, ("x",), (chain.end,)))
    for x in (rng.integers(-END, END + 1, SHAPE), np.full(SHAPE, END), np.full(SHAPE, -END)):
        got = net({"x": buffers["x"].format.write(x).reshape(SHAPE)})
        np.testing.assert_array_equal(buffer.read(np.asarray(got).reshape(-1)), run(graph, {"x": x})[chain.end])


def test_a_turn_in_a_wrong_place_is_refused():
    def_use, chain, operand = bent(np.ones(CHANNELS), np.zeros(CHANNELS), GRIDS[0])
    behind = replace(chain, start=chain.nodes[1].outputs[0], nodes=chain.nodes[2:], axes=chain.axes[2:], varies=False)
    found = find_code_breakpoints(CodesOf(Oracle(def_use.graph, behind, doubles=True), operand), -7.0, 7.0)
    assert found.breakpoints.size > 100
    assert found.holds(1e-7)
    for k in (0, found.breakpoints.size // 2, -1):
        breakpoints, result = found.breakpoints.copy(), found.results.copy()
        breakpoints[k] += 1e-5
        result[k] += 1
        assert not replace(found, breakpoints=breakpoints).holds(1e-7)
        assert not replace(found, results=result).holds(1e-7)


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
def test_float32_has_no_curve(reference):
    def_use, chain, operand = bent([1.0] * CHANNELS, [0.0] * CHANNELS, GRIDS[0], reference=reference)
    assert find_curve(def_use.graph, chain, operand) is None


def test_a_function_that_differs_between_channels_has_no_curve():
    small = Small()
    line = small.add("add", small.codes("x", SHAPE, -END, END, 1 / 128), small.constant(np.float32(0.3)))
    gains = small.constant(np.arange(1, 7, dtype=np.float32).reshape(1, -1, 1, 1))
    graph = small.build((small.quantized(small.add("mul", small.add("tanh", line), gains), 0.05, 128.0),))
    chain = find_chain(DefUse(graph, NetworkTarget("avx2")), "x", monotone=False)
    assert find_curve(graph, chain, operand_of(graph.edges[graph.outputs[0]])) is None


def silu_net(rng, signed, bias=True):
    """A convolution, a bias in float32 or none, SiLU and a quantizer, as NNCF and TensorRT write them."""
    zero = np.int8(-9) if signed else np.uint8(25)
    constants: dict[str, Any] = {"s": np.float32(0.02), "z": zero, "t": np.float32(STEP)}
    constants |= {"w": rng.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8), "wz": np.zeros(8, np.int8)}
    constants |= {"ws": rng.uniform(1e-3, 5e-3, 8).astype(np.float32), "b": rng.normal(size=8).astype(np.float32)}
    nodes = [
        *(node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d")),
        *(
            node("DequantizeLinear", "w ws wz", "v", axis=0),
            node("Conv", "d v b" if bias else "d v", "c", pads=[1] * 4),
        ),
        *(node("Sigmoid", "c", "g"), node("Mul", "c g", "a")),
        *(node("QuantizeLinear", "a t z", "e"), node("DequantizeLinear", "e t z", "y")),
    ]
    return model(nodes, {"x": (1, 4, 9, 7)}, constants)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("isa", ["avx2", *(pytest.param(x, marks=pytest.mark.slow) for x in ("avx512", "neon"))])
def test_networks_of_float_biases_and_silu(rng, isa, bias, skip_isa):
    try:
        net = bitsynth.compile(silu_net(rng, isa == "avx2", bias), isa=isa)
        formulas = [step.formula for step in net.program.steps if isinstance(step, PlainStep)]
        assert any(isinstance(formula, Curve) for formula in formulas)
        noise = rng.normal(size=(1, 4, 9, 7)) * 2
        for x in (noise, np.sign(noise) * 9, np.full(noise.shape, 9), np.full(noise.shape, -9)):
            given = {"x": x.astype(np.float32)}
            np.testing.assert_array_equal(net(given), run(net.graph, given).outputs()[0])
    except ToolError as why:
        skip_isa(isa, str(why))


def test_the_text_gives_the_codes_of_the_reference(rng):
    """Where places are breakpoints too, and beyond both ends of the axis."""
    cells = 16
    breakpoints = np.where(rng.random(cells) < 0.8, np.arange(cells) + rng.integers(0, 4, cells) / 4, np.inf)
    table = rng.integers(0, 256, (cells, 2)).astype(np.uint8)
    curve = Curve(np.array([0.25, -0.5, 0.3]), np.array([0.0, 8.0, 1.1]), breakpoints, table)
    sums = rng.integers(-70, 70, (999, 3))
    tables = {"w": list(breakpoints), "t": [(entry, 8) for entry in table.reshape(-1)]}
    given = {"s": (sums, 32), "f": curve.factor, "b": curve.summand, **tables}
    np.testing.assert_array_equal(evaluated(curve.text, given), curve.codes(sums))
    assert curve.place_text in curve.text
