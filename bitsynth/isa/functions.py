"""The functions that a lane expression may call, by name."""

from collections.abc import Callable
from typing import Any

from bitsynth.isa import bits, floats, shifts

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "zext": bits.zext, "sext": bits.sext, "trunc": bits.trunc, "ult": bits.ult, "slt": bits.slt, "eq": bits.eq,
    "ite": bits.ite, "absdiff": bits.absdiff, "popcount": bits.popcount, "sum": bits.total, "sclamp": bits.sclamp,
    "uclamp": bits.uclamp, "smin": bits.smin, "smax": bits.smax,
    "lookup": bits.lookup, "concat": bits.concat, "range": bits.indices,
    "bit": bits.bit, "join": bits.join, "udiv": bits.udiv,
    "asr": shifts.asr, "lsr": shifts.lsr, "lsl": shifts.lsl,
    "float_of": floats.float_of, "nearest": floats.nearest, "fmul": floats.fmul, "fadd": floats.fadd,
    "fdiv": floats.fdiv,
    "flt": floats.flt, "fmin": floats.fmin, "fmax": floats.fmax, "flushed": floats.flushed,
    "fmul_flushed": floats.fmul_flushed,
}  # fmt: skip
