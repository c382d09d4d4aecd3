"""Chooses bits of edges and codes of products' weights by an integer program, which HiGHS solves exactly.

It has a 0-1 variable for each choice of an edge or product, and one for each pair of choices of a product. Pairs have
the costs, choices the losses; the pairs of a choice add up to it.

Given:  two layers that cost 9 and 8 at 8 bits, 4 and 4 at 4 bits, and lose 2 and 1 at 4 bits; a loss of at most 2
Result: the first layer at 4 bits, the second at 8: both at 4 bits would lose 3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as pairs_of
from typing import Any, TypeAlias

from bitsynth.errors import ToolError, Undecided
from bitsynth.quantization.float_model import INSTALL, WeightedProduct
from bitsynth.quantization.goal import Cost, SearchGoal
from bitsynth.quantization.grids import WeightCodes

_TIE = 1e-4
"""The weight of the cost that is not minimized; it breaks ties."""
_INFEASIBLE = 2
"""The status of scipy's `milp` for a program that no choice meets."""


Choice: TypeAlias = int | WeightCodes
"""The bits of an edge, or the codes of a product's weights."""


@dataclass(frozen=True)
class WidthTable:
    """What every choice costs and loses by estimate.

    Args:
        choices: The bits to choose from, by edge, and the codes of weights, by product.
        products: The products.
        costs: The cost of a product at some bits of its activations and codes of its weights.
        losses: The loss of an edge or product at a choice.
        fixed_bits: The bits of activations of products whose edge has no choice.
    """

    choices: Mapping[str, Sequence[Choice]]
    products: Sequence[WeightedProduct]
    costs: Mapping[tuple[str, Choice, Choice], Cost]
    losses: Mapping[tuple[str, Choice], float]
    fixed_bits: int


def cheapest_choices(table: WidthTable, goal: SearchGoal) -> dict[str, Choice] | None:
    """Return the choices with which the sums of the table's costs and losses meet a goal; None if none do."""
    optimize, sparse = require_scipy()
    choices = [(name, bits) for name, widths in table.choices.items() for bits in widths]
    column = {choice: k for k, choice in enumerate(choices)}
    costs = [Cost(0.0, 0.0)] * len(choices)
    rows: list[tuple[dict[int, float], float, float]] = []
    for name, widths in table.choices.items():
        rows.append(({column[name, bits]: 1.0 for bits in widths}, 1.0, 1.0))
    for product in table.products:
        acts = table.choices.get(product.edge, (table.fixed_bits,))
        weights = table.choices[product.name]
        pairs = {pair: len(costs) + k for k, pair in enumerate(pairs_of(acts, weights))}
        costs += [table.costs[product.name, act, wgt] for act, wgt in pairs]
        for wgt in weights:
            rows.append(({**{pairs[act, wgt]: 1.0 for act in acts}, column[product.name, wgt]: -1.0}, 0.0, 0.0))
        for act in acts if product.edge in table.choices else ():
            rows.append(({**{pairs[act, wgt]: 1.0 for wgt in weights}, column[product.edge, act]: -1.0}, 0.0, 0.0))
    losses = {column[choice]: table.losses[choice] for choice in choices}
    bounded = (
        (losses, goal.loss),
        ({k: cost.cycles for k, cost in enumerate(costs)}, goal.cycles),
        ({k: cost.bytes for k, cost in enumerate(costs)}, goal.bytes),
    )
    rows += [({k: v / most for k, v in row.items() if v}, 0.0, 1.0) for row, most in bounded if most is not None]
    entries = [(k, c, value) for k, (row, _, _) in enumerate(rows) for c, value in row.items()]
    places = [e[0] for e in entries], [e[1] for e in entries]
    matrix = sparse.csr_array(([e[2] for e in entries], places), shape=(len(rows), len(costs)))
    solved = optimize.milp(
        [_price(cost, losses.get(k, 0.0), goal) for k, cost in enumerate(costs)],
        constraints=optimize.LinearConstraint(matrix, [row[1] for row in rows], [row[2] for row in rows]),
        integrality=[1] * len(choices) + [0] * (len(costs) - len(choices)),
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 1e-6},  # else HiGHS stops within 0.01 percent of the best
    )
    if solved.status == _INFEASIBLE:
        return None
    if not solved.success:
        raise Undecided(f"the integer program of widths ended without an answer: {solved.message}")
    return {name: max(widths, key=lambda b: solved.x[column[name, b]]) for name, widths in table.choices.items()}


def _price(cost: Cost, loss: float, goal: SearchGoal) -> float:
    """Return a column's part of what is minimized."""
    if goal.minimize == "loss":
        return loss * 1e6  # HiGHS ignores differences below 1e-6
    return price(cost, goal)


def price(cost: Cost, goal: SearchGoal) -> float:
    """Return the cost that is minimized; between two that are equal in it, the other cost decides."""
    return cost.bytes + cost.cycles * _TIE if goal.minimize == "bytes" else cost.cycles + cost.bytes * _TIE


def require_scipy() -> tuple[Any, Any]:
    """Import and return the modules of scipy for programs and matrices; ToolError if it is not installed."""
    try:
        from scipy import optimize, sparse
    except ImportError as error:
        raise ToolError(f"widths are chosen with the package scipy: {error}; install it with {INSTALL}") from None
    return optimize, sparse
