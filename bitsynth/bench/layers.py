"""Layers timed round after round, every contender in turn, and each low-bit one beside the fastest peers.

A sample is the fastest call of a round's burst: what others do to the machine is no part of it. What is
compared is compared within a round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.bench.contender import Contender, Kind, Named
from bitsynth.bench.peers.start import start
from bitsynth.bench.statistics import Summary

SUM = "sum"
PEER_KINDS: tuple[Kind, ...] = ("fp32", "int8")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Against:
    """How many times faster than the fastest peer of a kind; in the sum, than the fastest of each layer."""

    peer: str
    times: Summary


@dataclass(frozen=True)
class Row:
    """One contender on one layer, or on the sum of them; `against` has a kind's fastest peer, for bitsynth alone."""

    contender: str
    kind: Kind
    layer: str
    nanoseconds: Summary
    against: Mapping[Kind, Against] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All rows; what the packages of the peers say of themselves, and why others are not here."""

    isa: str
    threads: int
    rows: tuple[Row, ...]
    about: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def layers(self) -> list[str]:
        return list(dict.fromkeys(row.layer for row in self.rows))

    @property
    def contenders(self) -> list[str]:
        return list(dict.fromkeys(row.contender for row in self.rows))

    def row(self, contender: str, layer: str) -> Row:
        """The row of one contender on one layer."""
        return next(r for r in self.rows if (r.contender, r.layer) == (contender, layer))


def beside_peers(
    isa: str,
    threads: int,
    mine: Sequence[Contender],
    packages: Sequence[str],
    layers: Sequence[str],
    rounds: int,
    repeats: int,
    progress: Progress,
) -> Report:
    """Measure `mine` beside what `packages` have for `isa`; SpecError for a package that is no peer."""
    with ExitStack() as stack:
        found = start(stack, packages, isa, threads, layers, lambda said: progress(said, 0, rounds))
        shown = measure([*found.peers, *mine], layers, rounds, repeats, progress)
    return Report(isa, threads, shown, found.about, found.left_out)


def measure(
    contenders: Sequence[Contender], layers: Sequence[str], rounds: int, repeats: int, progress: Progress
) -> tuple[Row, ...]:
    """Time every contender on every layer in each of `rounds` rounds, bursts of `repeats` calls."""
    times = np.empty((len(contenders), len(layers), rounds))
    for n in range(rounds):
        for j, layer in enumerate(layers):
            for i, contender in enumerate(contenders):
                times[i, j, n] = min(contender.time(layer, repeats))
        progress("measuring, rounds", n + 1, rounds)
    return rows(contenders, layers, times)


def rows(contenders: Sequence[Named], layers: Sequence[str], times: NDArray[Any]) -> tuple[Row, ...]:
    """A row a contender and layer, from nanoseconds by contender, layer and round; then the rows of the sum."""
    fastest = {kind: _fastest(contenders, kind, times) for kind in PEER_KINDS}
    shown: list[Row] = []
    for i, contender in enumerate(contenders):
        rivals = {k: f for k, f in fastest.items() if f is not None} if contender.kind == "bitsynth" else {}
        for j, layer in enumerate(layers):
            against = {k: _against(contenders[f[j]].name, times[f[j], j], times[i, j]) for k, f in rivals.items()}
            shown.append(Row(contender.name, contender.kind, layer, Summary.of(times[i, j]), against))
        total = times[i].sum(0)
        sums = {k: times[f, range(len(layers))].sum(0) for k, f in rivals.items()}
        against = {k: _against("the fastest of each layer", s, total) for k, s in sums.items()}
        shown.append(Row(contender.name, contender.kind, SUM, Summary.of(total), against))
    return tuple(shown)


def _fastest(contenders: Sequence[Named], kind: Kind, times: NDArray[Any]) -> NDArray[Any] | None:
    """Of every layer the contender of `kind` with the least median."""
    some = [i for i, c in enumerate(contenders) if c.kind == kind]
    return np.array(some)[np.median(times[some], axis=2).argmin(0)] if some else None


def _against(peer: str, theirs: NDArray[Any], ours: NDArray[Any]) -> Against:
    return Against(peer, Summary.of(theirs / ours))
