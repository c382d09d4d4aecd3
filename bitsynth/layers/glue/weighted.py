"""Weighted sums in place of tables: codes (a * f + b * g + k) >> n of pairs of codes, compared for every pair.

Factors f, g and k near the ratios of scales are tried for each shift n, from the most accurate on, until the program
gives the table. Example: two inputs and an output of one scale give f = g = 1, k = 0, n = 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.runtime_abi import Number
from bitsynth.kernel.elementwise.constants import shared_numbers
from bitsynth.layers.glue.base import Arrays
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.spec import glue as specs

_INT16, _INT32 = 2**15 - 1, 2**31
_MAX_PAIRS_IN_DETAIL = 1 << 12
"""More pairs are compared with neighbours of the factors at the greatest shifts alone, to save time."""
_MAX_SHIFT = 24
"""The limit of the shift n; with more, products of codes hardly fit int32."""
_NEIGHBOURS = sorted(product(range(-2, 3), repeat=2), key=lambda x: abs(x[0]) + abs(x[1]))
"""Corrections of both factors that are tried when the rounded ratios of scales are wrong for some pair."""
_SAMPLE_STEP = 37
"""Step of the sample of pairs that is compared before all pairs."""
Lowered = tuple[dict[str, Number], Arrays]
"""Numbers and arrays of `struct bs_glue`."""


def find_weighted_sums(
    first: Quantization, second: Quantization, out: Quantization, pairs: NDArray[np.uint8]
) -> Iterator[tuple[Lowered, NDArray[np.uint8]]]:
    """Yield programs of weighted sums that give all of `pairs`, the cheapest first, and their tables of all pairs.

    `pairs` may leave out the last codes of an input, which are not reachable.
    """
    every = tuple(len(x.operand.codes) for x in (first, second))
    inputs, last = (first, second), out.operand.codes[-1]
    ratios = [x.exact_scale / out.exact_scale for x in inputs]
    factors = [r * x.operand.scale for x, r in zip(inputs, ratios, strict=True)]
    rest = sum((r * (x.operand.offset - x.zero_point) for x, r in zip(inputs, ratios, strict=True)), Fraction(0))
    zero = out.zero_point - out.operand.offset
    for near, wide in product((False, True), (False, True)):
        for sum_ in _candidates((*factors, rest), zero, near, wide, pairs, last):
            if sum_.fits(every) and sum_.gives(pairs, last, _SAMPLE_STEP) and sum_.gives(pairs, last):
                yield sum_.lower(last, wide), sum_.table(every, last)


@dataclass(frozen=True)
class _Sum:
    """Codes ((a * f + b * g + k) >> n) + z; with `even`, halves are rounded to even, else k decides how."""

    f: int
    g: int
    k: int
    n: int
    z: int
    even: bool

    @property
    def half(self) -> int:
        """The summand before a shift that rounds half to even."""
        return (1 << (self.n - 1)) - 1 if self.even else 0

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether int32 never overflows for inputs with these numbers of codes."""
        products = (shape[0] - 1) * abs(self.f) + (shape[1] - 1) * abs(self.g) + abs(self.summand)
        return products + (1 << self.n) + (abs(self.z) << self.n if self.even else 0) < _INT32

    @property
    def summand(self) -> int:
        """The summand of the products; z is part of it unless halves are rounded to even."""
        return self.k if self.even else self.k + (self.z << self.n)

    def gives(self, pairs: NDArray[np.uint8], last: int, apart: int = 1) -> bool:
        """Return whether the program gives `pairs`; every `apart`-th pair is compared."""
        return bool((self.table(pairs.shape, last, apart) == pairs[::apart, ::apart]).all())

    def table(self, shape: Sequence[int], last: int, apart: int = 1) -> NDArray[np.uint8]:
        """Return the results for all pairs of codes, or every `apart`-th."""
        a, b = (np.arange(0, n, apart, dtype=np.int64) for n in shape)
        sums = a[:, None] * self.f + b * self.g + self.k
        if self.even:
            sums += self.half + (sums >> self.n & 1)
        return ((sums >> self.n) + self.z).clip(0, last).astype(np.uint8)

    def lower(self, last: int, wide: bool) -> Lowered:
        """Return the program and its numbers."""
        spec = specs.add_weighted(even=self.even, wide=wide)
        values = {"f": self.f, "g": self.g, "k": self.summand, "e": self.half, "n": self.n, "z": self.z, "h": last}
        return {"program": spec.name}, {"numbers": shared_numbers(spec, values)}


def _candidates(
    exact: tuple[Fraction, ...], zero: int, near: bool, wide: bool, pairs: NDArray[np.uint8], last: int
) -> Iterator[_Sum]:
    """Yield factors and summand as multiples of 2**-n; with `near` also neighbours, which may round ties correctly."""
    codes = pairs.astype(np.int64) - zero
    for n in range(_MAX_SHIFT, -1, -1):
        f, g, k = (round(x * (1 << n)) for x in exact)
        most = max(abs(f), abs(g))
        fits = most < _INT16
        if (
            most >= _INT32
            or fits == wide
            or (near and pairs.size > _MAX_PAIRS_IN_DETAIL and n < _MAX_SHIFT - 4 and wide)
        ):
            continue
        if near:
            for i, j in _NEIGHBOURS:
                if (room := _summand(f + i, g + j, n, codes, (-zero, last - zero))) is not None:
                    yield _Sum(f + i, g + j, room, n, zero, False)
        else:
            yield _Sum(f, g, k + (1 << n) // 2, n, zero, False)
        for i, j, m in product((-1, 0, 1), repeat=3) if near else [(0, 0, 0)]:
            if n:
                yield _Sum(f + i, g + j, k + m, n, zero, True)


def _summand(f: int, g: int, n: int, codes: NDArray[np.int64], ends: tuple[int, int]) -> int | None:
    """Return the middle of the summands k for which (a * f + b * g + k) >> n are `codes`; None if there is none.

    Codes at `ends` are clamped, so they bound k on one side only. A sample of pairs is tried first.
    """
    summand = None
    for apart in (_SAMPLE_STEP, 1):
        some = codes[::apart, ::apart]
        a, b = (np.arange(0, size, apart, dtype=np.int64) for size in codes.shape)
        least = (some << n) - (a[:, None] * f + b * g)
        low = int(least[some > ends[0]].max(initial=-_INT32))
        high = int(least[some < ends[1]].min(initial=_INT32)) + (1 << n) - 1
        if low > high:
            return None
        summand = (low + high) // 2
    return summand
