"""The compute sketch of a width pair: exact blocks and the cheapest cover of the plane grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bitsynth.isa.load import Isa
from bitsynth.sketches.blocks import PlacedBlock, cheapest_cover, shapes_within
from bitsynth.sketches.gates import GateOp, Solved, gate_ops, solve_block
from bitsynth.sketches.solver import Budget
from bitsynth.spec import MatmulSpec

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Compute:
    """Blocks that multiply every plane pair once, and why nothing in the sketch is cheaper.

    `bound` is the least a step can cost, in instructions a register of plane positions.
    """

    cover: tuple[PlacedBlock, ...]
    claims: tuple[str, ...]
    bound: int

    @property
    def gates(self) -> int:
        return sum(len(b.form.gates) for b in self.cover)

    @property
    def counts(self) -> int:
        return sum(len(b.form.terms) for b in self.cover)


def solve(isa: Isa, spec: MatmulSpec, budget: Budget, progress: Progress = lambda what: None) -> Compute:
    """The cheapest cover of the grid; Undecided when the budget is spent."""
    shapes = shapes_within(spec.act.bits, spec.wgt.bits)
    solved: dict[tuple[int, int], Solved] = {}
    for shape in shapes:
        progress(f"compute: block of {shape[0]}x{shape[1]} planes")
        solved[shape] = _block(isa, shape, budget)
    cover = cheapest_cover(spec.act.bits, spec.wgt.bits, {s: solved[s].form for s in shapes})
    claims = [c for s in shapes for c in solved[s].claims]
    claims.append(f"cover: no partition into blocks of {_list(shapes)} planes is cheaper")
    return Compute(cover, tuple(claims), sum(b.form.cost for b in cover))


_known: dict[tuple[tuple[GateOp, ...], tuple[int, int]], Solved] = {}


def _block(isa: Isa, shape: tuple[int, int], budget: Budget) -> Solved:
    """A block, solved once a process and set of gates."""
    key = gate_ops(isa), shape
    if key not in _known:
        _known[key] = solve_block(key[0], *shape, budget)
    return _known[key]


def forget() -> None:
    """Drop solved blocks, so that the next synthesis is cold."""
    _known.clear()


def _list(shapes: list[tuple[int, int]]) -> str:
    return ", ".join(f"{p}x{r}" for p, r in shapes)
