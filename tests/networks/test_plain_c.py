"""Plain C of the operators: what the reference says, at every edge."""

import numpy as np
import pytest
from support.network_batches import QUICK, compiled_together
from support.onnx_files import model, node, quant
from support.plain_cases import CASES, graph_of

import bitsynth.network.lower as lowering
from bitsynth.emit.runtime_files import glue_files, network_files, runtime_files
from bitsynth.graph import read, run
from bitsynth.graph.arithmetic import REFERENCES, Interval
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Integers
from bitsynth.layers.library import FLAGS
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.plain.group import GENERATORS
from bitsynth.network.plain.loops import ConstantArrays, Loops
from bitsynth.network.run import Network

FAST = ("thresholds", "narrow floats", "fixed point", "lookup", "softmax of codes")
ROUNDED = (
    *(
        "elementwise",
        "narrow floats",
        "integers of the file",
        "round",
        "quantize",
        "thresholds",
        "trunc",
        "requantize",
        "softmax",
        "rank",
    ),
    *("conv grouped", "conv few pixels", "matmul", "pools 1", "reductions along (2, 3)", "concatenate"),
)
"""What a reference of floats rounds, or may round."""


def near(result, want, tolerance):
    size = np.abs(want[np.isfinite(want)]).max(initial=0)
    return np.allclose(result, want, rtol=tolerance, atol=tolerance * size, equal_nan=True)


def is_right(edge, result, want):
    """Integers are equal; real numbers of float64 nearly, and floats of the file to their last bit or so."""
    if isinstance(edge.type, Integers):
        return np.array_equal(result, want)
    if isinstance(want, Interval):
        return near(result, (want.low + want.high) / 2, 1e-13)
    return near(result.astype(np.float64), want.astype(np.float64), 2e-7)


def require_right(monkeypatch, rng, names, reference, flags=FLAGS):
    monkeypatch.setattr(lowering, "PATTERNS", ())
    graph, inputs = graph_of(names, reference, rng)
    net = Network(lowering.lower(graph, NetworkTarget("avx2")))
    compiled_together("avx2", [net], flags)
    result, want = net.trace(inputs), run(graph, inputs)
    wrong = [n for n, e in graph.edges.items() if n in result and n not in (*graph.inputs, *graph.outputs)
             if not is_right(e, result[n], want[n])]  # fmt: skip
    for name, got, values in zip(graph.outputs, net(inputs), want.outputs(), strict=True):
        if not near(got.astype(np.float64), values.astype(np.float64), 1.2e-7):
            wrong.append(name)
    assert not wrong


def test_every_operator_has_plain_c():
    assert GENERATORS.keys() == TABLE.keys()
    used = {node.op for name in CASES for node in graph_of([name], "exact", np.random.default_rng(0))[0].nodes}
    assert used == TABLE.keys()


def test_layers_alone_take_no_header_of_networks():
    alone = runtime_files(threads=True) | glue_files(threads=True)
    assert network_files().keys() - alone.keys() >= {"bs_real.h", "bs_product.h"}


def test_a_network_of_plain_c(monkeypatch, rng):
    require_right(monkeypatch, rng, FAST, "exact")


@pytest.mark.slow
@pytest.mark.parametrize("reference", REFERENCES)
def test_plain_c_of_every_operator(monkeypatch, rng, reference):
    flags = ("-O2",) if reference == "exact" else QUICK  # GCC takes twice as long for this file at -O3.
    require_right(monkeypatch, rng, CASES if reference == "exact" else ROUNDED, reference, flags)


def test_what_is_no_number_is_the_least_code():
    given = {"s": np.float32(0.1), "z": np.int16(5)}
    graph = read(model([node("QuantizeLinear", "x s z")], {"x": (1, 4)}, given), reference="onnxruntime")
    x = np.array([[np.nan, np.inf, -np.inf, 0]], np.float32)
    want = [[-32768, 32767, -32768, 5]]
    assert run(graph, {"x": x})["y"].tolist() == want
    assert Network(lowering.lower(graph, NetworkTarget("avx2")))(x).tolist() == want


def test_scales_beside_zero():
    graph = read(quant(4, 1e-45))
    assert lowering.lower(graph, NetworkTarget("avx2")).steps


def test_places_from_a_table_are_looked_up_though_there_is_one():
    """As for the last pixel of an image whose windows come four at a time."""
    loops = Loops((2, 1), ConstantArrays())
    loops.do(f"{loops.at('out', [1, 1])} = {loops.at('x', [7, 'k[{i}]'])};")
    assert "out[i0 + i1] = x[i0 * 7 + (k[i1])];" in loops.render()
