"""Questions to the solver about one bit position, as SMT-LIB text, and forms read from its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from bitsynth.sketches.popcount.gates import COUNT_COST, BitForm, Gate, GateOp
from bitsynth.solver import smt
from bitsynth.solver.budget import Budget, Model

_MAX_COEF = 15
_WIDTH = 10
_CORRECTION = 64


def popcounts_suffice(
    act_bits: int, wgt_bits: int, counts: int, budget: Budget, most: int = _MAX_COEF, correction: int = _CORRECTION
) -> bool:
    """Return whether `counts` functions suffice, with coefficients up to `most` and corrections up to `correction`."""
    system = smt.System()
    rows = list(product(range(1 << wgt_bits), range(1 << act_bits)))
    functions = [[system.boolean(f"f{j}_{i}") for i in range(len(rows))] for j in range(counts)]
    coefs = _coefs(system, counts, most)
    system.add(f"(bvuge {a} {b})" for a, b in pairwise(coefs))
    g, h = _corrections(system, act_bits, wgt_bits, True, correction)
    system.add(_identity(rows, wgt_bits, functions, coefs, g, h))
    return budget.ask(f"{act_bits}x{wgt_bits}: {counts} popcounts", system.text) is not None


def _coefs(system: smt.System, count: int, most: int = _MAX_COEF) -> list[str]:
    coefs = [system.vector(f"c{j}", _WIDTH) for j in range(count)]
    system.add(f"(bvule {c} {smt.constant(most, _WIDTH)})" for c in coefs)
    return coefs


def _corrections(
    system: smt.System, act_bits: int, wgt_bits: int, corrected: bool, most: int = _CORRECTION
) -> tuple[list[str], list[str]]:
    g = [system.vector(f"g{w}", _WIDTH) for w in range(1 << wgt_bits)]
    h = [system.vector(f"h{a}", _WIDTH) for a in range(1 << act_bits)]
    for x in g + h:
        system.add([f"(bvsle {x} {smt.constant(most, _WIDTH)})"])
        system.add([f"(bvsge {x} {smt.constant(-most, _WIDTH)})"])
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
class Query:
    """The question for a form with exactly `gates` gates of cost <= `room` and <= `counts` popcounts."""

    ops: Sequence[GateOp]
    act_bits: int
    wgt_bits: int
    gates: int
    room: int
    counts: int

    def solve(self, what: str, acts: int, wgts: int, corrected: bool, budget: Budget) -> BitForm | None:
        """Return a form over `acts` and `wgts` planes, None if there is none; Undecided if the budget is spent.

        With `corrected` it may have a correction h of the activations.
        """
        return _Encoding(self, acts, wgts, corrected).solve(what, budget)

    def with_fewest_planes(self, what: str, fewest: BitForm, corrected: bool, budget: Budget) -> BitForm:
        """Return the best of equally cheap forms: no correction if possible, then the fewest planes."""
        acts, wgts = self.act_bits, self.wgt_bits
        if corrected and (plain := self.solve(what, acts + 1, wgts + 1, False, budget)) is not None:
            fewest, corrected = plain, False
        for more_acts, more_wgts in ((0, 0), (1, 0), (0, 1)):
            if acts + more_acts + wgts + more_wgts >= fewest.planes:
                break
            if (form := self.solve(what, acts + more_acts, wgts + more_wgts, corrected, budget)) is not None:
                return form
        return fewest


class _Encoding:
    """The constraint system of one query: one-hot selectors, truth values row by row."""

    def __init__(self, query: Query, acts: int, wgts: int, corrected: bool) -> None:
        self.query = query
        self.system = smt.System()
        self.rows = list(product(range(1 << query.wgt_bits), range(1 << query.act_bits)))
        self.act_planes = self._planes("pa", acts, query.act_bits)
        self.wgt_planes = self._planes("pw", wgts, query.wgt_bits)
        self.values = [[p[a] for _, a in self.rows] for p in self.act_planes]
        self.values += [[p[w] for w, _ in self.rows] for p in self.wgt_planes]
        self.leaves = len(self.values)
        self.picks: list[tuple[list[str], list[list[str]], list[str]]] = []
        self.uses: list[list[tuple[int, str]]] = [[] for _ in range(self.leaves + query.gates)]
        for index in range(query.gates):
            self._gate(index)
        copies = [copy for index in range(query.gates) for copy in self._copies(index)]
        if copies:
            self.system.add([smt.at_most(query.room - query.gates, [(copy, 1) for copy in copies])])
        self._terms(corrected)

    def _planes(self, prefix: str, count: int, bits: int) -> list[list[str]]:
        """Return `count` free functions of a code, 0 on code 0, in descending order of truth table."""
        planes = [
            [smt.FALSE, *(self.system.boolean(f"{prefix}{k}_{c}") for c in range(1, 1 << bits))] for k in range(count)
        ]
        numbers = [f"(concat {' '.join(smt.ite(v, '#b1', '#b0') for v in reversed(p))})" for p in planes]
        self.system.add(f"(bvuge {a} {b})" for a, b in pairwise(numbers))
        return planes

    def _gate(self, index: int) -> None:
        query, nodes = self.query, self.leaves + index
        arity = max(op.arity for op in query.ops)
        ops = [self.system.boolean(f"op{index}_{k}") for k in range(len(query.ops))]
        args = [[self.system.boolean(f"arg{index}_{k}_{n}") for n in range(nodes)] for k in range(arity)]
        self.system.add(smt.exactly_one(pick) for pick in (ops, *args))
        inputs = [self._input(index, k, pick) for k, pick in enumerate(args)]
        output = [self.system.boolean(f"t{index}_{r}") for r in range(len(self.rows))]
        chosen_table = self._free_table(index)
        for chosen, op in zip(ops, query.ops, strict=True):
            self._operation(chosen, op, chosen_table, args, inputs, output)
            for pick in args[: op.arity]:
                for uses, picked in zip(self.uses, pick, strict=False):
                    uses.append((index, smt.both(chosen, picked)))
        self._break_symmetry(ops, args, nodes)
        self.values.append(output)
        self.picks.append((ops, args, chosen_table))

    def _free_table(self, index: int) -> list[str]:
        """Return the truth table of a gate that may be any function, 0 on zeros; empty if none may."""
        arity = max((op.arity for op in self.query.ops if op.is_free), default=0)
        return [smt.FALSE, *(self.system.boolean(f"f{index}_{x}") for x in range(1, 1 << arity))] if arity else []

    def _copies(self, index: int) -> list[str]:
        """Return terms for whether gate `index` needs a copy: it overwrites, and no operand is read last by it."""
        ops, args, _ = self.picks[index]
        overwriting = [(o, op.tied) for o, op in zip(ops, self.query.ops, strict=True) if op.tied]
        if not overwriting:
            return []
        copy = self.system.boolean(f"copy{index}")
        dying = [self.system.boolean(f"dies{index}_{n}") for n in range(index)]
        for n, dies in enumerate(dying):
            later = [use for at, use in self.uses[self.leaves + n] if at > index]
            self.system.add(smt.implies(dies, smt.no(use)) for use in later)
        for chosen, tied in overwriting:
            dead = [smt.both(d, x) for k in tied for d, x in zip(dying, args[k][self.leaves :], strict=True)]
            self.system.add([smt.implies(chosen, smt.either(copy, *dead))])
        return [copy]

    def _input(self, index: int, k: int, pick: Sequence[str]) -> list[str]:
        column = [self.system.boolean(f"in{index}_{k}_{r}") for r in range(len(self.rows))]
        for chosen, value in zip(pick, self.values, strict=True):
            self.system.add(smt.implies(chosen, smt.equal(x, v)) for x, v in zip(column, value, strict=True))
        return column

    def _operation(
        self,
        chosen: str,
        op: GateOp,
        free: Sequence[str],
        args: list[list[str]],
        inputs: list[list[str]],
        output: Sequence[str],
    ) -> None:
        table = free if op.is_free else [smt.TRUE if op.tables[0] >> x & 1 else smt.FALSE for x in range(1 << op.arity)]
        for r, out in enumerate(output):
            value = _table_term(table, [column[r] for column in inputs[: op.arity]])
            self.system.add([smt.implies(chosen, smt.equal(out, value))])
        self.system.add(smt.implies(chosen, spare[0]) for spare in args[op.arity :])

    def _break_symmetry(self, ops: list[str], args: list[list[str]], nodes: int) -> None:
        """Order operands: the first ones differ; operands of a symmetric gate, or of any function, ascend."""
        self.system.add(smt.no(smt.both(args[0][n], args[1][n])) for n in range(nodes))
        for chosen, op in zip(ops, self.query.ops, strict=True):
            ordered = range(op.arity - 1) if op.is_free else range(op.is_symmetric)
            for k, m in product(ordered, range(nodes)):
                self.system.add(smt.no(smt.both(chosen, args[k][m], args[k + 1][n])) for n in range(m))

    def _terms(self, corrected: bool) -> None:
        gates = self.values[self.leaves :]
        self.coefs = _coefs(self.system, len(gates))
        counted = [smt.no(smt.equal(c, smt.constant(0, _WIDTH))) for c in self.coefs]
        self.system.add([smt.at_most(self.query.counts, [(c, 1) for c in counted])])
        self.system.add(smt.either(c, *(use for _, use in self.uses[self.leaves + k])) for k, c in enumerate(counted))
        self.g, self.h = _corrections(self.system, self.query.act_bits, self.query.wgt_bits, corrected)
        self.system.add(_identity(self.rows, self.query.wgt_bits, gates, self.coefs, self.g, self.h))

    def solve(self, what: str, budget: Budget) -> BitForm | None:
        model = budget.ask(what, self.system.text)
        return None if model is None else self._decode(model)

    def _decode(self, model: Model) -> BitForm:
        gates: list[Gate] = []
        wanted, copies = set(range(self.leaves)), 0
        for pick in reversed(self.picks):
            op, nodes, table = self._read_choice(model, *pick)
            dying = [k for k in op.tied if nodes[k] not in wanted]
            copies += bool(op.tied) and not dying
            if op.is_free and dying:
                nodes, table = _move_operand_first(dying[0], nodes, table)
            gates.insert(0, Gate(op.name, nodes, op.imms[op.tables.index(table)]))
            wanted.update(nodes)
        terms = tuple((c, self.leaves + k) for k, c in enumerate(map(model.read_unsigned, self.coefs)) if c)
        form = BitForm(
            act_planes=tuple(sum(model.true(v) << c for c, v in enumerate(p)) for p in self.act_planes),
            wgt_planes=tuple(sum(model.true(v) << c for c, v in enumerate(p)) for p in self.wgt_planes),
            gates=tuple(gates),
            terms=terms,
            g=tuple(model.read_signed(x, _WIDTH) for x in self.g),
            h=tuple(model.read_signed(x, _WIDTH) for x in self.h),
            cost=len(gates) + copies + COUNT_COST * len(terms),
        )
        return form.without_unused_planes()

    def _read_choice(
        self, model: Model, ops: Sequence[str], args: Sequence[Sequence[str]], free: Sequence[str]
    ) -> tuple[GateOp, tuple[int, ...], int]:
        """Return a gate's instruction, its operands and its function."""
        op = self.query.ops[next(k for k, o in enumerate(ops) if model.true(o))]
        nodes = tuple(next(n for n, x in enumerate(pick) if model.true(x)) for pick in args[: op.arity])
        return op, nodes, sum(model.true(v) << x for x, v in enumerate(free)) if op.is_free else op.tables[0]


def _move_operand_first(k: int, nodes: tuple[int, ...], table: int) -> tuple[tuple[int, ...], int]:
    """Return the same function with operand `k` first: the one that compilers overwrite."""
    order = sorted(range(len(nodes)), key=lambda j: j != k)
    rows = [sum((x >> place & 1) << j for place, j in enumerate(order)) for x in range(1 << len(nodes))]
    return tuple(nodes[j] for j in order), sum((table >> row & 1) << x for x, row in enumerate(rows))


def _table_term(table: Sequence[str], inputs: Sequence[str]) -> str:
    """Return the gate's output as a term: Shannon expansion of its truth table."""
    for x in inputs:
        table = [smt.ite(x, high, low) for low, high in zip(table[::2], table[1::2], strict=True)]
    return table[0]
