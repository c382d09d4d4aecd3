"""float32 numbers in lanes of 32 bits: every operation rounds once, to nearest, ties to even.

A result that is not a number is 0x7fc00000. Arm's Advanced SIMD of 32 bits takes subnormal numbers as zeros of their
sign, before and after: `flushed` and `fmul_flushed` are its.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from bitsynth.isa.bits import Bits, Cond, bit, eq, ite, lift_floats, lookup, require_float, ult, zext

WIDTH = 32
SIGN = 0x8000_0000
NAN = 0x7FC0_0000
INFINITY = 0x7F80_0000
ONE = 0x3F80_0000
ROUND_TO_UNITS = 0x4B40_0000
"""1.5 * 2**23: its unit in the last place is 1, so adding it rounds to whole numbers."""


def bits_of(number: float) -> int:
    """Return the bits of the float32 nearest to a number, as texts of the lane language write constants."""
    bits: int
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    return bits


def float_of(x: Bits) -> Bits:
    """Return the float32 nearest to the signed 32-bit `x`."""
    require_float(x, WIDTH)
    return Bits(x.d, WIDTH, x.d.float_of(x.v))


def nearest(x: Bits) -> Bits:
    """Return the signed 32-bit number nearest to the float32 `x`, ties to even, saturated.

    0 for what is not a number.
    """
    require_float(x, WIDTH)
    return Bits(x.d, WIDTH, x.d.nearest(x.v))


def fmul(a: Bits | int, b: Bits | int) -> Bits:
    """Return a * b."""
    a, b = lift_floats(a, b, WIDTH)
    return Bits(a.d, WIDTH, a.d.fmul(a.v, b.v))


def fadd(a: Bits | int, b: Bits | int) -> Bits:
    """Return a + b."""
    a, b = lift_floats(a, b, WIDTH)
    return Bits(a.d, WIDTH, a.d.fadd(a.v, b.v))


def fdiv(a: Bits | int, b: Bits | int) -> Bits:
    """Return a / b."""
    a, b = lift_floats(a, b, WIDTH)
    return Bits(a.d, WIDTH, a.d.fdiv(a.v, b.v))


def flt(a: Bits | int, b: Bits | int) -> Cond:
    """Return a < b; false if one is not a number."""
    a, b = lift_floats(a, b, WIDTH)
    return Cond(a.d, a.d.flt(a.v, b.v))


def fle(a: Bits | int, b: Bits | int) -> Cond:
    """Return a <= b; false if one is not a number."""
    a, b = lift_floats(a, b, WIDTH)
    return Cond(a.d, a.d.fle(a.v, b.v))


def reached(thresholds: Sequence[Bits], x: Bits, lookup: Callable[[Sequence[Bits], Bits], Bits] = lookup) -> Bits:
    """Return the number of 32 bits of ascending `thresholds` that are at most `x`, by binary search.

    There are 2**n - 1 thresholds; `lookup` returns one of them.
    """
    require_float(x, WIDTH)
    level = x.lift(0)
    for place in reversed(range(len(thresholds).bit_length())):
        half = 1 << place
        level = level + (zext(bit(fle(lookup(thresholds, level + (half - 1)), x)), WIDTH) << place)
    return level


def fmin(a: Bits, b: Bits) -> Bits:
    """Return the lesser, -0 below 0; not a number if one is not."""
    return _unless_nan(a, b, ite(flt(a, b), a, ite(flt(b, a), b, a | b)))


def fmax(a: Bits, b: Bits) -> Bits:
    """Return the greater, 0 above -0; not a number if one is not."""
    return _unless_nan(a, b, ite(flt(a, b), b, ite(flt(b, a), a, a & b)))


def fclip(x: Bits, first: Bits | int, last: Bits | int) -> Bits:
    """Return `x` clipped to two numbers; the first one if it is not a number."""
    raised = _choose(flt(first, x), x, x.lift(first))
    return _choose(flt(raised, last), raised, x.lift(last))


def _choose(cond: Cond, a: Bits, b: Bits) -> Bits:
    """Return `a` if a condition holds, else `b`; by masks, as C compilers take no branch to vector registers."""
    mask = a.lift(0) - zext(bit(cond), WIDTH)
    return a & mask | b & ~mask


def _unless_nan(a: Bits, b: Bits, x: Bits) -> Bits:
    beyond = a.lift(INFINITY)
    either = ite(ult(beyond, a & ~SIGN), 1, ite(ult(beyond, b & ~SIGN), 1, a.lift(0)))
    return ite(eq(either, 1), NAN, x)


def flushed(x: Bits) -> Bits:
    """Return `x`, or the zero of its sign if it is subnormal."""
    require_float(x, WIDTH)
    return ite(eq(x & INFINITY, 0), x & SIGN, x)


def fmul_flushed(a: Bits, b: Bits) -> Bits:
    """Return a * b of what `flushed` makes of both, and a zero if the product was subnormal before it was rounded."""
    a, b = flushed(a), flushed(b)
    product = Bits(a.d, WIDTH, a.d.fmul(a.v, b.v))
    cut = Bits(a.d, WIDTH, a.d.fmul(a.v, b.v, toward_zero=True))
    return ite(eq(cut & INFINITY, 0), product & SIGN, product)
