"""Weights that an exporter left as floats: codes times a scale, and what folding of constants rounded.

Trainers' quantizers of weights are constants to an exporter, which folds them, and often the batch norm behind, into
the numbers of an initializer. These are codes still: whole multiples of one number a channel, each off by roundings.
"""

from __future__ import annotations

import numpy as np

from bitsynth.graph.read.quantizer import Quantizer
from bitsynth.graph.read.source import FEW_ROUNDINGS, FileNode
from bitsynth.graph.types import Integers, Tensor, cast

MOST_CODE = 128
"""The greatest size of a code that is looked for: that of 8 bits."""


def on_grid(node: FileNode, index: int, axis: int) -> str:
    """The weights of an input as codes of one scale a channel, if they are such; else the edge as it is.

    Args:
        node: A product in exact arithmetic; others compute with the file's floats.
        index: The input.
        axis: The axis of output channels.
    """
    edge = node.of(index)
    if node.graph.reference != "exact" or edge.dtype != "float32" or isinstance(edge.type, Integers):
        return edge.name
    weights = node.graph.in_floats(edge.name)
    if weights is None or weights.ndim < 2 or not weights.size or not np.isfinite(weights).all():
        return edge.name
    scale = _scale_of(weights.astype(np.float64), axis % weights.ndim)
    return edge.name if scale is None else _codes(node, weights, scale)


def _codes(node: FileNode, weights: Tensor, scale: Tensor) -> str:
    sizes = np.rint(np.abs(weights / scale))
    most = int(sizes.max())
    rounding = "BIPOLAR" if (sizes == 1).all() else "ROUND"
    return Quantizer(rounding, (-most, most), scale, 0.0).add(node, node.constant(weights), grid=(scale, np.zeros(())))


def _scale_of(weights: Tensor, axis: int) -> Tensor | None:
    """One scale for all weights, or else one for each channel; None if there is none for some channel."""
    whole = _scales(weights.reshape(1, -1))
    if whole is not None:
        return whole.reshape(())
    rows = _scales(np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1))
    return None if rows is None else rows.reshape([-1 if k == axis else 1 for k in range(weights.ndim)])


def _scales(rows: Tensor) -> Tensor | None:
    """The greatest scale of each row of which all its numbers are multiples; None unless each row has one.

    What is small beside the row's greatest number is no 0: other channels' weights may be, and zeros are exact.
    """
    most = np.abs(rows).max(1)
    found = np.where(most > 0, 0.0, 1.0)
    for code in range(1, MOST_CODE + 1):
        left = np.flatnonzero(found == 0)
        if not left.size:
            return found
        scale = cast(most[left] / code, "float32").astype(np.float64)
        if not (scale > 0).all():
            return None
        steps = rows[left] / scale[:, None]
        codes = np.rint(steps)
        off = np.abs(rows[left] - codes * scale[:, None]).max(1)
        fits = (off <= FEW_ROUNDINGS * most[left]) & ((codes == 0) == (rows[left] == 0)).all(1)
        found[left[fits]] = scale[fits]
    return None if (found == 0).any() else found
