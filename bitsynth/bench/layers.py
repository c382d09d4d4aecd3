"""Layers timed round after round, every subject in turn, and each low-bit one against the fastest baselines.

A sample is the fastest of a round's calls, so other load on the machine is no part of it. Comparisons are made
within a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.bench.baselines.start import start
from bitsynth.bench.call_times import Kind, Subject, TimedSubject
from bitsynth.bench.statistics import Summary
from bitsynth.progress import Progress

SUM = "sum"
BASELINE_KINDS: tuple[Kind, ...] = ("fp32", "int8")


@dataclass(frozen=True)
class Speedup:
    """The speed relative to the fastest baseline of a kind, `baseline`; in the sum, to the fastest of each layer."""

    baseline: str
    times: Summary


@dataclass(frozen=True)
class LayerRow:
    """One subject on one layer or their sum; `against` has the fastest baselines, for bitsynth alone."""

    subject: str
    kind: Kind
    layer: str
    nanoseconds: Summary
    against: Mapping[Kind, Speedup] = field(default_factory=dict)


@dataclass(frozen=True)
class LayersReport:
    """All rows of layers in `form`; the packages' versions as they tell them, and why others are not here."""

    isa: str
    threads: int
    rows: tuple[LayerRow, ...]
    about: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    form: str = "codes to int32"

    @property
    def layers(self) -> list[str]:
        """The names of the layers, in order."""
        return list(dict.fromkeys(row.layer for row in self.rows))

    @property
    def subjects(self) -> list[str]:
        """The names of the subjects, in order."""
        return list(dict.fromkeys(row.subject for row in self.rows))

    def row(self, subject: str, layer: str) -> LayerRow:
        """Return the row of one subject on one layer."""
        return next(r for r in self.rows if (r.subject, r.layer) == (subject, layer))


def against_baselines(
    isa: str,
    threads: int,
    mine: Sequence[TimedSubject],
    packages: Sequence[str],
    layers: Sequence[str],
    rounds: int,
    repeats: int,
    progress: Progress,
) -> LayersReport:
    """Measure `mine` against what `packages` have for `isa`; SpecError for a package that is not a baseline."""
    with ExitStack() as stack:
        baselines = start(stack, packages, isa, threads, layers, lambda text: progress(text, 0, rounds))
        shown = measure([*baselines.baselines, *mine], layers, rounds, repeats, progress)
    return LayersReport(isa, threads, shown, baselines.about, baselines.left_out)


def measure(
    subjects: Sequence[TimedSubject], layers: Sequence[str], rounds: int, repeats: int, progress: Progress
) -> tuple[LayerRow, ...]:
    """Time each subject and layer in every one of `rounds` rounds, `repeats` calls each; return rows and their sums."""
    times = np.empty((len(subjects), len(layers), rounds))
    for n in range(rounds):
        for j, layer in enumerate(layers):
            for i, subject in enumerate(subjects):
                times[i, j, n] = min(subject.time(layer, repeats))
        progress("measuring, rounds", n + 1, rounds)
    return rows(subjects, layers, times)


def rows(subjects: Sequence[Subject], layers: Sequence[str], times: NDArray[Any]) -> tuple[LayerRow, ...]:
    """Return a row for each subject and layer, of nanoseconds by subject, layer and round; then rows of the sum."""
    fastest = {kind: _fastest(subjects, kind, times) for kind in BASELINE_KINDS}
    shown: list[LayerRow] = []
    for i, subject in enumerate(subjects):
        baselines = {k: f for k, f in fastest.items() if f is not None} if subject.kind == "bitsynth" else {}
        for j, layer in enumerate(layers):
            against = {k: _speedup(subjects[f[j]].name, times[f[j], j], times[i, j]) for k, f in baselines.items()}
            shown.append(LayerRow(subject.name, subject.kind, layer, Summary.of(times[i, j]), against))
        total = times[i].sum(0)
        sums = {k: times[f, range(len(layers))].sum(0) for k, f in baselines.items()}
        against = {k: _speedup("the fastest of each layer", s, total) for k, s in sums.items()}
        shown.append(LayerRow(subject.name, subject.kind, SUM, Summary.of(total), against))
    return tuple(shown)


def _fastest(subjects: Sequence[Subject], kind: Kind, times: NDArray[Any]) -> NDArray[Any] | None:
    """Return the times of the subject of `kind` with the least median, layer by layer; None if there is none."""
    some = [i for i, c in enumerate(subjects) if c.kind == kind]
    return np.array(some)[np.median(times[some], axis=2).argmin(0)] if some else None


def _speedup(name: str, baseline: NDArray[Any], ours: NDArray[Any]) -> Speedup:
    return Speedup(name, Summary.of(baseline / ours))
