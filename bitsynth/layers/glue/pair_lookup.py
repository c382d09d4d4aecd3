"""Any function of two inputs' codes, by a table of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.layers.glue.activations import Activations, either
from bitsynth.layers.glue.base import Glue
from bitsynth.layers.glue.library import instruction_set
from bitsynth.layers.glue.programs import ENTRIES, programs, repeated
from bitsynth.layers.glue.quantization import Quantization, quantization
from bitsynth.layers.glue.table import codes_table
from bitsynth.layers.glue.weighted import Lowered, weighted_sums
from bitsynth.spec import glue as specs
from bitsynth.spec.matmul import MAX_BITS

_FEW_BITS, _MOST_BITS = 2, 4
"""Of the codes of pairs that programs look up."""


class PairLookup(Glue):
    """The entry of a table for each pair of two inputs' codes, a pixel and channel at a time: any function of them.

    C looks pairs of few bits up by a program. Of others it computes (a * f + b * g + k) >> n, if there are numbers near
    those of the scales that were found to give the table's entry for every pair of codes, or looks the pair up in
    memory: ONNX Runtime's QLinearAdd is such a sum for most scales.

    Args:
        channels: Channels of a pixel.
        table: Codes that are given, integers (codes of the first, codes of the second): 3 for a ternary input, one less
            than 2**bits for a narrow one.
        first: The codes of the first input: a quantization, or bits of codes whose scale is 1.
        second: The codes of the second, likewise.
        out: The codes that are given, likewise.
        come: How many of the first input's codes and the second's ever come, from 0 on; all if None. Entries of the
            others may become what a sum has there.
        layout: "NHWC" or "packed".
        out_layout: Likewise, of results; as `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Attributes:
        pairs: The table, in uint8.

    Raises:
        SpecError: The table has not an entry for each pair, or entries that are no codes.
    """

    def __init__(
        self,
        channels: int,
        table: ArrayLike,
        first: Quantization | int,
        second: Quantization | int,
        out: Quantization | int,
        *,
        come: tuple[int, int] | None = None,
        layout: str = "NHWC",
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        first, second, out = (quantization(x, name) for x, name in ((first, "first"), (second, "second"), (out, "out")))
        inputs = [Activations(channels, x.operand, layout) for x in (first, second)]
        output = Activations(channels, out.operand, either(out_layout, layout))
        given = codes_table(table, [(inputs[0].last + 1, inputs[1].last + 1)], output.last)
        (numbers, arrays), self.pairs = _lowered(
            first, second, out, given, come, instruction_set(options.get("isa", "auto"))
        )
        super().__init__(inputs, output, {"op": "add", **numbers}, arrays, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        made: NDArray[np.uint8] = self.pairs[codes[0], codes[1]]
        return made


def _lowered(
    first: Quantization,
    second: Quantization,
    out: Quantization,
    pairs: NDArray[np.uint8],
    come: tuple[int, int] | None,
    isa: str,
) -> tuple[Lowered, NDArray[np.uint8]]:
    """The numbers and arrays of a program for `pairs`: a table if the set has the program, else a sum, else a table.

    And the pairs that it gives: a sum may have others of codes that never come.
    """
    bits = max(_FEW_BITS, first.bits, second.bits)
    if bits <= _MOST_BITS and specs.pairs(bits) in (p.spec for p in programs(isa)):
        return _tabled(pairs, bits), pairs
    some = pairs[: come[0], : come[1]] if come else pairs
    for wanted in [pairs] if some.shape == pairs.shape else [pairs, some]:
        if found := next(weighted_sums(first, second, out, wanted), None):
            return found
    return (_tabled(pairs, bits) if bits <= _MOST_BITS else _of_all(pairs)), pairs


def _tabled(pairs: NDArray[np.uint8], bits: int) -> Lowered:
    """The program that looks pairs of codes of at most so many bits up."""
    square = np.zeros((1 << bits, 1 << bits), np.uint8)
    square[: pairs.shape[0], : pairs.shape[1]] = pairs
    tables = repeated(square.reshape(-1), 2 * bits)
    return {"program": specs.pairs(bits).name}, {"tables": tables}


def _of_all(pairs: NDArray[np.uint8]) -> Lowered:
    """A table of all pairs, those of a first code beside each other."""
    table = np.zeros((len(pairs), ENTRIES), np.uint8)
    table[:, : pairs.shape[1]] = pairs
    return {"program": specs.pairs(MAX_BITS).name}, {"tables": table}
