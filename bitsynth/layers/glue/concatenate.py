"""Channels of several inputs behind each other, as codes of one quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.glue_abi import INPUTS
from bitsynth.errors import SpecError
from bitsynth.layers.glue.activations import Activations, either
from bitsynth.layers.glue.base import Glue
from bitsynth.layers.glue.programs import repeated
from bitsynth.layers.glue.quantization import Quantization, quantization, requantized
from bitsynth.layers.words import WORD_CHANNELS


class Concatenate(Glue):
    """The channels of up to 4 inputs behind each other, each code requantized to one scale.

    A code of input i becomes round((value - zero_point_i) * scale_i / out.scale) + out.zero_point, clamped: the
    quotient is that of exact numbers, rounded once, half to even. Inputs that have the output's quantization are
    copied; so are packed words if all inputs have it and a multiple of 64 channels.

    Args:
        inputs: Channels and quantization of each input, or the bits of codes whose scale is 1.
        out: The codes that are given, likewise.
        layout: "NHWC" or "packed".
        out_layout: Likewise, of results; as `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[int, Quantization | int]],
        out: Quantization | int,
        *,
        layout: str = "NHWC",
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        of_inputs, out = [quantization(given, "inputs") for _, given in _pairs(inputs)], quantization(out, "out")
        given = zip(_pairs(inputs), of_inputs, strict=True)
        sources = [Activations(channels, each.operand, layout) for (channels, _), each in given]
        output = Activations(sum(x.channels for x in sources), out.operand, either(out_layout, layout))
        alike = all(each == out for each in of_inputs)
        self.tables = [_table(each, out) for each in of_inputs]
        whole = all(x.channels % WORD_CHANNELS == 0 for x in sources)
        words = alike and whole and layout == output.layout == "packed"
        arrays = (
            {}
            if alike
            else {"tables": np.stack([repeated(x, each.bits) for x, each in zip(self.tables, of_inputs, strict=True)])}
        )
        super().__init__(sources, output, {"op": "concat", "words": int(words)}, arrays, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([t[x] for t, x in zip(self.tables, codes, strict=True)], axis=-1)


def _pairs(inputs: Any) -> Sequence[tuple[Any, Any]]:
    """Channels and quantizations as they were given; SpecError for other things, or too many."""
    if not isinstance(inputs, list | tuple) or not all(isinstance(x, list | tuple) and len(x) == 2 for x in inputs):
        raise SpecError(f"inputs are pairs of channels and a Quantization, not {inputs!r}")
    if not 1 <= len(inputs) <= INPUTS:
        raise SpecError(f"a concatenation has 1 to {INPUTS} inputs, not {len(inputs)}")
    return inputs


def _table(source: Quantization, out: Quantization) -> NDArray[np.uint8]:
    """The code of `out` for each of `source`."""
    return np.arange(1 << source.bits, dtype=np.uint8) if source == out else requantized(source, out)
