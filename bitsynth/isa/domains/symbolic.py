"""Evaluates lane expressions to Z3 terms: a lane is a bit-vector."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from bitsynth.isa.floats import NAN
from bitsynth.solver.z3 import z3


class SymbolicDomain:
    """Payloads are Z3 bit-vectors; truth values are Z3 booleans."""

    def const(self, value: int, w: int) -> Any:
        return z3.BitVecVal(value, w)

    def add(self, a: Any, b: Any, w: int) -> Any:
        return a + b

    def sub(self, a: Any, b: Any, w: int) -> Any:
        return a - b

    def mul(self, a: Any, b: Any, w: int) -> Any:
        return a * b

    def udiv(self, a: Any, b: Any, w: int) -> Any:
        return z3.UDiv(a, b)

    def and_(self, a: Any, b: Any, w: int) -> Any:
        return a & b

    def or_(self, a: Any, b: Any, w: int) -> Any:
        return a | b

    def xor(self, a: Any, b: Any, w: int) -> Any:
        return a ^ b

    def not_(self, a: Any, w: int) -> Any:
        return ~a

    def shl(self, a: Any, n: int, w: int) -> Any:
        return a << n if n < w else z3.BitVecVal(0, w)

    def lshr(self, a: Any, n: int, w: int) -> Any:
        return z3.LShR(a, n) if n < w else z3.BitVecVal(0, w)

    def eq(self, a: Any, b: Any, w: int) -> Any:
        return a == b

    def ult(self, a: Any, b: Any, w: int) -> Any:
        return z3.ULT(a, b)

    def ite(self, cond: Any, a: Any, b: Any, w: int) -> Any:
        return z3.If(cond, a, b)

    def zext(self, a: Any, w: int, to: int) -> Any:
        return z3.ZeroExt(to - w, a)

    def sext(self, a: Any, w: int, to: int) -> Any:
        return z3.SignExt(to - w, a)

    def trunc(self, a: Any, w: int, to: int) -> Any:
        return z3.Extract(to - 1, 0, a)

    def popcount(self, a: Any, w: int) -> Any:
        return reduce(lambda x, y: x + y, [z3.ZeroExt(w - 1, z3.Extract(k, k, a)) for k in range(w)])

    def lookup(self, table: Sequence[Any], index: Any, w: int) -> Any:
        low = z3.URem(index, len(table)) if len(table) < 1 << w else index
        out = table[-1]
        for k in range(len(table) - 2, -1, -1):
            out = z3.If(low == k, table[k], out)
        return out

    def join(self, parts: Sequence[Any], w: int) -> Any:
        return z3.Concat(*reversed(parts)) if len(parts) > 1 else parts[0]

    def split(self, a: Any, w: int, to: int) -> list[Any]:
        return [z3.Extract(k + to - 1, k, a) for k in range(0, w, to)]

    def float_of(self, a: Any) -> Any:
        return _payload(z3.fpSignedToFP(z3.RNE(), a, z3.Float32()))

    def nearest(self, a: Any) -> Any:
        x = _float(a)
        whole = z3.fpToSBV(z3.RNE(), x, z3.BitVecSort(32))
        least, most = z3.FPVal(-(2.0**31), z3.Float32()), z3.FPVal(2.0**31, z3.Float32())
        within = z3.If(x >= most, z3.BitVecVal(2**31 - 1, 32), z3.If(x <= least, z3.BitVecVal(2**31, 32), whole))
        return z3.If(z3.fpIsNaN(x), z3.BitVecVal(0, 32), within)

    def fmul(self, a: Any, b: Any, toward_zero: bool = False) -> Any:
        return _payload(z3.fpMul(z3.RTZ() if toward_zero else z3.RNE(), _float(a), _float(b)))

    def fdiv(self, a: Any, b: Any) -> Any:
        return _payload(z3.fpDiv(z3.RNE(), _float(a), _float(b)))

    def fadd(self, a: Any, b: Any) -> Any:
        return _payload(z3.fpAdd(z3.RNE(), _float(a), _float(b)))

    def flt(self, a: Any, b: Any) -> Any:
        return z3.fpLT(_float(a), _float(b))

    def fle(self, a: Any, b: Any) -> Any:
        return z3.fpLEQ(_float(a), _float(b))

    def double_of(self, a: Any) -> Any:
        return z3.fpToIEEEBV(z3.fpSignedToFP(z3.RNE(), a, z3.Float64()))

    def double_of_float(self, a: Any) -> Any:
        return z3.fpToIEEEBV(z3.fpFPToFP(z3.RNE(), _float(a), z3.Float64()))

    def int_of(self, a: Any) -> Any:
        return z3.fpToSBV(z3.RTZ(), _double(a), z3.BitVecSort(32))

    def dmul(self, a: Any, b: Any) -> Any:
        return z3.fpToIEEEBV(z3.fpMul(z3.RNE(), _double(a), _double(b)))

    def dadd(self, a: Any, b: Any) -> Any:
        return z3.fpToIEEEBV(z3.fpAdd(z3.RNE(), _double(a), _double(b)))

    def dsub(self, a: Any, b: Any) -> Any:
        return z3.fpToIEEEBV(z3.fpSub(z3.RNE(), _double(a), _double(b)))

    def ddiv(self, a: Any, b: Any) -> Any:
        return z3.fpToIEEEBV(z3.fpDiv(z3.RNE(), _double(a), _double(b)))

    def dlt(self, a: Any, b: Any) -> Any:
        return z3.fpLT(_double(a), _double(b))

    def dle(self, a: Any, b: Any) -> Any:
        return z3.fpLEQ(_double(a), _double(b))


def _float(a: Any) -> Any:
    return z3.fpBVToFP(a, z3.Float32())


def _double(a: Any) -> Any:
    return z3.fpBVToFP(a, z3.Float64())


def _payload(x: Any) -> Any:
    return z3.If(z3.fpIsNaN(x), z3.BitVecVal(NAN, 32), z3.fpToIEEEBV(x))
