"""Codes as bits: the form of activations between layers whose layout is "packed"."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import Encoding, MatmulOperand, plain_array

WORD_CHANNELS = 64


class Packed(np.ndarray[Any, np.dtype[np.uint64]]):
    """Words of codes, 64 channels a word, with their bits, encoding and channels: an array of uint64, (N, H, W, words).

    Layers whose `out_layout` is "packed" give them, `pack` makes them; a layer that reads packed words refuses words of
    another width, encoding or number of channels. Parts along the leading axes and copies are `Packed` too. Results of
    numpy's operations are plain arrays; layers take these as well, and can only check their size.

    Args:
        words: uint64 (..., `packed_words`): for every 64 channels a word a bit; bit 8 b + q of it is channel 8 q + b.
        bits: Bits of a code, 1 to 8.
        encoding: The values that codes stand for: "unsigned", "signed", "bipolar", "ternary" or "narrow"; None for
            codes that may be read in any encoding, such as counts of thresholds.
        channels: Channels of a pixel.

    Raises:
        SpecError: The number of words is another one, or they are not uint64.
    """

    bits: int
    encoding: Encoding | None
    channels: int

    def __new__(cls, words: NDArray[np.uint64], bits: int, encoding: str | None, channels: int) -> Self:
        """Check the words, and type a view of them."""
        MatmulOperand(bits, known := _meaning(encoding))
        if type(channels) is not int or channels < 1:
            raise SpecError(f"channels must be a whole number of at least 1, not {channels!r}")
        _require_words(words, bits, channels)
        packed = words.view(cls)
        packed.bits, packed.encoding, packed.channels = bits, None if encoding is None else known, channels
        return packed

    def __array_finalize__(self, made_of: Any) -> None:
        """Keep the type in views and copies."""
        self.bits, self.channels = getattr(made_of, "bits", 1), getattr(made_of, "channels", WORD_CHANNELS)
        self.encoding = getattr(made_of, "encoding", None)

    def __array_wrap__(self, array: NDArray[Any], context: Any = None, return_scalar: bool = False) -> Any:
        """Return a plain array of what numpy computed: it holds no such codes."""
        return array[()] if return_scalar else array.view(np.ndarray)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.words, self.bits, self.encoding, self.channels)

    @property
    def words(self) -> NDArray[np.uint64]:
        """The same words as a plain array."""
        return self.view(np.ndarray)

    def require(self, operand: MatmulOperand, channels: int) -> NDArray[np.uint64]:
        """Return the words; raise SpecError unless they are codes of `operand` with this number of `channels`."""
        same = self.encoding in (None, operand.encoding) and (self.bits, self.channels) == (operand.bits, channels)
        if not same:
            held = f"{self.bits}-bit {self.encoding or 'codes'}"
            raise SpecError(f"want words of {operand}, {channels} channels, not of {held}, {self.channels} channels")
        _require_words(self, self.bits, self.channels)
        return self.words


def _require_words(words: Any, bits: int, channels: int) -> None:
    """Raise SpecError unless these are words of this number of bits and channels."""
    count, shape = packed_words(bits, channels), getattr(words, "shape", ())
    dtype = getattr(words, "dtype", type(words).__name__)
    if not isinstance(words, np.ndarray) or dtype != np.uint64 or shape[-1:] != (count,):
        raise SpecError(f"want {count} words of uint64, not {dtype} {shape}")


def pack(codes: ArrayLike, bits: int, encoding: str | None = "unsigned") -> Packed:
    """Pack `codes` (..., C), integers from 0 on.

    `bits`, 1 to 8, is the width of a code, `encoding` the values that codes stand for, as of `Packed`. SpecError
    names the first code that they do not have.
    """
    operand = MatmulOperand(bits, _meaning(encoding))
    array, last = plain_array(codes, "codes"), operand.codes[-1]
    if array.dtype.kind not in "iub" or array.ndim < 1 or array.shape[-1] < 1:
        raise SpecError(f"want codes of integers (..., channels), not {array.dtype} {array.shape}")
    if (bad := (array < 0) | (array > last)).any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise SpecError(f"codes{list(where)} is {array[where]}; codes of {operand} go from 0 to {last}")
    return Packed(pack_words(array.astype(np.uint8), bits), bits, encoding, array.shape[-1])


def _meaning(encoding: str | None) -> Encoding:
    """Return the encoding that codes are checked by: unsigned, which has every code, if None."""
    return Encoding.UNSIGNED if encoding is None else Encoding.parse(encoding)


def unpack(packed: Packed) -> NDArray[np.uint8]:
    """Return the codes, uint8 (..., C), of `packed` words; raise SpecError for an array, whose type nobody knows."""
    if not isinstance(packed, Packed):
        raise SpecError(f"want Packed words, not {type(packed).__name__}; layers.unpack_words takes bits and channels")
    return unpack_words(packed.words, packed.bits, packed.channels)


def packed_words(bits: int, channels: int) -> int:
    """Return 64-bit words of one packed pixel: for every 64 channels one word a bit."""
    return -(-channels // WORD_CHANNELS) * bits


def pack_words(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint64]:
    """Return words (..., `packed_words`) of codes (..., channels): bit 8 b + q of a word is channel 8 q + b."""
    if codes.dtype != np.uint8 or (codes >> np.uint8(bits)).any():
        raise SpecError(f"want codes of {bits} bits in uint8")
    channels = codes.shape[-1]
    blocks = -(-channels // WORD_CHANNELS)
    whole = np.zeros((*codes.shape[:-1], blocks * WORD_CHANNELS), np.uint8)
    whole[..., :channels] = codes
    bytes_of = whole.reshape(*codes.shape[:-1], blocks, 1, 8, 8) >> np.arange(bits, dtype=np.uint8)[:, None, None] & 1
    packed = np.packbits(bytes_of, axis=-2, bitorder="little").reshape(*codes.shape[:-1], blocks * bits, 8)
    return np.ascontiguousarray(packed).view("<u8")[..., 0].astype(np.uint64)


def unpack_words(words: NDArray[np.uint64], bits: int, channels: int) -> NDArray[np.uint8]:
    """Return the codes (..., channels) of words that `pack_words` or a layer made."""
    _require_words(words, bits, channels)
    lead: tuple[Any, ...] = words.shape[:-1]
    planes = (
        np.ascontiguousarray(words.astype("<u8")[..., None])
        .view(np.uint8)
        .reshape(*lead, words.shape[-1] // bits, bits, 1, 8)
    )
    ones = planes >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes: NDArray[np.uint8] = (ones << np.arange(bits, dtype=np.uint8)[:, None, None]).sum(axis=-3, dtype=np.uint8)
    return codes.reshape(*lead, words.shape[-1] // bits * WORD_CHANNELS)[..., :channels]
