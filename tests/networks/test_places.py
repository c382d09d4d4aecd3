"""Norms, places that constants say, and nodes of constants alone: what the package onnx gives by its definitions."""

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from support.onnx_files import model, node

from bitsynth.errors import SpecError
from bitsynth.graph import read, run

SHAPE = (1, 6, 5)


def floats(*shape):
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def defined(result, x):
    """The result by the definitions of the package onnx."""
    results: Any = ReferenceEvaluator(result).run(None, {"x": x})
    return results[0]


CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "elements": ("GatherElements", [np.array([[[1, -2, 0]] * 6])], {"axis": 2}),
    "rows of indices": ("GatherND", [np.array([[0, 1], [0, -2]])], {}),
    "rows put": ("ScatterND", [np.array([[0, 1], [0, -2]]), floats(2, 5)], {}),
    "elements put": ("ScatterElements", [np.array([[[1, -1, 0]] * 6]), floats(1, 6, 3)], {"axis": 2}),
    "sizes": ("ReduceL1", [np.array([1])], {"keepdims": 0}),
    "length": ("ReduceL2", [np.array([1, 2])], {}),
    "squares": ("ReduceSumSquare", [np.array([1])], {}),
    "unit": ("LpNormalization", [], {"axis": 1, "p": 2}),
    "mean": ("Mean", [floats(1, 6, 5), floats(1, 6, 5)], {}),
    "mean and variance": ("MeanVarianceNormalization", [], {"axes": [0, 2]}),
    "root": ("RMSNormalization", [floats(5)], {"axis": -1}),
    "power": ("Pow", [np.float32(2)], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes_are_what_onnx_defines(name):
    op, constants, attributes = CASES[name]
    given = {f"c{k}": np.asarray(value) for k, value in enumerate(constants)}
    onnx_model = model([node(op, " ".join(["x", *given]), **attributes)], {"x": SHAPE}, given, opset=23)
    x = floats(*SHAPE)
    (got,), want = run(read(onnx_model), {"x": x}).outputs(), defined(onnx_model, x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("size", "beta"), [(5, 0.75), (4, 0.5), (3, 1.0)])
def test_local_norm_is_over_channels_beside_each_other(size, beta):
    onnx_model = model([node("LRN", "x", size=size, beta=beta, alpha=0.1, bias=2.0)], {"x": (1, 6, 3, 3)})
    x = floats(1, 6, 3, 3)
    near = [x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1] for c in range(6)]
    sums = np.stack([(part.astype(float) ** 2).sum(1) for part in near], 1)
    (got,) = run(read(onnx_model), {"x": x}).outputs()
    np.testing.assert_allclose(got, x / (2 + 0.1 / size * sums) ** beta, rtol=1e-5)


def test_a_power_that_no_roots_give_is_refused():
    with pytest.raises(SpecError, match=r"LRN the_LRN: beta is 0.7"):
        read(model([node("LRN", "x", size=3, beta=0.7)], {"x": (1, 6, 3, 3)}))


def test_a_sum_of_sizes_is_that_of_the_norm_1():
    onnx_model = model([node("LpNormalization", "x", axis=1, p=1)], {"x": SHAPE})
    x = floats(*SHAPE)
    np.testing.assert_allclose(
        run(read(onnx_model), {"x": x}).outputs()[0], x / abs(x).sum(1, keepdims=True), rtol=1e-5
    )


def test_zeros_have_no_length_and_stay():
    onnx_model = model([node("LpNormalization", "x", axis=1)], {"x": (1, 4)})
    assert (run(read(onnx_model), {"x": np.zeros((1, 4), np.float32)}).outputs()[0] == 0).all()


def test_what_constants_alone_make_is_a_constant():
    """A mask of a triangle, places of what is not 0, a size by Mod, and sines of places."""
    nodes = [
        node("NonZero", "kept", "places"),
        node("Gather", "places zero", "places_1"),
        node("Gather", "x places_1", "g", name="gather", axis=2),
        node("Trilu", "ones", "mask", upper=0),
        node("Mul", "g mask", "m"),
        node("Sin", "ramp", "sines"),
        node("Add", "m sines", "a"),
        node("Shape", "a", "shape"),
        node("ReduceProd", "shape", "count", keepdims=1),
        node("Reshape", "a count", "y"),
    ]
    given = {"kept": np.array([[1, 0, 1, 1, 0]]), "zero": np.array(1), "ones": np.ones((6, 3), np.float32)}
    given |= {"ramp": np.arange(3, dtype=np.float32)}
    onnx_model = model(nodes, {"x": SHAPE}, given)
    graph = read(onnx_model)
    assert [n.op for n in graph.nodes] == ["gather", "mul", "add", "reshape"]
    x = floats(*SHAPE)
    (got,), want = run(graph, {"x": x}).outputs(), defined(onnx_model, x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_what_is_known_at_run_time_alone_is_refused():
    with pytest.raises(SpecError, match=r"Sin the_Sin: an input is computed at run time"):
        read(model([node("Sin", "x")], {"x": SHAPE}))
    given = {"i": np.zeros(4, np.int64), "d": np.array(1 << 40), "v": np.array([0.0, 1.0], np.float32)}
    many = model([node("OneHot", "i d v", "h"), node("Add", "x h")], {"x": SHAPE}, given)
    with pytest.raises(SpecError, match=r"OneHot the_OneHot: has more than"):
        read(many)


def test_places_that_leave_the_tensor_are_refused():
    with pytest.raises(SpecError, match=r"GatherElements the_GatherElements: indices go beyond the 5 elements"):
        read(model([node("GatherElements", "x i", axis=2)], {"x": SHAPE}, {"i": np.array([[[5]]])}))
