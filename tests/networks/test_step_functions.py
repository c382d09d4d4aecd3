"""Step functions are what the reference makes of every element of a range, and of floats where they turn."""

import numpy as np
import pytest
from support.random_graphs import RandomGraph

from bitsynth.graph import read
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.types import Integers, Reals
from bitsynth.layers.epilogues import Rescale, Thresholds
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.encodings import activations
from bitsynth.network.formulas import (
    Oracle,
    Paired,
    find_chain,
    find_cheapest_form,
    find_joined_chain,
    find_step_function,
)
from bitsynth.network.formulas.affine import find_affine, find_paired_affine
from bitsynth.network.formulas.chain import make_link
from bitsynth.network.formulas.epilogues import MAX_CHEAP_THRESHOLDS
from bitsynth.network.formulas.step_functions import float_of, places

CHANNELS = 6


def _quantized(builder, edge, low, high, scale):
    grid = {"low": low, "high": high, "out_scale": np.float64(scale), "out_zero": np.float64(0)}
    real = {"scale": np.float32(scale), "zero": np.float32(0), "rounding": "ROUND", "zero_first": True}
    return builder.add("quantize", edge, name="codes", real="float32", **real, **grid)


def _normed(reference, kind, low=0, high=15):
    """A graph of batch norm, ReLU and quantizer whose channels rise, fall and stay."""
    builder = GraphBuilder("chain", reference)
    x = builder.input("x", (1, CHANNELS, 2, 2), "float32", kind)
    gains = np.array([1.5, -0.75, 0, 0.01, -3, 0.5])
    parts = np.stack([gains, *(np.linspace(a, b, CHANNELS) for a, b in ((-2, 2), (-5, 3), (0.5, 2)))]) + 0.01
    constants = [builder.constant(p) for p in parts.astype(np.float32).reshape(4, 1, -1, 1, 1)]
    edge = builder.add("batch_norm", x, *constants, epsilon=1e-5)
    edge = builder.add("relu", edge) if low == 0 else edge
    return builder.build((_quantized(builder, edge, low, high, 0.37),))


@pytest.mark.parametrize("reference", ["exact", "onnxruntime"])
@pytest.mark.parametrize(("low", "high"), [(0, 15), (0, 1), (-8, 7), (0, 255)])
def test_a_step_function_is_the_reference_on_the_whole_range(reference, low, high):
    ends = np.arange(-90, -84)[None, :, None, None]
    graph = _normed(reference, Integers.between(ends, -2 * ends, 0.11), low, high)
    chain = find_chain(DefUse(graph, NetworkTarget("avx2")), "x")
    step_function = find_step_function(graph, chain)
    assert step_function.rising.any()
    assert not step_function.rising.all()
    every = np.clip(np.arange(-90, 181)[:, None], step_function.low, step_function.high)
    np.testing.assert_array_equal(step_function.at(every), Oracle(graph, chain)(every))


@pytest.mark.parametrize(("low", "high"), [(0, 3), (0, 15), (0, 1), (-8, 7), (0, 200), (-128, 127)])
def test_the_form_that_is_found_is_the_step_function_on_the_whole_range(low, high):
    ends = np.arange(-90, -84)[None, :, None, None] * 8
    graph = _normed("exact", Integers.between(ends, -2 * ends, 0.0137), low, high)
    step_function = find_step_function(graph, find_chain(DefUse(graph, NetworkTarget("avx2")), "x"))
    kind = graph.edges["codes"].integers
    operand = next(activations(kind))
    form = find_cheapest_form(step_function, operand, kind)
    assert isinstance(form.epilogue, Rescale if high - low > MAX_CHEAP_THRESHOLDS else Thresholds)
    every = np.clip(np.arange(-720, 1441)[:, None], step_function.low, step_function.high)
    codes = form.epilogue.reference(every + form.bias).astype(np.int64)
    np.testing.assert_array_equal(codes * operand.scale + operand.offset, step_function.at(every))


def test_levels_of_float32_turn_where_the_reference_says():
    graph = _normed("exact", Reals())
    chain = find_chain(DefUse(graph, NetworkTarget("avx2")), "x")
    step_function = find_step_function(graph, chain)
    near = np.clip(
        step_function.thresholds.T[None] + np.arange(-3, 4)[:, None, None], step_function.low, step_function.high
    ).reshape(-1, CHANNELS)
    np.testing.assert_array_equal(step_function.at(near), Oracle(graph, chain)(float_of(near)))


def test_places_are_the_order_of_floats():
    numbers = np.array([-np.inf, -1, -1e-45, 0, 1e-45, 1, 2, 3e38], np.float32)
    assert (np.diff(places(numbers)) > 0).all()
    np.testing.assert_array_equal(float_of(places(numbers)), numbers)
    assert places(np.array([-0.0], np.float32))[0] == 0


def test_channels_that_are_alike_are_one():
    builder = GraphBuilder("chain", "exact")
    x = builder.input("x", (1, CHANNELS, 2, 2), "float32", Integers.between(-50, 50, 0.25))
    graph = builder.build((_quantized(builder, x, 0, 3, 1.0),))
    step_function = find_step_function(graph, find_chain(DefUse(graph, NetworkTarget("avx2")), "x"))
    assert step_function.thresholds.tolist() == [[3, 6, 11]]


def test_what_differs_by_pixel_is_no_chain():
    builder = GraphBuilder("chain", "exact")
    x = builder.input("x", (1, CHANNELS, 2, 2), "float32", Integers.between(-50, 50, 0.25))
    more = builder.add("add", x, builder.constant(np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)))
    graph = builder.build((_quantized(builder, more, 0, 3, 1.0),))
    assert find_chain(DefUse(graph, NetworkTarget("avx2")), "x") is None


def test_a_line_of_float64_is_the_step_function_on_the_whole_range():
    ends = np.arange(-90, -84)[None, :, None, None] * 8
    graph = _normed("exact", Integers.between(ends, -2 * ends, 0.0137), -128, 127)
    step_function = find_step_function(graph, find_chain(DefUse(graph, NetworkTarget("avx2")), "x"))
    kind = graph.edges["codes"].integers
    operand = next(activations(kind))
    every = np.clip(np.arange(-720, 1441)[:, None], step_function.low, step_function.high)
    codes = find_affine(step_function, operand, kind).codes(every)
    np.testing.assert_array_equal(codes * operand.scale + operand.offset, step_function.at(every))


@pytest.mark.parametrize("scale", [0.0371, 0.03125])
def test_a_line_of_two_operands_is_the_reference_on_all_pairs(scale):
    """Halves are met with the second scale, so that the reference is asked."""
    builder = GraphBuilder("pair", "exact")
    x = builder.input("x", (1, CHANNELS, 2, 2), "float32", Integers.between(-70, 90, 1 / 128))
    y = builder.input("y", (1, CHANNELS, 2, 2), "float32", Integers.between(0, 15, 0.25))
    gains = builder.constant(np.array([1, -1, 2, 0.5, 0.3, -3], np.float32).reshape(1, -1, 1, 1))
    both = builder.add("add", builder.add("mul", x, gains), y)
    graph = builder.build((_quantized(builder, builder.add("relu", both), 0, 63, scale),))
    def_use = DefUse(graph, NetworkTarget("avx2"))
    chain = find_joined_chain(def_use, "x", 1, graph.nodes[0])
    operands = [next(activations(graph.edges[name].integers)) for name in ("codes", "y")]
    line = find_paired_affine(Paired(graph, chain, *operands))
    sums, elements = (np.repeat(a.reshape(-1, 1), CHANNELS, 1) for a in np.meshgrid(np.arange(-70, 91), np.arange(16)))
    np.testing.assert_array_equal(line.codes(sums, elements), Oracle(graph, chain)(sums, elements))


def test_thresholds_along_another_axis_end_a_chain():
    graph = read(RandomGraph(9105).model)
    node = next(n for n in graph.nodes if n.op == "multi_threshold" and len(n.attributes["thresholds"]) > 1)
    def_use = DefUse(graph, NetworkTarget("avx2"))
    edge, axis = node.inputs[0], node.attributes["axis"]
    assert make_link(def_use, node, edge, axis) is not None
    assert make_link(def_use, node, edge, axis + 2) is None
