"""Values of a step that may overwrite the register of an accumulator before the step ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.program import Acc, Loop


def in_place(isa: Isa, flat: Loop, program: Sequence[Step]) -> dict[Value, Acc]:
    """Return the values of a program of all rows that overwrite their accumulator, intermediate values included."""
    early = early_values(isa, flat, program)
    return early | values_before(isa, flat, early)


def early_values(isa: Isa, loop: Loop, program: Sequence[Step]) -> dict[Value, Acc]:
    """Return the values that can overwrite their accumulator: no later instruction reads the old value."""
    last = {name: k for k, step in enumerate(program) for name in step.args}
    place = {step.dst: k for k, step in enumerate(program)}
    out: dict[Value, Acc] = {}
    for acc in loop.accs:
        k = place.get(acc.next)
        same = k is not None and isa[program[k].op].out.in_c_as(VecType.parse(acc.type))
        if k is not None and same and acc.next not in out and last.get(acc.name, -1) <= k:
            out[acc.next] = acc
    return out


def values_before(isa: Isa, loop: Loop, early: Mapping[Value, Acc]) -> dict[Value, Acc]:
    """Return intermediate values of an accumulator's update whose instructions overwrite their operand."""
    writer, out = {step.dst: step for step in loop.steps}, dict[Value, Acc]()
    reads = Counter(a for step in loop.steps for a in step.args)
    for last, acc in early.items():
        value, between = _overwritten(isa, writer[last]), list[Value]()
        while (
            value is not None
            and value in writer
            and reads[value] == reads[acc.name] == 1
            and str(isa[writer[value].op].out) == acc.type
        ):
            between.append(value)
            value = _overwritten(isa, writer[value])
        out |= dict.fromkeys(between, acc) if value == acc.name else {}
    return out


def _overwritten(isa: Isa, step: Step) -> Value | None:
    """Return the operand that the step's result overwrites; None if there is none."""
    pairs = zip(step.args, isa[step.op].operands, strict=True)
    return next((a for a, o in pairs if o.name in isa[step.op].tied), None)
