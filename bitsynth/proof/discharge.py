"""Discharges proof obligations by Z3.

For each obligation the instruction runs twice on the same unknowns: in the linear domain, which gives what the checker
believed, and on bit-vectors, which gives what the machine does. Both must agree, modulo 2**width, for all values that
the operands can have. For example:

    obligation   add.u8x16 on sums in [0, 248] and sums in [0, 7]
    claim        exists x <= 248, y <= 7: bvadd(x, y) != x + y mod 256        unsatisfiable, so discharged
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, cast

from bitsynth.errors import Refuted
from bitsynth.isa.domains.forms import BitField, Concat, Inexact, Payload, as_form
from bitsynth.isa.domains.symbolic import SymbolicDomain
from bitsynth.isa.load import Isa
from bitsynth.proof.obligations import Lane, LaneShapes, Obligation, Quotient, evaluate_linear
from bitsynth.solver.budget import Budget
from bitsynth.solver.z3 import z3


def discharge(isa: Isa, obligations: Iterable[Obligation], budget: Budget) -> int:
    """Prove every obligation and return the number of solver calls.

    Refuted if one is wrong, Undecided if the budget is spent.
    """
    before = budget.asked
    for obligation in sorted(obligations, key=lambda u: u.statement):
        _prove(isa, obligation, budget)
    return budget.asked - before


def _prove(isa: Isa, obligation: Obligation, budget: Budget) -> None:
    if isinstance(obligation, Quotient):
        _prove_quotient(isa, obligation, budget)
        return
    instr = isa[obligation.op]
    given = _Given(obligation.operands)
    beliefs = _evaluate_linear(isa, obligation)
    machine = instr(SymbolicDomain(), given.machine, obligation.imm)
    proved: set[Any] = set()
    for n, (got, want) in enumerate(zip(machine, beliefs, strict=True)):
        term = _term(want, given, instr.out.bits)
        claim = _canonical(z3.simplify(got - term), given.names)
        if claim in proved:
            continue
        proved.add(claim)
        model = budget.check(obligation.statement, [*given.ranges, got != term])
        if model is not None:
            raise Refuted(f"{obligation.statement}: lane {n} is not what the linear domain says: {model.values}")


def _prove_quotient(isa: Isa, obligation: Quotient, budget: Budget) -> None:
    """Prove that each lane is the quotient of the operand's signed lane by a power of two, rounded down."""
    instr = isa[obligation.op]
    (operand,) = instr.operands
    lanes = [z3.BitVec(f"x{n}", operand.type.bits) for n in range(operand.type.lanes)]
    for n, (got, lane) in enumerate(zip(instr(SymbolicDomain(), [lanes], obligation.imm), lanes, strict=True)):
        # z3's >> copies the sign.
        model = budget.check(obligation.statement, [got != lane >> obligation.imm])
        if model is not None:
            raise Refuted(f"{obligation.statement}: lane {n} is another number: {model.values}")


def _evaluate_linear(isa: Isa, obligation: Obligation) -> list[Payload]:
    try:
        return evaluate_linear(isa, obligation)
    except Inexact as why:
        raise Refuted(f"{obligation.statement}: {why}") from None


class _Given:
    """The operands of an obligation as bit-vectors, and the bit-vectors of the unknowns in `obligations.payloads`."""

    def __init__(self, operands: LaneShapes) -> None:
        self.operands = operands
        self.names: dict[str, Lane] = {}
        self.ranges: list[Any] = []
        self.values: dict[Hashable, tuple[Any, bool]] = {}
        self._parts: dict[tuple[int, int], list[Any]] = {}
        self.machine = [[self._lane(k, n, x) for n, x in enumerate(lanes)] for k, lanes in enumerate(operands)]

    def _lane(self, k: int, n: int, lane: Lane) -> Any:
        if lane.kind == "entry":
            return self._entry(k, lane)
        return self._make_unknown(f"x{k}_{n}", lane, (k, n))

    def _entry(self, k: int, lane: Lane) -> Any:
        """Return the sum of the parts of the entry's table that it chooses."""
        chosen = [value for i, value in enumerate(self._table(k, lane)) if lane.low >> i & 1]
        return sum(chosen, z3.BitVecVal(0, lane.bits))

    def _make_unknown(self, name: str, lane: Lane, place: tuple[Hashable, ...]) -> Any:
        x = z3.BitVec(name, lane.bits)
        self.names[name] = lane
        self._assume_facts(x, place, lane)
        return x

    def _table(self, k: int, lane: Lane) -> list[Any]:
        """Return the value of each part of the entry's table."""
        number = lane.high
        if (k, number) not in self._parts:
            self._parts[k, number] = [
                self._make_unknown(f"d{k}_{number}_{i}", part, (k, number, "part", i))
                for i, part in enumerate(lane.pieces)
            ]
        return self._parts[k, number]

    def _assume_facts(self, x: Any, place: tuple[Hashable, ...], lane: Lane) -> None:
        """Record the facts known about `x`, the value of `lane` at `place`."""
        if lane.kind == "pieces":
            start = 0
            for i, piece in enumerate(lane.pieces):
                part = z3.Extract(start + piece.bits - 1, start, x)
                if piece.kind == "entry":
                    self.ranges.append(part == self._entry(cast(int, place[0]), piece))
                else:
                    self._assume_facts(part, (*place, i), piece)
                start += piece.bits
            return
        self.ranges += _range(x, lane)
        if lane.kind == "sum":
            self.values["x", place] = x, lane.low < 0

    def function(self, tt: int, column: int, position: int) -> Any:
        """Return the boolean function `tt` of the operands' bits at one place, as one bit."""
        rows = range(1 << len(self.operands))
        free = [k for k in range(len(self.operands)) if any((tt >> r ^ tt >> (r ^ 1 << k)) & 1 for r in rows)]
        free = [k for k in free if self.operands[k][column].kind in ("bits", "pieces")]
        out = z3.BitVecVal(0, 1)
        for row in rows:
            if tt >> row & 1 and all(k in free or not row >> k & 1 for k in range(len(self.operands))):
                bits = [z3.Extract(position, position, self.machine[k][column]) for k in free]
                same = [b if row >> k & 1 else ~b for k, b in zip(free, bits, strict=True)]
                out = out | reduce(operator.and_, same, z3.BitVecVal(1, 1))
        return out

    def atom(self, key: Any, position: int, width: int) -> Any:
        """Return an atom of a sum as a bit-vector."""
        if key[0] == "x":
            return _resize(*self.values[key], width)
        if key[0] == "product":
            return self.atom(key[1], 0, width) * self.atom(key[2], 0, width)
        if key[0] == "crossed":
            low, high = (self.function(*bit) for bit in key[1:])
            return z3.ZeroExt(width - 1, low & high)
        if key[0] == "gated":
            _, tt, column, at, inner = key
            bit = self.function(tt, column, at)
            return z3.If(bit == 1, self.atom(inner, 0, width), z3.BitVecVal(0, width))
        return z3.ZeroExt(width - 1, self.function(key[0], key[1], position))


def _range(x: Any, lane: Lane) -> list[Any]:
    """Return the bounds known of the value of a lane."""
    if lane.kind == "const":
        return [x == lane.low]
    if lane.kind == "bits":
        return [x & ~lane.high == 0, x & lane.low == lane.low]
    return _within(x, lane.low, lane.high)


def _within(x: Any, low: int, high: int) -> list[Any]:
    """Return the claim that the lane holds a number of [low, high], modulo its width."""
    size = 1 << x.size()
    if high - low >= size - 1:
        return []
    return [z3.ULE(x - z3.BitVecVal(low, x.size()), z3.BitVecVal(high - low, x.size()))]


def _term(want: Payload, given: _Given, width: int) -> Any:
    """Return the linear domain's belief as a bit-vector of the output's width."""
    if isinstance(want, int):
        return z3.BitVecVal(want, width)
    if isinstance(want, Concat):
        parts = [_term(piece, given, bits) for piece, bits in want.pieces]
        return z3.Concat(*reversed(parts))
    if isinstance(want, BitField):
        bits = [_bit(want, n, given) for n in range(width)]
        return z3.Concat(*reversed(bits)) if width > 1 else bits[0]
    form = as_form(want)
    total = z3.BitVecVal(form.const, width)
    for key, by in form.atoms.items():
        for coef, mask in by.items():
            for position in range(mask.bit_length()):
                if mask >> position & 1:
                    total = total + coef * given.atom(key, position, width)
    return total


def _bit(want: BitField, n: int, given: _Given) -> Any:
    if not want.mask >> n & 1:
        return z3.BitVecVal(want.ones >> n & 1, 1)
    return given.function(want.tt, cast(int, want.column), want.position + n)


def _resize(x: Any, signed: bool, width: int) -> Any:
    have = x.size()
    if have >= width:
        return z3.Extract(width - 1, 0, x)
    return z3.SignExt(width - have, x) if signed else z3.ZeroExt(width - have, x)


def _canonical(claim: Any, names: Mapping[str, Lane]) -> tuple[str, Sequence[Lane]]:
    """Return the claim with its unknowns renamed in order of first use, and their shapes: a key for repeated claims."""
    words = str(claim.sexpr()).replace("(", " ( ").replace(")", " ) ").split()
    order = list(dict.fromkeys(w for w in words if w in names))
    renamed = {name: f"y{i}" for i, name in enumerate(order)}
    return " ".join(renamed.get(w, w) for w in words), tuple(names[name] for name in order)
