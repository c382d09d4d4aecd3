"""Networks drawn at random are read, stay within the ranges derived for them, and are what ONNX Runtime computes."""

import os
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.shape_inference import infer_shapes
from support.random_graphs import DIALECTS, RandomGraph

from bitsynth.graph import read, run
from bitsynth.graph.types import Integers

# Constants at the ends of int32 are drawn on purpose: reading warns of them.
pytestmark = pytest.mark.filterwarnings("ignore::bitsynth.errors.BitsynthWarning")
ASKED = int(os.environ.get("BITSYNTH_GRAPHS", "0"))
SMALL = (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2)


def evaluated(drawn, **options):
    """The values of all edges, each within its range."""
    graph = read(drawn.model, **options)
    graph.check()
    given = drawn.data()
    values = run(graph, {name: given[name] for name in graph.inputs})
    for name, edge in graph.edges.items():
        kind, value = edge.type, values[name]
        if isinstance(kind, Integers):
            assert value.shape == edge.shape
            off = (value < kind.low) | (value > kind.high) | ((value - kind.low) % kind.step != 0)
            assert off.shape == edge.shape
            assert not off.any(), f"{drawn}: {name}"
    return values


def onnxruntime_values(package, result):
    """Edges by name as ONNX Runtime computes them without optimization, but for types that Python cannot have."""
    model = onnx.load_model_from_string(result.model.SerializeToString())
    small = {v.name for v in infer_shapes(model).graph.value_info if v.type.tensor_type.elem_type in SMALL}
    names = {o for n in model.graph.node for o in n.output} - small - {o.name for o in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names))
    options = package.SessionOptions()
    options.graph_optimization_level = package.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = package.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = [o.name for o in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, result.data()), strict=True))


def differing(package, result):
    """The operator, in the file's order, whose result differs first from ONNX Runtime's; empty if none does."""
    want = onnxruntime_values(package, result)
    values = evaluated(result, reference="onnxruntime")
    for node in result.model.graph.node:
        name = node.output[0]
        if name in want and name in values.graph.edges:
            got = values.floats(name)
            assert (got.shape, got.dtype) == (want[name].shape, want[name].dtype)
            if (got != want[name]).any():
                np.testing.assert_allclose(got, want[name], rtol=1e-4, atol=1e-6 + 1e-4 * np.abs(got).max())
                return node.op_type
    return ""


def test_a_seed_says_all():
    assert RandomGraph(7).model == RandomGraph(7).model
    assert {RandomGraph(k).dialect for k in range(5)} == set(DIALECTS)


def test_values_of_random_graphs_stay_in_their_ranges():
    for seed in range(15):
        evaluated(RandomGraph(seed))


@pytest.mark.slow
@pytest.mark.timeout(600 + ASKED)
def test_many_ranges_hold():
    seen = Counter(node.op for seed in range(ASKED or 500) for node in evaluated(RandomGraph(seed)).graph.nodes)
    assert len(seen) > 40 or 0 < ASKED < 500


@pytest.mark.slow
@pytest.mark.timeout(600 + ASKED)
def test_onnxruntime_agrees_on_random_graphs():
    """To the bit, but for functions and for float sums, whose order is open: the first difference is one of these."""
    package = pytest.importorskip("onnxruntime")
    inexact = {"Sigmoid", "Tanh", "Softmax", "Exp"}
    sums = {
        "Conv",
        "MatMul",
        "Gemm",
        "BatchNormalization",
        "GlobalAveragePool",
        "AveragePool",
        "ReduceMean",
        "ReduceSum",
    }
    for seed in range(ASKED or 300):
        random_graph = RandomGraph(seed)
        if random_graph.dialect != "qonnx":
            allowed = inexact | (
                set() if random_graph.is_dyadic or random_graph.dialect in ("qlinear", "integer") else sums
            )
            assert differing(package, random_graph) in {"", *allowed}, random_graph
