"""The base classes of epilogues: what a family of functions of int32 accumulators has to give.

A family is one file with one class: its parameters, its numpy reference, its text in the lane language with the inputs
of the text (`lower`), and its claim in certificates (`formula`). The self-test of emitted C is made of the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, TypeGuard

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.self_test import SelfTestEpilogue, SelfTestProgram
from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.accumulators import Accumulators, AskedProgram, ProgramInputs
from bitsynth.layers.epilogues.checks import (
    INT32,
    code_range,
    code_type,
    copy_read_only,
    require_int32_sums,
    require_whole,
)
from bitsynth.layers.epilogues.claimed import EpilogueClaim
from bitsynth.layers.epilogues.residual import Residual, add_residual, factors
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand
from bitsynth.spec.rescaling import CodeForm
from bitsynth.spec.residual import ELEMENTS, add_to_sums


class Epilogue(ABC):
    """The base class of all epilogues: parameters, reference, programs and claim of a function.

    Attributes:
        adds_floats: Whether values are float32 where a residual is added; int32 otherwise.
    """

    adds_floats: ClassVar[bool] = False
    residual: Residual | None

    def value(self, sums: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the values before rounding, residual included: what `Residual.keep_sum` keeps.

        Args:
            sums: A layer's sums (..., channels), int32.
            residual: The second tensor, of the same shape, if the epilogue has one.
        """
        if (residual is None) != (self.residual is None):
            raise SpecError("a residual is given where the epilogue has one, and nowhere else")
        values = self._values(require_int32_sums(sums))
        return values if self.residual is None or residual is None else add_residual(values, self.residual, residual)

    def reference(self, sums: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the results, computed by numpy: the emitted C gives the same bits.

        Args:
            sums: A layer's sums (..., channels), int32.
            residual: The second tensor, of the same shape, if the epilogue has one.
        """
        return self._results(self.value(sums, residual))

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Return the values that a residual is added to."""
        return sums

    @abstractmethod
    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the results of values."""

    @property
    @abstractmethod
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""

    @property
    def code_bits(self) -> int:
        """Bits of a result's code; 0 if results are not codes."""
        return 0

    @property
    def kept_type(self) -> np.dtype[Any] | None:
        """The type of the second output, values with the residual; None without one."""
        if self.residual is None or not self.residual.keep_sum:
            return None
        return np.dtype(np.float32 if self.adds_floats else np.int32)

    @abstractmethod
    def lower(self, sums: Accumulators, planes: int) -> Iterator[AskedProgram]:
        """Yield specs that compute results of `sums`, the best first, as packed words if `planes` is not 0.

        A spec is left out if a constant does not fit; if accumulators are the values, all fit. With a residual, specs
        read values with the residual in place of accumulators.
        """

    def lower_residual(self, sums: Accumulators) -> tuple[ElementwiseSpec, ProgramInputs, Accumulators]:
        """Return the spec that adds the residual to values `sums`, its inputs, and the values after the addition."""
        residual, factor = self.added_residual, self.residual_factors(sums.channels).astype(np.int64)
        ends = np.iinfo(residual.type)
        size = max(abs(int(end) - residual.zero_point) for end in (ends.min, ends.max))
        most = int(np.abs(factor).max(initial=0)) * size
        inputs = {"c": (-factor * residual.zero_point).astype(np.int32)}
        if (factor != 1).any():
            inputs["f"] = factor.astype(np.int32)
        spec = add_to_sums(ELEMENTS[residual.type], factor="f" in inputs)
        return spec, inputs, replace(sums, bound=min(sums.bound + most, -int(INT32.min)))

    @property
    def added_residual(self) -> Residual:
        """The residual, where there is one."""
        assert self.residual is not None
        return self.residual

    def residual_factors(self, channels: int) -> NDArray[Any]:
        """Return the scale of the residual, an int32 or float32 for each of `channels` channels."""
        return factors(self.added_residual, channels, integers=not self.adds_floats)

    def self_test(self, sums: Accumulators) -> SelfTestEpilogue:
        """Return the epilogue of values `sums` as the self-test of emitted C computes it: plain C of the same texts."""
        added, residual, after = None, None, sums
        if self.residual is not None:
            spec, inputs, after = self.lower_residual(sums)
            added, residual = SelfTestProgram.of(spec, inputs, sums.channels), np.dtype(self.residual.type)
        lowered = next(self.lower(after, 0), None)
        program = SelfTestProgram.of(*lowered, sums.channels) if lowered else None
        kept = np.dtype(np.float32 if self.adds_floats else np.int32)
        return SelfTestEpilogue(self.out_type, program, residual, added, kept)

    def formula(self, channels: int) -> EpilogueClaim | None:
        """Return the formula of `channels` channels as a certificate claims it, without the residual.

        None if the checker has no such formula. Arrays are (channels, numbers).
        """
        return None

    def _check_residual(self) -> None:
        if self.residual is not None and not isinstance(self.residual, Residual):
            raise SpecError(f"residual is a Residual, not {self.residual!r}")
        if self.residual is not None:
            self.residual_factors(max(1, np.size(self.residual.scale)))
            if self.adds_floats and self.residual.type == "int32" and self.residual.zero_point:
                raise SpecError("a residual of int32 has no zero_point where it becomes float32")


class CodesEpilogue(Epilogue):
    """The base class of epilogues whose results are codes, which can be packed.

    Attributes:
        bits: Bits of a code.
    """

    bits: int

    @property
    def code_bits(self) -> int:
        """Bits of a code."""
        return self.bits

    @property
    @abstractmethod
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""


class ClampedCodes(CodesEpilogue):
    """The base class of epilogues whose codes have a zero point, and are clamped to a range of their type."""

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

    def _code_form(self, planes: int) -> CodeForm:
        """Return the destination of codes: bytes, or words of `planes` bit planes."""
        kind = {"uint8": "u8", "int8": "s8", "int16": "s16"}[self.out_type.name]
        return CodeForm(kind, planes, moved=kind == "s16" and self.zero_point != 0)

    def _code_inputs(self, form: CodeForm) -> ProgramInputs:
        """Return the inputs of the codes' range, and of their zero point."""
        low, high = self.codes
        given = {"l": np.array(low, self.out_type), "h": np.array(high, self.out_type)}
        return {**given, "z": np.array(self.zero_point, np.int16)} if form.has_zero else given

    def _check_codes(self) -> None:
        if type(self.signed) is not bool:
            raise SpecError(f"signed is True or False, not {self.signed!r}")
        code_range(self.bits, self.signed, self.low, self.high)
        require_whole("zero_point", self.zero_point, *code_range(self.bits, self.signed, None, None))


def store_read_only(epilogue: Epilogue, **names: str) -> None:
    """Replace array attributes by read-only copies; `names` are the arrays' names in errors."""
    for attribute, name in names.items():
        object.__setattr__(epilogue, attribute, copy_read_only(getattr(epilogue, attribute), name))


def gives_codes(epilogue: Epilogue | None) -> TypeGuard[CodesEpilogue]:
    """Return whether results are codes, which can be packed."""
    return isinstance(epilogue, CodesEpilogue)


def check_epilogue(epilogue: Any, out_layout: str) -> None:
    """Raise SpecError if the object is no epilogue, or its results cannot have the layout `out_layout`."""
    if epilogue is not None and not isinstance(epilogue, Epilogue):
        raise SpecError(f"an epilogue is Scale, Requantize, Rescale, FixedPoint or Thresholds, not {epilogue!r}")
    if out_layout != Layout.PACKED:
        return
    if not gives_codes(epilogue):
        raise SpecError("only codes can be packed: give Thresholds, Requantize or Rescale, or another out_layout")
    if epilogue.codes[0] < 0:
        raise SpecError("signed codes cannot be packed: give a zero_point, and codes from 0 on")


def check_encoding(epilogue: Epilogue | None, encoding: str) -> None:
    """Raise SpecError if results are no codes of `encoding`; an empty encoding has all codes."""
    if not encoding or not gives_codes(epilogue):
        return
    operand, last = MatmulOperand(epilogue.bits, Encoding.parse(encoding)), epilogue.codes[1]
    if last > operand.codes[-1]:
        raise SpecError(f"codes of {operand} go to {operand.codes[-1]}, and the epilogue's codes to {last}")
