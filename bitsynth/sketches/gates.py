"""The compute sketch: exact synthesis at one bit position.

On one bit position an act code `a` (p planes) meets a wgt code `w` (r planes). The
sketch is
    a * bipolar(w) == g(w) + h(a) - sum_j c_j * f_j(a, w)
with c_j in 1..15, each f_j an output of a circuit of gates over at most p+1 planes of
the activations and r+1 of the weights (any boolean functions of the codes, made when
packing). Summed over positions, f_j becomes a popcount: what holds on one bit holds at
every width. Every function is 0 on code 0, so zero padding counts nothing.

Cost is that of the gates plus `COUNT_COST` a popcount; UNSAT for everything cheaper is
the certificate of minimality.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import z3

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.lane import is_bitwise
from bitsynth.isa.load import Isa
from bitsynth.sketches.solver import Budget, Model

COUNT_COST = 2
"""A popcount is counted once and added once."""
_MAX_COEF = 15
_WIDTH = 10
_CORRECTION = 64


@dataclass(frozen=True)
class GateOp:
    """A bitwise instruction: bit x of `table` is its output on inputs x (first operand lowest)."""

    name: str
    arity: int
    table: int
    cost: int


@dataclass(frozen=True)
class Gate:
    """`op` applied to nodes: 0.. are act planes, then wgt planes, then earlier gates."""

    op: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class BitForm:
    """A solution: planes as truth tables over codes, gates, and (coefficient, node) terms."""

    act_planes: tuple[int, ...]
    wgt_planes: tuple[int, ...]
    gates: tuple[Gate, ...]
    terms: tuple[tuple[int, int], ...]
    g: tuple[int, ...]
    h: tuple[int, ...]
    cost: int

    @property
    def planes(self) -> int:
        return len(self.act_planes) + len(self.wgt_planes)


@dataclass(frozen=True)
class Solved:
    """The cheapest form of a block shape and the statements that show it."""

    form: BitForm
    claims: tuple[str, ...]


def gate_ops(isa: Isa) -> tuple[GateOp, ...]:
    """The bitwise instructions of the full register that keep zero at zero, cheapest first."""
    found: dict[int, GateOp] = {}
    for instr in isa.instrs.values():
        plain = not instr.reads_memory and not instr.store and instr.imm is None and len(instr.operands) in (2, 3)
        if not (plain and instr.out == isa.word and is_bitwise(instr.tree)):
            continue
        arity = len(instr.operands)
        table = sum(_gate_value(instr, x) << x for x in range(1 << arity))
        op = GateOp(instr.name, arity, table, 2 if instr.tied else 1)
        if not table & 1 and (arity << 8 | table) not in found:
            found[arity << 8 | table] = op
    return tuple(sorted(found.values(), key=lambda op: (op.cost, op.arity, op.name)))


def _gate_value(instr: Any, x: int) -> int:
    lanes = [[ConcreteDomain().const(x >> k & 1, 8)] * o.type.lanes for k, o in enumerate(instr.operands)]
    return int(instr(ConcreteDomain(), lanes)[0]) & 1


def solve_block(ops: Sequence[GateOp], act_bits: int, wgt_bits: int, budget: Budget) -> Solved:
    """The cheapest form for `act_bits` x `wgt_bits` planes; Undecided if the budget is spent.

    The correction h is left out where both sides have several planes: there the search
    without it already ends below one popcount a plane pair.
    """
    shape = f"{act_bits}x{wgt_bits}"
    corrected = min(act_bits, wgt_bits) == 1
    too_few: dict[int, bool] = {}
    claims: list[str] = []
    for cost in range(COUNT_COST + 1, act_bits * wgt_bits * (COUNT_COST + 1) + 1):
        for counts in range(cost // (COUNT_COST + 1), 0, -1):
            room = cost - COUNT_COST * counts
            if room >= counts + 2 and counts not in too_few:
                too_few[counts] = _too_few(shape, act_bits, wgt_bits, counts, claims, budget)
            if too_few.get(counts):
                continue
            for gates in _gate_numbers(counts, room, ops):
                query = _Query(ops, act_bits, wgt_bits, gates, room, counts)
                what = f"{shape}: {gates} gates, {counts} popcounts"
                if (form := query.solve(what, act_bits + 1, wgt_bits + 1, corrected, budget)) is not None:
                    return Solved(query.with_fewest_planes(what, form, corrected, budget), tuple(claims))
                claims.append(f"{what}, cost {cost}: unsat")
    raise NoKernel(f"no circuit of {', '.join(op.name for op in ops)} multiplies {shape} planes")


def _gate_numbers(counts: int, room: int, ops: Sequence[GateOp]) -> Iterator[int]:
    """Numbers of gates that cost `room`: every counted function takes a gate of its own."""
    dearest = max(op.cost for op in ops)
    return (gates for gates in range(room, counts - 1, -1) if gates * dearest >= room)


def _too_few(shape: str, act_bits: int, wgt_bits: int, counts: int, claims: list[str], budget: Budget) -> bool:
    """True when `counts` popcounts do not suffice, whatever functions they count."""
    rows = list(product(range(1 << wgt_bits), range(1 << act_bits)))
    functions = [[z3.Bool(f"f{j}_{i}") for i in range(len(rows))] for j in range(counts)]
    coefs = [z3.BitVec(f"c{j}", _WIDTH) for j in range(counts)]
    system = [z3.ULE(c, _MAX_COEF) for c in coefs] + [z3.UGE(a, b) for a, b in pairwise(coefs)]
    g, h = _corrections(act_bits, wgt_bits, True, system)
    system += _identity(rows, wgt_bits, functions, coefs, g, h)
    if budget.check(f"{shape}: {counts} popcounts", system) is not None:
        return False
    claims.append(f"{shape}: {counts} popcounts of any functions: unsat")
    return True


def _corrections(act_bits: int, wgt_bits: int, corrected: bool, system: list[Any]) -> tuple[list[Any], list[Any]]:
    g = [z3.BitVec(f"g{w}", _WIDTH) for w in range(1 << wgt_bits)]
    h = [z3.BitVec(f"h{a}", _WIDTH) for a in range(1 << act_bits)]
    system += [z3.And(x <= _CORRECTION, x >= -_CORRECTION) for x in g + h]
    system += [x == 0 for x in (h[:1] if corrected else h)]
    return g, h


def _identity(
    rows: Sequence[tuple[int, int]],
    wgt_bits: int,
    functions: Sequence[Sequence[Any]],
    coefs: Sequence[Any],
    g: Sequence[Any],
    h: Sequence[Any],
) -> Iterator[Any]:
    for i, (w, a) in enumerate(rows):
        total = g[w] + h[a]
        for f, c in zip(functions, coefs, strict=True):
            total = total - z3.If(f[i], c, z3.BitVecVal(0, _WIDTH))
        yield total == a * (2 * w - (1 << wgt_bits) + 1)


@dataclass(frozen=True)
class _Query:
    """Is there a form with exactly `gates` gates of cost <= `room` and <= `counts` popcounts?"""

    ops: Sequence[GateOp]
    act_bits: int
    wgt_bits: int
    gates: int
    room: int
    counts: int

    def solve(self, what: str, acts: int, wgts: int, corrected: bool, budget: Budget) -> BitForm | None:
        return _Encoding(self, acts, wgts, corrected).solve(what, budget)

    def with_fewest_planes(self, what: str, found: BitForm, corrected: bool, budget: Budget) -> BitForm:
        """Among equally cheap forms: no correction if possible, then the fewest planes."""
        acts, wgts = self.act_bits, self.wgt_bits
        if corrected and (plain := self.solve(what, acts + 1, wgts + 1, False, budget)) is not None:
            found, corrected = plain, False
        for more_acts, more_wgts in ((0, 0), (1, 0), (0, 1)):
            if (form := self.solve(what, acts + more_acts, wgts + more_wgts, corrected, budget)) is not None:
                return form
        return found


class _Encoding:
    """The constraint system of one query: one-hot selectors, truth values row by row."""

    def __init__(self, query: _Query, acts: int, wgts: int, corrected: bool) -> None:
        self.query = query
        self.system: list[Any] = []
        self.rows = list(product(range(1 << query.wgt_bits), range(1 << query.act_bits)))
        self.act_planes = self._planes("pa", acts, query.act_bits)
        self.wgt_planes = self._planes("pw", wgts, query.wgt_bits)
        self.values = [[p[a] for _, a in self.rows] for p in self.act_planes]
        self.values += [[p[w] for w, _ in self.rows] for p in self.wgt_planes]
        self.leaves = len(self.values)
        self.picks: list[tuple[list[Any], list[list[Any]]]] = []
        self.uses: list[list[Any]] = [[] for _ in range(self.leaves + query.gates)]
        prices: list[tuple[Any, int]] = []
        for index in range(query.gates):
            prices += self._gate(index)
        self.system.append(z3.PbLe(prices, query.room))
        self._terms(corrected)

    def _planes(self, prefix: str, count: int, bits: int) -> list[list[Any]]:
        """`count` free functions of a code, 0 on code 0, in descending order of truth table."""
        planes = [
            [z3.BoolVal(False), *(z3.Bool(f"{prefix}{k}_{c}") for c in range(1, 1 << bits))] for k in range(count)
        ]
        as_number = [
            z3.Concat(*(z3.If(v, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1)) for v in reversed(p))) for p in planes
        ]
        self.system += [z3.UGE(a, b) for a, b in pairwise(as_number)]
        return planes

    def _gate(self, index: int) -> list[tuple[Any, int]]:
        nodes = self.leaves + index
        arity = max(op.arity for op in self.query.ops)
        ops = [z3.Bool(f"op{index}_{k}") for k in range(len(self.query.ops))]
        args = [[z3.Bool(f"arg{index}_{k}_{n}") for n in range(nodes)] for k in range(arity)]
        self.system += [z3.PbEq([(x, 1) for x in pick], 1) for pick in (ops, *args)]
        inputs = [self._input(index, k, pick) for k, pick in enumerate(args)]
        output = [z3.Bool(f"t{index}_{r}") for r in range(len(self.rows))]
        for chosen, op in zip(ops, self.query.ops, strict=True):
            self._operation(chosen, op, args, inputs, output)
        self._break_symmetry(ops, args, nodes)
        self.values.append(output)
        self.picks.append((ops, args))
        return [(o, op.cost) for o, op in zip(ops, self.query.ops, strict=True)]

    def _input(self, index: int, k: int, pick: Sequence[Any]) -> list[Any]:
        column = [z3.Bool(f"in{index}_{k}_{r}") for r in range(len(self.rows))]
        for chosen, value in zip(pick, self.values, strict=True):
            self.system += [z3.Implies(chosen, x == v) for x, v in zip(column, value, strict=True)]
        return column

    def _operation(self, chosen: Any, op: GateOp, args: Any, inputs: Any, output: Sequence[Any]) -> None:
        for r, out in enumerate(output):
            self.system.append(z3.Implies(chosen, out == _table_term(op, [column[r] for column in inputs])))
        for spare in args[op.arity :]:
            self.system.append(z3.Implies(chosen, spare[0]))
        for k, pick in enumerate(args[: op.arity]):
            for node, uses in enumerate(self.uses[: len(pick)]):
                uses.append(z3.And(chosen, args[k][node]))

    def _break_symmetry(self, ops: Any, args: Any, nodes: int) -> None:
        """Operands differ; those of a symmetric gate stand in order."""
        for n in range(nodes):
            self.system.append(z3.Not(z3.And(args[0][n], args[1][n])))
        for chosen, op in zip(ops, self.query.ops, strict=True):
            if op.arity == 2 and (op.table >> 1 & 1) == (op.table >> 2 & 1):
                self.system += [z3.Not(z3.And(chosen, args[0][m], args[1][n])) for m in range(nodes) for n in range(m)]

    def _terms(self, corrected: bool) -> None:
        gates = self.values[self.leaves :]
        self.coefs = [z3.BitVec(f"c{k}", _WIDTH) for k in range(len(gates))]
        self.system += [z3.ULE(c, _MAX_COEF) for c in self.coefs]
        self.system.append(z3.PbLe([(c != 0, 1) for c in self.coefs], self.query.counts))
        for k, coef in enumerate(self.coefs):
            self.system.append(z3.Or(coef != 0, *self.uses[self.leaves + k]))
        self.g, self.h = _corrections(self.query.act_bits, self.query.wgt_bits, corrected, self.system)
        self.system += _identity(self.rows, self.query.wgt_bits, gates, self.coefs, self.g, self.h)

    def solve(self, what: str, budget: Budget) -> BitForm | None:
        model = budget.check(what, self.system)
        return None if model is None else self._decode(model)

    def _decode(self, model: Model) -> BitForm:
        gates = []
        for ops, args in self.picks:
            op = self.query.ops[next(k for k, o in enumerate(ops) if model.true(o))]
            nodes = tuple(next(n for n, x in enumerate(pick) if model.true(x)) for pick in args[: op.arity])
            gates.append(Gate(op.name, nodes))
        form = BitForm(
            act_planes=tuple(sum(model.true(v) << c for c, v in enumerate(p)) for p in self.act_planes),
            wgt_planes=tuple(sum(model.true(v) << c for c, v in enumerate(p)) for p in self.wgt_planes),
            gates=tuple(gates),
            terms=tuple((model.signed(c), self.leaves + k) for k, c in enumerate(self.coefs) if model.signed(c)),
            g=tuple(model.signed(x) for x in self.g),
            h=tuple(model.signed(x) for x in self.h),
            cost=0,
        )
        prices = {op.name: op.cost for op in self.query.ops}
        cost = sum(prices[gate.op] for gate in form.gates) + COUNT_COST * len(form.terms)
        return _without_unused_planes(form, cost)


def _table_term(op: GateOp, inputs: Sequence[Any]) -> Any:
    """The gate's output as a term: Shannon expansion of its truth table."""

    def expand(level: int, prefix: int) -> Any:
        if level < 0:
            return z3.BoolVal(bool(op.table >> prefix & 1))
        high, low = expand(level - 1, prefix | 1 << level), expand(level - 1, prefix)
        return high if high.eq(low) else z3.If(inputs[level], high, low)

    return expand(op.arity - 1, 0)


def _without_unused_planes(form: BitForm, cost: int) -> BitForm:
    used = {n for gate in form.gates for n in gate.args}
    keep = [n for n in range(form.planes) if n in used]
    leaves = [*form.act_planes, *form.wgt_planes]
    renumber = {n: k for k, n in enumerate(keep)}
    renumber |= {form.planes + k: len(keep) + k for k in range(len(form.gates))}
    acts = len(form.act_planes)
    return BitForm(
        act_planes=tuple(leaves[n] for n in keep if n < acts),
        wgt_planes=tuple(leaves[n] for n in keep if n >= acts),
        gates=tuple(Gate(g.op, tuple(renumber[n] for n in g.args)) for g in form.gates),
        terms=tuple((c, renumber[n]) for c, n in form.terms),
        g=form.g,
        h=form.h,
        cost=cost,
    )
