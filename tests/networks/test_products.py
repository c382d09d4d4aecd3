"""Layers of products give the reference's integers in every format they read and write."""

from typing import Any

import numpy as np
import pytest

from bitsynth.graph import run
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Integers
from bitsynth.layers.layer import compile as compile_layer
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.fusion.affine import GuardedAffineGroup
from bitsynth.network.fusion.layers import ProductGroup
from bitsynth.network.lower import cover, lower
from bitsynth.network.program import Buffer, Format, LayerStep
from bitsynth.network.run import Network


def _codes(builder, edge, low=0, high=3, scale=0.3, step=1):
    grid = {"low": low, "high": high, "out_scale": np.float64(scale), "out_zero": np.float64(0)}
    mode = "BIPOLAR" if step == 2 else "ROUND"
    real = {"scale": np.float32(scale), "zero": np.float32(0), "rounding": mode, "zero_first": True, "real": "float32"}
    return builder.add("quantize", edge, name="codes", **real, **grid)


def _window(*sizes, strides, begins, ends, dilations=None):
    return SlidingWindow(sizes, strides, dilations or (1,) * len(sizes), begins, ends)


def _conv(rng, x_type, w_shape, image, window, groups=1, quantized=None):
    """A convolution of random weights on a grid a channel, with a bias of reals and a quantizer."""
    builder = GraphBuilder("layer", "exact")
    x = builder.input("x", (1, w_shape[1] * groups, *image), "float32", x_type)
    weights = rng.integers(-3, 4, w_shape)
    scale = rng.uniform(0.01, 0.05, (w_shape[0], *[1] * (len(w_shape) - 1)))
    w = builder.constant(weights.astype(np.float32), "w")
    builder.edges["w"] = _on_scale(builder.edges["w"], scale.astype(np.float32).astype(np.float64))
    edge = builder.add("conv", x, w, window=window, groups=groups, name="sums")
    if quantized is not None:
        bias = rng.normal(size=(w_shape[0], *[1] * len(image)))
        edge = _codes(builder, builder.add("add", edge, builder.constant(bias.astype(np.float32))), **quantized)
    return builder.build((edge,))


def _on_scale(edge, scale):
    kind = edge.type
    return type(edge)(edge.name, edge.shape, edge.dtype, Integers.between(kind.low, kind.high, scale))


def _check(rng, graph, nodes):
    """The group of a graph, a layer of so many nodes, in every format."""
    group, values = _group(graph, nodes), _values(rng, graph)
    (end,) = group.outputs
    for given in group.reads("x"):
        for each in group.writes(end):
            edges = {"x": given, end: each}
            step = group.step({name: Buffer(name, graph.edges[name], form) for name, form in edges.items()})
            assert isinstance(step, LayerStep)
            codes = given.write(values["x"]).reshape(*step.image, -1)
            out = np.asarray(compile_layer(step.layer).run(codes)).reshape(-1)
            np.testing.assert_array_equal(each.read(out, graph.edges[end].shape), values[end], str(edges))


def _group(graph, nodes):
    groups = cover(DefUse(graph, NetworkTarget("avx2")))
    assert [(type(r), len(r.nodes)) for r in groups] == [(ProductGroup, nodes)]
    return groups[0]


def _values(rng, graph):
    edge = graph.edges["x"]
    kind = edge.type
    return run(
        graph, {"x": rng.integers(0, (kind.most - kind.least) // kind.step + 1, edge.shape) * kind.step + kind.least}
    )


CASES = {
    "2-bit": (Integers.between(0, 3, 0.5), {}),
    "signed, off centre": (Integers.between(-5, 7, 0.5, 2.0), {"low": -3, "high": 2}),
    "bipolar": (Integers.between(-1, 1, 0.7, 0.0, 2), {"low": -1, "high": 1, "step": 2}),
    "sums": (Integers.between(0, 15, 0.5, 3.0), None),
    "levels of 8 bits": (Integers.between(0, 255, 1 / 256), {"low": 0, "high": 255, "scale": 0.02}),
}


def _case(rng, case):
    kind, quantized = CASES[case]
    window = _window(3, 2, strides=(1, 2), begins=(1, 0), ends=(0, 1))
    return _conv(rng, kind, (5, 7, 3, 2), (6, 5), window, quantized=quantized)


@pytest.mark.parametrize("case", [name for name, (_, quantized) in CASES.items() if quantized is not None])
def test_what_follows_a_convolution_is_its_epilogue(rng, case):
    graph = _case(rng, case)
    values, group = _values(rng, graph), _group(graph, 3)
    codes = group.maker.epilogue.reference(np.moveaxis(values["sums"], 1, -1) + group.product.bias)
    result = Format.codes(group.maker.codes).read(codes.reshape(-1), graph.edges["codes"].shape)
    np.testing.assert_array_equal(result, values["codes"])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_convolution_with_what_follows_is_a_layer(rng, case):
    _check(rng, _case(rng, case), 1 if CASES[case][1] is None else 3)


@pytest.mark.slow
def test_a_convolution_of_lines_is_one_of_images_of_height_1(rng):
    window = _window(3, strides=(2,), begins=(2,), ends=(1,), dilations=(2,))
    _check(rng, _conv(rng, CASES["2-bit"][0], (4, 6, 3), (9,), window, quantized={}), 3)


@pytest.mark.slow
def test_groups_are_a_layer(rng):
    window = _window(3, 3, strides=(1, 1), begins=(1, 1), ends=(1, 1))
    _check(rng, _conv(rng, Integers.between(0, 255, 0.1), (8, 1, 3, 3), (5, 5), window, 8, {"high": 15}), 3)


@pytest.mark.slow
def test_channels_of_a_depthwise_layer_have_scales_of_their_own(rng):
    window = _window(3, 3, strides=(1, 1), begins=(1, 1), ends=(1, 1))
    scales = Integers.between(0, 15, rng.integers(1, 99, (1, 8, 1, 1)) / 64)
    _check(rng, _conv(rng, scales, (8, 1, 3, 3), (5, 5), window, 8, {"high": 15}), 3)


@pytest.mark.parametrize(("groups", "together"), [(8, 1), (4, 2), (4, 1), (1, 8)])
def test_sums_are_of_integers_where_no_scales_meet(rng, groups, together):
    window = _window(3, 3, strides=(1, 1), begins=(1, 1), ends=(1, 1))
    scales = np.repeat(np.arange(1, 9)[::together], together) / 64
    kind = Integers.between(0, 15, scales.reshape(1, 8, 1, 1))
    graph = _conv(rng, kind, (16, 8 // groups, 3, 3), (5, 5), window, groups)
    sums = graph.edges["sums"].type
    assert isinstance(sums, Integers) == (together >= 8 // groups)
    if isinstance(sums, Integers):
        weights = graph.edges["w"].integers.scale.reshape(-1)
        np.testing.assert_array_equal(
            sums.scale.reshape(-1), np.repeat(scales[:: 8 // groups], 2 * 8 // groups) * weights
        )


def _matmul(rng, shape, w_shape, flat):
    builder = GraphBuilder("dense", "exact")
    x = builder.input("x", shape, "float32", Integers.between(-1, 1, 0.5))
    result = builder.add("reshape", x, sizes=(shape[0], w_shape[0])) if flat else x
    weights = rng.integers(-1, 2, w_shape).astype(np.float32)
    return builder.build((_codes(builder, builder.add("matmul", result, builder.constant(weights), name="sums")),))


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "w_shape"), [((2, 70), (70, 5)), ((2, 3, 9), (9, 5)), ((2, 3, 4, 5), (60, 6))])
def test_a_dense_layer_reads_features_rows_and_flat_images(rng, shape, w_shape):
    flat = len(shape) == 4
    _check(rng, _matmul(rng, shape, w_shape, flat), 2 + flat)


@pytest.mark.slow
def test_integers_on_the_scale_of_sums_are_a_bias(rng):
    builder = GraphBuilder("layer", "exact")
    x = builder.input("x", (1, 4, 3, 3), "float32", Integers.between(0, 3))
    w = builder.constant(rng.integers(-3, 4, (5, 4, 1, 1)).astype(np.float32))
    sums = builder.add("conv", x, w, window=_window(1, 1, strides=(1, 1), begins=(0, 0), ends=(0, 0)), groups=1)
    bias = builder.constant(rng.integers(-9, 9, (1, 5, 1, 1)).astype(np.float32))
    _check(rng, builder.build((builder.add("add", bias, sums, name="biased"),)), 2)


def _block(rng, out_type, high=3, scale=0.93):
    """A residual block: sums, normed, and what the convolution read, or sums of a convolution of that, added."""
    builder = GraphBuilder("block", "exact")
    x = builder.input("x", (1, 6, 4, 4), "float32", Integers.between(0, high, 2.0 / (high + 1)))
    window = _window(3, 3, strides=(1, 1), begins=(1, 1), ends=(1, 1))
    first, second = (builder.constant(rng.integers(-1, 2, (6, 6, n, n)).astype(np.float32)) for n in (3, 1))
    edge = builder.add("conv", x, first, window=window, groups=1, name="sums")
    edge = builder.add("mul", edge, builder.constant(rng.uniform(-0.2, 0.3, (6, 1, 1)).astype(np.float32)))
    other = x
    if out_type == "sums":
        point = _window(1, 1, strides=(1, 1), begins=(0, 0), ends=(0, 0))
        other = builder.add("conv", x, second, window=point, groups=1, name="shortcut")
        other = builder.add("mul", other, builder.constant(rng.uniform(0.1, 0.3, (6, 1, 1)).astype(np.float32)))
    return builder.build((_codes(builder, builder.add("relu", builder.add("add", edge, other)), 0, high, scale),))


@pytest.mark.parametrize("shortcut", ["codes", "sums"])
def test_a_residual_is_part_of_the_epilogue(rng, shortcut):
    graph = _block(rng, shortcut)
    values = _values(rng, graph)
    groups = cover(DefUse(graph, NetworkTarget("avx2")))
    assert [len(r.nodes) for r in groups] == ([5] if shortcut == "codes" else [6, 1])
    group = groups[0]
    assert isinstance(group, ProductGroup)
    second, kind = group.residual, group.maker.epilogue.residual.type
    given = np.moveaxis(values[second], 1, -1).astype(kind)
    sums = np.moveaxis(values["sums"], 1, -1) + group.product.bias
    codes = group.maker.epilogue.reference(sums, np.ascontiguousarray(given))
    np.testing.assert_array_equal(np.moveaxis(codes, -1, 1), values["codes"])


@pytest.mark.slow
def test_a_block_of_8_bits_is_a_line_behind_sums(rng):
    graph = _block(rng, "codes", 255, 0.011)
    net = Network(lower(graph, NetworkTarget("avx2")))
    assert [len(step.nodes) for step in net.program.steps if step.nodes] == [1, 4]
    x = rng.integers(0, 256, graph.edges["x"].shape)
    np.testing.assert_array_equal(net.trace({"x": x / 128})["codes"], run(graph, {"x": x})["codes"])


@pytest.mark.parametrize("gain", [0.0123, 0.0078125])
def test_two_wide_sums_are_a_line_with_a_guard(rng, gain):
    """Sums of too many values for all pairs to be asked about; the second gain, a power of 2, has halves among them."""
    builder = GraphBuilder("block", "exact")
    x = builder.input("x", (1, 6, 20, 20), "float32", Integers.between(0, 255))
    point = _window(1, 1, strides=(1, 1), begins=(0, 0), ends=(0, 0))
    items = []
    for name in ("sums", "shortcut"):
        weights = builder.constant(rng.integers(-127, 128, (6, 6, 1, 1)).astype(np.float32))
        sums = builder.add("conv", x, weights, window=point, groups=1, name=name)
        items.append(builder.add("mul", sums, builder.constant(np.full((6, 1, 1), gain, np.float32))))
    graph = builder.build((_codes(builder, builder.add("relu", builder.add("add", *items)), 0, 255, 1.0),))
    assert any(isinstance(group, GuardedAffineGroup) for group in cover(DefUse(graph, NetworkTarget("avx2"))))
    net, given = Network(lower(graph, NetworkTarget("avx2"))), rng.integers(0, 256, graph.edges["x"].shape)
    want = run(graph, {"x": given})
    both = (want["sums"] + want["shortcut"]) * gain
    assert (both % 1 == 0.5).any() == (gain == 0.0078125)
    np.testing.assert_array_equal(net.trace({"x": given})["codes"], want["codes"])


@pytest.mark.parametrize("zero", [0, 7])
def test_a_requantization_in_float32_is_its_own_formula(rng, zero):
    builder = GraphBuilder("layer", "onnxruntime")
    x = builder.input("x", (1, 8, 5, 5), "uint8", Integers.between(0, 255))
    w = builder.constant(rng.integers(-127, 128, (6, 8, 3, 3)).astype(np.int8))
    window = _window(3, 3, strides=(1, 1), begins=(0, 0), ends=(0, 0))
    sums = builder.add("conv", x, w, window=window, groups=1, dtype="int32", name="sums")
    scales = rng.uniform(0.001, 0.01, (6, 1, 1)).astype(np.float32)
    grid: dict[str, Any] = {
        "low": 0,
        "high": 255,
        "out_scale": 1.0,
        "out_zero": 0.0,
        "rounding": "ROUND",
        "zero_first": False,
    }
    factors = np.float32(0.02), scales, np.float32(0.05)
    edge = builder.add("requantize", sums, name="codes", factors=factors, zero=np.int64(zero), dtype="uint8", **grid)
    graph = builder.build((edge,))
    group, values = _group(graph, 2), _values(rng, graph)
    assert group.maker.epilogue.bias is None
    codes = group.maker.epilogue.reference(np.moveaxis(values["sums"], 1, -1))
    np.testing.assert_array_equal(np.moveaxis(codes, -1, 1), values["codes"])
