"""Residuals: a second tensor of the results' shape that an epilogue adds before its results are rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.checks import broadcast_to_channels, copy_read_only, require_whole
from bitsynth.spec.matmul import is_one_of

TYPES = ("uint8", "int8", "int16", "int32", "float32")


@dataclass(frozen=True, eq=False)
class Residual:
    """A tensor of the results' shape: scale * (element - zero_point) is added before the results are rounded.

    `Thresholds` and `Requantize` add it to the sum, in int32 arithmetic; `Scale` and `Rescale` add the product
    float32(element - zero_point) * scale, rounded to float32, to the sum's scaled value, and round again. Elements of
    float32 must be finite, and have no zero point.

    Args:
        type: The type of its elements: uint8 (codes too), int8, int16, int32 or float32.
        scale: One factor a channel, or one for all; whole numbers of int32 for `Thresholds` and `Requantize`.
        zero_point: The element that stands for 0.
        keep_sum: Whether the sum with it is a second output: int32, or float32 of `Scale` and `Rescale`.
    """

    type: str = "uint8"
    scale: ArrayLike = 1
    zero_point: int = 0
    keep_sum: bool = False

    def __post_init__(self) -> None:
        if not is_one_of(self.type, TYPES):
            raise SpecError(f"a residual's type is one of {', '.join(TYPES)}, not {self.type!r}")
        if type(self.keep_sum) is not bool:
            raise SpecError(f"keep_sum is True or False, not {self.keep_sum!r}")
        span = (0, 0) if self.type == "float32" else (np.iinfo(self.type).min, np.iinfo(self.type).max)
        require_whole("a residual's zero_point", self.zero_point, *map(int, span))
        object.__setattr__(self, "scale", copy_read_only(self.scale, "a residual's scale"))


def factors(residual: Residual, channels: int, integers: bool) -> NDArray[Any]:
    """Return the residual's scale, one int32 or float32 a channel; raise SpecError if it is of another type."""
    if integers and residual.type == "float32":
        raise SpecError("a residual of float32 needs Rescale or Scale")
    return broadcast_to_channels("a residual's scale", residual.scale, channels, np.int32 if integers else np.float32)


def add_residual(values: NDArray[Any], residual: Residual, elements: NDArray[Any]) -> NDArray[Any]:
    """Return int32 or float32 `values` (..., channels) plus the scaled residual `elements`.

    int32 wraps; float32 is rounded after the product and after the sum. SpecError for another type or shape.
    """
    elements = check_residual(residual, elements, values.shape)
    scale = factors(residual, values.shape[-1], values.dtype.kind == "i")
    if values.dtype.kind == "i":
        more = scale.astype(np.int64) * (elements.astype(np.int64) - residual.zero_point)
        return (values.astype(np.int64) + more).astype(np.int32)
    if residual.type != "float32":
        elements = (elements.astype(np.int64) - residual.zero_point).astype(np.float32)
    with np.errstate(over="ignore"):
        out: NDArray[Any] = values + elements * scale
    return out


def check_residual(residual: Residual, elements: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return `elements`; raise SpecError unless they have the residual's type and `shape`, and floats are finite."""
    if isinstance(elements, np.ma.MaskedArray):
        raise SpecError("the residual is a masked array; fill its gaps first, with .filled()")
    if not isinstance(elements, np.ndarray) or elements.dtype != residual.type or elements.shape != shape:
        actual = f"{elements.dtype} {elements.shape}" if isinstance(elements, np.ndarray) else repr(elements)[:40]
        raise SpecError(f"want a residual of {residual.type} {shape}, not {actual}")
    # Both ends are finite, or are what is not a number if one is none.
    if residual.type == "float32" and elements.size and not np.isfinite([elements.min(), elements.max()]).all():
        raise SpecError("the residual has floats that are not finite")
    checked: NDArray[Any] = elements
    return checked


def residual_operand(residual: Residual | None, elements: Any, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """Return a call's residual as C reads it; raise SpecError if it is missing, not wanted, or of another shape."""
    if residual is None and elements is not None:
        raise SpecError("the layer's epilogue adds no residual: leave it out, or give the epilogue one")
    if residual is None:
        return None
    if elements is None:
        raise SpecError(f"the layer's epilogue adds a residual: give one of {residual.type} {shape}")
    return np.require(check_residual(residual, elements, shape), requirements=("C", "ALIGNED"))
