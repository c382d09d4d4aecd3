"""Shuffled channels: one gather for what a file writes as reshape, transpose and reshape, and the same numbers."""

from typing import Any

import numpy as np
import pytest
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.graph import read, run

SHAPE = (2, 12, 3, 5)


def shuffle(given="q", result="r", parts=(3, 4), order=(0, 2, 1, 3, 4), stem="s", end=(2, 12, 3, 5)):
    """The nodes and constants of a shuffle of groups of channels."""
    nodes = [
        node("Reshape", f"{given} {stem}1", f"{stem}a", name=f"{stem}_parts"),
        node("Transpose", f"{stem}a", f"{stem}b", perm=list(order), name=f"{stem}_turned"),
        node("Reshape", f"{stem}b {stem}2", result, name=f"{stem}_whole"),
    ]
    sizes = np.array([2, *parts, 3, 5], np.int64)
    return nodes, {f"{stem}1": sizes, f"{stem}2": np.array(end, np.int64)}


def network(*nodes, outputs="y", **constants: Any):
    first = node("Quant", "x s z b", "q", domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND")
    grid = {"s": np.float32(0.25), "z": np.float32(0), "b": np.float32(4)}
    return model([first, *nodes], {"x": SHAPE}, grid | constants, outputs=outputs, opset=13)


def same(onnx_model, rng, ops):
    """The network as it is read has these nodes, and the numbers of ONNX's own reference."""
    from onnx.reference import ReferenceEvaluator

    graph = read(onnx_model)
    graph.check()
    assert [n.op for n in graph.nodes] == ["quantize", *ops]
    x = (rng.integers(-8, 8, SHAPE) / 4).astype(np.float32)
    plain = model(list(onnx_model.graph.node)[1:], {"q": SHAPE}, opset=13)
    plain.graph.initializer.extend(onnx_model.graph.initializer)
    del plain.graph.output[:]
    plain.graph.output.extend(onnx_model.graph.output)
    want = ReferenceEvaluator(plain).run(None, {"q": x})
    for got, array in zip(run(graph, {"x": x}).outputs(), want, strict=True):
        np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize(("parts", "order"), [((3, 4), (0, 2, 1, 3, 4)), ((2, 3, 2), (0, 3, 1, 2, 4, 5))], ids=str)
def test_a_shuffle_is_a_gather(rng, parts, order):
    nodes, sizes = shuffle(result="y", parts=parts, order=order)
    same(network(*nodes, **sizes), rng, ["gather"])


def test_what_takes_channels_of_it_reads_its_source(rng):
    """A split, and a second shuffle."""
    nodes, sizes = shuffle()
    again, more = shuffle("r", "t", parts=(2, 6), stem="o")
    split = node("Split", "t k", "y v", axis=1)
    result = network(*nodes, *again, split, outputs="y v", k=np.array([5, 7], np.int64), **sizes, **more)
    same(result, rng, ["gather", "gather"])


@pytest.mark.parametrize(("groups", "ops"), [(1, ["conv"]), (3, ["gather", "conv"])])
def test_a_convolution_of_all_channels_has_them_in_its_weights(rng, groups, ops):
    nodes, sizes = shuffle()
    w = rng.integers(-3, 4, (6, 12 // groups, 3, 3)).astype(np.float32)
    same(network(*nodes, node("Conv", "r w", group=groups), w=w, **sizes), rng, ops)


def test_a_convolution_of_half_the_channels_has_only_these(rng):
    """Though they are the first of the source, in another order."""
    nodes, sizes = shuffle(parts=(2, 2, 3), order=(0, 1, 3, 2, 4, 5))
    split = node("Split", "r k", "u v", axis=1)
    w = rng.integers(-3, 4, (4, 6, 1, 1)).astype(np.float32)
    result = network(*nodes, split, node("Conv", "u w"), k=np.array([6, 6], np.int64), w=w, **sizes)
    same(result, rng, ["gather", "conv"])


MOVES = {
    "pixels": ((3, 4), (0, 2, 1, 4, 3), (2, 12, 3, 5)),
    "batches": ((2, 6), (1, 0, 2, 3, 4), (2, 12, 3, 5)),
    "another shape": ((3, 4), (0, 2, 1, 3, 4), (2, 6, 6, 5)),
}


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_others_stays(rng, name):
    parts, order, end = MOVES[name]
    nodes, sizes = shuffle(result="y", parts=parts, order=order, end=end)
    same(network(*nodes, **sizes), rng, ["reshape", "transpose", "reshape"])


def test_slices_of_pixels_stay(rng):
    nodes, sizes = shuffle()
    ends: dict[str, Any] = {"a": np.array([1], np.int64), "e": np.array([3], np.int64), "k": np.array([2], np.int64)}
    same(network(*nodes, node("Slice", "r a e k"), **sizes, **ends), rng, ["gather", "slice"])


def test_compiled_shuffles_are_exact(rng):
    nodes, sizes = shuffle()
    split = node("Split", "r k", "u v", axis=1)
    conv = node("Conv", "v w", "c")
    w = rng.integers(-3, 4, (4, 6, 1, 1)).astype(np.float32)
    result = network(*nodes, split, conv, node("Relu", "c"), k=np.array([6, 6], np.int64), w=w, **sizes)
    net = bitsynth.compile(result, isa="auto")
    x = (rng.integers(-8, 8, SHAPE) / 4).astype(np.float32)
    np.testing.assert_array_equal(net(x), run(net.graph, {"x": x}).outputs()[0])
