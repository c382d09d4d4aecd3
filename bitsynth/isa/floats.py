"""float32 numbers in lanes of 32 bits: every operation rounds once, to nearest, ties to even.

A result that is not a number is 0x7fc00000. Arm's Advanced SIMD of 32 bits takes subnormal numbers as zeros of their
sign, before and after: `flushed` and `fmul_flushed` are its.
"""

from __future__ import annotations

from bitsynth.isa.bits import Bits, Cond, eq, ite, ult

WIDTH = 32
SIGN = 0x8000_0000
NAN = 0x7FC0_0000
INFINITY = 0x7F80_0000
ONE = 0x3F80_0000


def _floats(*xs: Bits) -> None:
    if any(x.w != WIDTH for x in xs):
        raise TypeError(f"float32 has {WIDTH} bits, not {', '.join(str(x.w) for x in xs)}")


def float_of(x: Bits) -> Bits:
    """Return the float32 nearest to the signed 32-bit `x`."""
    _floats(x)
    return Bits(x.d, WIDTH, x.d.float_of(x.v))


def nearest(x: Bits) -> Bits:
    """Return the signed 32-bit number nearest to the float32 `x`, ties to even, saturated.

    0 for what is not a number.
    """
    _floats(x)
    return Bits(x.d, WIDTH, x.d.nearest(x.v))


def fmul(a: Bits, b: Bits) -> Bits:
    """Return a * b."""
    _floats(a, b)
    return Bits(a.d, WIDTH, a.d.fmul(a.v, b.v))


def fadd(a: Bits, b: Bits) -> Bits:
    """Return a + b."""
    _floats(a, b)
    return Bits(a.d, WIDTH, a.d.fadd(a.v, b.v))


def fdiv(a: Bits, b: Bits) -> Bits:
    """Return a / b."""
    _floats(a, b)
    return Bits(a.d, WIDTH, a.d.fdiv(a.v, b.v))


def flt(a: Bits, b: Bits | int) -> Cond:
    """Return a < b; false if one is not a number."""
    b = a.lift(b)
    _floats(a, b)
    return Cond(a.d, a.d.flt(a.v, b.v))


def fmin(a: Bits, b: Bits) -> Bits:
    """Return the lesser, -0 below 0; not a number if one is not."""
    return _unless_nan(a, b, ite(flt(a, b), a, ite(flt(b, a), b, a | b)))


def fmax(a: Bits, b: Bits) -> Bits:
    """Return the greater, 0 above -0; not a number if one is not."""
    return _unless_nan(a, b, ite(flt(a, b), b, ite(flt(b, a), a, a & b)))


def _unless_nan(a: Bits, b: Bits, x: Bits) -> Bits:
    beyond = a.lift(INFINITY)
    either = ite(ult(beyond, a & ~SIGN), 1, ite(ult(beyond, b & ~SIGN), 1, a.lift(0)))
    return ite(eq(either, 1), NAN, x)


def flushed(x: Bits) -> Bits:
    """Return `x`, or the zero of its sign if it is subnormal."""
    _floats(x)
    return ite(eq(x & INFINITY, 0), x & SIGN, x)


def fmul_flushed(a: Bits, b: Bits) -> Bits:
    """Return a * b of what `flushed` makes of both, and a zero if the product was subnormal before it was rounded."""
    a, b = flushed(a), flushed(b)
    product = Bits(a.d, WIDTH, a.d.fmul(a.v, b.v))
    cut = Bits(a.d, WIDTH, a.d.fmul(a.v, b.v, toward_zero=True))
    return ite(eq(cut & INFINITY, 0), product & SIGN, product)
