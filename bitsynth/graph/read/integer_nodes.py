"""Nodes of integerized networks: requantization by multiply, add and shift, as Quantlab and Deeploy write it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.read.float_nodes import Reader, rescaled
from bitsynth.graph.read.source import FileNode, fitting
from bitsynth.graph.types import Tensor

_MOST_LEVELS = 1 << 32


def _requant_shift(node: FileNode) -> tuple[str, ...]:
    """Return (x * mul + add) / div rounded to the nearest integer, of two the greater one, and cut to `n_levels`.

    So does `RequantShift.forward` of quantlib, which exports the node, and `RequantShift_s32_s8_NCHW` of Deeploy, which
    runs it: both add half of `div` before they divide and round down.
    """
    divisor = _whole(node, node.get("div", 1), "div")
    levels = _whole(node, node.get("n_levels", node.get("n_levels_out", 256)), "n_levels")
    if divisor < 1 or divisor & (divisor - 1) or not 2 <= levels <= _MOST_LEVELS:
        raise node.fail(f"div is {divisor} and n_levels {levels}; they want a power of two, and 2 to {_MOST_LEVELS}")
    signed = bool(_whole(node, node.get("signed", 0), "signed"))
    if signed and levels % 2:
        half = levels // 2
        raise node.fail(
            f"is signed with {levels} levels, which Quantlab cuts to {-half - 1} to {half} and Deeploy to {-half} to "
            f"{half - 1}; write an even number of levels"
        )
    low = -(levels // 2) if signed else 0
    mul, add = (_parameter(node, k, what) for k, what in ((1, "mul"), (2, "add")))
    return (rescaled(node, node.edge(0), mul, add, divisor, (low, low + levels - 1), half=True),)


def _whole(node: FileNode, value: Any, what: str) -> int:
    """Return an attribute, a number or an array of one, as a whole number."""
    numbers = np.asarray(value, np.float64).reshape(-1)
    if numbers.size != 1 or numbers[0] != np.rint(numbers[0]):
        raise node.fail(f"{what} is {value}; it wants one whole number")
    return int(numbers[0])


def _parameter(node: FileNode, index: int, what: str) -> Tensor:
    """Return `mul` or `add`: whole numbers of any type, one for all, or an array that broadcasts, or one a channel.

    Deeploy reads the elements of an array in order, one a channel, so that (C, 1, 1) is an array for sequences too.
    """
    found, shape = node.value(index, what), node.shape()
    if (found != np.rint(found)).any():
        raise node.fail(f"{what} is {found.reshape(-1)[:3]}; it wants whole numbers")
    a_channel = len(shape) > 1 and found.size == shape[1] == max(found.shape, default=1)
    if a_channel and (found.ndim == 1 or found.ndim >= len(shape)):
        found = found.reshape(1, -1, *[1] * (len(shape) - 2))
    return fitting(node, found, what)


READERS: dict[str, Reader] = {"RequantShift": _requant_shift}
