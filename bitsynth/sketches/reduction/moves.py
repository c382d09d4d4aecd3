"""The moves of the reduction sketch: one instruction applied to every live register.

As in CGO 2020 (section 4.2, Figure 5), a level of the reduction applies the same
instruction to each live register or to each adjacent pair. A move is legal only if the
linear domain shows that no lane overflows, that no partial sum is lost or counted twice
and that no lane mixes two columns. Instructions are found by their effect, never by name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from bitsynth.errors import SpecError
from bitsynth.isa.domains.forms import Concat, Inexact, LinearForm, as_form, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.lane import is_bitwise
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value

ILLEGAL = (Inexact, SpecError)
"""Errors of running a move that does not apply."""

Signature = tuple[tuple[str, tuple[tuple[int, int] | None, ...]], ...]


@dataclass(frozen=True)
class Move:
    """`op` on every register (`map`), on adjacent pairs (`pair`), or with `high` on both halves (`split`).

    `fill[k]` is the constant of every lane of operand k, None if a register goes there.
    """

    kind: Literal["map", "pair", "split"]
    op: str
    high: str | None
    fill: tuple[int | None, ...]
    imm: int = 0

    def fits(self, trace: Trace, names: Sequence[Value]) -> bool:
        """Return quickly whether a level may fit: lanes as wide as wanted, or for a pair, narrower operands."""
        if self.kind == "pair" and len(names) % 2:
            return False
        want = trace.isa[self.op].operands[self.fill.index(None)].type.bits
        have = trace.registers[names[0]].type.bits
        return want == have or (self.kind == "pair" and want < have)

    def ops(self, registers: int) -> tuple[str, ...]:
        """Return how many instructions the level takes for `registers` registers."""
        if self.kind == "split":
            return (self.op, self.high or self.op) * registers
        return (self.op,) * (registers // 2 if self.kind == "pair" else registers)

    def apply(self, trace: Trace, names: Sequence[Value]) -> list[Value]:
        """Run the level and return the names of the new registers; Inexact or SpecError if it does not apply."""
        if self.kind == "map":
            return [self._issue(trace, self.op, [n]) for n in names]
        if self.kind == "split":
            return [self._issue(trace, op, [n]) for n in names for op in (self.op, self.high or self.op)]
        if len(names) % 2:
            raise SpecError("a pair level wants an even number of registers")
        return [self._issue(trace, self.op, pair) for pair in zip(names[::2], names[1::2], strict=True)]

    def _issue(self, trace: Trace, op: str, registers: Sequence[Value]) -> Value:
        given = iter(registers)
        args = []
        for value, operand in zip(self.fill, trace.isa[op].operands, strict=True):
            constant = () if value is None else (value,) * operand.type.lanes
            args.append(trace.constant(operand.type, constant) if constant else next(given))
        return trace.apply(op, args, self.imm)


@dataclass(frozen=True)
class Halves:
    """Every second lane of `narrow`, as a lane twice as wide: `keep` masks the low ones, `shift` brings the high.

    Without `keep` the low ones stay below the high, and are taken away by whoever adds them up.
    """

    keep: str | None
    shift: str
    narrow: VecType
    kind: Literal["halves"] = "halves"

    @property
    def wide(self) -> VecType:
        """The type of the lanes it makes."""
        return VecType("u", 2 * self.narrow.bits, self.narrow.lanes // 2)

    def fits(self, trace: Trace, names: Sequence[Value]) -> bool:
        """Return quickly whether a level may fit: lanes as narrow as wanted."""
        return trace.registers[names[0]].type.bits == self.narrow.bits

    def ops(self, registers: int) -> tuple[str, ...]:
        """Return how many instructions the level takes for `registers` registers."""
        return ((self.keep,) if self.keep else ()) * registers + (self.shift,) * registers

    def apply(self, trace: Trace, names: Sequence[Value]) -> list[Value]:
        """Run the level and return the names of the new registers; Inexact or SpecError if it does not apply."""
        out = []
        for name in names:
            low = self._low(trace, name, self.keep) if self.keep else name
            out += [low, trace.apply(self.shift, [name], self.narrow.bits)]
        for name in out:
            trace.registers[name] = trace.registers[name].view_as(trace.domain, self.wide)
        return out

    def _low(self, trace: Trace, name: Value, keep: str) -> Value:
        kind, size = trace.isa[keep].operands[1].type, self.narrow.bits // 8
        mask = (255,) * size + (0,) * size
        lanes = Register(trace.isa.word, mask * (trace.isa.word.lanes // len(mask))).view_as(trace.domain, kind)
        return trace.apply(keep, [name, trace.constant(kind, lanes.lanes)])


AnyMove = Move | Halves


@lru_cache
def all_moves(isa: Isa) -> tuple[AnyMove, ...]:
    """Return every move the instruction set offers, in the order of its tables, one of each meaning."""
    every = [move for instr in arithmetic(isa) if not instr.tied for move in _moves(isa, instr)]
    unique = {_meaning(isa, move): move for move in reversed(every)}
    return tuple(move for move in every if unique[_meaning(isa, move)] is move) + tuple(_halves(isa))


@lru_cache
def largest_sum(isa: Isa) -> int:
    """Return the largest number of lanes that a move adds up in one lane, for example 16 for `sad` of two registers.

    A move is run on lanes of unknowns of 0 or 1, and the greatest sum in a lane is taken. If that is illegal, as for a
    product of two unknowns, the lanes of its operands are divided by the lanes of its result.
    """
    return max(_lanes_in_sum(isa, move) for move in all_moves(isa))


def _lanes_in_sum(isa: Isa, move: AnyMove) -> int:
    if isinstance(move, Halves):
        return 1
    kinds = [operand.type for operand, fill in zip(isa[move.op].operands, move.fill, strict=True) if fill is None]
    trace = Trace(isa, LinearDomain(1))
    names = [
        trace.bind(Value(f"x{r}"), Register(kind, tuple(variable((0, r, i), 0, 1) for i in range(kind.lanes))))
        for r, kind in enumerate(kinds)
    ]
    try:
        sums = signature(trace, move.apply(trace, names))
    except ILLEGAL:
        return -(-sum(kind.lanes for kind in kinds) // isa[move.op].out.lanes)
    return max(lane[1] if lane else 0 for _, lanes in sums for lane in lanes)


def _halves(isa: Isa) -> Iterator[Halves]:
    """Yield the mask and the shifts that part lanes of 8 and of 16 bits, found by their effect."""
    for bits in (8, 16):
        narrow = VecType("u", bits, isa.table.vector_bits // bits)
        lanes = tuple(variable(("x", i), 0, (1 << bits) - 1) for i in range(narrow.lanes))
        moves = [
            Halves(keep.name, shift.name, narrow)
            for keep in isa.full_forms
            if len(keep.operands) == 2 and not keep.imm and is_bitwise(keep.tree)
            for shift in isa.full_forms
            if len(shift.operands) == 1 and shift.imm and bits in shift.imms and shift.operands[0].type.bits == 2 * bits
        ]
        yield from [move for move in moves if _parts(isa, move, Register(narrow, lanes))][:1]


def _parts(isa: Isa, move: Halves, given: Register) -> bool:
    trace = Trace(isa, LinearDomain(1))
    x = trace.bind(Value("x"), given)
    try:
        low, high = (trace.registers[name].lanes for name in move.apply(trace, [x]))
    except ILLEGAL:
        return False
    return (*low, *high) == (*given.lanes[::2], *given.lanes[1::2])


def _meaning(isa: Isa, move: Move) -> Hashable:
    """Return the meaning of a move: signed and unsigned forms of one lane expression have the same."""
    instr = isa[move.op]
    types = tuple((t.bits, t.lanes) for t in (*(o.type for o in instr.operands), instr.out))
    return move.kind, move.fill, move.imm, move.high is None, instr.lane, types


def arithmetic(isa: Isa) -> Iterator[Instr]:
    """Yield instructions from full registers to full registers that do more than gates."""
    for instr in isa.full_forms:
        full = all(o.type.total_bits == isa.table.vector_bits for o in instr.operands)
        if full and not is_bitwise(instr.tree):
            yield instr


def _moves(isa: Isa, instr: Instr) -> Iterator[Move]:
    imms = instr.try_imm if instr.imm else (0,)
    high = isa.high_half(instr)
    for imm in imms:
        for kind, fill in _fills(len(instr.operands)):
            yield Move(kind, instr.name, None, fill, imm)
            if kind == "map" and high:
                yield Move("split", instr.name, high, fill, imm)


def _fills(operands: int) -> list[tuple[Literal["map", "pair"], tuple[int | None, ...]]]:
    if operands == 1:
        return [("map", (None,))]
    if operands == 2:
        return [("pair", (None, None)), *(("map", f) for c in (0, 1) for f in ((None, c), (c, None)))]
    return []


def signature(trace: Trace, names: Sequence[Value]) -> Signature:
    """Return the content of each lane: nothing, or some atoms of one column; Inexact for anything else."""
    out: list[tuple[str, tuple[tuple[int, int] | None, ...]]] = []
    for name in names:
        register = trace.registers[name]
        out.append((str(register.type), tuple(_lane(x) for x in register.lanes)))
    return tuple(out)


def _lane(x: object) -> tuple[int, int] | None:
    if x == 0:
        return None
    if isinstance(x, Concat):
        x = as_form(x)
    if not isinstance(x, LinearForm) or x.const or any(by != {1: 1} for by in x.atoms.values()):
        raise Inexact("a lane is not a plain partial sum")
    slots = {key[0] for key in x.atoms if isinstance(key, tuple)}
    if len(slots) != 1:
        raise Inexact("a lane mixes columns")
    return slots.pop(), len(x.atoms)


def atoms(sig: Signature) -> int:
    """Return the number of atoms a signature accounts for."""
    return sum(lane[1] for _, lanes in sig for lane in lanes if lane)
