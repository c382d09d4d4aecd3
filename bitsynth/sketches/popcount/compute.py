"""The compute sketch of a width pair: exact blocks and the cheapest cover of the plane grid.

On one bit position an act code `a` (p planes) meets a wgt code `w` (r planes). The
sketch is
    a * bipolar(w) == g(w) + h(a) - sum_j c_j * f_j(a, w)
with c_j in 1..15, each f_j an output of a circuit of gates over at most p+1 planes of
the activations and r+1 of the weights (any boolean functions of the codes, made when
packing). Summed over positions, f_j becomes a popcount: what holds on one bit holds at
every width. Every function is 0 on code 0, so zero padding counts nothing.

The cost is the gates' cost plus `COUNT_COST` a popcount; UNSAT for everything cheaper is
the certificate of minimality.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.progress import Progress, silent
from bitsynth.sketches.popcount.cover import PlacedBlock, cheapest_cover, shapes_within
from bitsynth.sketches.popcount.gates import COUNT_COST, BitForm, GateOp, gate_ops
from bitsynth.sketches.popcount.query import Query, popcounts_suffice
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import Encoding, MatmulSpec


@dataclass(frozen=True)
class SolvedBlock:
    """The cheapest form of a block shape and the statements that show it."""

    form: BitForm
    claims: tuple[str, ...]


@dataclass(frozen=True)
class SolvedCover:
    """Blocks that multiply every plane pair once, with the claims that nothing in the sketch is cheaper.

    `bound` is the least a step can cost, in instructions a register of plane positions.
    """

    cover: tuple[PlacedBlock, ...]
    claims: tuple[str, ...]
    bound: int

    @property
    def gates(self) -> int:
        """The number of gates of all blocks."""
        return sum(len(b.form.gates) for b in self.cover)

    @property
    def counts(self) -> int:
        """The number of popcounts of all blocks."""
        return sum(len(b.form.terms) for b in self.cover)


def solve(isa: Isa, spec: MatmulSpec, budget: Budget, progress: Progress = silent) -> SolvedCover:
    """Return the cheapest cover of the grid; Undecided if the budget is spent."""
    if spec.core.wgt.encoding is not Encoding.BIPOLAR:
        raise NoKernel(f"{isa.name}: popcounts multiply bipolar weights, and with 8 bits on a side they are signed")
    shapes = shapes_within(spec.act.bits, spec.wgt.bits)
    solved: dict[tuple[int, int], SolvedBlock] = {}
    for shape in shapes:
        progress(f"compute: block of {shape[0]}x{shape[1]} planes")
        solved[shape] = _block(isa, shape, budget)
    cover = cheapest_cover(spec.act.bits, spec.wgt.bits, {s: solved[s].form for s in shapes})
    claims = [c for s in shapes for c in solved[s].claims]
    claims.append(f"cover: no partition into blocks of {_list(shapes)} planes is cheaper")
    return SolvedCover(cover, tuple(claims), sum(b.form.cost for b in cover))


_solved_blocks: dict[tuple[tuple[GateOp, ...], tuple[int, int]], SolvedBlock] = {}


def _block(isa: Isa, shape: tuple[int, int], budget: Budget) -> SolvedBlock:
    """Return a block, solved once a process and set of gates."""
    key = gate_ops(isa), shape
    if key not in _solved_blocks:
        _solved_blocks[key] = solve_block(key[0], *shape, budget)
    return _solved_blocks[key]


def solve_block(ops: Sequence[GateOp], act_bits: int, wgt_bits: int, budget: Budget) -> SolvedBlock:
    """Return the cheapest form for `act_bits` x `wgt_bits` planes; Undecided if the budget is spent.

    The correction h is left out if both sides have several planes: there the search
    without it already ends below one popcount a plane pair.
    """
    shape = f"{act_bits}x{wgt_bits}"
    if not ops:
        raise NoKernel("the instruction set has no gates on whole registers")
    corrected = min(act_bits, wgt_bits) == 1
    too_few: dict[int, bool] = {}
    claims: list[str] = []
    # By cost, then by numbers of popcounts and gates: the first form found is the cheapest.
    for cost in range(COUNT_COST + 1, act_bits * wgt_bits * (COUNT_COST + 1) + 1):
        for counts in range(cost // (COUNT_COST + 1), 0, -1):
            room = cost - COUNT_COST * counts
            if room >= counts + 2 and counts not in too_few:
                too_few[counts] = _too_few(shape, act_bits, wgt_bits, counts, claims, budget)
            if too_few.get(counts):
                continue
            for gates in _gate_numbers(counts, room, ops):
                query = Query(ops, act_bits, wgt_bits, gates, room, counts)
                what = f"{shape}: {gates} gates, {counts} popcounts"
                if (form := query.solve(what, act_bits + 1, wgt_bits + 1, corrected, budget)) is not None:
                    return SolvedBlock(query.with_fewest_planes(what, form, corrected, budget), tuple(claims))
                claims.append(f"{what}, cost {cost}: unsat")
    raise NoKernel(f"no circuit of {', '.join(op.name for op in ops)} multiplies {shape} planes")


def _gate_numbers(counts: int, room: int, ops: Sequence[GateOp]) -> Iterator[int]:
    """Return the numbers of gates that cost `room`: every counted function takes a gate of its own."""
    dearest = max(1 + bool(op.tied) for op in ops)
    return (gates for gates in range(room, counts - 1, -1) if gates * dearest >= room)


def _too_few(shape: str, act_bits: int, wgt_bits: int, counts: int, claims: list[str], budget: Budget) -> bool:
    """Return whether `counts` popcounts do not suffice, whatever functions they count."""
    if popcounts_suffice(act_bits, wgt_bits, counts, budget):
        return False
    claims.append(f"{shape}: {counts} popcounts of any functions: unsat")
    return True


def forget() -> None:
    """Drop solved blocks, so that the next synthesis is cold."""
    _solved_blocks.clear()


def _list(shapes: list[tuple[int, int]]) -> str:
    return ", ".join(f"{p}x{r}" for p, r in shapes)
