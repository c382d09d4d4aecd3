"""The paper's own sketch: its instruction list, its cost (length), its two phases.

Compute (CGO 2020, section 4.2): for each plane pair the shortest program for
popcount(w & a) - popcount(~w & a) on one byte, by CEGIS; then the pairs are shifted and
added in byte lanes, most significant first. Reduction: a tree whose every level is one
instruction of the list. Unlike the paper's, each lane's range is derived, so a sum that
can overflow is refused: if a byte lane cannot hold a step's sum there is no kernel, as
in the configurations the paper lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bitsynth.errors import NoKernel, SpecError
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.packing import bit_tables
from bitsynth.kernel.program import Acc, Loop, Pass
from bitsynth.progress import Progress, silent
from bitsynth.sketches import cegis
from bitsynth.sketches.cegis import ProgramLine
from bitsynth.sketches.reduction import plan as reduction
from bitsynth.sketches.reduction.plan import ReductionPlan, flush_program
from bitsynth.solver.budget import Budget
from bitsynth.solver.z3 import z3
from bitsynth.spec.matmul import MatmulSpec

MAX_PAIR = 6
GROUPS = 4


@dataclass(frozen=True)
class PaperProgram:
    """The program of one plane pair (inputs: wgt plane, act plane) and the claims that none is shorter."""

    pair: tuple[ProgramLine, ...]
    claims: tuple[str, ...]


def solve(isa: Isa, budget: Budget, progress: Progress = silent) -> PaperProgram:
    """Return the shortest program of the list for one plane pair; Undecided if the budget is spent."""
    if isa.table.paper is None:
        raise SpecError(f"{isa.name} has no paper sketch: its isa.toml lists no instructions for one")
    progress("compute: one plane pair by the paper's instruction list")
    menu = _menu(isa)
    pair, claims = cegis.shortest("plane pair", 2, 8, menu, _goal, MAX_PAIR, budget)
    return PaperProgram(pair, claims)


def _menu(isa: Isa) -> list[cegis.Component]:
    assert isa.table.paper is not None
    return cegis.components([isa[f"{name}.{isa.word!s}"] for name in isa.table.paper.compute], (1, 2, 3))


def _goal(inputs: Sequence[z3.BitVecRef]) -> z3.BitVecRef:
    """Return popcount(~w & a) - popcount(w & a), as the tile subtracts it."""
    wgt, act = inputs
    return _popcount(~wgt & act) - _popcount(wgt & act)


def _popcount(x: z3.BitVecRef) -> z3.BitVecRef:
    total = z3.ZeroExt(7, z3.Extract(0, 0, x))
    for k in range(1, 8):
        total = total + z3.ZeroExt(7, z3.Extract(k, k, x))
    return total


def build(
    isa: Isa, spec: MatmulSpec, solution: PaperProgram, metric: Metric
) -> tuple[Pass, ReductionPlan, ConstantPool]:
    """Return the pass of the paper's kernel: one row, 8 columns of 64 bits, as in its Figure 6."""
    assert isa.table.paper is not None
    most = 8 * ((1 << spec.act.bits) - 1) * ((1 << spec.wgt.bits) - 1)
    if most > 127:
        raise NoKernel(
            f"the paper's sketch has no kernel for A{spec.act.bits}W{spec.wgt.bits}: "
            f"a step adds up to {most} to a byte lane, and its compute phase has byte lanes only"
        )
    plan = reduction.plan(isa, reduction.ReductionInput(GROUPS, most, -most, menu=isa.table.paper.reduce), 1, metric)
    constants: ConstantPool = {}
    step = Trace(isa, LinearDomain(1), constants=constants)
    blank = Register(isa.word, (0,) * isa.word.lanes)
    accs = [Value.of(Role.ACCUMULATOR, r) for r in range(plan.accs)]
    for name in accs:
        step.bind(name, Register(plan.acc_type, (0,) * plan.acc_type.lanes))
    sums = [_step_sum(step, spec, solution.pair, g, blank) for g in range(GROUPS)]
    for level in plan.pre:
        sums = level.apply(step, sums)
    after = [step.apply(plan.accumulate, [acc, s]) for acc, s in zip(accs, sums, strict=True)]
    flush, tile = flush_program(isa, plan, {1: accs}, constants, metric)
    step_accs = tuple(Acc(a, str(plan.acc_type), n) for a, n in zip(accs, after, strict=True))
    built = Pass(
        rows=tuple(Planes((t,), 0, 8, 8) for t in bit_tables(spec.act.bits)),
        columns=tuple(Planes((t,), 0, 8, 8) for t in bit_tables(spec.wgt.bits)),
        loops=(Loop(1, tuple(step.steps), step_accs),),
        flush=flush,
        tile=tile,
    )
    return built, plan, constants


def _form(isa: Isa, role: Literal["shift", "add"]) -> str:
    """Return the full-register form the paper's Horner scheme uses for `role`."""
    assert isa.table.paper is not None
    return f"{getattr(isa.table.paper, role)}.{isa.word!s}"


def _step_sum(step: Trace, spec: MatmulSpec, pair: Sequence[ProgramLine], g: int, blank: Register) -> Value:
    """Sum of 2**(i+j) * pair(w_j, a_i) over the plane pairs, by Horner's rule on i + j."""
    total: Value | None = None
    for weight in reversed(range(spec.act.bits + spec.wgt.bits - 1)):
        if total is not None:
            total = step.apply(_form(step.isa, "shift"), [total], 1)
        for i in range(spec.act.bits):
            if 0 <= weight - i < spec.wgt.bits:
                inputs = [
                    step.bind(Value.of(Role.COLUMN, weight - i, register=g), blank),
                    step.bind(Value.of(Role.ROW, i), blank),
                ]
                value = _pair(step, pair, inputs)
                total = value if total is None else step.apply(_form(step.isa, "add"), [total, value])
    assert total is not None
    return total


def _pair(step: Trace, pair: Sequence[ProgramLine], inputs: list[Value]) -> Value:
    values = list(inputs)
    for line in pair:
        values.append(step.apply(line.op, [values[a] for a in line.args], line.imm))
    return values[-1]


def lower_bound(spec: MatmulSpec, pair: Sequence[ProgramLine]) -> int:
    """Return the least number of instructions of a step: every pair computed, merged and accumulated."""
    pairs = spec.act.bits * spec.wgt.bits
    return pairs * len(pair) + pairs
