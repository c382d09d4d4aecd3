"""Symbolic meaning: Z3 bit-vector terms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

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
