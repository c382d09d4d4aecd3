"""The product to compute: operands, their encodings, and the target.

An operand is stored as unsigned *codes* of `bits` bits; its encoding says which value
a code stands for. Every encoding is affine: value = scale * code + offset.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError

MAX_BITS = 8
INT32_MAX = 2**31 - 1
_MAX_WHOLE = 2.0**53


def plain_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return `values`, called `name` in errors, as an array; SpecError if some are masked or rows differ in length."""
    if isinstance(values, np.ma.MaskedArray):
        raise SpecError(f"{name} is a masked array; fill its gaps first, with .filled()")
    try:
        return np.asarray(values)
    except ValueError as error:
        why = "rows of different lengths" if "inhomogeneous" in str(error) else error
        raise SpecError(f"{name} is not an array: {why}") from None


def is_one_of(value: Any, words: Collection[str]) -> bool:
    """Return whether `value` is one of some words; arrays, which compare element by element, never are."""
    return isinstance(value, str) and value in words


def whole_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return `values` as an array, floats as int64; SpecError names the first one that is not whole."""
    array = plain_array(values, name)
    if array.dtype.kind != "f":
        return array
    bad = ~(np.abs(array) < _MAX_WHOLE) | (array != np.rint(array))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise SpecError(f"{name}{list(where)} is {array[where]}, not a whole number; give operand values")
    return array.astype(np.int64)


class Encoding(StrEnum):
    """The values that codes stand for (CGO 2020, section 2).

    Narrow is signed without the least value, so that the values are the same on both sides of 0; of two bits it is
    ternary.
    """

    UNSIGNED = "unsigned"
    SIGNED = "signed"
    BIPOLAR = "bipolar"
    TERNARY = "ternary"
    NARROW = "narrow"

    @property
    def letter(self) -> str:
        """The letter of the encoding in a kernel's name."""
        return self.value[0]

    @property
    def widths(self) -> range:
        """The bits that codes may have."""
        least, most = {Encoding.TERNARY: (2, 2), Encoding.NARROW: (2, MAX_BITS)}.get(self, (1, MAX_BITS))
        return range(least, most + 1)

    @classmethod
    def parse(cls, text: str) -> Encoding:
        """Return the encoding called `text`; SpecError lists all encodings."""
        try:
            return cls(text)
        except ValueError:
            raise SpecError(f"unknown encoding {text!r}; known: {', '.join(cls)}") from None


@dataclass(frozen=True)
class MatmulOperand:
    """Codes of `bits` bits under `encoding`; SpecError for a width that the encoding does not have.

    integer     what a file or a caller has: value + zero point
    value       what products multiply: integer - zero point = scale * code + offset
    code        the unsigned number that kernels read: (value - offset) / scale
    zero point  the integer whose value is 0; for unsigned codes, which are the integers themselves, it is `zero`
    offset      the value of code 0: -zero of unsigned codes, of others by the encoding
    """

    bits: int
    encoding: Encoding
    zero: int = 0

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= MAX_BITS:
            raise SpecError(f"bits must be a whole number from 1 to {MAX_BITS}, not {self.bits!r}")
        if self.encoding is Encoding.TERNARY and self.bits != 2:
            raise SpecError(f"ternary holds -1, 0 and 1, which takes 2 bits, not {self.bits}")
        if self.bits not in self.encoding.widths:
            raise SpecError(f"{self.encoding} of {self.bits} bit holds 0 alone; want at least 2 bits")
        if type(self.zero) is not int or not 0 <= self.zero < 1 << self.bits:
            raise SpecError(f"the zero point of {self.bits}-bit codes is one of them, not {self.zero!r}")
        if self.zero and self.encoding is not Encoding.UNSIGNED:
            raise SpecError(f"only unsigned codes have a zero point, {self.encoding} ones none")

    @property
    def scale(self) -> int:
        """The difference of the values of two neighbouring codes."""
        return 2 if self.encoding is Encoding.BIPOLAR else 1

    @property
    def offset(self) -> int:
        """The value of code 0."""
        match self.encoding:
            case Encoding.SIGNED:
                return -(1 << (self.bits - 1))
            case Encoding.BIPOLAR:
                return 1 - (1 << self.bits)
            case Encoding.TERNARY | Encoding.NARROW:
                return 1 - (1 << (self.bits - 1))
            case _:
                return -self.zero

    @property
    def codes(self) -> range:
        """The codes in use: ternary and narrow leave out the last."""
        return range((1 << self.bits) - (self.encoding in (Encoding.TERNARY, Encoding.NARROW)))

    def value(self, code: int) -> int:
        """Return the value `code` stands for."""
        return self.scale * code + self.offset

    @property
    def max_abs(self) -> int:
        """The greatest absolute value."""
        return max(abs(self.value(end)) for end in (self.codes[0], self.codes[-1]))

    def encode(self, values: ArrayLike, name: str) -> NDArray[np.uint8]:
        """Return the codes of operand values (integers of any dtype, any shape); SpecError names the first misfit."""
        array = plain_array(values, name)
        if array.dtype.kind not in "iub":
            raise SpecError(f"{name} must be an integer array, not {array.dtype}")
        low, high = self.value(0), self.value(self.codes[-1])
        wide = array if array.dtype.kind == "u" and array.dtype.itemsize == 8 else array.astype(np.int64, copy=False)
        if wide.size and not low <= int(wide.min()) <= int(wide.max()) <= high:
            bad = (wide < low) | (wide > high) if low >= 0 or wide.dtype.kind == "i" else wide > high
        else:
            shifted = wide.astype(np.int64, copy=False) - self.offset
            bad = shifted & (self.scale - 1) != 0
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            step = " in steps of 2" if self.scale == 2 else ""
            raise SpecError(f"{name}{list(where)} is {array[where]}; {self} holds {low} to {high}{step}")
        return np.ascontiguousarray(shifted >> (self.scale - 1), dtype=np.uint8)

    def decode(self, codes: NDArray[np.uint8]) -> NDArray[np.int16]:
        """Return the values `codes` stand for."""
        return codes.astype(np.int16) * np.int16(self.scale) + np.int16(self.offset)

    def __str__(self) -> str:
        return f"{self.bits}-bit {self.encoding}{f' less {self.zero}' if self.zero else ''}"


@dataclass(frozen=True)
class MatmulSpec:
    """(M, K) activations times (K, N) weights into int32 (M, N) on instruction set `isa`."""

    isa: str
    act: MatmulOperand
    wgt: MatmulOperand

    @classmethod
    def plain(cls, isa: str, act_bits: int, w_bits: int) -> MatmulSpec:
        """Return the usual spec: unsigned activations and bipolar weights; signed ones where there are 8 bits.

        No byte holds 8-bit bipolar weights, -255 to 255, and with 8-bit activations bytes of weights are not packed.
        """
        edge = w_bits > 1 and MAX_BITS in (act_bits, w_bits)
        weights = Encoding.SIGNED if edge else Encoding.BIPOLAR
        return cls(isa, MatmulOperand(act_bits, Encoding.UNSIGNED), MatmulOperand(w_bits, weights))

    @property
    def core(self) -> MatmulSpec:
        """The plain product of the same widths; the products of all encodings are built around it."""
        return self.plain(self.isa, self.act.bits, self.wgt.bits)

    @property
    def max_product(self) -> int:
        """The greatest absolute value of a product, among the core's products and products of values.

        If weights have a zero point, products of codes count as well, as rows are multiplied with the zero point.
        """
        core = self.core
        of_codes = self.act.codes[-1] * self.wgt.codes[-1] if self.wgt.zero else 0
        return max(self.act.max_abs * self.wgt.max_abs, core.act.max_abs * core.wgt.max_abs, of_codes)

    @property
    def k_max(self) -> int:
        """The largest K for which neither the core's nor the final sum leaves int32, before that is shifted."""
        return INT32_MAX // max(self.max_product, self.act.max_abs * self.wgt.max_abs << affine(self).shift)


@dataclass(frozen=True)
class Affine:
    """2**shift * value(a) * value(w) == factor * core(a, w) + act_terms[a] + wgt_terms[w].

    `core` is a * core.wgt.value(w) on the codes: the sum the kernel computes.
    """

    shift: int
    factor: int
    act_terms: tuple[int, ...]
    wgt_terms: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        """Whether the core's sum is the result itself."""
        return (self.shift, self.factor) == (0, 1) and not any(self.act_terms) and not any(self.wgt_terms)


@cache
def affine(spec: MatmulSpec) -> Affine:
    """Return the correction from the core product to the product of `spec`; `encodings.encoding_lemma` checks it."""
    act, wgt = spec.act, spec.wgt
    core = spec.core.wgt
    shift = act.scale * wgt.scale % core.scale
    factor = act.scale * wgt.scale * (1 << shift) // core.scale
    # value(w) = (wgt.scale * core.value(w) + rest) / core.scale
    rest = core.scale * wgt.offset - wgt.scale * core.offset
    unit = 1 << shift
    act_terms = tuple(unit * act.scale * code * rest // core.scale for code in range(1 << act.bits))
    wgt_terms = tuple(unit * act.offset * wgt.value(code) for code in range(1 << wgt.bits))
    return Affine(shift, factor, act_terms, wgt_terms)
