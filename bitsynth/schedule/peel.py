"""Peels a loop's first run: it starts from zero accumulators, so its additions to them can be left out.

Given                       Result, the first run
    t0 = tbl a0 w0_0            t0 = tbl a0 w0_0
    acc0 = add acc0 t0          acc0 = t0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa.domains.forms import Concat, Inexact, Payload, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.program import Loop, Pass

MAX_STEPS = 256
"""A longer step, all rows counted, is not written twice: it would crowd the instruction cache."""


def peel_first_run(isa: Isa, loop: Pass, rows: int) -> Pass:
    """Return the pass with a first run of its own, if one is found and short enough."""
    if len(loop.step.steps) * rows > MAX_STEPS or (inner := _derive_first_run(isa, loop.step)) is None:
        return loop
    return msgspec.structs.replace(loop, loops=(inner, *loop.loops[1:]))


def _derive_first_run(isa: Isa, loop: Loop) -> Loop | None:
    value: dict[Value, Value | None] = {acc.name: None for acc in loop.accs}
    lines: list[Step] = []
    for step in loop.steps:
        args = [value.get(a, a) for a in step.args]
        nonzero = [a for a in args if a is not None]
        if len(nonzero) == len(args):
            lines.append(Step(Value.of(Role.TEMPORARY, len(lines)), step.op, tuple(nonzero), step.imm))
            value[step.dst] = lines[-1].dst
            continue
        simpler = _on_zeros(isa, step.op, step.imm, tuple(a is None for a in args))
        if simpler is None:
            return None
        if isinstance(simpler, int):
            value[step.dst] = nonzero[simpler]
        else:
            imm = step.imm if isa[simpler].imm else 0
            lines.append(Step(Value.of(Role.TEMPORARY, len(lines)), simpler, tuple(nonzero), imm))
            value[step.dst] = lines[-1].dst
    computed = {s.dst for s in lines}
    starts = [start for acc in loop.accs if (start := value[acc.next]) in computed and start]
    if len(starts) < len(loop.accs):
        return None
    accs = tuple(msgspec.structs.replace(a, start=s) for a, s in zip(loop.accs, starts, strict=True))
    return msgspec.structs.replace(loop, accs=accs, first=tuple(lines))


@lru_cache
def _on_zeros(isa: Isa, op: str, imm: int, zero: Sequence[bool]) -> int | str | None:
    """Return what replaces `op` if some operands are 0: the index of a remaining operand, or a form on the others."""
    instr = isa[op]
    lanes: list[list[Payload]] = [
        [0 if z else _make_unknown(k, i, o.type.bits, imm) for i in range(o.type.lanes)]
        for k, (o, z) in enumerate(zip(instr.operands, zero, strict=True))
    ]
    remaining = [x for x, z in zip(lanes, zero, strict=True) if not z]
    want = _evaluate(instr, lanes, imm)
    if want is None:
        return None
    if (same := next((k for k, x in enumerate(remaining) if x == want), None)) is not None:
        return same
    others = ((i, imm if i.imm else 0) for i in _with_these_types(isa, instr, zero, imm))
    return next((i.name for i, imm in others if _evaluate(i, remaining, imm) == want), None)


def _make_unknown(operand: int, lane: int, bits: int, imm: int) -> Payload:
    """Return an unknown lane of an operand: two numbers side by side if an immediate may split the lane."""
    if not 0 < imm < bits:
        return variable((operand, lane), 0, 1)
    return Concat(tuple((variable((operand, lane, part), 0, 1), b) for part, b in enumerate((imm, bits - imm))))


def _evaluate(instr: Instr, lanes: Sequence[Sequence[Payload]], imm: int) -> list[Payload] | None:
    try:
        return instr(LinearDomain(1), lanes, imm)
    except (Inexact, SpecError):
        return None


def _with_these_types(isa: Isa, instr: Instr, zero: Sequence[bool], imm: int) -> Iterator[Instr]:
    """Yield forms on the remaining operands with the same result type.

    A form with an immediate must accept the same one.
    """
    types = [o.type for o, z in zip(instr.operands, zero, strict=True) if not z]
    for other in isa.instrs.values():
        plain = other.on_registers and imm in other.imms and other.out == instr.out
        if plain and [o.type for o in other.operands] == types:
            yield other
