"""Rounding of weights by the inputs that a product sees: the codes and scales with which its results lose least.

A product's results are off by E x for weights that are off by E, and an input x. Their mean square, over the inputs
seen, is the sum of the diagonal of E M E', where M holds the second moments of inputs. That is a quadratic function of
codes, which three steps make small:

* GPTQ rounds column by column, and spreads the error of each over the columns that follow;
* coordinate descent then moves one column's codes at a time to the best ones, all other columns fixed;
* scales are fitted to the codes by least squares, which alternates with descent.

No step makes the error larger. At 8 and 4 bits GPTQ is near the optimum; at 2 bits and 1 the other steps gain most.

Given:   weights (0.4, 0.4), codes 0 and 1, a scale of 1, and inputs whose two elements are always equal
Result:  the codes 0 and 1, whose sum is 1 for 0.8; each rounded alone would be 0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.quantization.grids import QuantizerGrid

_BLOCK = 64
"""Columns whose errors are spread over the others together."""
_DAMPING = 0.01
"""Added to the diagonal of moments, relative to its mean: weights stay near where few inputs were seen."""
_FIT_DAMPING = 0.1
"""The same where real weights are fitted: samples are few, and a fit follows what is in these alone."""
_MAX_SWEEPS = 8
"""Times that coordinate descent passes over all columns."""
_MAX_FITS = 4
"""Times that scales are fitted."""


def _damp(second_moments: NDArray[np.float64], share: float = _DAMPING) -> NDArray[np.float64]:
    """Return second moments (depth, depth) with a larger diagonal, so that they can be inverted."""
    depth = len(second_moments)
    return np.asarray(second_moments + np.eye(depth) * (share * np.trace(second_moments) / depth + 1e-12))


def fit_weights(
    weights: NDArray[Any], inputs: NDArray[np.float32], missing: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return real weights whose results are off the least, up to a bias, and the inputs' moments around their means.

    Args:
        weights: The weights (channels, depth), from which directions that inputs rarely have do not move away.
        inputs: Rows of inputs (rows, depth).
        missing: The results that are wanted, less the results of `weights` (rows, channels).
    """
    centred = inputs - inputs.mean(0)
    moments = (centred.T @ centred).astype(np.float64)
    along = (centred.T @ (missing - missing.mean(0))).astype(np.float64)
    return weights + np.linalg.solve(_damp(moments, _FIT_DAMPING), along).T, moments


def learn_rounding(
    weights: NDArray[Any],
    grid: QuantizerGrid,
    second_moments: NDArray[np.float64],
    shorten: Callable[[NDArray[Any]], NDArray[np.float32]],
) -> tuple[QuantizerGrid, NDArray[np.float32]]:
    """Return the grid, with other scales, and weights (channels, depth) on it with which products lose least.

    Args:
        weights: The weights (channels, depth).
        grid: The grid, with a scale for each channel.
        second_moments: Of the inputs, (depth, depth).
        shorten: Returns scales near these that the product may have.
    """
    moments = _damp(second_moments)
    if grid.bits == 1:
        rounded = replace(grid, scale=grid.scale.reshape(-1, 1)).quantize(weights)
    else:
        rounded = round_by_inputs(weights.astype(np.float32), grid, second_moments)
    scale = grid.scale.reshape(-1).astype(np.float64)
    codes = _descend(weights, np.rint(rounded / scale[:, None]), scale, grid, moments)
    lost = _errors(weights, codes * scale[:, None], moments)
    for _ in range(_MAX_FITS):
        fitted = shorten(_fit_scales(weights, codes, scale, moments)).astype(np.float64)
        moved = _descend(weights, codes, fitted, grid, moments)
        errors = _errors(weights, moved * fitted[:, None], moments)
        better = errors < lost
        if not better.any():
            break
        codes, lost = np.where(better[:, None], moved, codes), np.where(better, errors, lost)
        scale = np.where(better, fitted, scale)
    learned = replace(grid, scale=scale.reshape(grid.scale.shape).astype(np.float32))
    return learned, np.asarray(codes * scale[:, None], np.float32)


def _descend(
    weights: NDArray[Any],
    codes: NDArray[Any],
    scale: NDArray[np.float64],
    grid: QuantizerGrid,
    moments: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return codes (channels, depth) less the zero point; changing one code alone improves nothing, or nearly so.

    `gradient` is the error times the moments; a column's best real number is its own plus the gradient over the moment.
    """
    order = np.argsort(-np.diag(moments))
    inverse, moments = np.argsort(order), moments[np.ix_(order, order)]
    numbers = codes[:, order] * scale[:, None]
    gradient = (weights[:, order] - numbers) @ moments
    for _ in range(_MAX_SWEEPS):
        before = numbers.copy()
        for begin in range(0, len(moments), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            own, near = gradient[:, block].copy(), moments[block, block]
            for k in range(len(near)):
                best = (numbers[:, begin + k] + own[:, k] / near[k, k]) / scale
                change = grid.nearest(best) * scale - numbers[:, begin + k]
                numbers[:, begin + k] += change
                own -= change[:, None] * near[k]
            gradient -= (numbers[:, block] - before[:, block]) @ moments[block]
        if (numbers == before).all():
            break
    return np.asarray(np.rint(numbers / scale[:, None])[:, inverse])


def _errors(weights: NDArray[Any], numbers: NDArray[Any], moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared error of each channel's results (channels,)."""
    off = weights - numbers
    return np.asarray(((off @ moments) * off).sum(1))


def _fit_scales(
    weights: NDArray[Any], codes: NDArray[Any], scale: NDArray[np.float64], moments: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the scale of each channel with the least error for its codes; the given one where codes are all 0."""
    weighted = codes @ moments
    along, own = (weighted * weights).sum(1), (weighted * codes).sum(1)
    return np.where((own > 0) & (along > 0), along / np.where(own > 0, own, 1), scale)


def round_by_inputs(
    weights: NDArray[np.float32], grid: QuantizerGrid, second_moments: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return weights (channels, depth) on the grid, rounded so that products of the inputs seen lose least.

    The method is GPTQ (Frantar et al., 2022, section 3): columns are rounded one by one, and the error of each is
    spread over the columns that follow, by the inverse of the inputs' second moments (depth, depth).
    """
    depth, moments = weights.shape[1], _damp(second_moments)
    order = np.argsort(-np.diag(moments))
    inverse = np.linalg.inv(moments[np.ix_(order, order)])
    upper = np.linalg.cholesky((inverse + inverse.T) / 2 + np.eye(depth) * 1e-12 * np.trace(inverse) / depth).T
    rest, rounded = weights[:, order].astype(np.float64), np.empty_like(weights)
    scale = replace(grid, scale=grid.scale.reshape(-1, 1))
    for begin in range(0, depth, _BLOCK):
        end = min(begin + _BLOCK, depth)
        errors = np.zeros((len(weights), end - begin))
        for k in range(begin, end):
            column = scale.quantize(rest[:, k : k + 1])
            rounded[:, order[k]] = column[:, 0]
            errors[:, k - begin] = (rest[:, k] - column[:, 0]) / upper[k, k]
            rest[:, k + 1 : end] -= errors[:, k - begin, None] * upper[k, k + 1 : end]
        rest[:, end:] -= errors @ upper[begin:end, end:]
    return rounded
