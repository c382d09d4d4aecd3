"""Values that are written into the register of an accumulator while a step is still under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Acc, Loop


def in_place(isa: Isa, flat: Loop, program: Sequence[Step]) -> dict[str, Acc]:
    """Values of all rows in one program that take their accumulator's place, those on the way too."""
    found = early_values(isa, flat, program)
    return found | values_before(isa, flat, found)


def early_values(isa: Isa, loop: Loop, program: Sequence[Step]) -> dict[str, Acc]:
    """Values that can take their accumulator's place at once: nothing reads the old value later."""
    last = {name: k for k, step in enumerate(program) for name in step.args}
    made = {step.dst: k for k, step in enumerate(program)}
    out: dict[str, Acc] = {}
    for acc in loop.accs:
        k = made.get(acc.next)
        same = k is not None and isa[program[k].op].out.in_c_as(VecType.parse(acc.type))
        if k is not None and same and acc.next not in out and last.get(acc.name, -1) <= k:
            out[acc.next] = acc
    return out


def values_before(isa: Isa, loop: Loop, early: Mapping[str, Acc]) -> dict[str, Acc]:
    """Values that an accumulator has on the way to what it becomes: instructions overwrite their operand."""
    made, out = {step.dst: step for step in loop.steps}, dict[str, Acc]()
    reads = Counter(a for step in loop.steps for a in step.args)
    for last, acc in early.items():
        value, between = _overwritten(isa, made[last]), list[str]()
        while value in made and reads[value] == reads[acc.name] == 1 and str(isa[made[value].op].out) == acc.type:
            between.append(value)
            value = _overwritten(isa, made[value])
        out |= dict.fromkeys(between, acc) if value == acc.name else {}
    return out


def _overwritten(isa: Isa, step: Step) -> str:
    """The operand that the step's result takes the place of; "" if there is none."""
    pairs = zip(step.args, isa[step.op].operands, strict=True)
    return next((a for a, o in pairs if o.name in isa[step.op].tied), "")
