"""Codes as bits: the form of activations between layers whose layout is "packed"."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError

WORD_CHANNELS = 64


def packed_words(bits: int, channels: int) -> int:
    """64-bit words of one packed pixel: for every 64 channels one word a bit."""
    return -(-channels // WORD_CHANNELS) * bits


def pack_words(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint64]:
    """Words (..., `packed_words`) of codes (..., channels): bit 8 b + q of a word is channel 8 q + b."""
    if codes.dtype != np.uint8 or (codes >> np.uint8(bits)).any():
        raise SpecError(f"want codes of {bits} bits in uint8")
    channels = codes.shape[-1]
    whole = np.zeros((*codes.shape[:-1], -(-channels // WORD_CHANNELS) * WORD_CHANNELS), np.uint8)
    whole[..., :channels] = codes
    bytes_of = whole.reshape(*codes.shape[:-1], -1, 1, 8, 8) >> np.arange(bits, dtype=np.uint8)[:, None, None] & 1
    made = np.packbits(bytes_of, axis=-2, bitorder="little").reshape(*codes.shape[:-1], -1, 8)
    return np.ascontiguousarray(made).view("<u8")[..., 0].astype(np.uint64)


def unpack_words(words: NDArray[np.uint64], bits: int, channels: int) -> NDArray[np.uint8]:
    """The codes (..., channels) of words that `pack_words` or a layer made."""
    if words.dtype != np.uint64 or words.shape[-1:] != (packed_words(bits, channels),):
        raise SpecError(f"want {packed_words(bits, channels)} words of uint64, not {words.dtype} {words.shape}")
    lead: tuple[Any, ...] = words.shape[:-1]
    planes = np.ascontiguousarray(words.astype("<u8")[..., None]).view(np.uint8).reshape(*lead, -1, bits, 1, 8)
    ones = planes >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes: NDArray[np.uint8] = (ones << np.arange(bits, dtype=np.uint8)[:, None, None]).sum(axis=-3, dtype=np.uint8)
    return codes.reshape(*lead, -1)[..., :channels]
