"""How much does each step of the schedule gain on layer C6 of ResNet-18 (Figure 4 of CGO 2020), on this processor?

    python benchmarks/schedule_steps.py [--isa avx2] [--rounds 15] [--json] [--results FOLDER]

The first form is the paper's in the instructions of this processor: one pixel a call, sums through memory at every step
of K, patches copied, bits counted. It uses the formula of bitsynth's kernels, because the paper's own kernel has NEON
instructions. Every step keeps the steps before it. All forms are timed alternately; figures are medians of the fastest
call of a burst, packing included. One thread is measured in CPU time, two threads in wall-clock time, which other load
on the machine lengthens: `chrt -f 5` before the command gives it priority.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import report
import schedule_steps_plot

from bitsynth.bench.call_times import sample_calls
from bitsynth.bench.low_bit_layers import prepare_call
from bitsynth.bench.resnet18 import select_layers
from bitsynth.bench.statistics import Summary
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load
from bitsynth.layers.planning import default_of
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningTask

(LAYER,) = select_layers("C6")
REPEATS = 12
THREADS = 2


@dataclass(frozen=True)
class Form:
    """A step's schedule, None for the default one."""

    step: str
    schedule: LayerSchedule | None
    threads: int = 1


@dataclass(frozen=True)
class Row:
    """The speed of a step: microseconds a call, and how many times faster than the first form, round by round."""

    config: str
    step: str
    schedule: str
    microseconds: Summary
    times: Summary


def forms(isa: str) -> Iterator[Form]:
    """From the paper's form to the default, and its threads."""
    yield Form("paper's form", LayerSchedule(isa, "popcount", 64, "im2col", rows=1, flush_steps=1))
    yield Form("+ sums in registers", LayerSchedule(isa, "popcount", 64, "im2col", rows=1))
    yield Form("+ tile of rows", LayerSchedule(isa, "popcount", 64, "im2col"))
    yield Form("+ direct, no patches", LayerSchedule(isa, "popcount", 64, "direct"))
    yield Form("+ cheapest kernel", None)
    yield Form(f"+ {THREADS} threads", None, THREADS)


def measured(isa: str, act_bits: int, w_bits: int, rounds: int) -> list[Row]:
    """All steps of one configuration, in turn in every round."""
    steps = list(forms(isa))
    tasks = [TuningTask(isa, act_bits, w_bits, LAYER.geometry, LAYER.image, form.threads) for form in steps]
    schedules = [form.schedule or default_of(task) for form, task in zip(steps, tasks, strict=True)]
    ready = [
        prepare_call(LAYER, isa, act_bits, w_bits, form.threads, schedule)
        for form, schedule in zip(steps, schedules, strict=True)
    ]
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for form, (*_, call), mine in zip(steps, ready, times, strict=True):
            mine.append(min(sample_calls(call, REPEATS, form.threads)) / 1000)
    gains = [[first / t for first, t in zip(times[0], mine, strict=True)] for mine in times]
    return [
        Row(f"A{act_bits}W{w_bits}", form.step, str(layer.schedule), Summary.of(mine), Summary.of(gain))
        for form, (layer, *_), mine, gain in zip(steps, ready, times, gains, strict=True)
    ]


TITLES = ("step", "us", "quartiles", "times faster", "quartiles")


def cells(row: Row) -> list[str]:
    """One printed row."""
    us, times = row.microseconds, row.times
    figures = [f"{us.median:.0f}", f"{us.low:.0f} to {us.high:.0f}"]
    return [f"{row.config} {row.step}", *figures, f"{times.median:.2f}", f"{times.low:.2f} to {times.high:.2f}"]


def write(folder: Path, facts: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Table and plot."""
    schedules = report.markdown(("step", "schedule"), [(f"{r.config} {r.step}", r.schedule) for r in rows])
    table = report.markdown(TITLES, [cells(row) for row in rows])
    report.write(folder, "schedule_steps", "Steps of the schedule on C6", __doc__ or "", facts, table, schedules)
    schedule_steps_plot.draw(rows, folder / "schedule_steps")


def main() -> int:
    given = report.timing_parser(__doc__, rounds=15).parse_args()
    require_native(load(given.isa).table)
    configs = [given.only] if given.only else report.LAYER_WIDTHS
    basis = report.layers_basis(given.isa, configs)
    rows = [row for a, w in configs for row in measured(given.isa, a, w, given.rounds)]
    facts = report.facts(basis, [given.isa], rows=[asdict(row) for row in rows])
    if given.results:
        write(given.results, facts, rows)
    report.tell(facts, (TITLES, [cells(row) for row in rows]), as_json=given.json)
    return 0


if __name__ == "__main__":
    report.run(main)
