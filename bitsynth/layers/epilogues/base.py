"""What epilogues of every kind share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.arguments import code_range, code_type, int32_sums, kept, whole
from bitsynth.layers.epilogues.residual import Residual, factors, with_residual


class BaseEpilogue(ABC):
    """What all epilogues share."""

    residual: Residual | None

    def value(self, sums: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
        """The sums as they are before they are rounded, with the residual: what `Residual.keep_sum` keeps.

        Args:
            sums: A layer's sums (..., channels), int32.
            residual: The second tensor, of the same shape, if the epilogue has one.
        """
        if (residual is None) != (self.residual is None):
            raise SpecError("a residual is given where the epilogue has one, and nowhere else")
        values = self._values(int32_sums(sums))
        return values if self.residual is None or residual is None else with_residual(values, self.residual, residual)

    def reference(self, sums: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
        """The results, by numpy: what the emitted C gives to the bit.

        Args:
            sums: A layer's sums (..., channels), int32.
            residual: The second tensor, of the same shape, if the epilogue has one.
        """
        return self._results(self.value(sums, residual))

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The values that a residual is added to."""
        return sums

    @abstractmethod
    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        """The results of values."""

    def _check_residual(self, integers: bool) -> None:
        if self.residual is not None and not isinstance(self.residual, Residual):
            raise SpecError(f"residual is a Residual, not {self.residual!r}")
        if self.residual is not None:
            factors(self.residual, max(1, np.size(self.residual.scale)), integers)
            if not integers and self.residual.type == "int32" and self.residual.zero_point:
                raise SpecError("a residual of int32 has no zero_point where it becomes float32")


class CodesEpilogue(BaseEpilogue):
    """What epilogues share whose codes have a range and a zero point."""

    bits: int
    signed: bool
    zero_point: int
    low: int | None
    high: int | None

    @property
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""
        return code_range(self.bits, self.signed, self.low, self.high)

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return code_type(self.bits, self.signed)

    def _check_codes(self) -> None:
        if type(self.signed) is not bool:
            raise SpecError(f"signed is True or False, not {self.signed!r}")
        code_range(self.bits, self.signed, self.low, self.high)
        whole("zero_point", self.zero_point, *code_range(self.bits, self.signed, None, None))


def keep(epilogue: BaseEpilogue, **names: str) -> None:
    """Put read-only copies, called so in errors, in the place of arrays that the caller may edit later."""
    for attribute, name in names.items():
        object.__setattr__(epilogue, attribute, kept(getattr(epilogue, attribute), name))
