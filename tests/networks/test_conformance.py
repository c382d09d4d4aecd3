"""The node tests of the onnx package, for every operator that is read, but for the forms that are refused."""

import re
import warnings

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from support.node_cases import QUANTIZED, REFUSED, SMALL_FLOATS

from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.read.nodes import constants_and_moves
from bitsynth.graph.read.readers import reader_of

PARAMETERS = {
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    **dict.fromkeys(("Clip", "Dropout", "Expand", "Gather", "Pad", "Pow", "Reshape", "Tile", "TopK"), range(1, 4)),
    **dict.fromkeys(("Resize", "Slice", "Split", "Squeeze", "Unsqueeze", "Upsample", "CastLike"), range(1, 5)),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"), (1,)),
    **dict.fromkeys(("ReduceL1", "ReduceL2", *constants_and_moves.INDEXED_READERS), (1,)),
    **dict.fromkeys(constants_and_moves.FOLDED_READERS, range(4)),
    **dict.fromkeys(("GRU", "LSTM"), (4,)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "ConvInteger", "MatMulInteger"), (1, 2, 3)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "BatchNormalization", "LayerNormalization"), range(1, 8)),
}
"""Inputs that must be constants, by operator: the cases give them at run time."""
FEW_OF_8 = 2.0**-6
"""What a few roundings to the 8 bits of bfloat16 may put a number off by, of its size."""


@pytest.fixture(scope="module")
def cases():
    """The cases whose operators are all read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = collect_testcases(None)
    return [c for c in every if all(reader_of(n.op_type, n.domain) for n in c.model.graph.node)]


def array(value):
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def fixed(model, given):
    """Values of inputs that must be constants."""
    places = [(n.input[k], k) for n in model.graph.node for k in PARAMETERS.get(n.op_type, ()) if k < len(n.input)]
    return {name: given[name] for name, _ in places if name in given}


def failure(case, reference):
    """What is wrong with the results of a case; empty if nothing is."""
    for inputs, wanted in case.data_sets:
        given = dict(zip((i.name for i in case.model.graph.input), map(array, inputs), strict=False))
        try:
            graph = read(case.model, reference=reference, fixed=fixed(case.model, given))
            graph.check()
            got = run(graph, {name: given[name] for name in graph.inputs}).outputs()
        except SpecError as error:
            return f"refused: {error}"
        for a, b in zip(got, map(array, wanted), strict=True):
            if (a.dtype, a.shape) != (b.dtype, b.shape):
                return f"{a.dtype} {a.shape} for {b.dtype} {b.shape}"
            x, y = (np.asarray(v, np.float64) for v in (a, b))
            rtol = max(case.rtol, FEW_OF_8 if a.dtype == "bfloat16" else 0)
            if not np.allclose(x, y, rtol=rtol, atol=case.atol, equal_nan=True):
                return "other numbers"
    return ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_node_cases_of_onnx_pass(cases):
    failed = {c.name: why for c in cases if (why := failure(c, "onnx"))}
    wrong = {name: why for name, why in failed.items() if not any(re.search(p, name) for p in REFUSED)}
    assert not wrong, "\n".join(f"{k}: {v}" for k, v in wrong.items())
    assert {name for name, why in failed.items() if not why.startswith("refused")} == set()
    assert len(cases) - len(failed) > 600


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reference", ["exact", "onnxruntime", None])
def test_quantized_cases_of_onnx_pass(cases, reference):
    """All 37 quantized cases without small floats, and the 60 casts to and from 2 and 4 bits.

    Exact arithmetic computes other scales than float32 where these depend on data; a file that names no reference is
    not read so.
    """
    chosen = [c for c in cases if QUANTIZED.search(c.name) and not SMALL_FLOATS.search(c.name)]
    failed = {c.name: why for c in chosen if (why := failure(c, reference))}
    exact = {"test_dynamicquantizelinear", "test_dynamicquantizelinear_expanded"}
    assert set(failed) <= (exact if reference == "exact" else set()), failed
    assert len(chosen) == 97
