"""Weights and biases that make up for what quantizers lost."""

import numpy as np
import pytest
from support.onnx_files import float_network, model, node

from bitsynth.progress import silent
from bitsynth.quantization.calibration import Calibration
from bitsynth.quantization.float_model import FloatModel, FloatRunner
from bitsynth.quantization.quantized_model import Corrections, Widths, write_model
from bitsynth.quantization.reconstruction import _windows, reconstruct
from bitsynth.quantization.rounding import fit_weights


def test_weights_are_fitted_to_quantized_inputs():
    """The example of the module; damping keeps the weight a little below 6."""
    exact = np.array([[1.0], [2.0], [3.0]])
    inputs = np.array([[1.0], [1.0], [2.0]], np.float32)
    weights = np.array([[4.0]])
    fitted, moments = fit_weights(weights, inputs, (exact - inputs) @ weights.T)
    assert moments == pytest.approx(2 / 3)
    assert 5.5 < fitted[0, 0] < 6


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": [1, 1, 1, 1]},
        {"strides": [2, 1], "pads": [0, 1, 2, 0]},
        {"dilations": [2, 1], "pads": [1, 0, 1, 0]},
    ],
)
def test_windows_are_those_of_the_convolution(attributes):
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(2)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 3, 7, 6), (4, 3, 3, 2)))
    conv = node("Conv", "x w", "y", **attributes)
    conv.name = "n0"
    onnx_model = model([conv], {"x": x.shape}, {"w": w}, opset=17)
    y = runtime.InferenceSession(onnx_model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]
    results = np.moveaxis(y, 1, -1).reshape(-1, 4)
    places = rng.permutation(len(results))[:9]
    rows = _windows(conv, x, (3, 2), places)
    np.testing.assert_allclose(rows @ w.reshape(4, -1).T, results[places], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_reconstructed_networks_lose_less(op):
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(4)
    weights = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 8, 3, 3), "w4": (8, 5)}
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "a1"),
        node("Conv", "a1 w2", "c2", pads=[1, 1, 1, 1]),
        node(op, "c2 a1", "s"),
        node("Relu", "s", "a2"),
        node("Conv", "a2 w3", "c3", pads=[1, 1, 1, 1]),
        node("Relu", "c3", "a3"),
        node("GlobalAveragePool", "a3", "p"),
        node("Flatten", "p", "f"),
        node("MatMul", "f w4", "y"),
    ]
    values = {name: rng.normal(size=shape) / 5 for name, shape in weights.items()}
    network = FloatModel(float_network(nodes, {"x": (1, 3, 8, 8)}, values))
    data = rng.normal(size=(160, 1, 3, 8, 8)).astype(np.float32)
    calibration = Calibration(network, [{"x": x} for x in data[:80]])
    calibration.collect(silent)
    edges = {**dict.fromkeys(network.searched_edges, 3), **dict.fromkeys(network.other_edges, 8)}
    widths = Widths(edges, {product.name: 2 for product in network.products})
    exact = FloatRunner(network.model, ["y"])

    def lost(corrections):
        run = FloatRunner(write_model(calibration, widths, corrections, runnable=True), ["y"])
        return np.mean([np.square(run({"x": x})["y"] - exact({"x": x})["y"]).mean() for x in data[80:]])

    corrections = reconstruct(calibration, widths)
    biases = Corrections({name: corrections.bias[name] * 0 for name in corrections.bias})
    assert lost(corrections) < 0.5 * lost(biases)
    assert set(corrections.weights) == {product.name for product in network.products}
