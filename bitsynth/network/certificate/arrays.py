"""Arrays in certificates: base64 of little-endian numbers, or of integers of few values packed into bytes."""

from __future__ import annotations

import base64
from functools import reduce
from operator import or_

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from bitsynth.errors import SpecError
from bitsynth.graph.types import Tensor
from bitsynth.network.certificate import checker


class EncodedArray(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An array of integers or floats: of a type, or of codes of some bits from `low` on."""

    type: str | UnsetType = UNSET
    bits: int | UnsetType = UNSET
    low: int | UnsetType = UNSET
    step: int | UnsetType = UNSET
    shape: list[int]
    data: str


EncodedNumbers = int | EncodedArray
"""A whole number, or an array."""
_MAX_PACKED = 256
_MAX_WHOLE = 1 << 53


def encode_array(numbers: Tensor) -> EncodedArray:
    """Return an array of integers or floats as the record whose JSON the checker's `array` reads."""
    numbers = np.asarray(numbers)
    if numbers.dtype.kind == "f":
        return _plain(numbers, numbers.dtype.newbyteorder("<").str)
    least, most = (int(f(numbers)) for f in (np.min, np.max)) if numbers.size else (0, 0)
    if numbers.size and most - least < 2 * _MAX_PACKED:
        above = (numbers.astype(np.int64, copy=False) - least).astype(np.uint16)
        step = 2 if most > least and not (above & 1).any() else 1
        if (most - least) // step < _MAX_PACKED:
            return _pack(above // np.uint16(step), least, step, (most - least) // step)
    return _plain(numbers, next(t for t in ("<i4", "<i8") if np.iinfo(t).min <= least and most <= np.iinfo(t).max))


def encode_number(numbers: Tensor) -> EncodedNumbers:
    """Return a single whole number, exact in float64, as a JSON number; anything else as an array."""
    numbers = np.asarray(numbers)
    if numbers.size == 1 and abs(one := float(numbers.reshape(()))) <= _MAX_WHOLE and one.is_integer():
        return int(one)
    return encode_array(numbers)


def decode_array(encoded: EncodedNumbers | UnsetType) -> Tensor:
    """Return the array of a record, as the checker reads it: integers beyond 2^53 become 2^53; SpecError if unset."""
    if encoded is UNSET:
        raise SpecError("a certificate lacks an array")
    return np.asarray(checker.array(msgspec.to_builtins(encoded)))


def _plain(numbers: Tensor, kind: str) -> EncodedArray:
    return EncodedArray(type=kind, shape=list(numbers.shape), data=_text(np.ascontiguousarray(numbers, kind)))


def _pack(numbers: Tensor, least: int, step: int, last: int) -> EncodedArray:
    """Return integers as codes 0 .. `last`, which count the steps above the least one, packed into bytes."""
    bits = next(b for b in (1, 2, 4, 8) if last < 1 << b)
    codes = numbers.reshape(-1).astype(np.uint8)
    padded = np.pad(codes, (0, -len(codes) % (8 // bits))).reshape(-1, 8 // bits)
    bytes_of_codes = reduce(or_, (column << np.uint8(bits * k) for k, column in enumerate(padded.T)))
    return EncodedArray(bits=bits, low=least, step=step, shape=list(numbers.shape), data=_text(bytes_of_codes))


def _text(array: Tensor) -> str:
    return base64.b64encode(array.tobytes()).decode()
