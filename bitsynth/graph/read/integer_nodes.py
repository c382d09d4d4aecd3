"""Nodes of integerized networks: requantization by multiply, add and shift, as Quantlab and Deeploy write it."""

from __future__ import annotations

import numpy as np

from bitsynth.graph.read.float_nodes import Reader, shifted
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Tensor


def _requant_shift(node: FileNode) -> tuple[str, ...]:
    """floor((x * mul + add) / div), cut to `n_levels` integers, from 0 or around it."""
    divisor = int(np.asarray(node.get("div", 1)).reshape(-1)[0])
    levels = int(np.asarray(node.get("n_levels", node.get("n_levels_out", 256))).reshape(-1)[0])
    if divisor < 1 or divisor & (divisor - 1) or levels < 2:
        raise node.fail(f"div is {divisor} and n_levels {levels}; they want a power of two, and 2 or more")
    signed = bool(np.asarray(node.get("signed", 0)).reshape(-1)[0])
    low = -(levels // 2) if signed else 0
    mul, add = (_fitting(node, k, what) for k, what in ((1, "mul"), (2, "add")))
    return (shifted(node, node.edge(0), mul, add, divisor, (low, low + levels - 1)),)


def _fitting(node: FileNode, index: int, what: str) -> Tensor:
    """One number, or one a channel along axis 1."""
    found, shape = node.value(index, what), node.shape()
    if found.size == 1:
        return found.reshape(())
    if found.ndim > 1 or len(shape) < 2:
        return found
    return found.reshape(1, -1, *[1] * (len(shape) - 2))


READERS: dict[str, Reader] = {"RequantShift": _requant_shift}
