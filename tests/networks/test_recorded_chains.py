"""Chains of certificates, as the operator table's own meanings are recorded, against chains that are written here."""

import numpy as np
import pytest
from support.fusion_cases import Small

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.types import Reals, full_range
from bitsynth.network.certificate.arrays import decode_array
from bitsynth.network.certificate.chains import ChainWriter, Unsupported


def recorded(builder: GraphBuilder, start: str) -> list[str]:
    """The operations of all nodes after an edge, constants by their numbers."""
    graph = builder.build(builder.nodes[-1].outputs)
    chain = ChainWriter(graph, (2, 1))
    chain.start("sum", graph.edges[start])
    for node in graph.nodes:
        chain.add(node)
    constants = {
        name: " ".join(f"{x:g}" for x in np.ravel(decode_array(text))) for name, text in chain.constants.items()
    }
    return [f"{op.result} = {op.op} {', '.join(constants.get(x, x) for x in op.of)}" for op in chain.ops]


ROOT = "v0 = add 4.5, 0\nv1 = root v0"
BATCH_NORMS = {
    "exact": "v2 = sub sum, 3.5\nv3 = div 6.5, v1\nv4 = mul v2, v3\nv5 = add v4, 5.5",
    "onnx": "v2 = sub sum, 3.5\nv3 = mul v2, 6.5\nv4 = div v3, v1\nv5 = add v4, 5.5",
    "onnxruntime": """v2 = div 1, v1\nv3 = mul v2, 6.5\nv4 = mul sum, v3\nv5 = mul 3.5, v3\nv6 = sub 5.5, v5
v7 = add v4, v6""",
}


@pytest.mark.parametrize("reference", BATCH_NORMS)
def test_a_batch_norm_has_the_order_of_its_reference(reference):
    small = Small(reference)
    start = small.input("x", (1, 2), "float32", Reals())
    numbers = [small.constant(np.full((1, 1), x, np.float32)) for x in (6.5, 5.5, 3.5, 4.5)]
    small.add("batch_norm", start, *numbers, epsilon=0.0)
    assert recorded(small, start) == f"{ROOT}\n{BATCH_NORMS[reference]}".splitlines()


HALVES = {
    "ROUND": "v1 = round v0",
    "HALF_ODD": "v1 = add v0, 1\nv2 = round v1\nv3 = sub v2, 1",
    "HALF_UP": """v1 = add v0, 0.5\nv2 = sub v0, 0.5\nv3 = floor v1\nv4 = max v3, 0\nv5 = ceil v2\nv6 = min v5, 0
v7 = add v4, v6""",
    "DOWN": "v1 = floor v0\nv2 = max v1, 0\nv3 = ceil v0\nv4 = min v3, 0\nv5 = add v2, v4",
}


@pytest.mark.parametrize("mode", HALVES)
def test_a_quantizer_rounds_then_clips(mode):
    small = Small()
    start = small.input("x", (1, 2), "float32", Reals())
    small.add(
        "quantize", start, scale=np.float32(2), zero=np.zeros(()), out_scale=np.full((), 2.0), out_zero=np.zeros(()),
        low=-3, high=7, rounding=mode, zero_first=False, real="float32",
    )  # fmt: skip
    rounded = HALVES[mode].splitlines()
    last = len(rounded)
    clipped = [f"v{last + 1} = max v{last}, -3", f"v{last + 2} = min v{last + 1}, 7"]
    assert recorded(small, start) == ["v0 = div sum, 2", *rounded, *clipped]


@pytest.mark.parametrize(
    ("reference", "sigmoid"), [("exact", ["v0 = sigmoid sum"]), ("onnx", None)], ids=["exact", "onnx"]
)
def test_a_curve_is_recorded_of_exact_numbers_alone(reference, sigmoid):
    small = Small(reference)
    start = small.input("x", (1, 2), "float32", Reals())
    small.add("sigmoid", start)
    if sigmoid is not None:
        assert recorded(small, start) == sigmoid
        return
    with pytest.raises(Unsupported, match="sigmoid is as the reference computes it in floats"):
        recorded(small, start)


@pytest.mark.parametrize("name", ["neg", "abs"])
def test_integers_that_may_wrap_are_not_recorded(name):
    small = Small("onnx")
    start = small.input("x", (1, 2), "int8", full_range("int8"))
    small.add(name, start)
    with pytest.raises(Unsupported, match="may wrap"):
        recorded(small, start)
