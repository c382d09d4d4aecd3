"""Proof obligations: the instruction lemmas that a kernel rests on, one for each distinct use of an instruction form.

An obligation is a form, its immediate, and what the linear domain knew of each operand lane: which bits may be set, the
range of a sum, or a constant. `discharge.py` shows that for all such operands the machine's result equals the linear
one. `implies` tells when a discharged obligation covers another:

    wider      add.u8x16 on sums in [0, 248]; sums in [0, 7]
    implied    add.u8x16 on sums in [0, 120]; sums in [0, 7]
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from bitsynth.isa.domains.forms import BitField, Concat, Inexact, LinearForm, Payload, TableEntry, as_form, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.sums import tighten
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value


class Lane(NamedTuple):
    """The facts known about a lane: "bits" has all bits of `low`, and none outside `high`; a "sum" is in [low, high].

    "pieces" are narrower lanes side by side, lowest first. An "entry" of table number `high` is the sum of the table's
    `pieces` that the set bits of `low` select.
    """

    kind: Literal["bits", "sum", "const", "pieces", "entry"]
    low: int
    high: int
    bits: int
    pieces: tuple[Lane, ...] = ()


LaneShapes = tuple[tuple[Lane, ...], ...]


@dataclass(frozen=True)
class Obligation:
    """One instruction lemma: `op` with immediate `imm` on operands of these shapes."""

    op: str
    imm: int
    operands: LaneShapes
    meaning: str

    @property
    def statement(self) -> str:
        """The obligation in one line, with a fingerprint of it all."""
        shapes = "; ".join(_summary(lanes) for lanes in self.operands)
        text = f"{self.op} #{self.imm} {self.operands!r} {self.meaning}"
        return f"instruction: {self.op} #{self.imm} on {shapes} [{hashlib.sha256(text.encode()).hexdigest()[:12]}]"


class Quotient(Obligation):
    """An instruction lemma that needs no linear forms: of any signed lanes, the quotients by 2^imm, rounded down."""

    @property
    def statement(self) -> str:
        """The obligation in one line, with a fingerprint of it all."""
        text = f"quotient by {self.op} #{self.imm} {self.meaning}"
        fingerprint = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"instruction: {self.op} #{self.imm} on any signed lanes is a quotient [{fingerprint}]"


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
    """Return the facts known about a lane `bits` wide; a sum that may wrap can be any value."""
    match x:
        case BitField():
            return Lane("bits", x.ones, x.mask | x.ones, bits)
        case Concat():
            return Lane("pieces", 0, 0, bits, tuple(shape(piece, width, rows) for piece, width in x.pieces))
        case TableEntry():
            return Lane("entry", x.chosen, 0, bits, tuple(shape(part, bits, rows) for part in x.parts))
        case LinearForm():
            x = tighten(x, rows) if x.lo < 0 else x
            every = (1 << bits) - 1
            if x.hi - x.lo > every or (x.hi - x.lo == every and x.hi != every >> 1):
                return Lane("sum", 0, (1 << bits) - 1, bits)
            return Lane("sum", x.lo, x.hi, bits)
        case _:
            return Lane("const", x, x, bits)


def evaluate_linear(isa: Isa, obligation: Obligation) -> list[Payload]:
    """Return the linear domain's result for operands of the obligation's shapes; Inexact if it has none."""
    return isa[obligation.op](
        LinearDomain(1 << len(obligation.operands)), payloads(obligation.operands), obligation.imm
    )


def payloads(operands: LaneShapes) -> list[list[Payload]]:
    """Return operands of these shapes.

    The bits of operand k are a free boolean function; lane n is column n. A sum is the unknown ("x", place), where
    place is operand, lane, and the piece, if any.
    """
    rows = 1 << len(operands)
    return [[_payload(lane, (k, n), 0, rows) for n, lane in enumerate(lanes)] for k, lanes in enumerate(operands)]


def _payload(lane: Lane, place: tuple[Any, ...], offset: int, rows: int) -> Payload:
    """Return the lane, which begins at bit `offset` of lane place[1] of operand place[0]."""
    match lane.kind:
        case "pieces":
            starts = [offset + sum(p.bits for p in lane.pieces[:i]) for i in range(len(lane.pieces))]
            pieces = (_payload(p, (*place, i), starts[i], rows) for i, p in enumerate(lane.pieces))
            return Concat(tuple((x, p.bits) for x, p in zip(pieces, lane.pieces, strict=True)))
        case "entry":
            parts = (_payload(part, (place[0], lane.high, "part", i), 0, rows) for i, part in enumerate(lane.pieces))
            return TableEntry(tuple(as_form(part) for part in parts), lane.low)
        case "const":
            return lane.low
        case "sum":
            return variable(("x", place), lane.low, lane.high)
        case _:
            table = sum(1 << row for row in range(rows) if row >> place[0] & 1)
            return BitField(table, place[1], offset, lane.high & ~lane.low, lane.low)


def implies(isa: Isa, wider: Obligation, obligation: Obligation) -> bool:
    """Return whether the lemma `wider` covers `obligation`: same instruction and belief, operands that include its own.

    Beliefs are compared as terms. If the terms are equal, what holds for all wider operands holds for these.
    """
    if isinstance(obligation, Quotient) or isinstance(wider, Quotient):
        return obligation == wider
    if (obligation.op, obligation.imm, obligation.meaning) != (wider.op, wider.imm, wider.meaning):
        return False
    width = isa[obligation.op].out.bits
    pairs = zip(obligation.operands, wider.operands, strict=True)
    if not all(_within(x, y, width) for narrow, wide in pairs for x, y in zip(narrow, wide, strict=True)):
        return False
    try:
        return _terms(isa, obligation) == _terms(isa, wider)
    except Inexact:
        return False


def _within(lane: Lane, other: Lane, width: int) -> bool:
    """Return whether every value of `lane` is one of `other`, of the same sign if it is extended to `width` bits."""
    if lane == other:
        return True
    if (lane.kind, lane.bits, len(lane.pieces)) != (other.kind, other.bits, len(other.pieces)):
        return False
    if lane.kind in ("pieces", "entry"):
        same = (lane.low, lane.high) == (other.low, other.high)
        return same and all(_within(x, y, width) for x, y in zip(lane.pieces, other.pieces, strict=True))
    if lane.kind != "sum":
        return False
    extended_alike = width <= lane.bits or (lane.low < 0) == (other.low < 0)
    unbounded = other.high - other.low >= (1 << lane.bits) - 1
    return extended_alike and (unbounded or other.low <= lane.low <= lane.high <= other.high)


@lru_cache(maxsize=4096)
def _terms(isa: Isa, obligation: Obligation) -> tuple[Hashable, ...]:
    """Return the belief as terms, without ranges."""
    return tuple(_term(x) for x in evaluate_linear(isa, obligation))


def _term(x: Payload) -> Hashable:
    match x:
        case LinearForm():
            return x.const, frozenset((key, frozenset(by.items())) for key, by in x.atoms.items())
        case Concat():
            return tuple((_term(piece), bits) for piece, bits in x.pieces)
        case TableEntry():
            return tuple(_term(part) for part in x.parts), x.chosen
        case _:
            return x


@dataclass
class ObligationRecorder(Trace):
    """A trace that records the obligations of the programs it runs."""

    seen: set[Obligation] = field(default_factory=set)
    shapes: dict[tuple[int, VecType], tuple[Lane, ...]] = field(default_factory=dict)
    kept: list[Register] = field(default_factory=list)

    def run(self, step: Step) -> Value:
        """Run one step, record its obligation, and return its `dst`."""
        instr: Instr = self.isa[step.op]
        before = [self.registers.get(name) for name in step.args]
        dst = super().run(step)
        operands = tuple(self._shape(r, o.type) for r, o in zip(before, instr.operands, strict=True) if r)
        self.seen.add(Obligation(step.op, step.imm, operands, instr.meaning))
        return dst

    def _shape(self, register: Register, kind: VecType) -> tuple[Lane, ...]:
        """Return the shapes of a register's lanes, viewed as `kind`; computed once for each register."""
        key = id(register), kind
        if key not in self.shapes:
            rows = self.domain.rows if isinstance(self.domain, LinearDomain) else 1
            lanes = register.view_as(self.domain, kind).lanes
            tables: list[tuple[LinearForm, ...]] = []
            self.shapes[key] = tuple(_number(shape(x, kind.bits, rows), x, tables) for x in lanes)
            self.kept.append(register)
        return self.shapes[key]


def _number(lane: Lane, x: Payload, tables: list[tuple[LinearForm, ...]]) -> Lane:
    """Return the lane with its table entries numbered by the tables of the register."""
    if isinstance(x, Concat):
        pieces = (_number(p, y, tables) for p, (y, _) in zip(lane.pieces, x.pieces, strict=True))
        return lane._replace(pieces=tuple(pieces))
    if not isinstance(x, TableEntry):
        return lane
    if x.parts not in tables:
        tables.append(x.parts)
    return lane._replace(high=tables.index(x.parts))
