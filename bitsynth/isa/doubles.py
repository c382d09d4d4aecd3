"""float64 numbers in lanes of 64 bits: every operation rounds once, to nearest, ties to even.

The bits of a result that is not a number are unspecified.
"""

from __future__ import annotations

import struct

from bitsynth.isa.bits import Bits, Cond, ite, lift_floats, require_float

WIDTH = 64
ZERO, ONE = 0, 0x3FF0_0000_0000_0000
ROUND_TO_UNITS = 0x4338_0000_0000_0000
"""1.5 * 2**52: its unit in the last place is 1, so adding it rounds to whole numbers."""


def bits_of(number: float) -> int:
    """Return the bits of a float64, as texts of the lane language write constants."""
    bits: int
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return bits


def number_of(bits: int) -> float:
    """Return the float64 that has these bits."""
    number: float
    (number,) = struct.unpack("<d", struct.pack("<Q", bits))
    return number


def double_of(x: Bits) -> Bits:
    """Return the float64 that is the signed 32-bit `x`."""
    if x.w != 32:
        raise TypeError(f"numbers of 32 bits become float64, not of {x.w}")
    return Bits(x.d, WIDTH, x.d.double_of(x.v))


def double_of_float(x: Bits) -> Bits:
    """Return the float64 that is the float32 `x`."""
    return Bits(x.d, WIDTH, x.d.double_of_float(require_float(x, 32).v))


def int_of(x: Bits) -> Bits:
    """Return the signed 32-bit number of the float64 `x` without its fraction; unspecified beyond int32."""
    require_float(x, WIDTH)
    return Bits(x.d, 32, x.d.int_of(x.v))


def dmul(a: Bits | int, b: Bits | int) -> Bits:
    """Return a * b, rounded once."""
    a, b = lift_floats(a, b, WIDTH)
    return Bits(a.d, WIDTH, a.d.dmul(a.v, b.v))


def dadd(a: Bits | int, b: Bits | int) -> Bits:
    """Return a + b, rounded once."""
    a, b = lift_floats(a, b, WIDTH)
    return Bits(a.d, WIDTH, a.d.dadd(a.v, b.v))


def dsub(a: Bits | int, b: Bits | int) -> Bits:
    """Return a - b, rounded once."""
    a, b = lift_floats(a, b, WIDTH)
    return Bits(a.d, WIDTH, a.d.dsub(a.v, b.v))


def ddiv(a: Bits | int, b: Bits | int) -> Bits:
    """Return a / b, rounded once."""
    a, b = lift_floats(a, b, WIDTH)
    return Bits(a.d, WIDTH, a.d.ddiv(a.v, b.v))


def dlt(a: Bits | int, b: Bits | int) -> Cond:
    """Return whether a < b; false if one of them is NaN."""
    a, b = lift_floats(a, b, WIDTH)
    return Cond(a.d, a.d.dlt(a.v, b.v))


def dle(a: Bits | int, b: Bits | int) -> Cond:
    """Return whether a <= b; false if one of them is NaN."""
    a, b = lift_floats(a, b, WIDTH)
    return Cond(a.d, a.d.dle(a.v, b.v))


def dmin(a: Bits | int, b: Bits | int) -> Bits:
    """Return `b` if it is below `a`, else `a`."""
    return ite(dlt(b, a), b, a)


def dmax(a: Bits | int, b: Bits | int) -> Bits:
    """Return `b` if `a` is below it, else `a`."""
    return ite(dlt(a, b), b, a)


def dabs(x: Bits) -> Bits:
    """Return the absolute value."""
    return ite(dlt(x, ZERO), dsub(x.lift(ZERO), x), x)


def dnearest(x: Bits) -> Bits:
    """Return the signed 32-bit number nearest to the float64 `x`, ties to even; unspecified beyond int32."""
    return int_of(dsub(dadd(x, ROUND_TO_UNITS), ROUND_TO_UNITS))
