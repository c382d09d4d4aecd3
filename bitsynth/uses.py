"""The instruction lemmas a kernel rests on: each distinct use of an instruction form.

A use is a form, its immediate, and what the linear domain knew of every operand lane:
which bits may be set, or the range of a sum, or the constant. `prove` shows for each use
that the machine's result equals the linear one for all such operands.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from bitsynth.isa.domains.forms import Entry, Field, Form, Payload, Pieces, tightened
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.program import Step


class Lane(NamedTuple):
    """Bits that may be set (`low` always, `high` at most), or a sum in [low, high].

    "pieces" are lanes side by side, lowest first. An "entry" of table number `high` is the
    sum of those of the table's `pieces` that the set bits of `low` select.
    """

    kind: Literal["bits", "sum", "const", "pieces", "entry"]
    low: int
    high: int
    bits: int
    pieces: tuple[Lane, ...] = ()


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
    return {
        "bits": f"bits in {high:#x}",
        "sum": f"sums in [{low}, {high}]",
        "const": f"constant {low}",
        "pieces": "narrower lanes",
        "entry": "entries of a table",
    }[kind]


def shape(x: Payload, bits: int, rows: int) -> Lane:
    """What is known of a lane `bits` wide; a sum that may wrap may be anything."""
    match x:
        case Field():
            return Lane("bits", x.ones, x.mask | x.ones, bits)
        case Pieces():
            return Lane("pieces", 0, 0, bits, tuple(shape(piece, width, rows) for piece, width in x.pieces))
        case Entry():
            return Lane("entry", x.chosen, 0, bits, tuple(shape(part, bits, rows) for part in x.parts))
        case Form():
            x = tightened(x, rows) if x.lo < 0 else x
            if x.hi - x.lo >= (1 << bits) - 1:
                return Lane("sum", 0, (1 << bits) - 1, bits)
            return Lane("sum", x.lo, x.hi, bits)
        case _:
            return Lane("const", x, x, bits)


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
            tables: list[tuple[Form, ...]] = []
            self.shapes[key] = tuple(_numbered(shape(x, kind.bits, rows), x, tables) for x in lanes)
            self.kept.append(register)
        return self.shapes[key]


def _numbered(lane: Lane, x: Payload, tables: list[tuple[Form, ...]]) -> Lane:
    """Entries say which of the register's tables they are of."""
    if not isinstance(x, Entry):
        return lane
    if x.parts not in tables:
        tables.append(x.parts)
    return lane._replace(high=tables.index(x.parts))
