"""Shifts of lanes by numbers known in advance or by other lanes; by the width or more, only a sign is left."""

from __future__ import annotations

from collections.abc import Callable

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
