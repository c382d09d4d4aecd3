"""Why no fusion group begins with a node, or not another one, so that `inspect` and `compile` can say it.

Several matchers look at a node. The reason that is kept was given by the matcher that came nearest: its failed check
belongs to the latest `Stage`. Of several such matchers it is the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

Reason = str | Callable[[], str]
"""A few words on what is missing, or a function that finds them, which is called for nodes that stay plain C alone."""


class Stage(IntEnum):
    """The check at which a matcher declines a node: the later, the nearer it came to a group."""

    OPERANDS = 1
    """The operator is one that it fuses, but it cannot read or write these edges."""
    CHAIN = 2
    """The operands fit, but the nodes that follow are no chain to codes."""
    FORMULA = 3
    """The nodes fit, but no kernel, glue or formula was found for them."""


@dataclass(frozen=True)
class Alternative:
    """A fusion pattern that lost by its predicted cost.

    Args:
        pattern: The kind of its group, in words.
        times: Its cycles, with the cycles of the nodes that it leaves over, over the chosen group's cycles.
        at_least: Whether `times` is a lower bound: its groups were not searched.
    """

    pattern: str
    times: float
    at_least: bool

    def __str__(self) -> str:
        return f"{self.pattern} costs {'at least ' * self.at_least}{self.times:.1f} times that"


@dataclass(frozen=True)
class Declines:
    """The nearest decline of each node, and the patterns that lost by their cost.

    Attributes:
        nearest: Stage and reason by the node's name.
        lost: The patterns that lost at a node, by its name; the group that was chosen begins with it.
    """

    nearest: dict[str, tuple[Stage, Reason]] = field(default_factory=dict)
    lost: dict[str, tuple[Alternative, ...]] = field(default_factory=dict)

    def add(self, node: str, stage: Stage, reason: Reason) -> None:
        """Record that a matcher declined a node, unless another one came as near."""
        if node not in self.nearest or self.nearest[node][0] < stage:
            self.nearest[node] = stage, reason

    def reason(self, nodes: Iterable[str]) -> str:
        """Return the reason of the node that came nearest to a group, of equals the first; "" if none was declined."""
        declines = [self.nearest[name] for name in nodes if name in self.nearest]
        if not declines:
            return ""
        _, reason = max(declines, key=lambda decline: decline[0])
        return reason if isinstance(reason, str) else reason()
