"""Encodings of weights as a choice of the search: bipolar weights are odd, have no zero, and need no sums of rows."""

import json

import numpy as np
import onnx
import pytest
from support.onnx_files import float_network, node

import bitsynth
from bitsynth.graph.read import read
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.progress import silent
from bitsynth.quantization import quantize
from bitsynth.quantization.calibration import Calibration
from bitsynth.quantization.float_model import FloatModel, FloatRunner, simplify
from bitsynth.quantization.goal import Cost, SearchGoal
from bitsynth.quantization.grids import WeightCodes
from bitsynth.quantization.layer_costs import cost_with_codes, find_layers, layer_cost
from bitsynth.quantization.quantized_model import Widths, write_model
from bitsynth.quantization.reconstruction import reconstruct
from bitsynth.quantization.search import Search

pytest.importorskip("onnxruntime")
pytest.importorskip("scipy")
pytestmark = pytest.mark.slow

BIPOLAR, TERNARY = WeightCodes(2, bipolar=True), WeightCodes(2)


def network(second):
    """A float network of three convolutions; the second has the weights `second`."""
    rng = np.random.default_rng(2)
    values = {"w1": rng.normal(size=(16, 3, 3, 3)) / 5, "w2": second, "w3": rng.normal(size=(16, 16, 3, 3)) / 12}
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "a1"),
        node("Conv", "a1 w2", "c2", pads=[1, 1, 1, 1]),
        node("Relu", "c2", "a2"),
        node("Conv", "a2 w3", "y", pads=[1, 1, 1, 1]),
    ]
    return float_network(nodes, {"x": (1, 3, 12, 12)}, values)


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(7).normal(size=(24, 3, 12, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def calibration(data):
    weights = np.random.default_rng(5).normal(size=(16, 16, 3, 3)) / 12
    result = Calibration(FloatModel(simplify(network(weights), {}, None, {})), [{"x": x[None]} for x in data])
    result.collect(silent)
    return result


def widths_of(calibration, codes):
    edges = {
        **dict.fromkeys(calibration.network.searched_edges, 2),
        **dict.fromkeys(calibration.network.other_edges, 8),
    }
    names = [p.name for p in calibration.network.products]
    return Widths(edges, dict.fromkeys(names, codes.bits), frozenset(names if codes.bipolar else ()))


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_files_with_bipolar_weights_compile_to_kernels_of_as_many_bits(bits, calibration):
    widths = widths_of(calibration, WeightCodes(bits, bipolar=True))
    corrections = reconstruct(calibration, widths)
    exact = FloatRunner(write_model(calibration, widths, corrections, runnable=True), ["y"])
    for form in ("qonnx", "qcdq"):
        model = write_model(calibration, widths, corrections, file_format=form)
        # On AVX2 the quickest kernel of these layers takes signed bytes.
        kernels = [step.kernel for step in bitsynth.compile(model, isa="neon").report().steps if step.kernel]
        assert [f"_w{bits}b_" in kernel for kernel in kernels[1:]] == [True, True]
        net = bitsynth.compile(model, isa="avx2")
        for sample in calibration.samples[:4]:
            np.testing.assert_allclose(net(sample), exact(sample)["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("codes", [TERNARY, BIPOLAR, WeightCodes(3), WeightCodes(8)], ids=str)
def test_costs_of_other_codes_are_those_of_the_network_compiled_with_them(codes, calibration):
    target, products = NetworkTarget("avx2", 1, ""), calibration.network.products
    programs = [
        lower(read(write_model(calibration, widths_of(calibration, each))), target) for each in (WeightCodes(4), codes)
    ]
    before, wanted = (find_layers(products, program) for program in programs)
    for product in products:
        planned = cost_with_codes(before[product.name], codes, target)
        compiled = layer_cost(wanted[product.name], target)
        assert planned.cycles == pytest.approx(compiled.cycles, rel=0.01)
        assert planned.bytes == pytest.approx(compiled.bytes, rel=0.05)


@pytest.mark.parametrize(
    ("cycles", "loss", "wanted"),
    [
        ({BIPOLAR: 90.0, TERNARY: 100.0}, {BIPOLAR: 0.1, TERNARY: 0.1}, BIPOLAR),
        ({BIPOLAR: 100.0, TERNARY: 90.0}, {BIPOLAR: 0.1, TERNARY: 0.1}, TERNARY),
        ({BIPOLAR: 90.0, TERNARY: 100.0}, {BIPOLAR: 0.9, TERNARY: 0.1}, TERNARY),
    ],
)
def test_a_layer_takes_the_encoding_that_is_cheaper_within_the_loss(cycles, loss, wanted, calibration):
    search = Search(calibration, NetworkTarget("avx2", 1, ""), (2,), (2, 8), None, silent)
    others = {WeightCodes(8): 1000.0, **cycles}
    names = [p.name for p in calibration.network.products]
    search.state.costs = {(name, 2, codes): Cost(cost, 0.0) for name in names for codes, cost in others.items()}
    search.state.estimates = {(edge, 2): 0.0 for edge in calibration.network.searched_edges}
    for name in names:
        search.state.estimates |= {(name, codes): lost for codes, lost in {WeightCodes(8): 0.0, **loss}.items()}
    widths = search.solve(SearchGoal("cycles", 0.35, None, None))
    assert {widths.codes(name) for name in names} == {wanted}


def test_of_equal_costs_the_encoding_that_loses_less_is_taken(calibration):
    search = Search(calibration, NetworkTarget("avx2", 1, ""), (2,), (2,), None, silent)
    names = [p.name for p in calibration.network.products]
    search.state.costs = {(name, 2, codes): Cost(9.0, 9.0) for name in names for codes in (TERNARY, BIPOLAR)}
    search.state.estimates = {(edge, 2): 0.0 for edge in calibration.network.searched_edges}
    for k, name in enumerate(names):
        search.state.estimates |= {(name, TERNARY): 0.1 * (k % 2), (name, BIPOLAR): 0.1 * ((k + 1) % 2)}
    widths = search.solve(SearchGoal("cycles", 0.9, None, None))
    assert [widths.codes(name) for name in names] == [TERNARY, BIPOLAR, TERNARY]
    assert search.most_bits == widths


def test_each_layer_takes_the_encoding_of_its_weights(data):
    """Bipolar weights lose less where weights are normal, ternary ones where these are the weights already."""
    ternary = np.random.default_rng(5).choice([-0.1, 0.0, 0.1], size=(16, 16, 3, 3), p=[0.2, 0.6, 0.2])
    report = quantize(network(ternary), data, isa="neon", act_bits=(8,), w_bits=(2,), loss=0.9).report
    assert [layer.w_encoding for layer in report.layers] == ["bipolar", "ternary", "bipolar"]


def test_the_command_shows_encodings(ended, tmp_path, data):
    source, samples, out, page = (tmp_path / name for name in ("net.onnx", "x.npy", "q.onnx", "page.html"))
    onnx.save(network(np.random.default_rng(5).normal(size=(16, 16, 3, 3)) / 12), source)
    np.save(samples, data)
    given = ["quantize", str(source), "--data", str(samples), "--isa", "avx2", "-o", str(out), "--loss", "90%"]
    given += ["--act-bits", "8", "--w-bits", "2", "--html", str(page)]
    report = json.loads(ended(0, *given, "--json")[0])
    encodings = [layer["w_encoding"] for layer in report["layers"]]
    assert "bipolar" in encodings
    assert ended(0, *given)[0].count("2 bits bipolar") == encodings.count("bipolar")
    assert page.read_text().count("2 bits, bipolar") == encodings.count("bipolar")
