"""Codes between two layers of a random chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bitsynth import Packed, pack, unpack
from bitsynth.spec.matmul import Encoding, MatmulOperand
from support.layer_cases import encodings
from support.random_drawing import one_of

Values = NDArray[Any]
ANY = {b: [e for e in encodings(b) if Encoding(e) not in (Encoding.TERNARY, Encoding.NARROW)] for b in (1, 2, 3)}
"""Encodings in which every code of so many bits has a value."""


@dataclass(frozen=True)
class Tensor:
    """Codes (N, H, W, C) between two layers: what they must be, and what the layers before made of them."""

    want: Values
    made: Values
    operand: MatmulOperand
    layout: str

    @property
    def codes(self) -> Values:
        """What the layers made, a code an element."""
        return unpack(self.made) if self.layout == "packed" else self.made  # type: ignore[arg-type]

    @property
    def channels(self) -> int:
        return int(self.want.shape[3])

    @property
    def unsigned(self) -> Values:
        """What the layers made, as numbers from 0 on."""
        return typed(self.made, self.operand.bits, "unsigned", self.channels) if self.layout == "packed" else self.made

    def check(self) -> None:
        """Words are compared as they lie: bits of channels that there are not are 0."""
        want = pack(self.want, self.operand.bits, None) if self.layout == "packed" else self.want
        assert self.made.shape == want.shape
        if not (self.made.view(np.ndarray) == want.view(np.ndarray)).all():
            np.testing.assert_array_equal(self.codes, self.want)
            raise AssertionError("bits of channels that there are not are set")


def tensor(rng: Generator, want: Values, result: Values | None, bits: int, layout: str = "") -> Tensor:
    """Codes under any encoding of their width; they are laid out anyhow if no layer has `made` them."""
    encoding = str(one_of(rng, ANY[bits]))
    layout = layout or one_of(rng, ("NHWC", "packed"))
    if result is None:
        result = pack(want, bits, encoding) if layout == "packed" else want
    elif layout == "packed":
        result = typed(result, bits, encoding, want.shape[3])
    return Tensor(want, result, MatmulOperand(bits, Encoding(encoding)), layout)


def typed(result: Values, bits: int, encoding: str, channels: int) -> Packed:
    """The words that a layer made, as codes of an encoding."""
    return Packed(result.view(np.ndarray), bits, encoding, channels)
