"""Chains through hard swish: lines with a gate are what the reference makes of every sum, or there is none."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.onnx_files import model, node

from bitsynth.graph import read, run
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.types import Integers
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.encodings import activations
from bitsynth.network.formulas import Oracle, find_chain, find_gated_affine, find_gated_rescale, prove_equal

CHANNELS = 5
END = 700
GRIDS = [(-2, 1), (-4, 3), (-8, 7), (0, 15), (-128, 127), (0, 255)]


def swished(gains, biases, grid, scale, reference="exact", activation="hard_swish", many=1.5):
    """A graph of sums, a line a channel, hard swish, a factor, a quantizer; and its chain."""
    builder = GraphBuilder("swish", reference)
    x = builder.input("x", (1, CHANNELS, 2, 2), "float32", Integers.between(-END, END, 1 / 128))
    column = (builder.constant(np.array(k, np.float32).reshape(1, -1, 1, 1)) for k in (gains, biases))
    edge = builder.add("add", builder.add("mul", x, next(column)), next(column))
    more: dict[str, Any] = {"alpha": 1 / 6} if activation == "hard_swish" else {}
    edge = builder.add(activation, edge, **more)
    edge = builder.add("mul", edge, builder.constant(np.float32(many)))
    low, high = grid
    about: dict[str, Any] = {"rounding": "ROUND", "zero_first": True, "real": "float32", "low": low, "high": high}
    steps: dict[str, Any] = {
        "scale": np.float32(scale),
        "zero": np.float32(0),
        "out_scale": np.float64(scale),
        "out_zero": np.float64(0),
    }
    graph = builder.build((builder.add("quantize", edge, name="codes", **about, **steps),))
    return graph, find_chain(DefUse(graph, NetworkTarget("avx2")), "x", monotone=False)


def integers(operand, codes):
    return operand.offset + operand.scale * codes.astype(np.int64)


def parts(beta=0.5, twice=False):
    """A number times its hard sigmoid, as exporters of before opset 14 write it."""
    nodes = [node("HardSigmoid", "x", "g", alpha=0.125, beta=beta), node("Mul", "g x", "p")]
    nodes.append(node("Add", "p g", "y") if twice else node("Neg", "p", "y"))
    return model(nodes, {"x": (1, 4, 3, 3)})


@pytest.mark.parametrize("reference", ["exact", "onnxruntime", "onnx"])
def test_hard_swish_in_parts_is_one_node(rng, reference):
    graph = read(parts(), reference=reference)
    assert [n.op for n in graph.nodes] == ["hard_swish", "neg"]
    x = (rng.normal(size=(1, 4, 3, 3)) * 5).astype(np.float32)
    want = -x * np.clip(x * np.float32(0.125) + np.float32(0.5), 0, 1)
    np.testing.assert_allclose(run(graph, {"x": x}).outputs()[0], want, rtol=1e-6)


@pytest.mark.parametrize("how", [{"beta": 0.4}, {"twice": True}], ids=str)
def test_another_gate_or_one_that_is_read_elsewhere_stays(how):
    assert "hard_sigmoid" in [n.op for n in read(parts(**how)).nodes]


gains = st.lists(st.sampled_from([0.0, 0.5, -0.25, 1.0]) | st.floats(-4, 4, width=32), min_size=5, max_size=5)
biases = st.lists(st.sampled_from([0.0, -1.5, 3.0]) | st.floats(-5, 5, width=32), min_size=5, max_size=5)
scales = st.sampled_from([0.5, 2.0**-5, 0.0371, 1 / 3, 0.01])


@settings(max_examples=25)
@given(gains, biases, st.sampled_from(GRIDS), scales)
def test_what_is_found_is_the_reference_on_the_whole_range(gain, bias, grid, scale):
    """Falling channels and ties on purpose."""
    graph, chain = swished(gain, bias, grid, scale)
    operand = next(activations(graph.edges["codes"].integers))
    every = np.repeat(np.arange(-END, END + 1)[:, None], CHANNELS, 1)
    wanted = Oracle(graph, chain)(every)
    if found := find_gated_rescale(graph, chain, operand):
        np.testing.assert_array_equal(integers(operand, found.reference(every)), wanted)
    if line := find_gated_affine(graph, chain, operand):
        np.testing.assert_array_equal(integers(operand, line.codes(every)), wanted)


@pytest.mark.parametrize("grid", GRIDS)
def test_hard_swish_is_found_at_every_width(grid):
    gain, bias = np.linspace(-0.9, 1.1, CHANNELS), np.linspace(-1, 1, CHANNELS)
    graph, chain = swished(gain, bias, grid, 8 / (grid[1] - grid[0]))
    operand = next(activations(graph.edges["codes"].integers))
    assert find_gated_rescale(graph, chain, operand) is not None
    assert find_gated_affine(graph, chain, operand) is not None


def test_another_function_has_no_gate():
    graph, chain = swished([1.0] * 5, [0.0] * 5, (-8, 7), 0.25, activation="tanh")
    assert find_gated_rescale(graph, chain, next(activations(graph.edges["codes"].integers))) is None


def test_a_formula_that_is_wrong_at_one_sum_is_refused():
    graph, chain = swished([1.0] * 5, [0.0] * 5, (-8, 7), 0.25)
    oracle, wrong = Oracle(graph, chain), np.array([-END, -401, 0, 77, END])
    ends = np.full(CHANNELS, -END), np.full(CHANNELS, END)

    def off(first, last):
        least, most = oracle.bounds(first, last)
        there = (first == wrong) & (last == wrong)
        return least + there, most + ((first <= wrong) & (wrong <= last))

    assert prove_equal(oracle, oracle.bounds, *ends).all()
    assert not prove_equal(oracle, off, *ends).any()


def test_a_factor_of_0_behind_a_gate_is_refused_without_a_warning():
    graph, chain = swished([1.0] * 5, [0.0] * 5, (-8, 7), 0.25, many=0.0)
    assert find_gated_rescale(graph, chain, next(activations(graph.edges["codes"].integers))) is None
