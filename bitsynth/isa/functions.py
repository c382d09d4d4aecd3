"""The functions that a lane expression may call, by name; among them shifts of lanes, by numbers or by other lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bitsynth.isa import bits, doubles, floats
from bitsynth.isa.bits import Bits, eq, ite, ult


def asr(x: Bits, n: Bits | int) -> Bits:
    """Return `x` shifted right by `n` bits, its sign shifted in."""
    return _by(x, n, _asr)


def lsr(x: Bits, n: Bits | int) -> Bits:
    """Return `x` shifted right by `n` bits, zeros shifted in."""
    return _by(x, n, Bits.__rshift__)


def lsl(x: Bits, n: Bits | int) -> Bits:
    """Return `x` shifted left by `n` bits."""
    return _by(x, n, Bits.__lshift__)


def _asr(x: Bits, n: int) -> Bits:
    n = min(n, x.w - 1)
    sign = 1 << (x.w - 1 - n)
    return ((x >> n) ^ sign) - sign


def _by(x: Bits, n: Bits | int, shift: Callable[[Bits, int], Bits]) -> Bits:
    """Return `x` shifted by each bit of `n`, one after the other."""
    if not isinstance(n, Bits):
        return shift(x, n)
    out = x
    for k in range((x.w - 1).bit_length()):
        out = ite(eq(n >> k & 1, 1), shift(out, 1 << k), out)
    return ite(ult(n, x.w), out, shift(x, x.w))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "zext": bits.zext, "sext": bits.sext, "trunc": bits.trunc, "ult": bits.ult, "slt": bits.slt, "eq": bits.eq,
    "ite": bits.ite, "absdiff": bits.absdiff, "popcount": bits.popcount, "sum": bits.total, "sclamp": bits.sclamp,
    "uclamp": bits.uclamp, "smin": bits.smin, "smax": bits.smax,
    "lookup": bits.lookup, "concat": bits.concat, "range": bits.indices,
    "bit": bits.bit, "join": bits.join, "udiv": bits.udiv,
    "asr": asr, "lsr": lsr, "lsl": lsl,
    "float_of": floats.float_of, "nearest": floats.nearest, "fmul": floats.fmul, "fadd": floats.fadd,
    "fdiv": floats.fdiv, "flt": floats.flt, "fle": floats.fle, "fmin": floats.fmin, "fmax": floats.fmax,
    "fclip": floats.fclip,    "flushed": floats.flushed, "fmul_flushed": floats.fmul_flushed, "reached": floats.reached,
    "double_of": doubles.double_of, "double_of_float": doubles.double_of_float, "int_of": doubles.int_of,
    "dnearest": doubles.dnearest, "dmul": doubles.dmul, "dadd": doubles.dadd, "dsub": doubles.dsub,
    "ddiv": doubles.ddiv, "dlt": doubles.dlt, "dle": doubles.dle, "dmin": doubles.dmin, "dmax": doubles.dmax,
    "dabs": doubles.dabs,
}  # fmt: skip
