"""Sums of two inputs' codes, of whatever scales, as codes of a third."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.runtime_abi import Number
from bitsynth.kernel.element_constants import shared_numbers
from bitsynth.layers.glue.activations import Activations, either
from bitsynth.layers.glue.base import Arrays, Glue
from bitsynth.layers.glue.library import instruction_set
from bitsynth.layers.glue.programs import programs, repeated
from bitsynth.layers.glue.quantization import Quantization, as_codes, quantization, require_whole_steps
from bitsynth.spec import glue as specs

_INT16, _INT32 = 2**15 - 1, 2**31
_FEW_BITS, _MOST_BITS = 2, 4
"""Of the codes of pairs that programs look up."""
_FEW_PAIRS = 1 << 12
_MOST_SHIFT = 24
"""Of a fixed-point factor; with more, products of codes hardly fit int32."""


class Add(Glue):
    """Sums of two inputs, a pixel and channel at a time, rounded to a code once.

    Codes a and b become round(((value_a - zero_point_a) * scale_a + (value_b - zero_point_b) * scale_b) / out.scale)
    + out.zero_point, clamped: the quotient is that of exact numbers (scales are float32), rounded half to even.
    C looks pairs of few bits up in a table of them; of others it computes (a * f + b * g + k) >> n with numbers that
    were compared with this formula for every pair of codes, or has a table too if there are none such.

    Args:
        channels: Channels of a pixel.
        first: The codes of the first input: a quantization, or bits of codes whose scale is 1.
        second: The codes of the second, likewise.
        out: The codes that are given, likewise.
        layout: "NHWC" or "packed".
        out_layout: Likewise, of results; as `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Attributes:
        pairs: The code that is given for each pair of codes, (codes of the first, codes of the second).

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        channels: int,
        first: Quantization | int,
        second: Quantization | int,
        out: Quantization | int,
        *,
        layout: str = "NHWC",
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        first, second = quantization(first, "first"), quantization(second, "second")
        require_whole_steps(out := quantization(out, "out"))
        inputs = [Activations(channels, x.operand, layout) for x in (first, second)]
        output = Activations(channels, out.operand, either(out_layout, layout))
        ratios = first.exact_scale / out.exact_scale, second.exact_scale / out.exact_scale
        self.pairs = _pairs((first, second), ratios, out)
        known = {p.spec.name for p in programs(instruction_set(options.get("isa", "auto")))}
        numbers, arrays = _lowered((first, second), ratios, out, self.pairs, known)
        super().__init__(inputs, output, {"op": "add", **numbers}, arrays, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        made: NDArray[np.uint8] = self.pairs[codes[0], codes[1]]
        return made


Both = tuple[Quantization, Quantization]
Lowered = tuple[dict[str, Number], Arrays]


def _pairs(inputs: Both, ratios: tuple[Fraction, Fraction], out: Quantization) -> NDArray[np.uint8]:
    """The formula for every pair, in Python's integers."""
    divisor = ratios[0].denominator * ratios[1].denominator
    a, b = (x.steps().astype(object) * int(r * divisor) for x, r in zip(inputs, ratios, strict=True))
    return as_codes(a[:, None] + b, divisor, out)


def _lowered(
    inputs: Both,
    ratios: tuple[Fraction, Fraction],
    out: Quantization,
    pairs: NDArray[np.uint8],
    known: AbstractSet[str],
) -> Lowered:
    """The numbers and arrays of a program for `pairs`: a table if the program is `known`, else a sum, else a table."""
    bits = max(_FEW_BITS, *(x.bits for x in inputs))
    if bits <= _MOST_BITS and specs.pairs(bits).name in known:
        return _tabled(pairs, bits)
    found = next(_weighted(inputs, ratios, out, pairs), None)
    return found or (_tabled(pairs, bits) if bits <= _MOST_BITS else _of_all(pairs, inputs[1].bits))


def _weighted(
    inputs: Both, ratios: tuple[Fraction, Fraction], out: Quantization, pairs: NDArray[np.uint8]
) -> Iterator[Lowered]:
    """Weighted sums that give `pairs`, every one of them, the cheapest first."""
    zero = out.zero_point - out.operand.offset
    factors = [r * x.operand.scale for x, r in zip(inputs, ratios, strict=True)]
    rest = sum((r * (x.operand.offset - x.zero_point) for x, r in zip(inputs, ratios, strict=True)), Fraction(0))
    for near, wide in product((False, True), (False, True)):
        for sum_ in _candidates((*factors, rest), zero, near, wide, pairs.size):
            if sum_.gives(pairs, out.operand.codes[-1]):
                yield sum_.lowered(out.operand.codes[-1], wide)


@dataclass(frozen=True)
class _Sum:
    """Codes (a * f + b * g + k) >> n plus z, rounded half to `even` or as k says."""

    f: int
    g: int
    k: int
    n: int
    z: int
    even: bool

    @property
    def half(self) -> int:
        """What is added before a shift that rounds half to even."""
        return (1 << (self.n - 1)) - 1 if self.even else 0

    def gives(self, pairs: NDArray[np.uint8], last: int) -> bool:
        """Whether these are the codes of `pairs`, and nothing leaves int32."""
        products = (pairs.shape[0] - 1) * abs(self.f) + (pairs.shape[1] - 1) * abs(self.g) + abs(self.k)
        if products + (1 << self.n) + (abs(self.z) << self.n) >= _INT32:
            return False
        a, b = (np.arange(n, dtype=np.int64) for n in pairs.shape)
        sums = a[:, None] * self.f + b * self.g + self.k
        if self.even:
            sums += self.half + (sums >> self.n & 1)
        return bool((((sums >> self.n) + self.z).clip(0, last) == pairs).all())

    def lowered(self, last: int, wide: bool) -> Lowered:
        """The program and its numbers; z is part of k where halves are not looked at."""
        spec = specs.weighted(even=self.even, wide=wide)
        k = self.k if self.even else self.k + (self.z << self.n)
        values = {"f": self.f, "g": self.g, "k": k, "e": self.half, "n": self.n, "z": self.z, "h": last}
        return {"program": spec.name}, {"numbers": shared_numbers(spec, values)}


def _candidates(exact: tuple[Fraction, ...], zero: int, near: bool, wide: bool, pairs: int) -> Iterator[_Sum]:
    """Factors and summand as whole multiples of 2**-n; `near` those too, which may decide close ties rightly."""
    for n in range(_MOST_SHIFT, -1, -1):
        f, g, k = (round(x * (1 << n)) for x in exact)
        fits = max(abs(f), abs(g)) < _INT16
        if fits == wide or (near and pairs > _FEW_PAIRS and n < _MOST_SHIFT - 4 and wide):
            continue
        for i, j, m in product((-1, 0, 1), repeat=3) if near else [(0, 0, 0)]:
            yield _Sum(f + i, g + j, k + m + (1 << n) // 2, n, zero, False)
            if n:
                yield _Sum(f + i, g + j, k + m, n, zero, True)


def _tabled(pairs: NDArray[np.uint8], bits: int) -> Lowered:
    """The program that looks pairs of codes of at most so many bits up."""
    square = np.zeros((1 << bits, 1 << bits), np.uint8)
    square[: pairs.shape[0], : pairs.shape[1]] = pairs
    tables = repeated(square.reshape(-1), 2 * bits)
    return {"program": specs.pairs(bits).name, "pair_shift": bits}, {"tables": tables}


def _of_all(pairs: NDArray[np.uint8], bits: int) -> Lowered:
    """A table of all pairs, those of a first code beside each other."""
    table = np.zeros((len(pairs), 1 << bits), np.uint8)
    table[:, : pairs.shape[1]] = pairs
    return {"pair_shift": bits}, {"tables": table}
