"""Scalar passes: the last row of a popcount kernel on general-purpose registers, interleaved with the vector rows.

An in-order processor issues instructions on general-purpose registers together with vector instructions, which leave
them idle. The scalar pass counts the bits of 64-bit words without a popcount instruction, in fields that grow:

    x = a ^ w
    x = (x & 0x55..) + (x >> 1 & 0x55..)     counts in fields of 2 bits
    x = (x & 0x33..) + (x >> 2 & 0x33..)     of 4 bits; then of 8
    acc = acc + x                            the bytes of two columns share a word, as lanes share a vector
"""

from __future__ import annotations

import msgspec

from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass
from bitsynth.schedule.peel import peel_first_run
from bitsynth.schedule.quickest import scoreboard

_LOW, _HIGH = "low_x.x64x1", "high_x.x64x1"
_EOR, _AND, _ADD = "eor_x.x64x1", "and_x.x64x1", "add_x.x64x1"
_ADD_LEFT, _ADD_RIGHT, _MEET = "add_lsl_x.x64x1", "add_lsr_x.x64x1", "extr_x.x32x2"
_HALF, _JOIN = "fmov_x.u8x8", "ins_x.u8x16"
_GATE = "eor.u8x16"
_FIELDS = {1: 0x55, 2: 0x33, 4: 0x0F}
"""Masks of every other field of 1, 2 or 4 bits of a byte."""
_WORD = VecType("x", 8, 8)
"""A word of bytes: four of each of two columns, and as many in a register of vectors."""


def with_last_row(isa: Isa, kernel: Kernel) -> Kernel:
    """Return the kernel with a scalar pass, if one is possible and the scoreboard predicts that it is quicker.

    Only in-order processors run it; on others all rows have the vector program.
    """
    if not isa.table.in_order or not _can(isa, kernel):
        return kernel
    changed = msgspec.structs.replace(kernel, scalar_pass=_last_row(isa, kernel))
    with_pass, without = (scoreboard(x, isa.table.in_order) for x in (changed, kernel))
    return changed if any(with_pass[cpu] < without[cpu] for cpu in with_pass) else kernel


def _can(isa: Isa, kernel: Kernel) -> bool:
    """Return whether rows are single planes, and a word counts, summed in bytes, the bits in which row and column
    differ."""
    if _LOW not in isa.instrs or len(kernel.passes) > 1 or kernel.slot_bytes != _WORD.lanes:
        return False
    (loop,) = kernel.passes
    gates = {s.op for s in loop.step.steps if any(a.is_column for a in s.args)}
    sums = [acc.type for acc in loop.step.accs]
    bytes_of_four = set(sums) == {str(isa.word)} and 4 * len(sums) == kernel.columns
    return bytes_of_four and len(loop.rows) == len(loop.columns) == len(loop.loops) == 1 and gates == {_GATE}


def _last_row(isa: Isa, kernel: Kernel) -> Pass:
    (loop,) = kernel.passes
    pairs = kernel.columns // 2
    given, columns = Value.of(Role.ROW, 0), [Value.of(Role.COLUMN, 0, register=g) for g in range(pairs)]
    sums = [Value.of(Role.ACCUMULATOR, g) for g in range(pairs)]
    step = _trace(isa, [given, *columns])
    row = step.apply(_LOW, [given])
    accs = tuple(
        Acc(acc, str(_WORD), _add(step, _zero(step, acc), row, column))
        for acc, column in zip(sums, columns, strict=True)
    )
    inner = Loop(loop.step.trip_count, tuple(step.steps), accs)
    changed = Pass(loop.rows, loop.columns, (inner,), *_flush(isa, loop, pairs))
    return peel_first_run(isa, changed, 1) if loop.step.first else changed


def _add(step: Trace, acc: Value, row: Value, columns: Value) -> Value:
    """Add the bits in which a row differs from the two columns of a register to four bytes of `acc` each."""
    first, second = (_count_bits(step, step.apply(_EOR, [row, step.apply(part, [columns])])) for part in (_LOW, _HIGH))
    above = step.apply(_ADD_LEFT, [first, first], 32)
    below = step.apply(_ADD_RIGHT, [second, second], 32)
    low, high = _split(step, step.apply(_MEET, [above, below]), 4)
    return step.apply(_ADD_RIGHT, [step.apply(_ADD, [acc, low]), high], 4)


def _count_bits(step: Trace, bits: Value) -> Value:
    """Return the number of set bits of every four, there."""
    for size in (1, 2):
        bits = step.apply(_ADD_RIGHT, list(_split(step, bits, size)), size)
    return bits


def _split(step: Trace, word: Value, size: int) -> tuple[Value, Value]:
    """Return every other field of `size` bits, and those between them."""
    low = step.apply(_AND, [word], _FIELDS[size])
    return low, step.apply(_AND, [word], _FIELDS[size] << size)


def _flush(isa: Isa, loop: Pass, pairs: int) -> tuple[tuple[Step, ...], tuple[Value, ...]]:
    """Return the flush of the other rows, whose accumulators are two words each, and the tile's values after it."""
    flush = _trace(isa, [Value.of(Role.TILE, r) for r in range(len(loop.tile))])
    words = [_zero(flush, Value.of(Role.ACCUMULATOR, pair)) for pair in range(pairs)]
    halves = zip(loop.step.accs, words[::2], words[1::2], strict=True)
    names = {acc.name: flush.apply(_JOIN, [flush.apply(_HALF, [low]), high]) for acc, low, high in halves}
    for s in loop.flush:
        names[s.dst] = flush.apply(s.op, [names.get(a, a) for a in s.args], s.imm)
    return tuple(flush.steps), tuple(names[t] for t in loop.tile)


def _zero(trace: Trace, value: Value) -> Value:
    """Return the value, a word of zeros."""
    return trace.bind(value, Register(_WORD, (0,) * _WORD.lanes))


def _trace(isa: Isa, inputs: list[Value]) -> Trace:
    """Return a trace with these registers, of zeros."""
    trace = Trace(isa, LinearDomain(1))
    for name in inputs:
        trace.bind(name, Register(isa.word, (0,) * isa.word.lanes))
    return trace
