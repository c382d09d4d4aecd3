"""The instruction lemmas a kernel rests on: each distinct use of an instruction form.

A use is a form, its immediate, and what the linear domain knew of every operand lane:
which bits may be set, or the range of a sum, or the constant. `prove` shows for each use
that the machine's result equals the linear one for all such operands.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from bitsynth.isa.domains.forms import Field, Form, Payload, tightened
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.program import Step


class Lane(NamedTuple):
    """Bits that may be set (`low` always, `high` at most), or a sum in [low, high]."""

    kind: Literal["bits", "sum", "const"]
    low: int
    high: int


Operands = tuple[tuple[Lane, ...], ...]


@dataclass(frozen=True)
class Use:
    """One lemma: `op` with immediate `imm` on operands of these shapes."""

    op: str
    imm: int
    operands: Operands
    meaning: str

    @property
    def statement(self) -> str:
        """One line, with a fingerprint of the whole."""
        shapes = "; ".join(_summary(lanes) for lanes in self.operands)
        text = f"{self.op} #{self.imm} {self.operands!r} {self.meaning}"
        return f"instruction: {self.op} #{self.imm} on {shapes} [{hashlib.sha256(text.encode()).hexdigest()[:12]}]"


def _summary(lanes: tuple[Lane, ...]) -> str:
    distinct = sorted({(x.kind, x.low, x.high) for x in lanes})
    kind, low, high = distinct[0]
    if len(distinct) > 1:
        same = len({k for k, _, _ in distinct}) == 1
        return f"{len(distinct)} kinds of {kind if same else 'operand'} lanes"
    return {"bits": f"bits in {high:#x}", "sum": f"sums in [{low}, {high}]", "const": f"constant {low}"}[kind]


def shape(x: Payload, bits: int, rows: int) -> Lane:
    """What is known of a lane `bits` wide; a sum that may wrap may be anything."""
    if isinstance(x, Field):
        return Lane("bits", x.ones, x.mask | x.ones)
    if isinstance(x, Form):
        x = tightened(x, rows) if x.lo < 0 else x
        if x.hi - x.lo >= (1 << bits) - 1:
            return Lane("sum", 0, (1 << bits) - 1)
        return Lane("sum", x.lo, x.hi)
    return Lane("const", x, x)


@dataclass
class Recorder(Trace):
    """A trace that keeps the uses of the programs it runs."""

    seen: set[Use] = field(default_factory=set)
    shapes: dict[tuple[int, VecType], tuple[Lane, ...]] = field(default_factory=dict)
    kept: list[Register] = field(default_factory=list)

    def run(self, step: Step) -> str:
        instr: Instr = self.isa[step.op]
        before = [self.registers.get(name) for name in step.args]
        dst = super().run(step)
        operands = tuple(self._shape(r, o.type) for r, o in zip(before, instr.operands, strict=True) if r)
        self.seen.add(Use(step.op, step.imm, operands, instr.lane))
        return dst

    def _shape(self, register: Register, kind: VecType) -> tuple[Lane, ...]:
        """What is known of a register's lanes, viewed as `kind`; worked out once a register."""
        key = id(register), kind
        if key not in self.shapes:
            rows = self.domain.rows if isinstance(self.domain, LinearDomain) else 1
            lanes = register.viewed_as(self.domain, kind).lanes
            self.shapes[key] = tuple(shape(x, kind.bits, rows) for x in lanes)
            self.kept.append(register)
        return self.shapes[key]
