"""Gates on whole registers, and the functions that circuits of them compute on one bit position."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from bitsynth.isa.instr import Instr
from bitsynth.isa.lane import truth_table
from bitsynth.isa.load import Isa

COUNT_COST = 2
"""A popcount is counted once and added once."""


@dataclass(frozen=True)
class GateOp:
    """A bitwise instruction and the functions that it computes, one for each immediate.

    Bit x of `tables[k]`, the function of immediate `imms[k]`, is its output on inputs x (first
    operand lowest). It overwrites one of the operands `tied`, if there are any: a copy is due
    unless one of them is an earlier gate that no later one reads.
    """

    name: str
    arity: int
    tables: tuple[int, ...]
    imms: tuple[int, ...] = (0,)
    tied: tuple[int, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether it computes every function of its operands that is 0 on zeros."""
        return len(self.tables) == 1 << ((1 << self.arity) - 1)

    def table(self, imm: int) -> int:
        """Return the truth table of the function of immediate `imm`."""
        return self.tables[self.imms.index(imm)]

    @property
    def is_symmetric(self) -> bool:
        """Whether two operands can be exchanged."""
        return self.arity == 2 and (self.tables[0] >> 1 & 1) == (self.tables[0] >> 2 & 1)


@dataclass(frozen=True)
class Gate:
    """`op` applied to nodes: 0.. are act planes, then wgt planes, then earlier gates."""

    op: str
    args: tuple[int, ...]
    imm: int = 0


@dataclass(frozen=True)
class BitForm:
    """A solution: a product of codes as a weighted sum of bits that gates compute.

    Args:
        act_planes: The truth tables of bit planes over the codes of activations.
        wgt_planes: The same over the codes of weights.
        gates: The gates, in order.
        terms: The coefficient and the node of each bit that is summed.
        g: The row term: a number that is added for each code of activations.
        h: The column term: a number that is added for each code of weights.
        cost: The number of operations.
    """

    act_planes: tuple[int, ...]
    wgt_planes: tuple[int, ...]
    gates: tuple[Gate, ...]
    terms: tuple[tuple[int, int], ...]
    g: tuple[int, ...]
    h: tuple[int, ...]
    cost: int

    @property
    def planes(self) -> int:
        """The number of planes of both sides."""
        return len(self.act_planes) + len(self.wgt_planes)

    def without_unused_planes(self) -> BitForm:
        """Return the same form with only the planes that its gates read."""
        used = {n for gate in self.gates for n in gate.args}
        keep = [n for n in range(self.planes) if n in used]
        leaves = [*self.act_planes, *self.wgt_planes]
        renumber = {n: k for k, n in enumerate(keep)}
        renumber |= {self.planes + k: len(keep) + k for k in range(len(self.gates))}
        acts = len(self.act_planes)
        return replace(
            self,
            act_planes=tuple(leaves[n] for n in keep if n < acts),
            wgt_planes=tuple(leaves[n] for n in keep if n >= acts),
            gates=tuple(Gate(g.op, tuple(renumber[n] for n in g.args), g.imm) for g in self.gates),
            terms=tuple((c, renumber[n]) for c, n in self.terms),
        )


@lru_cache
def gate_ops(isa: Isa) -> tuple[GateOp, ...]:
    """Return the bitwise instructions of the full register that keep zero at zero, the cheapest for each function."""
    cheapest: dict[tuple[int, int], GateOp] = {}
    free: dict[int, GateOp] = {}
    for instr in isa.full_forms:
        if len(instr.operands) not in (2, 3) or instr.out != isa.word:
            continue
        op = _gate_op(instr)
        if op.is_free:
            free.setdefault(op.arity, op)
            continue
        for table, imm in zip(op.tables, op.imms, strict=True):
            cheapest.setdefault((op.arity, table), replace(op, tables=(table,), imms=(imm,)))
    ops = [*cheapest.values(), *free.values()]
    return tuple(sorted(ops, key=lambda op: (bool(op.tied), op.arity, op.name, op.imms)))


def _gate_op(instr: Instr) -> GateOp:
    """Return the instruction with its functions that are 0 on zeros; it has none if it is not a gate."""
    operands = [o.name for o in instr.operands]
    imm_of_table: dict[int, int] = {}
    if all(o.type == instr.out for o in instr.operands):
        for imm in instr.imms:
            numbers = {**instr.names, instr.imm[0]: imm} if instr.imm else instr.names
            table = truth_table(instr.tree, operands, numbers)
            if table is not None and not table & 1:
                imm_of_table.setdefault(table, imm)
    tied = tuple(k for k, name in enumerate(operands) if name in instr.tied)
    return GateOp(instr.name, len(operands), tuple(imm_of_table), tuple(imm_of_table.values()), tied)
