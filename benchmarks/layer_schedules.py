"""The layers of ResNet-18: tuned where a tuned schedule is stored; by default; on two threads; and packing alone.

    python benchmarks/layer_schedules.py [--isa avx512] [--rounds 21] [--rest SECONDS] [--only A2W1] [--json]
                                         [--results FOLDER]

All are timed alternately, layer by layer and round by round. A sample is the fastest of a few calls that run the layer,
from C, as often as one thread does in a millisecond; ratios are of one round's samples, then their medians. Times are
wall-clock times, which other load on the machine lengthens, most of all for two threads. Some virtual machines become
slower after seconds of work on all cores: use few rounds there, and a rest before each configuration. Where other
processes use the cores, both threads may share one core: `chrt -f 5` before the command keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter_ns, sleep

import numpy as np
import report
from numpy.typing import NDArray

from bitsynth.bench.call_times import time_calls
from bitsynth.bench.layers import SUM
from bitsynth.bench.low_bit_layers import prepare_call
from bitsynth.bench.resnet18 import LAYERS, ResNetLayer
from bitsynth.bench.statistics import Summary
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load
from bitsynth.layers.planning import default_schedule

FORMS = ("default", "tuned", "two threads", "packing")
CALLS = 3
SAMPLE_NS = 1e6
WARM_NS = 2e7
"""Nanoseconds of untimed calls, until sleeping threads are awake and run on different cores."""
MAX_DEFAULT_TO_TUNED, MIN_GAIN_OF_THREADS, MAX_PACKING_SHARE = 1.25, 1.8, 0.1
"""Goals for all layers together, as ratios of times: default to tuned, one thread to two, packing to the whole."""


@dataclass(frozen=True)
class Row:
    """A layer, or the sum of all: microseconds of each form, and ratios of their times."""

    config: str
    layer: str
    schedule: str
    microseconds: Mapping[str, Summary]
    default_to_tuned: Summary
    gain_of_threads: Summary
    packing: Summary


@dataclass(frozen=True)
class Figure:
    """A ratio as measured, and its goal."""

    config: str
    what: str
    measured: float
    wanted: str
    met: bool


def calls_of(layer: ResNetLayer, isa: str, act_bits: int, w_bits: int) -> tuple[str, int, list[Callable[[], int]]]:
    """Return the schedule, a number of runs, and for each form a call that runs the layer that often.

    Raises:
        Refuted: A form computes a wrong result.
    """
    tuned, codes, _ = prepare_call(layer, isa, act_bits, w_bits)
    plain = default_schedule(tuned.plan.spec, isa)
    default = prepare_call(layer, isa, act_bits, w_bits, 1, plain)[0]
    two_threads = prepare_call(layer, isa, act_bits, w_bits, 2)[0]
    times = max(1, round(SAMPLE_NS / spent(tuned.bind(codes)[0], 1)))
    runs = [x.bind(codes, times=times)[0] for x in (default, tuned, two_threads)]
    return f"{tuned.schedule} ({tuned.origin})", times, [*runs, tuned.bind(codes, part="pack", times=times)[0]]


def spent(call: Callable[[], int], times: int) -> float:
    """Return the nanoseconds of a run of a layer in calls of `times` runs: the fastest of a few calls, after untimed
    ones."""
    warm = perf_counter_ns() + WARM_NS
    while perf_counter_ns() < warm:
        call()
    return min(time_calls(call, CALLS, perf_counter_ns)) / times


def measure(isa: str, act_bits: int, w_bits: int, rounds: int, rest: float) -> list[Row]:
    """Measure every layer of one configuration, and return their rows and the row of their sum."""
    prepared = [calls_of(layer, isa, act_bits, w_bits) for layer in LAYERS]
    sleep(rest)
    samples = np.array(
        [[[spent(call, times) for call in calls] for _, times, calls in prepared] for _ in range(rounds)]
    ).transpose(1, 2, 0)
    config = f"A{act_bits}W{w_bits}"
    rows = [row(config, layer.name, prepared[n][0], samples[n]) for n, layer in enumerate(LAYERS)]
    return [*rows, row(config, SUM, "", samples.sum(0))]


def row(config: str, layer: str, schedule: str, samples: NDArray[np.float64]) -> Row:
    """Return the row of `samples`, nanoseconds by form and round."""
    default, tuned, two, packing = samples
    us = {form: Summary.of(mine / 1000) for form, mine in zip(FORMS, samples, strict=True)}
    ratios = (Summary.of(ratio) for ratio in (default / tuned, tuned / two, packing / tuned))
    return Row(config, layer, schedule, us, *ratios)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Return the figures of all layers together, and of the layer that gains least from threads."""
    found = []
    for total in (r for r in rows if r.layer == SUM):
        mine = [r for r in rows if r.config == total.config and r.layer != SUM]
        least = min(mine, key=lambda r: r.gain_of_threads.median)
        default, gain, packing = (s.median for s in (total.default_to_tuned, total.gain_of_threads, total.packing))
        slowest = least.gain_of_threads.median
        found += [
            Figure(
                total.config,
                "default to tuned",
                default,
                f"at most {MAX_DEFAULT_TO_TUNED}",
                default <= MAX_DEFAULT_TO_TUNED,
            ),
            Figure(
                total.config,
                "gain of two threads",
                gain,
                f"at least {MIN_GAIN_OF_THREADS}",
                gain >= MIN_GAIN_OF_THREADS,
            ),
            Figure(total.config, f"the same, least layer, {least.layer}", slowest, "at least 1", slowest >= 1),
            Figure(total.config, "packing", packing, f"at most {MAX_PACKING_SHARE}", packing <= MAX_PACKING_SHARE),
        ]
    return found


TITLES = ("layer", *(f"{form}, us" for form in FORMS), "default to tuned", "gain of threads", "packing", "schedule")
FIGURE_TITLES = ("of the sum", "measured", "wanted", "reached")


def cells(r: Row) -> list[str]:
    """Return the cells of a printed row."""
    us = [f"{r.microseconds[form].median:.1f}" for form in FORMS]
    ratios = [f"{r.default_to_tuned.median:.2f}", f"{r.gain_of_threads.median:.2f}", f"{r.packing.median:.1%}"]
    return [f"{r.config} {r.layer}", *us, *ratios, r.schedule]


def figure_cells(f: Figure) -> list[str]:
    """Return the cells of a printed figure."""
    return [f"{f.config} {f.what}", f"{f.measured:.3f}", f.wanted, report.yes(f.met)]


def main() -> int:
    parser = report.timing_parser(__doc__, rounds=21)
    parser.add_argument("--rest", type=float, default=0, help="seconds to sleep before measuring a configuration")
    given = parser.parse_args()
    require_native(load(given.isa).table)
    configs = [given.only] if given.only else report.LAYER_WIDTHS
    basis = report.layers_basis(given.isa, configs)
    rows = [r for a, w in configs for r in measure(given.isa, a, w, given.rounds, given.rest)]
    found = figures(rows)
    plain = {"rows": [asdict(r) for r in rows], "figures": [asdict(f) for f in found]}
    facts = report.facts(basis, [given.isa], **plain)
    tables = (TITLES, [cells(r) for r in rows]), (FIGURE_TITLES, [figure_cells(f) for f in found])
    if given.results:
        text = [report.markdown(*table) for table in reversed(tables)]
        stem = f"layer_schedules_{given.isa}"
        report.write(given.results, stem, f"Schedules of layers, {given.isa}", __doc__ or "", facts, *text)
    report.tell(facts, *tables, as_json=given.json)
    return 0


if __name__ == "__main__":
    report.run(main)
