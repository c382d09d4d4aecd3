"""The formulas by which C computes results, as certificates claim them (`network/certificate/checker.py`).

The field `by` of the JSON names the kind of formula. Arrays have a row for each channel, or one for all.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray


def _zero() -> NDArray[Any]:
    """Return the factor of a second tensor that is not there."""
    return np.zeros((1, 1), np.int64)


class ClaimedResult(
    msgspec.Struct, frozen=True, kw_only=True, eq=False, forbid_unknown_fields=True, tag_field="by"
):  # arrays have no equality
    """How C computes a result: the value of the network's chain that it `is`."""

    result: str | UnsetType = msgspec.field(name="is", default=UNSET)

    @property
    def by(self) -> str:
        """The kind of the formula, as the JSON names it."""
        return str(self.__struct_config__.tag)


class ClaimedFormula(ClaimedResult, frozen=True, kw_only=True, eq=False):
    """A formula of sums, to which factor * (element - of_zero) of a second tensor is added first."""

    factor: NDArray[Any] = msgspec.field(default_factory=_zero)
    of_zero: int = 0


class ClaimedIdentity(ClaimedFormula, frozen=True, kw_only=True, eq=False, tag="sums"):
    """The sum itself."""

    factor: NDArray[Any] = msgspec.field(default_factory=lambda: np.zeros((), np.int64))


class ClaimedThresholds(ClaimedFormula, frozen=True, kw_only=True, eq=False, tag="thresholds"):
    """The number of thresholds that lie below the sum, or above it in channels that are not rising."""

    values: NDArray[Any]
    rising: NDArray[Any]


class ClaimedFixedPoint(ClaimedFormula, frozen=True, kw_only=True, eq=False, tag="lines"):
    """One affine formula in int32, or two in turn: the least and the greatest input, factor and summand of each."""

    values: list[list[NDArray[Any]]]


class ClaimedMultiplyShift(ClaimedFormula, frozen=True, kw_only=True, eq=False, tag="multiply_shift"):
    """sum * multiplier / 2**31, rounded half up, over 2**right, rounded half away from 0, between two codes."""

    multiplier: NDArray[Any]
    right: NDArray[Any]
    zero: int
    low: int
    high: int


class ClaimedRescale(ClaimedFormula, frozen=True, kw_only=True, eq=False, tag="rescale"):
    """scale * sum + bias in floats, rounded to nearest even, between the codes `low` and `high`."""

    scale: NDArray[Any]
    bias: NDArray[Any]
    zero: int
    low: int
    high: int


class ClaimedGate(ClaimedRescale, frozen=True, kw_only=True, eq=False, tag="gate"):
    """A rescale whose number is first multiplied by a second line of itself, between 0 and 1: factor and summand."""

    gate: NDArray[Any]


class ClaimedCurve(ClaimedFormula, frozen=True, kw_only=True, eq=False, tag="curve"):
    """A table (cells, 2) of codes: scale * sum + bias picks the cell, and the breakpoint of the cell the column."""

    scale: NDArray[Any]
    bias: NDArray[Any]
    breakpoints: NDArray[Any] = msgspec.field(name="turns")
    table: NDArray[Any]


class ClaimedTable(ClaimedResult, frozen=True, kw_only=True, eq=False, tag="table"):
    """A table: `width` entries for each sum, which are `apart` from the `first` one on."""

    table: NDArray[Any]
    first: int
    apart: int
    width: int


class ClaimedNumbers(ClaimedResult, frozen=True, kw_only=True, eq=False, tag="numbers"):
    """Real numbers in float64, at most `off` from the chain's."""

    off: float


class ClaimedConversion(ClaimedResult, frozen=True, kw_only=True, eq=False, tag="conversion"):
    """The integers of an edge in another form: the caller's numbers, or the reverse."""


EpilogueClaim = ClaimedThresholds | ClaimedFixedPoint | ClaimedMultiplyShift | ClaimedRescale | ClaimedGate
Claim = EpilogueClaim | ClaimedIdentity | ClaimedCurve | ClaimedTable | ClaimedNumbers | ClaimedConversion
