"""Assembles popcount kernels from solved blocks: blocks of planes become passes, and passes a microkernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.program import Acc, Loop, Pass
from bitsynth.sketches.popcount.counts import Count
from bitsynth.sketches.popcount.cover import PlacedBlock
from bitsynth.sketches.reduction.plan import ReductionPlan, flush_program


@dataclass(frozen=True)
class CountTerm:
    """One counted node of a block: it adds `weight` * count to accumulator class `coef`."""

    block: int
    node: int
    coef: int
    weight: int


def terms(blocks: Sequence[PlacedBlock], weighted: bool) -> list[CountTerm]:
    """Return the counted nodes; `weighted` counts carry the coefficient, up to the block's scale."""
    return [
        CountTerm(b, node, placed.scale if weighted else placed.scale * coef, coef if weighted else 1)
        for b, placed in enumerate(blocks)
        for coef, node in placed.form.terms
    ]


def max_increment(blocks: Sequence[PlacedBlock], weighted: bool, most: int) -> int:
    """Return the most that one step adds to a lane of the fullest accumulator, by counts of `most` or less."""
    by_class: Counter[int] = Counter()
    for term in terms(blocks, weighted):
        by_class[term.coef] += term.weight * most
    return max(by_class.values())


def full_table(table: int, bits: int, low: int, width: int) -> int:
    """Return a truth table over `bits`-bit codes of a function of planes low .. low + width - 1."""
    return sum((table >> (code >> low & ((1 << width) - 1)) & 1) << code for code in range(1 << bits))


@dataclass
class PassBuilder:
    """A builder of the step and flush programs of one pass."""

    isa: Isa
    act_bits: int
    w_bits: int
    blocks: Sequence[PlacedBlock]
    count: Count
    weighted: bool
    plan: ReductionPlan
    constants: ConstantPool
    act_planes: list[int] = field(default_factory=list)
    wgt_planes: list[int] = field(default_factory=list)

    def build(self, metric: Metric) -> Pass:
        """Return the pass, its loop still one step long."""
        wanted = terms(self.blocks, self.weighted)
        classes = sorted({t.coef for t in wanted})
        step = Trace(self.isa, LinearDomain(1), constants=self.constants)
        accs = {
            c: [Value.of(Role.ACCUMULATOR, i * self.plan.accs + r) for r in range(self.plan.accs)]
            for i, c in enumerate(classes)
        }
        current = {name: name for names in accs.values() for name in names}
        values: dict[tuple[int, int, int], Value] = {}
        blank = Register(self.isa.word, (0,) * self.isa.word.lanes)
        # Bind inputs and accumulators.
        for g in range(self.plan.given.groups):
            for b, placed in enumerate(self.blocks):
                for n, plane in enumerate(self._leaves(placed, g)):
                    values[b, g, n] = step.bind(plane, blank)
        for name in current:
            step.bind(name, Register(self.plan.acc_type, (0,) * self.plan.acc_type.lanes))
        # The step: counts of every term are added up.
        for term in wanted:
            for r, name in enumerate(accs[term.coef]):
                total = self._tree(step, values, term, len(self.plan.pre), r)
                current[name] = step.apply(self.plan.accumulate, [current[name], total])
        # The flush.
        kind = str(self.plan.acc_type)
        flush, tile = flush_program(self.isa, self.plan, accs, self.constants, metric)
        step_accs = tuple(Acc(name, kind, current[name]) for names in accs.values() for name in names)
        bits = self.count.bits_per_byte
        return Pass(
            rows=tuple(Planes((t,), 0, bits, bits) for t in self.act_planes),
            columns=tuple(Planes((t,), 0, bits, bits) for t in self.wgt_planes),
            loops=(Loop(1, tuple(step.steps), step_accs),),
            flush=flush,
            tile=tile,
        )

    def _leaves(self, placed: PlacedBlock, register: int) -> list[Value]:
        """Return the planes of a block, for a column register."""
        form = placed.form
        act_width = (len(form.h) - 1).bit_length()
        wgt_width = (len(form.g) - 1).bit_length()
        acts = [full_table(t, self.act_bits, placed.act_low, act_width) for t in form.act_planes]
        wgts = [full_table(t, self.w_bits, placed.wgt_low, wgt_width) for t in form.wgt_planes]
        rows = [Value.of(Role.ROW, _index(self.act_planes, t)) for t in acts]
        return rows + [Value.of(Role.COLUMN, _index(self.wgt_planes, t), register=register) for t in wgts]

    def _tree(
        self, step: Trace, values: dict[tuple[int, int, int], Value], term: CountTerm, level: int, place: int
    ) -> Value:
        """Register `place` after `level` in-loop levels: a pair of the level below, or a count."""
        if level == 0:
            return self._count(step, self._node(step, values, term.block, place, term.node), term.weight)
        pair = [self._tree(step, values, term, level - 1, 2 * place + k) for k in (0, 1)]
        return self.plan.pre[level - 1].apply(step, pair)[0]

    def _node(self, step: Trace, values: dict[tuple[int, int, int], Value], block: int, g: int, node: int) -> Value:
        """Return the register of a node; gates run in the order of the form, as some overwrite operands."""
        form = self.blocks[block].form
        for n, gate in enumerate(form.gates[: node + 1 - form.planes], form.planes):
            if (block, g, n) not in values:
                args = [values[block, g, k] for k in gate.args]
                values[block, g, n] = step.apply(gate.op, args, gate.imm)
        return values[block, g, node]

    def _count(self, step: Trace, name: Value, weight: int) -> Value:
        if self.count.table is None:
            return step.apply(self.count.op, [name])
        table = step.constant(self.isa.word, self.count.table_lanes(self.isa, weight))
        args = [table, name] if self.count.table == 0 else [name, table]
        return step.apply(self.count.op, args)


def _index(planes: list[int], table: int) -> int:
    if table not in planes:
        planes.append(table)
    return planes.index(table)
