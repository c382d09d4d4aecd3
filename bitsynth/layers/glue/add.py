"""Sums of two inputs' codes, of whatever scales, as codes of a third."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.layers.glue.pair_lookup import PairLookup
from bitsynth.layers.glue.quantization import Quantization, as_codes, quantization, require_whole_steps


class Add(PairLookup):
    """Sums of two inputs, a pixel and channel at a time, rounded to a code once.

    Codes a and b become round(((value_a - zero_point_a) * scale_a + (value_b - zero_point_b) * scale_b) / out.scale)
    + out.zero_point, clamped: the quotient is that of exact numbers (scales are float32), rounded half to even.
    The formula is computed for every pair of codes, and C gives what that table has, as of a `PairLookup`.

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
        table = _pairs(first, second, out)
        super().__init__(channels, table, first, second, out, layout=layout, out_layout=out_layout, **options)


def _pairs(first: Quantization, second: Quantization, out: Quantization) -> NDArray[np.uint8]:
    """The formula for every pair, in Python's integers."""
    ratios = [x.exact_scale / out.exact_scale for x in (first, second)]
    divisor = ratios[0].denominator * ratios[1].denominator
    a, b = (x.steps().astype(object) * int(r * divisor) for x, r in zip((first, second), ratios, strict=True))
    return as_codes(a[:, None] + b, divisor, out)
