"""Each format of a quantized file has the same results, in the reference and in ONNX Runtime."""

import numpy as np
import pytest
from support.onnx_files import model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph.read import read
from bitsynth.graph.reference import run, to_floats
from bitsynth.progress import silent
from bitsynth.quantization import quantize
from bitsynth.quantization.calibration import Calibration
from bitsynth.quantization.float_model import FloatModel, FloatRunner, simplify
from bitsynth.quantization.quantized_model import Widths, write_model
from bitsynth.quantization.reconstruction import reconstruct

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def calibration():
    rng = np.random.default_rng(2)
    values = {"w1": rng.normal(size=(6, 3, 3, 3)), "b1": rng.normal(size=6), "w2": rng.normal(size=(6, 4))}
    nodes = [
        node("Conv", "x w1 b1", "c", pads=[1, 1, 1, 1], name="n0"),
        node("LeakyRelu", "c", "r", alpha=0.25, name="n1"),
        node("GlobalAveragePool", "r", "p", name="n2"),
        node("Flatten", "p", "f", name="n3"),
        node("MatMul", "f w2", "y", name="n4"),
    ]
    constants = {name: value.astype(np.float32) for name, value in values.items()}
    network = FloatModel(simplify(model(nodes, {"x": (1, 3, 5, 5)}, constants, opset=17), {}, 1, {}))
    samples = [{"x": rng.normal(size=(1, 3, 5, 5)).astype(np.float32)} for _ in range(20)]
    found = Calibration(network, samples)
    found.collect(silent)
    return found


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("form", ["qcdq", "qdq"])
def test_formats_have_equal_codes_and_results(form, bits, calibration):
    network = calibration.network
    acts = bits if form == "qcdq" else 8
    edges = {**dict.fromkeys(network.searched_edges, acts), **dict.fromkeys(network.other_edges, 8)}
    widths = Widths(edges, {p.name: bits for p in network.products})
    corrections = reconstruct(calibration, widths)
    files = [write_model(calibration, widths, corrections, file_format=kind) for kind in ("qonnx", form)]
    graphs = [read(file, reference="exact") for file in files]
    floats = FloatRunner(write_model(calibration, widths, corrections, runnable=True), ["y"])
    runtime = FloatRunner(files[1], ["y"])
    for sample in calibration.samples:
        qonnx, other = (to_floats(graph, "y", run(graph, sample)["y"]) for graph in graphs)
        assert np.array_equal(qonnx, other)
        assert np.allclose(runtime(sample)["y"], floats(sample)["y"], rtol=1e-4, atol=1e-4)


def test_formats_compile_to_the_same_kernels(calibration):
    widths = Widths(
        {**dict.fromkeys(calibration.network.searched_edges, 2), **dict.fromkeys(calibration.network.other_edges, 8)},
        {p.name: 2 for p in calibration.network.products},
    )
    files = [write_model(calibration, widths, file_format=kind) for kind in ("qonnx", "qcdq")]
    reports = [bitsynth.compile(file, isa="neon").report() for file in files]
    assert [s.kernel for s in reports[0].steps if s.kernel] == [s.kernel for s in reports[1].steps if s.kernel]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file_format": "qdq"}, "activations of QDQ files have 8 bits"),
        ({"file_format": "qcdq", "w_bits": (1, 8)}, "1-bit weights cannot be written as qcdq"),
        ({"file_format": "tflite"}, "the format is qonnx, qcdq or qdq, not 'tflite'"),
    ],
)
def test_formats_that_cannot_express_the_widths_are_refused(options, message):
    network = model([node("MatMul", "x w", "y")], {"x": (1, 4)}, {"w": np.eye(4, dtype=np.float32)}, opset=17)
    with pytest.raises(SpecError, match=message):
        quantize(network, np.zeros((8, 4), np.float32), isa="neon", **options)
