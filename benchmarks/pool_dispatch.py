"""How long does it take to give tasks to the thread pool of emitted layers, with threads awake and asleep?

python benchmarks/pool_dispatch.py [threads ...]

`empty` is a dispatch of tasks that do nothing, one a thread. In `hot` and `idle` each task waits
until all have begun, so the time is how long it takes to reach every thread and to get its answer; `idle` lets the
threads fall asleep before. Threads beyond the free cores wait for each other.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import report

from bitsynth import paths, toolchain
from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.isa import load
from bitsynth.isa.load import Isa
from bitsynth.processes import tool

ROUNDS = 20_000
DRIVER = Path(__file__).with_suffix(".c")
SHARES = {"least": 0, "10 %": 10, "median": 50, "90 %": 90}


def own_set() -> Isa:
    """An instruction set of this processor; ToolError if none is known."""
    isa = next((i for i in map(load.load, load.names()) if features.matches(i.table)), None)
    if isa is None:
        raise ToolError("no instruction set of this processor is known")
    return isa


def program() -> Path:
    """The compiled driver."""
    files = {p.name: p.read_text(encoding="utf-8") for p in (*paths.runtime().glob("bs_pool.[ch]"), DRIVER)}
    return toolchain.compile_for(own_set(), files, flags=["-pthread"], shared=False)


def rows(threads: int, rounds: int) -> list[list[str]]:
    """One row for each kind of dispatch."""
    lines = tool.run([str(program()), str(threads), str(rounds)], Path.cwd(), {}).splitlines()
    return [row(threads, *line.split()) for line in lines]


def row(threads: int, kind: str, *times: str) -> list[str]:
    """Nanoseconds as microseconds, at each share of the rounds."""
    return [f"{threads} {kind}", *(f"{t / 1000:.2f}" for t in np.percentile(np.array(times, int), [*SHARES.values()]))]


def main() -> int:
    parser = argparse.ArgumentParser(description="the cost of a dispatch of the thread pool, in microseconds")
    parser.add_argument("threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    table = [line for threads in given.threads for line in rows(threads, given.rounds)]
    print(report.heading(report.setting(own_set().name)), end="\n\n")
    print(report.columns(["threads, us a dispatch", *SHARES], table))
    return 0


if __name__ == "__main__":
    report.run(main)
