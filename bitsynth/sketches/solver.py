"""One place to call Z3: a budget in resource units, and no `unknown` that passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import z3

from bitsynth.errors import Undecided

DEFAULT_RLIMIT = 400_000_000


@dataclass
class Budget:
    """Z3 resource units (deterministic, unlike seconds) left to a synthesis."""

    left: int = DEFAULT_RLIMIT
    asked: int = field(default=0, init=False)

    def check(self, what: str, claims: Iterable[Any]) -> z3.ModelRef | None:
        """A model of `claims`, None where there is none; Undecided when the budget is spent."""
        if self.left <= 0:
            raise Undecided(f"{what}: the solver's budget is spent; raise it with --rlimit")
        solver = z3.SolverFor("QF_FD")
        before = _spent(solver)
        solver.set("rlimit", self.left)
        solver.add(*claims)
        answer = solver.check()
        self.asked += 1
        self.left -= max(1, _spent(solver) - before)
        if answer == z3.unknown:
            reason = solver.reason_unknown()
            if "interrupt" in reason:
                raise KeyboardInterrupt
            raise Undecided(f"{what}: the solver gave up ({reason}); raise its budget with --rlimit")
        return solver.model() if answer == z3.sat else None


def _spent(solver: z3.Solver) -> int:
    statistics = solver.statistics()
    return int(statistics.get_key_value("rlimit count")) if "rlimit count" in statistics.keys() else 0  # noqa: SIM118
