"""Reconstruction of products: weights and biases that make up for what the quantizers before a product lost.

Products are rounded in order. Each sees the inputs that the quantized network has there, after all that was rounded
before it, and has to give the results of the float network. Real weights for that are found by least squares, and are
rounded as any weights are. Before a residual addition the results also make up for what the other operand lost. It is
the layer-wise problem of AdaRound (Nagel et al., 2020, section 3.3) with the inputs of the quantized network, solved
without gradients. Biases are free: weights are fitted to inputs less their means, and biases correct the means.

Given:   y = 4 x for x = 1, 2, 3, and a quantizer of x that gives 1, 1, 2
Result:  the weight 6 and the bias 0, the least squares for 4, 8, 12 of 1, 1, 2; then 6 rounded to the grid of weights
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from bitsynth.network.check.data import Feed
from bitsynth.quantization.calibration import Calibration
from bitsynth.quantization.float_model import FloatRunner, WeightedProduct
from bitsynth.quantization.quantized_model import Corrections, Widths, write_model
from bitsynth.quantization.rounding import fit_weights
from bitsynth.quantization.windows import windows_of

_SAMPLES = 256
"""Samples that are run for each product."""
_ROWS = 16_384
"""Rows of a product's inputs and results, over these samples, from which its weights and biases are found."""


def reconstruct(calibration: Calibration, widths: Widths) -> Corrections:
    """Return weights and biases of all products for a choice of widths."""
    corrections = Corrections()
    for product in calibration.network.products:
        rows = _collect(calibration, product, widths, corrections)
        error = rows.wanted - rows.results
        bias, weights = dict(corrections.bias), dict(corrections.weights)
        bias[product.name] = error.mean(0)
        if rows.inputs is not None:
            bits = widths.weights[product.name]
            used = calibration.as_rows(product, calibration.weights(product, bits)[1])
            own = calibration.as_rows(product, calibration.network.constants[product.weights])
            fitted, moments = fit_weights(own, rows.inputs, error + rows.inputs @ (used - own).T)
            weights[product.name] = calibration.round_weights(product, bits, fitted, moments)
            change = calibration.as_rows(product, weights[product.name][1]) - used
            bias[product.name] -= change @ rows.inputs.mean(0)
        corrections = Corrections(bias, weights)
    return corrections


@dataclass(frozen=True)
class _Rows:
    """Rows of a product at the same places of the same samples.

    Args:
        inputs: Of the quantized network, (rows, depth); None if weights are not fitted.
        results: Of the quantized network, (rows, channels).
        wanted: The results that would give those of the float network.
    """

    inputs: NDArray[np.float32] | None
    results: NDArray[np.float32]
    wanted: NDArray[np.float32]


def _collect(calibration: Calibration, product: WeightedProduct, widths: Widths, corrections: Corrections) -> _Rows:
    """Run both networks, and return rows at random places."""
    network, rng = calibration.network, np.random.default_rng(0)
    quantized = write_model(calibration, widths, corrections, runnable=True)
    nodes = {node.name: node for node in quantized.graph.node}
    node = nodes[product.name]
    is_fitted = product.name in calibration.moments and _has_plain_windows(node)
    joined = network.residual_after(product.output, through=("Add",))
    float_edges, edges = [product.output], [node.output[0]]
    if joined:
        float_edges.append(joined[0].input[joined[1]])
        edges.append(nodes[joined[0].name].input[joined[1]])
    if is_fitted:
        edges.append(node.input[0])
    in_floats, run = FloatRunner(network.model, float_edges), FloatRunner(quantized, edges)
    samples = calibration.samples[:_SAMPLES]
    share = -(-_ROWS // len(samples))
    inputs, results, wanted = [], [], []
    for sample in samples:
        exact, values = _values(in_floats, sample, float_edges), _values(run, sample, edges)
        goal = exact[0]
        if joined:
            goal = goal + (exact[1] - values[1]) * np.float32(1 if joined[0].op_type == "Add" else -1)
        if product.op == "Conv":
            goal, values[0] = (np.moveaxis(x, 1, -1) for x in (goal, values[0]))
        goal, own = (x.reshape(-1, x.shape[-1]) for x in (goal, values[0]))
        places = rng.permutation(len(goal))[:share]
        wanted.append(goal[places])
        results.append(own[places])
        if is_fitted:
            weights = network.constants[product.weights]
            x = values[-1]
            inputs.append(
                _windows(node, x, weights.shape[2:], places)
                if product.op == "Conv"
                else x.reshape(-1, x.shape[-1])[places]
            )
    return _Rows(np.concatenate(inputs) if inputs else None, np.concatenate(results), np.concatenate(wanted))


def _values(run: FloatRunner, sample: Feed, edges: list[str]) -> list[NDArray[np.float32]]:
    values = {**sample, **run(sample)}
    return [np.asarray(values[name], np.float32) for name in edges]


def _has_plain_windows(node: Any) -> bool:
    """Return whether a product's results are its inputs, or windows of them, times weights."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return bool(attributes.get("auto_pad", b"NOTSET") == b"NOTSET" and attributes.get("alpha", 1.0) == 1.0)


def _windows(
    node: Any, x: NDArray[np.float32], kernel: tuple[int, ...], places: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the windows (places, depth) of a convolution, in the order of its weights, at some of its results."""
    count = len(kernel)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    pads = attributes.get("pads", [0] * 2 * count)
    ends = list(zip(pads[:count], pads[count:], strict=True))
    windows = windows_of(x, kernel, ends, attributes.get("strides", ()), attributes.get("dilations", ()))
    by_place = np.moveaxis(windows, 1, 1 + count)  # (batch, *image, channels, *kernel)
    chosen = by_place[np.unravel_index(places, by_place.shape[: 1 + count])]
    return np.ascontiguousarray(chosen.reshape(len(places), -1))
