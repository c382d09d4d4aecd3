"""Comparisons and choices as binarizers write them: bits, bipolar codes, limits that are learned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from support.onnx_files import model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.types import Integers
from bitsynth.spec.matmul import Encoding

FLOAT = TensorProto.FLOAT
NUMBERS: dict[str, Any] = {
    "zero": np.float32(0),
    "one": np.float32(1),
    "minus": np.float32(-1),
    "two": np.float32(2),
    "half": np.float32(0.5),
    "limit": np.float32(3.3),
    "tenth": np.float32(0.1),
}
X = np.array([[-2.5, -1, -0.5, -1e-45, -0.0, 0, 1e-45, 0.5, 1, 3.3, 3.4, 7]], np.float32)
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Equal": np.equal,
}
WRITTEN = {
    "where": [node("GreaterOrEqual", "x zero", "c"), node("Where", "c one minus", "y")],
    "where, above": [node("Greater", "x zero", "c"), node("Where", "c one minus", "y")],
    "where, turned": [node("Less", "x zero", "c"), node("Where", "c minus one", "y")],
    "where, not": [node("Less", "x zero", "c"), node("Not", "c", "d"), node("Where", "d one minus", "y")],
    "cast, twice, less 1": [
        node("Greater", "x zero", "c"),
        node("Cast", "c", "b", to=FLOAT),
        node("Mul", "b two", "d"),
        node("Sub", "d one", "y"),
    ],
    "the sign of a sign and a bit": [node("Sign", "x", "s"), node("Add", "s tenth", "t"), node("Sign", "t", "y")],
}
ABOVE = {"where, above", "cast, twice, less 1"}


def read_of(nodes, shape=X.shape, **constants):
    return read(model(nodes, {"x": shape}, NUMBERS | constants))


@pytest.mark.parametrize("threshold", [0.0, 0.5])
@pytest.mark.parametrize("op", COMPARED)
def test_a_comparison_is_a_bit(op, threshold):
    nodes = [node(op, "x t", "c"), node("Cast", "c", "y", to=FLOAT)]
    for reference in ("exact", "onnxruntime"):
        graph = read(model(nodes, {"x": X.shape}, {"t": np.float32(threshold)}), reference=reference)
        want = COMPARED[op](X, np.float32(threshold))
        assert (run(graph, {"x": X}).outputs()[0] == want).all()
        kind = graph.edges["y"].integers
        assert (kind.least, kind.most) == (0, 1)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_binarizer_makes_bipolar_codes(name):
    graph = read_of(WRITTEN[name])
    assert graph.reference == "exact"
    assert graph.edges["y"].integers.encoding is Encoding.BIPOLAR
    want = np.where(X > 0 if name in ABOVE else X >= 0, 1, -1)
    assert (run(graph, {"x": X}).outputs()[0] == want).all()


def _repeated(written):
    """The node once more, of `m` instead of `x`."""
    again = type(written)()
    again.CopyFrom(written)
    again.name += "_2"
    again.input[:] = [{"x": "m"}.get(i, i if i in NUMBERS else f"{i}_2") for i in written.input]
    again.output[:] = [f"{o}_2" for o in written.output]
    return again


@pytest.mark.parametrize("name", WRITTEN)
def test_convolutions_between_binarizers_are_layers(name, rng):
    w = rng.choice([-1, 1], (32, 32, 3, 3)).astype(np.float32)
    first = WRITTEN[name]
    second = [_repeated(n) for n in first]
    nodes = [*first, node("Conv", "y w", "a"), node("Add", "a bias", "m"), *second, node("Conv", "y_2 w", "z")]
    weights = {"w": w, "bias": rng.integers(-9, 9, (32, 1, 1)).astype(np.float32)}
    onnx_model = model(nodes, {"x": (1, 32, 6, 6)}, NUMBERS | weights, outputs="z")
    net = bitsynth.compile(onnx_model, isa="avx2")
    assert sum(step.macs > 0 for step in net.report().steps) == 2
    for given in (rng.normal(size=(1, 32, 6, 6)), rng.integers(-1, 2, (1, 32, 6, 6)), np.zeros((1, 32, 6, 6))):
        x = given.astype(np.float32)
        values = run(net.graph, {"x": x})
        assert (net(x) == values.floats("z")).all()


def test_a_limit_that_is_learned_is_a_clip():
    nodes = [
        node("Clip", "x zero", "a"),
        node("Less", "a limit", "c"),
        node("Where", "c a limit", "b"),
        node("Div", "b half", "d"),
        node("Round", "d", "y"),
    ]
    graph = read_of(nodes)
    assert "mul" not in {n.op for n in graph.nodes}
    assert (run(graph, {"x": X}).outputs()[0] == np.rint(X.clip(0, np.float32(3.3)) / 0.5)).all()
    assert isinstance(graph.edges["y"].type, Integers)


LADDERS = {
    "choices": [
        node("Greater", "x a", "c1"),
        node("Where", "c1 s1 zero", "w1"),
        node("Greater", "x b", "c2"),
        node("Where", "c2 s2 w1", "w2"),
        node("Greater", "x c", "c3"),
        node("Where", "c3 s3 w2", "y"),
    ],
    "a sum": [
        *(node(op, f"x {t}", f"c{t}") for t in "abc" for op in ("GreaterOrEqual",)),
        *(node("Cast", f"c{t}", f"b{t}", to=FLOAT) for t in "abc"),
        node("Add", "ba bb", "ab"),
        node("Add", "ab bc", "abc"),
        node("Mul", "abc s1", "y"),
    ],
}
STEPS: dict[str, Any] = {f"s{k}": np.float32(k * 0.538) for k in (1, 2, 3)}
THRESHOLDS: dict[str, Any] = {"a": np.float32(-0.5), "b": np.float32(0.807), "c": np.float32(1.345)}


@pytest.mark.parametrize("name", LADDERS)
def test_a_ladder_is_one_quantizer_of_two_bits(name):
    graph = read_of(LADDERS[name], **STEPS, **THRESHOLDS)
    assert next(n.op for n in graph.nodes if n.op != "neg") == "multi_threshold"
    compare = np.greater if name == "choices" else np.greater_equal
    want = sum(compare(X, t).astype(int) for t in THRESHOLDS.values())
    assert (run(graph, {"x": X})["y"] == want).all()
    assert graph.edges["y"].integers.bits == 2
    assert graph.edges["y"].integers.scale == np.float32(0.538)


@pytest.mark.parametrize("changed", [{"s3": np.float32(1.7)}, {"c": np.float32(0.1)}])
def test_levels_that_are_no_ladder_are_chosen_as_written(changed):
    numbers = STEPS | THRESHOLDS | changed
    result = run(read_of(LADDERS["choices"], **numbers), {"x": X}).outputs()[0]
    want = np.zeros_like(X)
    for t, s in (("a", "s1"), ("b", "s2"), ("c", "s3")):
        want = np.where(numbers[t] < X, numbers[s], want)
    np.testing.assert_array_equal(np.asarray(result, np.float32), want)


def test_a_choice_of_others_is_made(rng):
    nodes = [node("Greater", "x half", "c"), node("Where", "c x limit", "d"), node("Where", "c d zero", "y")]
    result = run(read_of(nodes), {"x": X}).outputs()[0]
    np.testing.assert_array_equal(np.asarray(result, np.float64), np.where(X > 0.5, X, 0))


def test_choices_of_constants_are_constants(rng):
    w = np.concatenate([np.zeros((1, 3)), rng.normal(size=(3, 3))]).astype(np.float32)
    nodes = [
        node("Greater", "w tenth", "c"),
        node("Less", "w low", "d"),
        node("Or", "c d", "e"),
        node("Where", "c half zero", "p"),
        node("Where", "d low_half p", "q"),
        node("Where", "e q zero", "v"),
        node("Round", "x", "r"),
        node("Clip", "r zero two", "a"),
        node("MatMul", "a v", "y"),
    ]
    given = {"w": w, "low": np.float32(-0.1), "low_half": np.float32(-0.5)}
    graph = read_of(nodes, (1, 4), **given)
    (product,) = (n for n in graph.nodes if n.op == "matmul")
    want = np.where(w > np.float32(0.1), 1, np.where(w < np.float32(-0.1), -1, 0))
    assert (graph.constants[product.inputs[1]] == want).all()
    assert graph.edges[product.inputs[1]].integers.encoding is Encoding.TERNARY


def test_an_infinity_to_choose_is_refused():
    nodes = [node("Greater", "x half", "c"), node("Where", "c x far", "y")]
    with pytest.raises(SpecError, match=r"the_Where: chooses an infinity"):
        read_of(nodes, far=np.float32(-np.inf))


@pytest.mark.parametrize("written", ["c zero zeros", "c x zeros", "c zeros x", "c one zeros"])
def test_a_choice_has_the_shape_of_all_that_it_is_made_of(written):
    zeros = np.zeros((3, X.size), np.float32)
    result = run(read_of([node("Greater", "x half", "c"), node("Where", written, "y")], zeros=zeros), {"x": X})
    numbers = NUMBERS | {"c": X > 0.5, "x": X, "zeros": zeros}
    want = np.where(*(numbers[name] for name in written.split()))
    np.testing.assert_array_equal(result.outputs()[0], want)
    assert result.outputs()[0].shape == want.shape


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.UINT8])
def test_a_sum_of_whole_bits_stays_whole(kind):
    bits = [node("Greater", f"x {t}", f"c{t}") for t in ("half", "limit")]
    casts = [node("Cast", f"c{t}", f"b{t}", to=kind) for t in ("half", "limit")]
    graph = read_of([*bits, *casts, node("Add", "bhalf blimit", "s"), node("Div", "s two", "y")], two=two_of(kind))
    want = ((X > 0.5).astype(int) + (np.float32(3.3) < X)) // 2
    assert (run(graph, {"x": X})["y"] == want).all()


def two_of(kind):
    return np.int64(2) if kind == TensorProto.INT64 else np.uint8(2)


def test_a_sum_of_bits_has_the_axes_of_what_scales_them():
    bits = [node("Greater", f"x {t}", f"c{t}") for t in ("half", "limit")]
    casts = [node("Cast", f"c{t}", f"b{t}", to=FLOAT) for t in ("half", "limit")]
    nodes = [*bits, *casts, *(node("Mul", f"b{t} gain", f"g{t}") for t in ("half", "limit"))]
    graph = read_of([*nodes, node("Add", "ghalf glimit", "y")], gain=np.full((1, 1, 1, 1), 2, np.float32))
    want = 2 * ((X > 0.5).astype(int) + (np.float32(3.3) < X))
    np.testing.assert_array_equal(run(graph, {"x": X}).floats("y"), want[None, None])


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32])
def test_what_is_not_zero_is_true(kind):
    nodes = [node("Cast", "x", "n", to=kind), node("Cast", "n", "c", to=TensorProto.BOOL)]
    graph = read_of([*nodes, node("Where", "c one minus", "y")])
    want = X.astype(np.int32) if kind == TensorProto.INT32 else X
    assert (run(graph, {"x": X}).outputs()[0] == np.where(want, 1, -1)).all()
