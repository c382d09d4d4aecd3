"""Terms: numbers of a loop in C that behave like numpy arrays, so that the operator table's meanings write the C.

A term takes part in numpy's operators and functions as an array does; each operation is a value of the loop, of the
type that numpy gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bitsynth.graph.types import Shape, Tensor

if TYPE_CHECKING:
    from bitsynth.network.plain.writer import Writer

Bounds = tuple[int, int]


@dataclass(frozen=True, eq=False)
class LoopTerm(np.lib.mixins.NDArrayOperatorsMixin):
    """A number for each element of a loop.

    Args:
        writer: Makes the operations.
        dtype: Its type, as numpy's operators see it; integers of any size are int64.
        code: C: a name or a literal; "" of a constant.
        bounds: The least and the greatest it can be, if known.
        rest: C of what is left of it in float64, of real numbers that one does not hold; "" if nothing is.
        value: The array of a constant, which broadcasts to the loop; of fractions if it stands for real numbers.
        whole: The whole number of floats that it was, if it was one.
    """

    writer: Writer
    dtype: np.dtype[Any]
    code: str = ""
    bounds: Bounds | None = None
    rest: str = ""
    value: Tensor | None = None
    whole: LoopTerm | None = None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **_: Any) -> LoopTerm:
        return self.writer.operate(ufunc.__name__, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result: Any = _FUNCTIONS[function](*args)
        return result

    @property
    def shape(self) -> Shape:
        """The loop's shape."""
        return self.writer.loops.shape

    @property
    def size(self) -> int:
        """The size of a single number."""
        return 1

    def astype(self, dtype: Any) -> LoopTerm:
        """Return the number in another type."""
        return self.writer.cast(self, np.dtype(dtype))

    def min(self) -> int:
        """Return the least value that it can have."""
        return self.bounds[0] if self.bounds else -(1 << 63)

    def max(self) -> int:
        """Return the greatest value that it can have."""
        return self.bounds[1] if self.bounds else (1 << 63) - 1

    def within(self, low: int, high: int) -> LoopTerm:
        """Return the number, known to be within bounds."""
        return replace(self, bounds=(max(low, self.min()), min(high, self.max())))


def _clip(number: LoopTerm, low: Any, high: Any) -> LoopTerm:
    """Return the number clipped to limits; NaN becomes the lower limit."""
    name = "at_least" if number.value is None else "maximum"
    clipped = number if low is None else number.writer.operate(name, number, low)
    return clipped if high is None else number.writer.operate("minimum", clipped, high)


def _where(mask: LoopTerm, a: Any, b: Any) -> LoopTerm:
    return mask.writer.operate("where", mask, a, b)


def _spread(number: LoopTerm, shape: Shape) -> LoopTerm:
    return number


_FUNCTIONS: dict[Any, Callable[..., LoopTerm]] = {np.where: _where, np.clip: _clip, np.broadcast_to: _spread}
