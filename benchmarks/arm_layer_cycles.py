"""Predicted cycles of ResNet-18's layers on Arm, packed codes to packed codes, and of fp32 and int8 loops.

    python benchmarks/arm_layer_cycles.py [--cpu a53] [--only A2W1] [--layers C2,C12] [--results FOLDER] [--json]

A whole call under qemu-user, of the schedule that bitsynth chooses for the processor, by the compiler that it takes:
packing, sums, thresholds, and writing the packed codes that the next layer reads. Results are checked in the same run.
The scoreboard of the processor takes all executed instructions, in order. It assumes that caches hit. Where loads
block, `with misses` adds the cycles of each line that a modelled L1 lacks, from the processor's table.

fp32 and int8 are the hand-written loops, the better compiler's cycles for 128 multiply-accumulates (`arm_cycles.py`),
for as many as the layer has: im2col, packing, epilogue, tiles that do not divide the layer and misses are left out,
in their favour. The paper's cycles are its times on a Raspberry Pi 3 at 1.2 GHz, of all cores that it used. A
scoreboard is a model: no figure of ours is a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import arm_layer_cycles_plot
import numpy as np
import report
from arm_cycles import SETS, WIDTHS, of_loops
from arm_traces import COMPILERS, disassembled
from cache_counts import LINE_BYTES, MODEL, Counter, watched
from forced import forced
from numpy.typing import NDArray
from prefetches import prefetched

from bitsynth.bench.layer_forms import PACKED
from bitsynth.bench.layers import SUM
from bitsynth.bench.low_bit_layers import codes_of, exact_sums, layer_of
from bitsynth.bench.resnet18 import LAYERS, ResNetLayer, select_layers
from bitsynth.bench.setting import Basis, digests
from bitsynth.errors import Refuted
from bitsynth.host.placement import sets_of
from bitsynth.isa import scoreboard
from bitsynth.isa.load import load
from bitsynth.layers.layer import Layer
from bitsynth.layers.library import compile_library
from bitsynth.schedule import disassembly

PAPER_CPU, HERTZ = "a53", 1.2e9
PAPER_THREADS = {"A1W1": 4, "A2W1": 1, "A2W2": 4}
PAPER_MS = {
    "A1W1": (2.98, 0.38, 1.26, 0.57, 2.19, 1.04, 0.36, 2.52, 2.40, 0.58, 9.13),
    "A2W1": (16.3, 2.17, 8.27, 1.23, 15.1, 7.67, 1.07, 14.9, 7.55, 0.96, 14.7),
    "A2W2": (6.27, 1.15, 3.48, 0.88, 5.30, 2.94, 1.41, 5.14, 6.07, 0.51, 13.3),
}
"""Times of C2 to C12 in the tuning logs of CGO 2020's artifact, on a Raspberry Pi 3."""


@dataclass(frozen=True)
class Row:
    """Cycles of a layer, of its packing alone, of the misses that block, and of others; `paper` is None if unknown."""

    cpu: str
    config: str
    layer: str
    schedule: str
    macs: int
    instructions: int
    cycles: int
    packing: int
    missing: float
    fp32: float
    int8: float
    paper: float | None

    @property
    def per_128_mac(self) -> float:
        """Cycles for 128 multiply-accumulates."""
        return self.cycles * 128 / self.macs

    def times(self, of: str) -> float:
        """Cycles of another for one of ours."""
        return float(getattr(self, of) / self.cycles)

    @property
    def to_paper(self) -> float | None:
        """The paper's cycles for one of ours, misses in."""
        return None if self.paper is None else self.paper / (self.cycles + self.missing)


@cache
def loops(cpu: str) -> dict[str, float]:
    """Cycles for 128 multiply-accumulates of the best fp32 and int8 loops, by the better compiler."""
    rows = list(of_loops(cpu, list(COMPILERS)))
    return {kind: min(row.scoreboard for row in rows if row.widths == kind) for kind in ("fp32", "int8")}


@cache
def operands(layer: ResNetLayer, widths: tuple[int, int]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Codes, and the layer's exact sums of them."""
    codes = codes_of(layer, widths[0])
    return codes, exact_sums(layer, layer_of(layer, "neon", *widths), codes)


def counted(counter: Counter, call: Callable[[], object], library: Path, cpu: str) -> tuple[int, int, int]:
    """The instructions of a call, its cycles, and the lines that it misses."""
    counter.clear()
    call()
    isa, trace, listed = load(SETS[cpu]), counter.trace, lines(library)
    texts = [[listed[at + 4 * k] for k in range(count)] for at, count in trace.blocks]
    blocks = [list(disassembly.read_issued(isa, cpu, text)) for text in texts]
    cycles = scoreboard.count_cycles_of_blocks(isa.rules(cpu), (blocks[number] for number in trace.runs))
    return counter.counts.instructions, cycles, counter.counts.l1_misses


lines = cache(disassembled)
"""The instructions of a library by their addresses, read once."""


def measured(cpu: str, layer: ResNetLayer, widths: tuple[int, int]) -> Row:
    """A layer on a processor; Refuted if a result is wrong."""
    codes, sums = operands(layer, widths)
    epilogue = PACKED.make_epilogue(sums, widths[0])
    options: dict[str, Any] = {"layout": PACKED.layout, "out_layout": PACKED.out_layout, "epilogue": epilogue}
    planned = layer_of(layer, SETS[cpu], *widths, cpu=cpu, **options)
    library, given = compile_library(planned.kernel, planned.packed.programs), PACKED.codes(codes, widths[0])
    fetched = prefetched(lines(library))
    with watched(planned.kernel, planned.packed.programs, traced=True, fetched=fetched) as (runner, counter):
        ours = Layer(planned.packed, runner, planned.pool)
        (call, out), (packing, _) = ours.bind(given), ours.bind(given, part="pack")
        count, cycles, missed = counted(counter, call, library, cpu)
        packed = counted(counter, packing, library, cpu)[1]
    if not np.array_equal(out, PACKED.results(epilogue, sums, widths[0])):
        raise Refuted(f"{layer.name} on {cpu}: {planned!r} gives a wrong result")
    table, config = load(SETS[cpu]).table.cpu[cpu], "A{}W{}".format(*widths)
    missing = missed * LINE_BYTES / table.far_bytes_per_cycle if table.loads_block else 0.0
    fp32, int8 = (loops(cpu)[kind] * layer.macs / 128 for kind in ("fp32", "int8"))
    found = (
        cpu,
        config,
        layer.name,
        str(planned.schedule),
        layer.macs,
        count,
        cycles,
        packed,
        round(missing),
        fp32,
        int8,
    )
    return Row(*found, paper(cpu, config, layer.name))


def paper(cpu: str, config: str, layer: str) -> float | None:
    """The paper's cycles of all cores that it used."""
    if cpu != PAPER_CPU or config not in PAPER_MS:
        return None
    place = [each.name for each in LAYERS].index(layer)
    return PAPER_MS[config][place] / 1e3 * HERTZ * PAPER_THREADS[config]


def with_sum(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows of one configuration, then their sum."""
    yield from rows
    fields = "macs", "instructions", "cycles", "packing", "missing", "fp32", "int8"
    total = {name: sum(getattr(row, name) for row in rows) for name in fields}
    theirs = None if rows[0].paper is None else sum(row.paper or 0 for row in rows)
    yield replace(rows[0], layer=SUM, schedule="", paper=theirs, **total)


TITLES = (
    *("layer", "M cycles", "with misses", "of 128 MAC", "packing, %", "times fp32", "times int8"),
    *("paper, M", "its times fp32", "times paper"),
)


def cells(row: Row) -> list[str]:
    """One printed row."""
    shown = [
        f"{row.cpu} {row.config} {row.layer}",
        f"{row.cycles / 1e6:.2f}",
        f"{(row.cycles + row.missing) / 1e6:.2f}" if row.missing else "-",
        f"{row.per_128_mac:.2f}",
        f"{100 * row.packing / row.cycles:.1f}",
        f"{row.times('fp32'):.2f}",
        f"{row.times('int8'):.2f}",
    ]
    if row.paper is None or row.to_paper is None:
        return [*shown, "-", "-", "-"]
    return [*shown, f"{row.paper / 1e6:.2f}", f"{row.fp32 / row.paper:.2f}", f"{row.to_paper:.2f}"]


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Comparisons with the paper: the least of each width; and where the int8 loop is quicker."""
    lines = []
    layers = [row for row in rows if row.layer != SUM]
    for config in dict.fromkeys(row.config for row in layers if row.paper):
        some = [row for row in layers if row.config == config and row.to_paper]
        least = min(some, key=lambda row: row.to_paper or 0)
        lines.append(
            f"{config}: the paper's cycles are at least {least.to_paper:.2f} times ours, misses in: {least.layer}"
        )
    for cpu, config in dict.fromkeys((row.cpu, row.config) for row in layers):
        some = [row for row in layers if (row.cpu, row.config) == (cpu, config)]
        slower = [row.layer for row in some if row.int8 < row.cycles]
        if slower:
            names = "all layers" if len(slower) == len(some) else ", ".join(slower)
            lines.append(f"{cpu} {config}: the int8 loop alone takes fewer cycles than {names}")
    return lines


def write(folder: Path, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    """JSON, tables and plots."""
    lines = "\n".join(f"- {line}" for line in verdicts(rows))
    every = report.markdown(TITLES, [cells(row) for row in rows])
    chosen = [(f"{row.cpu} {row.config} {row.layer}", row.schedule) for row in rows if row.schedule]
    schedules = report.markdown(("layer", "schedule"), chosen)
    blocks = lines, "![by layer](arm_layer_cycles.png)", every, schedules
    report.write(folder, "arm_layer_cycles", "Cycles of layers on Arm, predicted", __doc__ or "", facts, *blocks)
    arm_layer_cycles_plot.draw([row for row in rows if row.layer != SUM], folder / "arm_layer_cycles")


def main() -> int:
    """Exit code 1 if the paper takes fewer cycles for a layer."""
    parser = report.parser(__doc__)
    parser.add_argument("--cpu", choices=SETS, action="append")
    parser.add_argument("--only", type=report.widths, action="append")
    parser.add_argument("--layers", default=",".join(layer.name for layer in LAYERS), help="such as C2,C12")
    parser.add_argument("--results", type=report.folder, help="where to write Markdown, JSON, PNG and SVG")
    given = parser.parse_args()
    cpus, configs = given.cpu or list(SETS), given.only or WIDTHS
    sets = dict.fromkeys(name for cpu in cpus for name in sets_of(SETS[cpu]))
    basis, rows = Basis(digests(sets, configs, layers=True)), list[Row]()
    with forced("qemu"):
        for cpu, widths in ((cpu, widths) for cpu in cpus for widths in configs):
            some = list(with_sum([measured(cpu, layer, widths) for layer in select_layers(given.layers)]))
            rows += some
            if not given.json:
                print(report.columns(TITLES, [cells(row) for row in some]), flush=True)
    facts = report.facts(
        basis, {SETS[cpu] for cpu in cpus}, loops={cpu: loops(cpu) for cpu in cpus}, rows=[*map(asdict, rows)]
    )
    facts["setting"]["caches"] = f"{MODEL}; lines that code asks for are there"
    if given.results:
        write(given.results, facts, rows)
    print(json.dumps(facts) if given.json else "\n".join(verdicts(rows)))
    return 0 if all((row.to_paper or 1) >= 1 for row in rows) else 1


if __name__ == "__main__":
    report.run(main)
