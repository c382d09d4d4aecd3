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

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.lane import is_bitwise
from bitsynth.isa.load import Isa
from bitsynth.sketches import smt
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
        plain = instr.on_registers and instr.imm is None and len(instr.operands) in (2, 3)
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
    if not ops:
        raise NoKernel("the instruction set has no gates on whole registers")
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
    system = smt.System()
    rows = list(product(range(1 << wgt_bits), range(1 << act_bits)))
    functions = [[system.boolean(f"f{j}_{i}") for i in range(len(rows))] for j in range(counts)]
    coefs = _coefs(system, counts)
    system.add(f"(bvuge {a} {b})" for a, b in pairwise(coefs))
    g, h = _corrections(system, act_bits, wgt_bits, True)
    system.add(_identity(rows, wgt_bits, functions, coefs, g, h))
    if budget.ask(f"{shape}: {counts} popcounts", system.text) is not None:
        return False
    claims.append(f"{shape}: {counts} popcounts of any functions: unsat")
    return True


def _coefs(system: smt.System, count: int) -> list[str]:
    coefs = [system.vector(f"c{j}", _WIDTH) for j in range(count)]
    system.add(f"(bvule {c} {smt.constant(_MAX_COEF, _WIDTH)})" for c in coefs)
    return coefs


def _corrections(system: smt.System, act_bits: int, wgt_bits: int, corrected: bool) -> tuple[list[str], list[str]]:
    g = [system.vector(f"g{w}", _WIDTH) for w in range(1 << wgt_bits)]
    h = [system.vector(f"h{a}", _WIDTH) for a in range(1 << act_bits)]
    for x in g + h:
        system.add([f"(bvsle {x} {smt.constant(_CORRECTION, _WIDTH)})"])
        system.add([f"(bvsge {x} {smt.constant(-_CORRECTION, _WIDTH)})"])
    system.add(smt.equal(x, smt.constant(0, _WIDTH)) for x in (h[:1] if corrected else h))
    return g, h


def _identity(
    rows: Sequence[tuple[int, int]],
    wgt_bits: int,
    functions: Sequence[Sequence[str]],
    coefs: Sequence[str],
    g: Sequence[str],
    h: Sequence[str],
) -> Iterator[str]:
    zero = smt.constant(0, _WIDTH)
    for i, (w, a) in enumerate(rows):
        total = f"(bvadd {g[w]} {h[a]})"
        for f, c in zip(functions, coefs, strict=True):
            total = f"(bvsub {total} {smt.ite(f[i], c, zero)})"
        yield smt.equal(total, smt.constant(a * (2 * w - (1 << wgt_bits) + 1), _WIDTH))


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
            if acts + more_acts + wgts + more_wgts >= found.planes:
                break
            if (form := self.solve(what, acts + more_acts, wgts + more_wgts, corrected, budget)) is not None:
                return form
        return found


class _Encoding:
    """The constraint system of one query: one-hot selectors, truth values row by row."""

    def __init__(self, query: _Query, acts: int, wgts: int, corrected: bool) -> None:
        self.query = query
        self.system = smt.System()
        self.rows = list(product(range(1 << query.wgt_bits), range(1 << query.act_bits)))
        self.act_planes = self._planes("pa", acts, query.act_bits)
        self.wgt_planes = self._planes("pw", wgts, query.wgt_bits)
        self.values = [[p[a] for _, a in self.rows] for p in self.act_planes]
        self.values += [[p[w] for w, _ in self.rows] for p in self.wgt_planes]
        self.leaves = len(self.values)
        self.picks: list[tuple[list[str], list[list[str]]]] = []
        self.uses: list[list[str]] = [[] for _ in range(self.leaves + query.gates)]
        prices: list[tuple[str, int]] = []
        for index in range(query.gates):
            prices += self._gate(index)
        self.system.add([smt.at_most(query.room, prices)])
        self._terms(corrected)

    def _planes(self, prefix: str, count: int, bits: int) -> list[list[str]]:
        """`count` free functions of a code, 0 on code 0, in descending order of truth table."""
        planes = [
            [smt.FALSE, *(self.system.boolean(f"{prefix}{k}_{c}") for c in range(1, 1 << bits))] for k in range(count)
        ]
        numbers = [f"(concat {' '.join(smt.ite(v, '#b1', '#b0') for v in reversed(p))})" for p in planes]
        self.system.add(f"(bvuge {a} {b})" for a, b in pairwise(numbers))
        return planes

    def _gate(self, index: int) -> list[tuple[str, int]]:
        nodes = self.leaves + index
        arity = max(op.arity for op in self.query.ops)
        ops = [self.system.boolean(f"op{index}_{k}") for k in range(len(self.query.ops))]
        args = [[self.system.boolean(f"arg{index}_{k}_{n}") for n in range(nodes)] for k in range(arity)]
        self.system.add(smt.exactly_one(pick) for pick in (ops, *args))
        inputs = [self._input(index, k, pick) for k, pick in enumerate(args)]
        output = [self.system.boolean(f"t{index}_{r}") for r in range(len(self.rows))]
        for chosen, op in zip(ops, self.query.ops, strict=True):
            self._operation(chosen, op, args, inputs, output)
        self._break_symmetry(ops, args, nodes)
        self.values.append(output)
        self.picks.append((ops, args))
        return [(o, op.cost) for o, op in zip(ops, self.query.ops, strict=True)]

    def _input(self, index: int, k: int, pick: Sequence[str]) -> list[str]:
        column = [self.system.boolean(f"in{index}_{k}_{r}") for r in range(len(self.rows))]
        for chosen, value in zip(pick, self.values, strict=True):
            self.system.add(smt.implies(chosen, smt.equal(x, v)) for x, v in zip(column, value, strict=True))
        return column

    def _operation(
        self, chosen: str, op: GateOp, args: list[list[str]], inputs: list[list[str]], output: Sequence[str]
    ) -> None:
        for r, out in enumerate(output):
            table = _table_term(op, [column[r] for column in inputs])
            self.system.add([smt.implies(chosen, smt.equal(out, table))])
        self.system.add(smt.implies(chosen, spare[0]) for spare in args[op.arity :])
        for pick in args[: op.arity]:
            for uses, picked in zip(self.uses, pick, strict=False):
                uses.append(smt.both(chosen, picked))

    def _break_symmetry(self, ops: list[str], args: list[list[str]], nodes: int) -> None:
        """Operands differ; those of a symmetric gate stand in order."""
        self.system.add(smt.no(smt.both(args[0][n], args[1][n])) for n in range(nodes))
        for chosen, op in zip(ops, self.query.ops, strict=True):
            if op.arity == 2 and (op.table >> 1 & 1) == (op.table >> 2 & 1):
                self.system.add(
                    smt.no(smt.both(chosen, args[0][m], args[1][n])) for m in range(nodes) for n in range(m)
                )

    def _terms(self, corrected: bool) -> None:
        gates = self.values[self.leaves :]
        self.coefs = _coefs(self.system, len(gates))
        counted = [smt.no(smt.equal(c, smt.constant(0, _WIDTH))) for c in self.coefs]
        self.system.add([smt.at_most(self.query.counts, [(c, 1) for c in counted])])
        self.system.add(smt.either(c, *self.uses[self.leaves + k]) for k, c in enumerate(counted))
        self.g, self.h = _corrections(self.system, self.query.act_bits, self.query.wgt_bits, corrected)
        self.system.add(_identity(self.rows, self.query.wgt_bits, gates, self.coefs, self.g, self.h))

    def solve(self, what: str, budget: Budget) -> BitForm | None:
        model = budget.ask(what, self.system.text)
        return None if model is None else self._decode(model)

    def _decode(self, model: Model) -> BitForm:
        gates = []
        for ops, args in self.picks:
            op = self.query.ops[next(k for k, o in enumerate(ops) if model.true(o))]
            nodes = tuple(next(n for n, x in enumerate(pick) if model.true(x)) for pick in args[: op.arity])
            gates.append(Gate(op.name, nodes))
        terms = tuple((c, self.leaves + k) for k, c in enumerate(map(model.unsigned, self.coefs)) if c)
        prices = {op.name: op.cost for op in self.query.ops}
        form = BitForm(
            act_planes=tuple(sum(model.true(v) << c for c, v in enumerate(p)) for p in self.act_planes),
            wgt_planes=tuple(sum(model.true(v) << c for c, v in enumerate(p)) for p in self.wgt_planes),
            gates=tuple(gates),
            terms=terms,
            g=tuple(model.signed(x, _WIDTH) for x in self.g),
            h=tuple(model.signed(x, _WIDTH) for x in self.h),
            cost=sum(prices[gate.op] for gate in gates) + COUNT_COST * len(terms),
        )
        return _without_unused_planes(form)


def _table_term(op: GateOp, inputs: Sequence[str]) -> str:
    """The gate's output as a term: Shannon expansion of its truth table."""

    def expand(level: int, prefix: int) -> str:
        if level < 0:
            return smt.TRUE if op.table >> prefix & 1 else smt.FALSE
        return smt.ite(inputs[level], expand(level - 1, prefix | 1 << level), expand(level - 1, prefix))

    return expand(op.arity - 1, 0)


def _without_unused_planes(form: BitForm) -> BitForm:
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
        cost=form.cost,
    )
