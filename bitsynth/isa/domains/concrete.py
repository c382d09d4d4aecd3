"""Concrete meaning: numpy uint64 arrays, one element per input of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.isa.floats import NAN

U64 = NDArray[np.uint64]


@cache
def _mask(w: int) -> np.uint64:
    return np.uint64((1 << w) - 1)


class ConcreteDomain:
    """Payloads are uint64 arrays that broadcast; widths up to 64."""

    def const(self, value: int, w: int) -> Any:
        return np.uint64(value & ((1 << w) - 1))

    def add(self, a: U64, b: U64, w: int) -> Any:
        return np.add(a, b) & _mask(w)

    def sub(self, a: U64, b: U64, w: int) -> Any:
        return np.subtract(a, b) & _mask(w)

    def mul(self, a: U64, b: U64, w: int) -> Any:
        return np.multiply(a, b) & _mask(w)

    def udiv(self, a: U64, b: U64, w: int) -> Any:
        return np.where(b == 0, _mask(w), np.floor_divide(a, np.where(b == 0, np.uint64(1), b)))

    def and_(self, a: U64, b: U64, w: int) -> Any:
        return a & b

    def or_(self, a: U64, b: U64, w: int) -> Any:
        return a | b

    def xor(self, a: U64, b: U64, w: int) -> Any:
        return a ^ b

    def not_(self, a: U64, w: int) -> Any:
        return ~a & _mask(w)

    def shl(self, a: U64, n: int, w: int) -> Any:
        return np.left_shift(a, np.uint64(n)) & _mask(w) if n < w else a & np.uint64(0)

    def lshr(self, a: U64, n: int, w: int) -> Any:
        return np.right_shift(a, np.uint64(n)) if n < w else a & np.uint64(0)

    def eq(self, a: U64, b: U64, w: int) -> Any:
        return a == b

    def ult(self, a: U64, b: U64, w: int) -> Any:
        return a < b

    def ite(self, cond: Any, a: U64, b: U64, w: int) -> Any:
        return np.where(cond, a, b)

    def zext(self, a: U64, w: int, to: int) -> Any:
        return a

    def sext(self, a: U64, w: int, to: int) -> Any:
        sign = np.uint64(1 << (w - 1))
        return np.subtract(a ^ sign, sign) & _mask(to)

    def trunc(self, a: U64, w: int, to: int) -> Any:
        return a & _mask(to)

    def popcount(self, a: U64, w: int) -> Any:
        return np.bitwise_count(a).astype(np.uint64)

    def lookup(self, table: Sequence[U64], index: U64, w: int) -> Any:
        shape = np.broadcast_shapes(*{np.shape(entry) for entry in table})
        axes = max(len(shape), np.ndim(index))
        entries = np.empty((len(table), *(1,) * (axes - len(shape)), *shape), np.uint64)
        for k, entry in enumerate(table):
            entries[k] = entry
        at = np.reshape(index % np.uint64(len(table)), (*(1,) * (1 + axes - np.ndim(index)), *np.shape(index)))
        return np.take_along_axis(entries, at.astype(np.intp), 0)[0]

    def join(self, parts: Sequence[U64], w: int) -> Any:
        out = parts[0]
        for k, part in enumerate(parts[1:], 1):
            out = out | np.left_shift(part, np.uint64(k * w))
        return out

    def split(self, a: U64, w: int, to: int) -> list[Any]:
        return [np.right_shift(a, np.uint64(k)) & _mask(to) for k in range(0, w, to)]

    def float_of(self, a: U64) -> Any:
        return _payload(a.astype(np.uint32).view(np.int32).astype(np.float32))

    def nearest(self, a: U64) -> Any:
        x = _float(a)
        numbers = np.where(np.isnan(x), np.float32(0), x).astype(np.float64)
        return np.rint(np.clip(numbers, -(2.0**31), 2.0**31 - 1)).astype(np.int64).astype(np.uint64) & _mask(32)

    def fmul(self, a: U64, b: U64, toward_zero: bool = False) -> Any:
        with np.errstate(all="ignore"):
            product = np.multiply(_float(a), _float(b))
            if not toward_zero:
                return _payload(product)
            exact = np.multiply(_float(a).astype(np.float64), _float(b).astype(np.float64))
            further = np.isfinite(exact) & (np.abs(product.astype(np.float64)) > np.abs(exact))
            return _payload(np.where(further, np.nextafter(product, np.float32(0)), product))

    def fdiv(self, a: U64, b: U64) -> Any:
        with np.errstate(all="ignore"):
            return _payload(np.divide(_float(a), _float(b)))

    def fadd(self, a: U64, b: U64) -> Any:
        with np.errstate(all="ignore"):
            return _payload(np.add(_float(a), _float(b)))

    def flt(self, a: U64, b: U64) -> Any:
        return np.less(_float(a), _float(b))

    def fle(self, a: U64, b: U64) -> Any:
        return np.less_equal(_float(a), _float(b))

    def double_of(self, a: U64) -> Any:
        return _bits(a.astype(np.uint32).view(np.int32).astype(np.float64))

    def double_of_float(self, a: U64) -> Any:
        with np.errstate(invalid="ignore"):
            return _bits(_float(a).astype(np.float64))

    def int_of(self, a: U64) -> Any:
        with np.errstate(invalid="ignore"):
            return _double(a).astype(np.int64).astype(np.uint64) & _mask(32)

    def dmul(self, a: U64, b: U64) -> Any:
        with np.errstate(all="ignore"):
            return _bits(np.multiply(_double(a), _double(b)))

    def dadd(self, a: U64, b: U64) -> Any:
        with np.errstate(all="ignore"):
            return _bits(np.add(_double(a), _double(b)))

    def dsub(self, a: U64, b: U64) -> Any:
        with np.errstate(all="ignore"):
            return _bits(np.subtract(_double(a), _double(b)))

    def ddiv(self, a: U64, b: U64) -> Any:
        with np.errstate(all="ignore"):
            return _bits(np.divide(_double(a), _double(b)))

    def dlt(self, a: U64, b: U64) -> Any:
        return np.less(_double(a), _double(b))

    def dle(self, a: U64, b: U64) -> Any:
        return np.less_equal(_double(a), _double(b))


def _float(a: U64) -> Any:
    return np.asarray(a).astype(np.uint32).view(np.float32)


def _payload(x: Any) -> Any:
    return np.where(np.isnan(x), np.uint64(NAN), np.asarray(x, np.float32).view(np.uint32).astype(np.uint64))


def _double(a: U64) -> Any:
    return np.asarray(a).view(np.float64)


def _bits(x: Any) -> Any:
    return np.asarray(x).view(np.uint64)
