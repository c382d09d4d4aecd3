"""Channels of several inputs behind each other, as codes of one quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.glue_abi import INPUTS
from bitsynth.errors import SpecError
from bitsynth.layers.glue.activations import Activations
from bitsynth.layers.glue.base import Glue
from bitsynth.layers.glue.quantization import Quantization, requantized
from bitsynth.layers.words import WORD_CHANNELS


class Concatenate(Glue):
    """The channels of up to 4 inputs behind each other, each code requantized to one scale.

    A code of input i becomes round((value - zero_point_i) * scale_i / out.scale) + out.zero_point, clamped: the
    quotient is that of exact numbers, rounded once, half to even. Inputs that have the output's quantization are
    copied; so are packed words if all inputs have it and a multiple of 64 channels.

    Args:
        inputs: Channels and quantization of each input.
        out: The codes that are given.
        layout: "NHWC" or "packed".
        out_layout: Likewise, of results; as `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[int, Quantization]],
        out: Quantization,
        *,
        layout: str = "NHWC",
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        if not 1 <= len(inputs) <= INPUTS:
            raise SpecError(f"a concatenation has 1 to {INPUTS} inputs, not {len(inputs)}")
        sources = [Activations(channels, given.operand, layout) for channels, given in inputs]
        output = Activations(sum(x.channels for x in sources), out.operand, out_layout or layout)
        alike = all(given == out for _, given in inputs)
        self.tables = [_table(given, out) for _, given in inputs]
        whole = all(x.channels % WORD_CHANNELS == 0 for x in sources)
        words = alike and whole and layout == output.layout == "packed"
        arrays = {} if alike else {"tables": np.stack(self.tables)}
        super().__init__(sources, output, {"op": "concat", "words": int(words)}, arrays, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([t[x] for t, x in zip(self.tables, codes, strict=True)], axis=-1)


def _table(source: Quantization, out: Quantization) -> NDArray[np.uint8]:
    """256 entries: the code of `out` for each of `source`."""
    made = np.arange(256) if source == out else requantized(source, out)
    return np.pad(made, (0, 256 - len(made))).astype(np.uint8)
