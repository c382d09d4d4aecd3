"""The graph as a value: what `check` refuses, and passes that change no meaning."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from support.onnx_files import QONNX, model, node

from bitsynth.errors import SpecError
from bitsynth.graph import InputCodes, Node, read, run
from bitsynth.graph.ir import digest
from bitsynth.graph.operators import TABLE
from bitsynth.graph.passes import IMPORT_PASSES
from bitsynth.graph.types import Integers
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.passes import lowering_passes


@pytest.fixture
def graph():
    nodes = [node("Conv", "x w", "c", name="one"), node("Relu", "c", "y", name="two")]
    return read(model(nodes, {"x": (1, 2, 4, 4)}, {"w": np.ones((3, 2, 3, 3), np.float32)}))


@pytest.mark.parametrize(("start", "end"), [(4, 2**63 - 1), (-3, 2**31 - 1), (4, 2**62), (-3, 7), (4, 99)])
def test_slices_to_the_end(start, end, rng):
    bounds = {"from": np.array([start]), "to": np.array([end]), "axes": np.array([1])}
    x = rng.normal(size=(2, 7)).astype(np.float32)
    values = run(read(model([node("Slice", "x from to axes", "y")], {"x": (2, 7)}, bounds)), {"x": x})
    np.testing.assert_array_equal(values.floats("y"), x[:, 4:])


def changed(graph, name, **changes):
    edges = dict(graph.edges)
    edges[name] = replace(edges[name], **changes)
    return replace(graph, edges=MappingProxyType(edges))


def test_what_is_refused(graph):
    one, two = graph.nodes
    constant = next(iter(graph.constants))
    wrong = {
        "Relu two reads c, which nothing before it makes": replace(graph, nodes=(two, one)),
        "Conv one reads none, which nothing": replace(graph, nodes=(replace(one, inputs=("x", "none")), two)),
        "Conv one makes c, which exists already": replace(graph, nodes=(one, one, two)),
        "nothing makes the output z": replace(graph, outputs=("z",)),
        "Conv one: c is (1, 3, 9, 2) float32, not (1, 3, 2, 2)": changed(graph, "c", shape=(1, 3, 9, 2)),
        "Relu two: y is (1, 3, 2, 2) float16, not": changed(graph, "y", dtype="float16"),
        "no operator frob in the table": replace(graph, nodes=(replace(one, op="frob"), two)),
        f"the constant {constant} leaves 1 to 1": replace(graph, constants={constant: graph.constants[constant] * 9}),
        f"the constant {constant} has shape (3,), not": replace(graph, constants={constant: np.ones(3, np.int64)}),
    }
    graph.check()
    for why, bad in wrong.items():
        with pytest.raises(SpecError) as error:
            bad.check()
        assert why in str(error.value)


def test_a_graph_cannot_be_changed(graph):
    with pytest.raises(AttributeError):
        graph.nodes[0].op = "relu"
    with pytest.raises(TypeError):
        graph.edges["c"] = graph.edges["y"]
    with pytest.raises(TypeError):
        graph.nodes[0].attributes["groups"] = 2
    with pytest.raises(ValueError, match="read-only"):
        next(iter(graph.constants.values()))[:] = 0


def test_inputs_that_do_not_fit(graph):
    x = np.ones((1, 2, 4, 4), np.float32)
    for inputs, why in (
        ({}, "input x is missing"),
        ({"x": x[0]}, r"input x has shape \(2, 4, 4\), not \(1, 2, 4, 4\)"),
        ({"x": x, "z": x}, "no input z; the network's are x"),
    ):
        with pytest.raises(SpecError, match=why):
            run(graph, inputs)


def test_products_after_a_mean_have_integer_factors(rng):
    nodes = [
        node("QuantizeLinear", "x s", "q"),
        node("DequantizeLinear", "q s", "d"),
        node("GlobalAveragePool", "d", "p"),
        node("Flatten", "p", "f"),
        node("DequantizeLinear", "w t", "v", axis=1),
        node("Gemm", "f v b", "y"),
    ]
    given = {
        "s": np.float32(0.3),
        "w": rng.integers(-9, 9, (4, 5)).astype(np.int8),
        "t": rng.uniform(0.1, 1, 5).astype(np.float32),
        "b": rng.normal(size=5).astype(np.float32),
    }
    onnx_model = model(nodes, {"x": (2, 4, 7, 7)}, given)
    graph = read(onnx_model)
    graph.check()
    assert [n.op for n in graph.nodes] == ["quantize", "reduce_sum", "reshape", "matmul", "div", "add"]
    assert isinstance(graph.edges[graph.nodes[3].outputs[0]].type, Integers)
    x = rng.uniform(0, 9, (2, 4, 7, 7)).astype(np.float32)
    values, floats = run(graph, {"x": x}), run(read(onnx_model, reference="onnx"), {"x": x})
    np.testing.assert_allclose(values.outputs()[0], floats.outputs()[0], rtol=1e-4, atol=1e-5)


def test_every_row_has_a_name_of_its_own():
    assert all(name == row.name for name, row in TABLE.items())
    assert {row.kind for row in TABLE.values()} == {"elementwise", "step", "move", "product", "pool", "reduction"}


def test_monotone_rows_are_monotone():
    """Of one operand, by exact arithmetic, over a line of numbers: what `monotone` says and what it leaves out."""
    x = np.linspace(-3, 3, 601)[None]
    slopes = (-0.5, -1e-30, 0.0, 0.25, 3.0, np.full((1, 1), 0.5, np.float32), np.full((1, 1), -0.5, np.float32))
    attributes: list[tuple[str, dict[str, Any]]] = [
        *((name, {}) for name in ("relu", "neg", "abs")),
        ("cast", {"dtype": "float64"}),
        ("clip", {"low": -1.0, "high": 1.0}),
        ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
        ("hard_swish", {"alpha": 1 / 6}),
        *(("leaky_relu", {"alpha": slope}) for slope in slopes),
    ]
    for name, given in attributes:
        graph = read(model([node("Relu", "x", "y")], {"x": x.shape}), reference="exact")
        (only,) = graph.nodes
        graph = replace(graph, nodes=(Node("y", name, only.inputs, only.outputs, MappingProxyType(given)),))
        steps = np.diff(run(graph, {"x": x}).floats("y").reshape(-1).astype(float))
        (result,) = graph.nodes
        assert TABLE[name].is_monotone(result) == bool((steps >= 0).all() or (steps <= 0).all()), (name, given)


def test_limits_by_column_are_none_by_channel():
    """Sums of a matrix product differ in range along the last axis; a pool and a convolution count along axis 1."""
    w = np.arange(16, dtype=np.float32).reshape(4, 4)
    nodes = [node("MatMul", "x w", "s"), node("MaxPool", "s", "p", kernel_shape=[2]), node("Conv", "s v")]
    onnx_model = model(nodes, {"x": (1, 4, 4)}, {"w": w, "v": np.eye(4, dtype=np.float32)[..., None]}, outputs="p y")
    graph = read(onnx_model, codes=InputCodes(1))
    values = run(graph, {"x": np.ones((1, 4, 4))})
    for name in ("p", "y"):
        value, kind = values[name], graph.edges[name].integers
        assert (value <= np.broadcast_to(kind.high, value.shape)).all()


def test_truncated_codes_keep_their_range():
    nodes = [
        node("Quant", "x s z b", "q", domain=QONNX, signed=1, narrow=0),
        node("Trunc", "q s z b o", domain=QONNX),
    ]
    given = {"s": np.float32(0.5), "z": np.float32(0), "b": np.float32(8), "o": np.float32(3)}
    kind = read(model(nodes, {"x": (1, 4)}, given)).edges["y"].integers
    assert (kind.least, kind.most) == (-4, 3)


def test_a_divisor_stays_where_integers_would_grow_too_large():
    nodes = [
        node("Quant", "x s z b", "q", domain=QONNX, signed=1, narrow=0),
        node("AveragePool", "q", "m", kernel_shape=[1, 3]),
        node("Conv", "m w"),
    ]
    w = np.full((1, 200, 1, 1), 127, np.float32)
    given = {"s": np.float32(0.5), "z": np.float32(0), "b": np.float32(16), "w": w}
    graph = read(model(nodes, {"x": (1, 200, 1, 3)}, given))
    assert [n.op for n in graph.nodes] == ["quantize", "sum_pool", "div", "conv"]


def test_every_pass_has_a_name_of_its_own_and_an_example():
    passes = (*IMPORT_PASSES, *lowering_passes(NetworkTarget("avx2")))
    assert len({each.name for each in passes}) == len(passes)
    for each in passes:
        text = getattr(each.run, "func", each.run).__doc__
        assert "Given:" in text
        assert "Result:" in text


def test_the_digest_does_not_depend_on_the_order_of_a_set(graph):
    """The order of a set of names is another one in each process, in which `bitsynth verify --model` computes it."""
    assert digest(replace(graph, file_names=frozenset({"x", "other"}))) == digest(graph)
    assert digest(replace(graph, name="other")) != digest(graph)
