"""The one place that calls Z3: a budget in resource units, and no `unknown` that passes.

Each query is solved in a context of its own, from its text: an answer depends on the
query alone, not on what the process asked before, so the same input gives the same kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from bitsynth.errors import Undecided
from bitsynth.progress import Progress, silent
from bitsynth.solver.z3 import z3

DEFAULT_RLIMIT = 400_000_000


@dataclass(frozen=True)
class Model:
    """Values of the unknowns by name; unknowns that do not matter are 0."""

    values: dict[str, int]

    def true(self, x: Any) -> bool:
        """Return the value of a boolean unknown or constant."""
        return z3.is_true(x) or self.read_unsigned(x) == 1

    def read_unsigned(self, x: Any) -> int:
        """Return the value of a bit-vector unknown."""
        return self.values.get(str(x), 0)

    def read_signed(self, x: Any, width: int) -> int:
        """Return the value of a bit-vector unknown in two's complement."""
        value = self.read_unsigned(x)
        return value - (1 << width) if value >> (width - 1) else value


@dataclass
class Budget:
    """Z3 resource units (deterministic, unlike seconds) left to a synthesis; `progress` hears each query's name."""

    left: int = DEFAULT_RLIMIT
    progress: Progress = silent
    asked: int = field(default=0, init=False)

    def check(self, what: str, claims: Iterable[Any]) -> Model | None:
        """Return a model of the Z3 terms `claims`, None if there is none; Undecided if the budget is spent."""
        solver = z3.Solver()
        solver.add(*claims)
        return self.ask(what, solver.to_smt2())

    def ask(self, what: str, text: str) -> Model | None:
        """Return a model of the SMT-LIB `text`, None if there is none; Undecided if the budget is spent."""
        if self.left <= 0:
            raise Undecided(f"{what}: the solver's budget is spent; raise it with --rlimit")
        self.progress(what)
        solver = z3.SolverFor("QF_FD", ctx=z3.Context())
        solver.from_string(text)
        solver.set("rlimit", self.left)
        answer = _check(solver)
        self.asked += 1
        self.left -= max(1, _get_spent(solver))
        if answer == z3.unknown:
            raise Undecided(f"{what}: the solver gave up ({solver.reason_unknown()}); raise its budget with --rlimit")
        return _model(solver.model()) if answer == z3.sat else None


def _check(solver: z3.Solver) -> z3.CheckSatResult:
    """Return the solver's answer. It works in another thread, so that an interrupt can stop it at once.

    Z3's own handling of an interrupt loses interrupts that come just before an answer.
    """
    solver.set("ctrl_c", False)
    answer = Future[z3.CheckSatResult]()
    worker = Thread(target=_answer, args=(solver, answer))
    try:
        worker.start()
        return answer.result()
    except BaseException:
        answer.cancel()
        while answer.running():
            solver.interrupt()
            wait([answer], timeout=0.05)
        raise


def _answer(solver: z3.Solver, answer: Future[z3.CheckSatResult]) -> None:
    if answer.set_running_or_notify_cancel():
        try:
            answer.set_result(solver.check())
        except Exception as error:
            answer.set_exception(error)


def _model(model: z3.ModelRef) -> Model:
    values: dict[str, int] = {}
    for unknown in model.decls():
        value = model[unknown]
        values[unknown.name()] = int(z3.is_true(value)) if z3.is_bool(value) else value.as_long()
    return Model(values)


def _get_spent(solver: z3.Solver) -> int:
    statistics = solver.statistics()  # It has keys, but is no mapping.
    return int(statistics.get_key_value("rlimit count")) if "rlimit count" in statistics.keys() else 0  # noqa: SIM118
