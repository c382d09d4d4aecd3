"""Statistics of a float network on calibration inputs: numbers of edges, second moments of inputs, rounded weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.network.check.data import Feed
from bitsynth.progress import Progress
from bitsynth.quantization.float_model import FloatModel, FloatRunner, WeightedProduct
from bitsynth.quantization.grids import (
    LEAST_SQUARES,
    SIGNIFICANT_BITS,
    QuantizerGrid,
    RangeRule,
    WeightCodes,
    activation_grid,
    shorten,
    weight_grid,
)
from bitsynth.quantization.rounding import learn_rounding
from bitsynth.quantization.windows import windows_of
from bitsynth.spec.matmul import MAX_BITS

_KEPT_NUMBERS = 200_000
"""Numbers of an edge that are kept to choose its grid."""
_ROWS = 16_384
"""The most input rows, over all samples, from which a product's second moments are computed."""
_SAMPLES_TOGETHER = 8
"""Samples whose rows are multiplied at once: one product of many rows takes less time than many of few."""
_MAX_NUMBER = 1e15
"""The greatest number of an edge: sums of squares of many such fit float32."""
_MAX_DEPTH = 4608
"""The depth up to which second moments are kept: 512 channels of a 3 x 3 window."""
MOST_BITS_OF_LONG_SCALES = 5
"""The most bits of codes whose scale is no power of two. Codes of more bits have so many breakpoints that a float32
formula gives all of them only if it is exact."""
_SIGNIFICANT_BITS = 4
"""Significant bits of the scales of few bits."""
_FRACTION_BITS = 15
"""Bits below 1 that a code has before it is rounded, in float32 formulas that are exact: of 24, 8 are above 1."""


FloatResults = tuple[NDArray[np.float32], ...]
"""The float outputs of a network for one sample, in order."""


@dataclass(frozen=True)
class FloatRows:
    """Rows of a product's results in the float network, at places drawn from each sample.

    Args:
        places: The places of each sample.
        results: The results at these places (rows, channels), sample by sample.
        added: The operand that a residual addition adds to them; None if there is none.
    """

    places: list[NDArray[np.int64]]
    results: list[NDArray[np.float32]]
    added: list[NDArray[np.float32]] | None

    @property
    def nbytes(self) -> int:
        """The bytes of the numbers."""
        return sum(rows.nbytes for rows in (*self.places, *self.results, *(self.added or ())))


@dataclass
class Calibration:
    """The facts of a float network on calibration inputs.

    Args:
        network: The network.
        samples: The inputs.
        rule: Which numbers of an edge its grid has to hold.
    """

    network: FloatModel
    samples: Sequence[Feed]
    rule: RangeRule = LEAST_SQUARES
    outputs: list[FloatResults] = field(default_factory=list)
    """The float outputs for each sample, as the float network computes them."""
    numbers: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Some numbers of each edge that gets a quantizer: drawn at random, then the ends of each sample."""
    moments: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Second moments (depth, depth) of the inputs of each product of one group."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the results of products."""
    float_rows: dict[str, FloatRows] = field(default_factory=dict)
    """Rows of the results of products that reconstructions keep, as they are the same for all widths."""
    _grids: dict[tuple[str, int], QuantizerGrid] = field(default_factory=dict)
    _weights: dict[tuple[str, WeightCodes], tuple[QuantizerGrid, NDArray[np.float32]]] = field(default_factory=dict)

    def collect(self, progress: Progress) -> None:
        """Run the float network on all samples."""
        network, rng = self.network, np.random.default_rng(0)
        edges = [*network.searched_edges, *network.other_edges]
        computed = [e for e in edges if e not in network.inputs]
        products = [p for p in network.products if p.group == 1 and _depth(p, network) <= _MAX_DEPTH]
        results = [p.output for p in network.products]
        run = FloatRunner(network.model, [*network.float_outputs, *computed, *results])
        kept: dict[str, list[NDArray[np.float32]]] = {e: [] for e in edges}
        ends: dict[str, list[np.float32]] = {e: [] for e in edges}
        share = max(1, _KEPT_NUMBERS // len(self.samples))
        row_share = max(8, _ROWS // len(self.samples))
        self.moments = {p.name: np.zeros((_depth(p, network),) * 2) for p in products}
        held: dict[str, list[NDArray[np.float32]]] = {p.name: [] for p in products}
        for k, sample in enumerate(self.samples):
            progress("calibrating", k, len(self.samples))
            values = {**sample, **run(sample)}
            self.shapes = {name: values[name].shape for name in results}
            self.outputs.append(tuple(np.asarray(values[name], np.float32) for name in network.float_outputs))
            for name in (*network.float_outputs, *edges):
                if not values[name].size or not np.isfinite(values[name]).all():
                    raise SpecError(f"{name} holds NaN, infinity or no numbers for sample {k}")
                if np.abs(values[name]).max() > _MAX_NUMBER:
                    raise SpecError(
                        f"{name} holds numbers above {_MAX_NUMBER:g} for sample {k}, whose squares overflow float32; "
                        "scale the data, or the weights of the network"
                    )
            for edge in edges:
                flat = np.asarray(values[edge], np.float32).reshape(-1)
                kept[edge].append(rng.choice(flat, min(share, flat.size), replace=False))
                ends[edge] += [flat.min(), flat.max()]
            for product in products:
                rows = _rows(product, network, np.asarray(values[product.edge], np.float32))
                some = rows[rng.integers(0, len(rows), row_share)] if len(rows) > row_share else rows
                held[product.name].append(some)
                if k % _SAMPLES_TOGETHER == _SAMPLES_TOGETHER - 1 or k == len(self.samples) - 1:
                    together = np.concatenate(held[product.name])
                    self.moments[product.name] += together.T @ together
                    held[product.name].clear()
        self.numbers = {edge: np.concatenate([*parts, np.array(ends[edge])]) for edge, parts in kept.items()}

    def grid(self, edge: str, bits: int) -> QuantizerGrid:
        """Return the grid of an edge's quantizer; it is found once."""
        if (edge, bits) not in self._grids:
            numbers = self.numbers[edge]
            drawn = numbers[: -2 * len(self.samples)] if self.rule.is_inner else numbers
            self._grids[edge, bits] = activation_grid(drawn, bits, self.significant_bits(edge, bits), self.rule)
        return self._grids[edge, bits]

    def significant_bits(self, edge: str, bits: int) -> int:
        """Return the significant bits that the scale of an edge's quantizer may have."""
        return 1 if bits > MOST_BITS_OF_LONG_SCALES and edge in self.network.computed_edges else _SIGNIFICANT_BITS

    def shortening(self, product: WeightedProduct) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
        """Return the function that shortens scales of weights so that 8-bit codes have `_FRACTION_BITS`."""
        target = self.network.find_quantized_after(product.output)
        if target is None or product.edge not in self.network.quantized_edges:
            return shorten
        ratio = float(self.grid(product.edge, MAX_BITS).scale) / float(self.grid(target, MAX_BITS).scale)

        def shorten_for_target(scale: NDArray[Any]) -> NDArray[np.float32]:
            bits = np.floor(_FRACTION_BITS + np.log2(np.maximum(scale * ratio, np.finfo(np.float32).tiny)))
            return shorten(scale, bits.clip(1, SIGNIFICANT_BITS).astype(np.int64))

        return shorten_for_target

    def weights(self, product: WeightedProduct, codes: WeightCodes) -> tuple[QuantizerGrid, NDArray[np.float32]]:
        """Return the grid of a product's weights, and the weights on it, rounded by the inputs seen; found once."""
        key = product.name, codes
        if key not in self._weights:
            rows = self.as_rows(product, self.network.constants[product.weights])
            self._weights[key] = self.round_weights(product, codes, rows, self.moments.get(product.name))
        return self._weights[key]

    def as_rows(self, product: WeightedProduct, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a product's weights as (channels, depth)."""
        rows = np.moveaxis(weights, product.channel_axis, 0)
        return rows.reshape(len(rows), -1)

    def round_weights(
        self, product: WeightedProduct, codes: WeightCodes, rows: NDArray[Any], moments: NDArray[np.float64] | None
    ) -> tuple[QuantizerGrid, NDArray[np.float32]]:
        """Return a grid for weights of a product (channels, depth), and the weights rounded to it, in the file's shape.

        They are rounded by second moments of inputs, or to the nearest codes without.
        """
        shape, axis = self.network.constants[product.weights].shape, product.channel_axis
        moved = (shape[axis], *(size for k, size in enumerate(shape) if k != axis))
        weights = np.moveaxis(rows.reshape(moved), 0, axis).astype(np.float32)
        shorten = self.shortening(product)
        grid = weight_grid(weights, codes, axis, shorten)
        if moments is None:
            return grid, np.ascontiguousarray(grid.quantize(weights))
        grid, rounded = learn_rounding(rows, grid, moments, shorten)
        return grid, np.ascontiguousarray(np.moveaxis(rounded.reshape(moved), 0, axis))


def _depth(product: WeightedProduct, network: FloatModel) -> int:
    weights = network.constants[product.weights]
    return int(weights.size // weights.shape[product.channel_axis])


def _rows(product: WeightedProduct, network: FloatModel, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the rows (rows, depth) of a product's inputs, in the order of its weights; of a convolution its windows.

    Padding is left out, as windows at the border of the image add little, and strides and dilations are ignored.
    """
    weights = network.constants[product.weights]
    if product.op != "Conv":
        return x.reshape(-1, x.shape[-1])
    kernel = weights.shape[2:]
    if any(n < k for n, k in zip(x.shape[2:], kernel, strict=True)):
        missing = [(0, 0), (0, 0), *((0, max(0, k - n)) for n, k in zip(x.shape[2:], kernel, strict=True))]
        x = np.pad(x, missing)
    moved = np.moveaxis(windows_of(x, kernel), 1, 1 + len(kernel))  # (batch, *image, channels, *kernel)
    return moved.reshape(-1, weights[0].size)
