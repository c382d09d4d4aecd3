"""The goal of a search for widths: bounds of loss, cycles and bytes, and which of these is minimized within them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeGuard

from bitsynth.errors import SpecError

MinimizedQuantity = Literal["cycles", "bytes", "loss"]
CostName = Literal["cycles", "bytes"]
DEFAULT_LOSS = 0.01
"""The bound of the loss if no bound is given."""
_ROUNDING = 1e-9
"""The tolerance when a loss is compared with its bound: both are floats."""


@dataclass(frozen=True)
class Loss:
    """What a choice of widths loses.

    Args:
        mean: Over the samples.
        error: The standard error of the mean, of accuracy: a search among many choices finds choices that do well on
            these samples by chance. So the bound is for the sum of both.
    """

    mean: float
    error: float

    def fits(self, bound: float) -> bool:
        """Return whether the loss and its standard error are at most a bound, but for rounding."""
        return self.mean + self.error <= bound + _ROUNDING


@dataclass(frozen=True)
class Cost:
    """What a product or a network costs: predicted cycles, and bytes of its constants."""

    cycles: float
    bytes: float


def cost_in(cost: Cost, by: CostName) -> float:
    """Return the cycles or the bytes of a cost."""
    return cost.cycles if by == "cycles" else cost.bytes


@dataclass(frozen=True)
class SearchGoal:
    """Bounds of a quantized network, and what is minimized within them.

    Args:
        minimize: The quantity that is minimized.
        loss: The greatest loss; None for any.
        cycles: The most predicted cycles of the network; None for any.
        bytes: The most bytes of its constants; None for any.
    """

    minimize: MinimizedQuantity
    loss: float | None
    cycles: float | None
    bytes: float | None

    def with_costs(self, cycles: float | None, bytes: float | None) -> SearchGoal:
        """Return the goal with other bounds of cost."""
        return SearchGoal(self.minimize, self.loss, cycles, bytes)

    def fits(self, loss: Loss, cost: Cost) -> bool:
        """Return whether a network keeps the bounds."""
        return (self.loss is None or loss.fits(self.loss)) and not self.find_exceeded(cost)

    def find_exceeded(self, cost: Cost) -> tuple[str, ...]:
        """Return which of cycles and bytes are above their bounds."""
        bounds = {"cycles": (cost.cycles, self.cycles), "bytes": (cost.bytes, self.bytes)}
        return tuple(name for name, (value, most) in bounds.items() if most is not None and value > most)

    def __str__(self) -> str:
        bounds = [f"a loss of at most {self.loss:.4g}"] if self.loss is not None else []
        bounds += [f"at most {most:,.0f} cycles" for most in (self.cycles,) if most is not None]
        bounds += [f"at most {most:,.0f} bytes" for most in (self.bytes,) if most is not None]
        which = {"cycles": "the fewest cycles", "bytes": "the fewest bytes", "loss": "the least loss"}
        return f"{which[self.minimize]} with {' and '.join(bounds) or 'any loss'}"


def goal_of(
    *, loss: float | None = None, cycles: float | None = None, bytes: float | None = None, minimize: str = ""
) -> SearchGoal:
    """Return the goal of bounds, where None stands for no bound; SpecError for bounds that no network keeps.

    What is minimized, if `minimize` is empty: cycles if the loss has a bound, or nothing has; else the loss. A loss of
    one percent is the bound if cycles or bytes are minimized and no loss is given.
    """
    if minimize and not _is_quantity(minimize):
        raise SpecError(f"minimize is cycles, bytes or loss, not {minimize!r}")
    if loss is not None and not 0 < loss < 1:
        raise SpecError(f"the loss allowed is {loss}; it must be between 0 and 1, such as 0.01 for 1 percent")
    for name, most in (("cycles", cycles), ("bytes", bytes)):
        if most is not None and not (most > 0 and math.isfinite(most)):
            raise SpecError(f"the {name} allowed are {most}; they must be a number above 0")
    bounded_cost = cycles is not None or bytes is not None
    what: str = minimize or ("loss" if loss is None and bounded_cost else "cycles")
    assert _is_quantity(what)
    if what == "loss" and not bounded_cost:
        raise SpecError("the most bits lose least; give a bound of cycles or bytes too")
    return SearchGoal(what, DEFAULT_LOSS if loss is None and what != "loss" else loss, cycles, bytes)


def _is_quantity(text: str) -> TypeGuard[MinimizedQuantity]:
    return text in ("cycles", "bytes", "loss")
