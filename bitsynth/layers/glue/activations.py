"""What a layer of glue reads and gives: channels of codes, packed or not, or of floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.layers.words import Packed, pack_words, packed_words, unpack_words
from bitsynth.spec.matmul import Encoding, MatmulOperand, is_one_of

T = TypeVar("T")
LAYOUTS = ("NHWC", "packed")
MOST_CHANNELS = 1 << 24


def require_channels(channels: Any) -> None:
    """SpecError for what is no number of channels."""
    if type(channels) is not int or not 1 <= channels <= MOST_CHANNELS:
        raise SpecError(f"channels must be a whole number from 1 to {MOST_CHANNELS:,}, not {channels!r}")


@dataclass(frozen=True)
class Activations:
    """Codes of `operand`, of so many channels, (N, H, W, C) or words of them; if that is None, float32 or `others`.

    SpecError for another layout, for packed floats, and for what is no number of channels.
    """

    channels: int
    operand: MatmulOperand | None
    layout: str = "NHWC"
    others: str = "float32"

    def __post_init__(self) -> None:
        require_channels(self.channels)
        if not is_one_of(self.layout, LAYOUTS):
            raise SpecError(f"unknown layout {self.layout!r}; known to glue: {', '.join(LAYOUTS)}")
        if self.layout == "packed" and self.operand is None:
            raise SpecError(f"only codes can be packed, not {self.others.replace('float32', 'floats')}")

    @property
    def bits(self) -> int:
        """Bits of a code, 0 of floats."""
        return self.operand.bits if self.operand else 0

    @property
    def last(self) -> int:
        """The greatest code, 0 of floats."""
        return self.operand.codes[-1] if self.operand else 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an element."""
        if self.layout == "packed":
            return np.dtype(np.uint64)
        return np.dtype(np.uint8 if self.operand else self.others)

    @property
    def elements(self) -> int:
        """Elements of a pixel."""
        return packed_words(self.bits, self.channels) if self.layout == "packed" else self.channels

    def checked(self, x: Any) -> NDArray[Any]:
        """`x` as C takes it; SpecError unless it is (N, H, W, C) of this type. C looks at the codes themselves."""
        if isinstance(x, np.ma.MaskedArray):
            raise SpecError("activations are a masked array; fill its gaps first, with .filled()")
        if isinstance(x, Packed):
            x = self._words(x)
        if not isinstance(x, np.ndarray) or x.dtype != self.dtype or x.ndim != 4 or x.shape[-1] != self.elements:
            came = f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
            raise SpecError(f"want {self.dtype} activations (N, H, W, C) with C = {self.elements}, not {came}")
        return np.require(x, requirements=("C", "ALIGNED"))

    def _words(self, x: Packed) -> NDArray[np.uint64]:
        if self.layout != "packed" or self.operand is None:
            raise SpecError("want activations of layout NHWC, not Packed words: unpack them")
        return x.require(self.operand, self.channels)

    def typed(self, out: NDArray[Any]) -> NDArray[Any]:
        """Results as whoever asked for them gets them: words with their type."""
        if self.layout != "packed" or self.operand is None:
            return out
        return Packed(out, self.bits, self.operand.encoding, self.channels)

    def plain(self, x: NDArray[Any]) -> NDArray[Any]:
        """The codes or floats (N, H, W, C) in what lies as this layout says."""
        return unpack_words(x, self.bits, self.channels) if self.layout == "packed" else x

    def laid(self, x: NDArray[Any]) -> NDArray[Any]:
        """Codes or floats (N, H, W, C) as this layout has them."""
        return pack_words(x, self.bits) if self.layout == "packed" else np.ascontiguousarray(x)


def codes_of(channels: int, bits: int | Quantization, encoding: str, layout: str) -> Activations:
    """Activations of `bits`-bit codes; of a quantization's if that is given, which has an encoding of its own."""
    if isinstance(bits, Quantization):
        if not is_one_of(encoding, (Encoding.UNSIGNED, bits.encoding)):
            raise SpecError(f"codes of {bits.operand} are given, and another encoding, {encoding!r}")
        return Activations(channels, bits.operand, layout)
    return Activations(channels, MatmulOperand(bits, Encoding.parse(encoding)), layout)


def either(given: T | None, usual: T) -> T:
    """What is `given`, or what is usual if that is None."""
    return usual if given is None else given
