"""The schedules that are tried: every cached kernel for layers of an instruction set, and every way to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bitsynth.choice import Choice
from bitsynth.layers.default import Plan, plans
from bitsynth.layers.tuned import Problem
from bitsynth.schedule.layer import GATHERS, LayerSchedule

Params = dict[str, Any]
BLOCKS = (0, 32, 64, 128, 256, 512, 1024)
"""Pixels of a block."""
BANDS = (0, 1, 2, 4, 7, 14, 28)
"""Output rows of a band."""
_PRIORS = 8


class Trial(Protocol):
    """As optuna's."""

    def suggest_categorical(self, name: str, choices: Any) -> Any: ...
    def suggest_int(self, name: str, low: int, high: int) -> int: ...


@dataclass(frozen=True)
class Space:
    """What may be chosen for a problem: kernels by their variant, with the most rows of each."""

    isa: str
    kernels: Mapping[str, Choice]
    rows: Mapping[str, int]
    gathers: tuple[str, ...]
    blocks: tuple[int, ...]
    bands: tuple[int, ...]
    priors: tuple[LayerSchedule, ...]
    """What to try first: the default, then the best plans of other kernels and gathers, by the cost model."""
    seal: str
    """The kernels' digests and the default: times of others are not comparable."""

    def suggest(self, trial: Trial) -> LayerSchedule:
        """The schedule of a trial. Rows are asked for by kernel, bands where a gather has them."""
        kernel = _choose(trial, "kernel", tuple(self.kernels))
        most, gather = self.rows[kernel], _choose(trial, "gather", self.gathers)
        rows = trial.suggest_int(f"rows of {kernel}", 1, most) if most > 1 else 1
        bands = _choose(trial, "band_rows", self.bands) if gather != "indirect" else 0
        return LayerSchedule(
            self.isa,
            self.kernels[kernel].method or "",
            self.kernels[kernel].channels,
            gather,
            rows if rows < most else 0,
            _choose(trial, "columns_first", (False, True)),
            _choose(trial, "block_rows", self.blocks),
            bands,
        )

    def params(self, schedule: LayerSchedule) -> Params:
        """What makes `suggest` give `schedule`."""
        kernel = Choice(schedule.method, channels=schedule.channels).variant
        return {
            "kernel": kernel,
            "gather": schedule.gather,
            f"rows of {kernel}": schedule.rows or self.rows[kernel],
            "columns_first": schedule.columns_first,
            "block_rows": schedule.block_rows,
            "band_rows": schedule.band_rows,
        }


def space(problem: Problem) -> Space:
    """All that can be chosen; NoKernel where no kernel for layers is cached."""
    spec = problem.spec()
    ranked = plans(spec.act, spec.wgt, problem.geometry, problem.image, problem.isa)
    kernels = {Choice(p.found.method, channels=p.found.channels).variant: p.found for p in ranked}
    height, width = problem.geometry.output(*problem.image)
    priors = _priors(ranked)
    return Space(
        problem.isa,
        {name: Choice(found.method, channels=found.channels) for name, found in sorted(kernels.items())},
        {name: found.entry.kernel.rows for name, found in kernels.items()},
        GATHERS,
        tuple(n for n in BLOCKS if n < height * width),
        tuple(sorted({n for n in BANDS if n < height} | {p.band_rows for p in priors})),
        priors,
        " ".join([*sorted(f.entry.digest[:12] for f in kernels.values()), str(priors[0])]),
    )


def _priors(ranked: list[Plan]) -> tuple[LayerSchedule, ...]:
    """The first of each kernel and gather, then what comes next by the model."""
    first = {(p.found.method, p.found.channels, p.gather): p for p in reversed(ranked)}
    heads = sorted(first.values(), key=lambda p: p.cycles)
    return tuple(dict.fromkeys(p.schedule for p in (*heads, *ranked)))[:_PRIORS]


def _choose(trial: Trial, name: str, choices: tuple[Any, ...]) -> Any:
    return trial.suggest_categorical(name, choices)
