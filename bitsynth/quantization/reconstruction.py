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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from bitsynth.quantization.calibration import Calibration, FloatRows
from bitsynth.quantization.float_model import FloatRunner, WeightedProduct
from bitsynth.quantization.partial_runs import PartialRuns
from bitsynth.quantization.quantized_model import Corrections, Widths, write_model
from bitsynth.quantization.rounding import fit_weights
from bitsynth.quantization.windows import windows_of

_SAMPLES = 256
"""Samples that are run for each product."""
_ROWS = 16_384
"""Rows of a product's inputs and results, over these samples, from which its weights and biases are found."""


_MAX_KEPT = 1 << 29
"""The most bytes of rows of the float network that are kept; other rows are computed for each choice of widths."""


def reconstruct(calibration: Calibration, widths: Widths) -> Corrections:
    """Return weights and biases of all products for a choice of widths.

    Rows of the float network are computed by the first call; runs of the quantized network start at the product.
    """
    products, samples = calibration.network.products, calibration.samples[:_SAMPLES]
    kept = calibration.float_rows
    if not kept:
        for name, exact in _float_rows(calibration, products).items():
            if exact.nbytes + sum(each.nbytes for each in kept.values()) <= _MAX_KEPT:
                kept[name] = exact
    corrections, runs = Corrections(), PartialRuns(samples)
    for product in products:
        exact = kept.get(product.name) or _float_rows(calibration, [product])[product.name]
        rows = _collect(calibration, product, write_model(calibration, widths, corrections, runnable=True), exact, runs)
        error = rows.wanted - rows.results
        bias, weights = dict(corrections.bias), dict(corrections.weights)
        bias[product.name] = error.mean(0)
        if rows.inputs is not None:
            codes = widths.codes(product.name)
            used = calibration.as_rows(product, calibration.weights(product, codes)[1])
            own = calibration.as_rows(product, calibration.network.constants[product.weights])
            fitted, moments = fit_weights(own, rows.inputs, error + rows.inputs @ (used - own).T)
            weights[product.name] = calibration.round_weights(product, codes, fitted, moments)
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
        wanted: The results that would give the float network's results.
    """

    inputs: NDArray[np.float32] | None
    results: NDArray[np.float32]
    wanted: NDArray[np.float32]


def _float_rows(calibration: Calibration, products: Sequence[WeightedProduct]) -> dict[str, FloatRows]:
    """Run the float network, and return rows of products at random places, the same in every call."""
    network, samples = calibration.network, calibration.samples[:_SAMPLES]
    joined = {p.name: network.residual_after(p.output, through=("Add",)) for p in products}
    added = {name: node.input[which] for name, pair in joined.items() if pair for node, which in [pair]}
    draws = {p.name: np.random.default_rng(0) for p in products}
    share = -(-_ROWS // len(samples))
    run = FloatRunner(
        network.model, [*(p.output for p in products), *(e for e in added.values() if e in network.makers)]
    )
    rows = {p.name: FloatRows([], [], [] if p.name in added else None) for p in products}
    for sample in samples:
        values = {**sample, **run(sample)}
        for product in products:
            results, own = _as_rows(product, values[product.output]), rows[product.name]
            places = draws[product.name].permutation(len(results))[:share]
            own.places.append(places)
            own.results.append(results[places])
            if own.added is not None:
                operand = np.broadcast_to(values[added[product.name]], values[product.output].shape)
                own.added.append(_as_rows(product, operand)[places])
    return rows


def _as_rows(product: WeightedProduct, x: NDArray[Any]) -> NDArray[np.float32]:
    """Return a product's results, or numbers of their shape, as rows (places, channels)."""
    last = np.moveaxis(x, 1, -1) if product.op == "Conv" else x
    return np.asarray(last.reshape(-1, last.shape[-1]), np.float32)


def _collect(
    calibration: Calibration, product: WeightedProduct, quantized: Any, exact: FloatRows, runs: PartialRuns
) -> _Rows:
    """Run the quantized network from where the last product's run began, and return rows at the places of `exact`."""
    network = calibration.network
    nodes = {node.name: node for node in quantized.graph.node}
    node = nodes[product.name]
    is_fitted = product.name in calibration.moments and _has_plain_windows(node)
    joined = network.residual_after(product.output, through=("Add",))
    operand = nodes[joined[0].name].input[joined[1]] if joined else None
    sign = np.float32(1 if joined is None or joined[0].op_type == "Add" else -1)
    edges = [node.output[0], *([operand] if operand else []), *([node.input[0]] if is_fitted else [])]
    runs.advance(quantized, list(quantized.graph.node).index(node))
    inputs, results, wanted = [], [], []
    for k, values in enumerate(runs.run(quantized, edges)):
        places, goal = exact.places[k], exact.results[k]
        own = values[node.output[0]]
        if operand and exact.added is not None:
            ours = np.broadcast_to(values[operand], own.shape)
            goal = goal + sign * (exact.added[k] - _as_rows(product, ours)[places])
        wanted.append(goal)
        results.append(_as_rows(product, own)[places])
        if is_fitted:
            weights = network.constants[product.weights]
            x = np.asarray(values[node.input[0]], np.float32)
            inputs.append(
                _windows(node, x, weights.shape[2:], places)
                if product.op == "Conv"
                else x.reshape(-1, x.shape[-1])[places]
            )
    return _Rows(np.concatenate(inputs) if inputs else None, np.concatenate(results), np.concatenate(wanted))


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
