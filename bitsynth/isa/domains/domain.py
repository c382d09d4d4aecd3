"""The primitives of lane expressions: the interface that each domain of this folder implements on its payloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Domain(Protocol):
    """Primitives on payloads of `w` bits, at most 64. Results are reduced modulo 2**w."""

    def const(self, value: int, w: int) -> Any:
        """Return the constant `value`."""

    def add(self, a: Any, b: Any, w: int) -> Any:
        """Return a + b."""

    def sub(self, a: Any, b: Any, w: int) -> Any:
        """Return a - b."""

    def mul(self, a: Any, b: Any, w: int) -> Any:
        """Return a * b."""

    def udiv(self, a: Any, b: Any, w: int) -> Any:
        """Return a / b without signs, rounded down; all ones if b is 0."""

    def and_(self, a: Any, b: Any, w: int) -> Any:
        """Return bitwise a & b."""

    def or_(self, a: Any, b: Any, w: int) -> Any:
        """Return bitwise a | b."""

    def xor(self, a: Any, b: Any, w: int) -> Any:
        """Return bitwise a ^ b."""

    def not_(self, a: Any, w: int) -> Any:
        """Return bitwise ~a."""

    def shl(self, a: Any, n: int, w: int) -> Any:
        """Return `a` shifted left by `n` bits."""

    def lshr(self, a: Any, n: int, w: int) -> Any:
        """Return `a` shifted right by `n` bits, zeros shifted in."""

    def eq(self, a: Any, b: Any, w: int) -> Any:
        """Return the truth value of a == b."""

    def ult(self, a: Any, b: Any, w: int) -> Any:
        """Return the truth value of a < b, without signs."""

    def ite(self, cond: Any, a: Any, b: Any, w: int) -> Any:
        """Return `a` if `cond` holds, else `b`."""

    def zext(self, a: Any, w: int, to: int) -> Any:
        """Return `a` of `w` bits widened with zeros to `to` bits."""

    def sext(self, a: Any, w: int, to: int) -> Any:
        """Return `a` of `w` bits widened with its sign to `to` bits."""

    def trunc(self, a: Any, w: int, to: int) -> Any:
        """Return the low `to` bits of `a`."""

    def popcount(self, a: Any, w: int) -> Any:
        """Return the number of set bits of `a`."""

    def lookup(self, table: Sequence[Any], index: Any, w: int) -> Any:
        """Return `table[index]`; `index` is below the length of the table."""

    def join(self, parts: Sequence[Any], w: int) -> Any:
        """Return the lane of `parts`, `w` bits each, lowest first."""

    def split(self, a: Any, w: int, to: int) -> list[Any]:
        """Return the parts of `a`, `to` bits each, lowest first."""

    def float_of(self, a: Any) -> Any:
        """Return the float32 nearest to the signed 32-bit `a`."""

    def nearest(self, a: Any) -> Any:
        """Return the signed 32-bit number nearest to the float32 `a`, ties to even, saturated.

        0 for what is not a number.
        """

    def fmul(self, a: Any, b: Any, toward_zero: bool = False) -> Any:
        """Return the float32 a * b, rounded to nearest or toward zero."""

    def fadd(self, a: Any, b: Any) -> Any:
        """Return the float32 a + b."""

    def fdiv(self, a: Any, b: Any) -> Any:
        """Return the float32 a / b."""

    def flt(self, a: Any, b: Any) -> Any:
        """Return the truth value of a < b of float32 numbers."""

    def fle(self, a: Any, b: Any) -> Any:
        """Return the truth value of a <= b of float32 numbers."""

    def double_of(self, a: Any) -> Any:
        """Return the float64 that is the signed 32-bit `a`."""

    def double_of_float(self, a: Any) -> Any:
        """Return the float64 that is the float32 `a`."""

    def int_of(self, a: Any) -> Any:
        """Return the signed 32-bit number of the float64 `a` without its fraction; unspecified beyond int32."""

    def dmul(self, a: Any, b: Any) -> Any:
        """Return the float64 a * b."""

    def dadd(self, a: Any, b: Any) -> Any:
        """Return the float64 a + b."""

    def dsub(self, a: Any, b: Any) -> Any:
        """Return the float64 a - b."""

    def ddiv(self, a: Any, b: Any) -> Any:
        """Return the float64 a / b."""

    def dlt(self, a: Any, b: Any) -> Any:
        """Return the truth value of a < b of float64 numbers."""

    def dle(self, a: Any, b: Any) -> Any:
        """Return the truth value of a <= b of float64 numbers."""
