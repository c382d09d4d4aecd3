"""Sums of two inputs' codes, of whatever scales, as codes of a third."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.runtime_abi import Number
from bitsynth.layers.glue.activations import Activations, either
from bitsynth.layers.glue.base import Arrays, Glue
from bitsynth.layers.glue.quantization import Quantization, as_codes, quantization, require_whole_steps

_INT32 = 2**31
_FEW_PAIRS = 1 << 12
_MOST_SHIFT = 24
"""Of a fixed-point factor; with more, products of codes hardly fit int32."""


class Add(Glue):
    """Sums of two inputs, a pixel and channel at a time, rounded to a code once.

    Codes a and b become round(((value_a - zero_point_a) * scale_a + (value_b - zero_point_b) * scale_b) / out.scale)
    + out.zero_point, clamped: the quotient is that of exact numbers (scales are float32), rounded half to even.
    C computes (a * factor + b * other_factor + summand) >> shift with numbers that were compared with this formula
    for every pair of codes; if there are none such, it has a table of all pairs.

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
        numbers, arrays = _linear((first, second), ratios, out, self.pairs) or _tabled(self.pairs, second.bits)
        super().__init__(inputs, output, {"op": "add", **numbers}, arrays, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        made: NDArray[np.uint8] = self.pairs[codes[0], codes[1]]
        return made


Both = tuple[Quantization, Quantization]


def _pairs(inputs: Both, ratios: tuple[Fraction, Fraction], out: Quantization) -> NDArray[np.uint8]:
    """The formula for every pair, in Python's integers."""
    divisor = ratios[0].denominator * ratios[1].denominator
    a, b = (x.steps().astype(object) * int(r * divisor) for x, r in zip(inputs, ratios, strict=True))
    return as_codes(a[:, None] + b, divisor, out)


def _linear(
    inputs: Both, ratios: tuple[Fraction, Fraction], out: Quantization, pairs: NDArray[np.uint8]
) -> tuple[dict[str, Number], Arrays] | None:
    """Numbers of fixed point in int32 that give `pairs`, every one of them; None if no shift has such."""
    zero = out.zero_point - out.operand.offset
    factors = [r * x.operand.scale for x, r in zip(inputs, ratios, strict=True)]
    rest = sum((r * (x.operand.offset - x.zero_point) for x, r in zip(inputs, ratios, strict=True)), Fraction(0))
    for near, shift in product((False, True), range(_MOST_SHIFT, -1, -1)):
        for numbers in _candidates((*factors, rest), shift, near):
            chosen: dict[str, Number] = {**numbers, "shift": shift, "zero_point": zero}
            if _gives(chosen, pairs, out.operand.codes[-1]):
                return chosen, {}
        if near and pairs.size > _FEW_PAIRS and shift < _MOST_SHIFT - 4:
            break
    return None


def _candidates(exact: tuple[Fraction, ...], shift: int, near: bool) -> Iterator[dict[str, Number]]:
    """Factors and summand as whole multiples of 2**-shift; `near` those too, which may decide close ties rightly."""
    unit = 1 << shift
    a, b, rest = (round(x * unit) for x in exact)
    for i, j, k in product((-1, 0, 1), repeat=3) if near else [(0, 0, 0)]:
        factors = {"factor": a + i, "other_factor": b + j}
        yield {**factors, "summand": rest + k + unit // 2, "rounding": "down"}
        if shift:
            yield {**factors, "summand": rest + k, "rounding": "even"}


def _gives(numbers: dict[str, Number], pairs: NDArray[np.uint8], last: int) -> bool:
    """Whether C gives `pairs` by these numbers, and nothing in it leaves int32."""
    factor, other, summand, shift, zero = (
        int(numbers[name]) for name in ("factor", "other_factor", "summand", "shift", "zero_point")
    )
    products = (pairs.shape[0] - 1) * abs(factor) + (pairs.shape[1] - 1) * abs(other) + abs(summand)
    if products + (1 << shift) >= _INT32:
        return False
    a, b = (np.arange(n, dtype=np.int64) for n in pairs.shape)
    sums = a[:, None] * factor + b * other + summand
    if numbers["rounding"] == "even":
        sums += (1 << (shift - 1)) - 1 + (sums >> shift & 1)
    return bool((((sums >> shift) + zero).clip(0, last) == pairs).all())


def _tabled(pairs: NDArray[np.uint8], bits: int) -> tuple[dict[str, Number], Arrays]:
    """A table of all pairs, those of a first code beside each other."""
    table = np.zeros((len(pairs), 1 << bits), np.uint8)
    table[:, : pairs.shape[1]] = pairs
    return {}, {"tables": table}
