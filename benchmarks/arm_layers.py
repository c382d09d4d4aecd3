"""Executed instructions and cache misses of ResNet-18's layers on NEON, compared with the paper's form of each.

    python benchmarks/arm_layers.py [--json] [--only A2W1] [--layers C2,C12] [--results FOLDER]

A whole call under qemu-user, packing of activations included; results equal the integer convolution in the same run.
The paper's form is its kernel as a schedule: five operations a plane pair, one pixel a call, sums through memory at
every step of K. `kept` is the same with sums in registers as long as its proof allows. Of its five operations a pair
the compiler shares one, a count of the activations alone, among the columns, which favours it. No figure here is a
time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import arm_layers_plot
import report
from cache_counts import LINE_BYTES, MODEL, Counts, watched
from forced import forced

from bitsynth.bench.layers import SUM
from bitsynth.bench.low_bit_layers import codes_of, layer_of, require_exact
from bitsynth.bench.resnet18 import LAYERS, ResNetLayer, select_layers
from bitsynth.bench.setting import Basis, digests
from bitsynth.host.placement import sets_of
from bitsynth.layers.layer import Layer
from bitsynth.layers.schedule import LayerSchedule

ISA = "neon"
KEPT = LayerSchedule(ISA, "popcount", 0, "direct", sketch="paper")
PAPER = LayerSchedule(ISA, "popcount", 0, "direct", sketch="paper", flush_steps=1)
TARGET = 0.5


@dataclass(frozen=True)
class Row:
    """One layer; `packing` is the part of `bitsynth` that packs activations, begun with cold caches too.

    `floor` counts the lines of activations, weights and results, which a call of any form misses.
    """

    config: str
    layer: str
    schedule: str
    paper: Counts
    kept: Counts
    bitsynth: Counts
    packing: Counts
    floor: int

    def ratio(self, what: str, of: str = "paper") -> float:
        """Ours for one of theirs."""
        ours, theirs = (getattr(getattr(self, form), what) for form in ("bitsynth", of))
        return float(ours / theirs)


def count(layer: ResNetLayer, act_bits: int, w_bits: int, schedule: LayerSchedule | None) -> tuple[str, Counts, Counts]:
    """The schedule, the counts of a call, and of its packing alone; Refuted if a sum is wrong."""
    planned, codes = layer_of(layer, ISA, act_bits, w_bits, 1, schedule), codes_of(layer, act_bits)
    with watched(planned.kernel) as (runner, counter):
        compiled = Layer(planned.packed, runner, planned.pool)
        (whole, out), (packing, _) = compiled.bind(codes), compiled.bind(codes, part="pack")
        found = []
        for call in (whole, packing):
            counter.clear()
            call()
            found.append(counter.counts)
    require_exact(layer, planned, codes, out)
    return str(planned.schedule), found[0], found[1]


def measured(layer: ResNetLayer, act_bits: int, w_bits: int) -> Row:
    """A layer in all forms."""
    schedule, whole, packing = count(layer, act_bits, w_bits, None)
    paper, kept = (count(layer, act_bits, w_bits, form)[1] for form in (PAPER, KEPT))
    return Row(f"A{act_bits}W{w_bits}", layer.name, schedule, paper, kept, whole, packing, floor(layer, w_bits))


def floor(layer: ResNetLayer, w_bits: int) -> int:
    """Lines of activations that windows see (a byte a code), weights (all bits packed) and int32 results."""
    codes = min(layer.height, layer.out_height * layer.kernel) ** 2 * layer.in_channels
    results = layer.out_height**2 * layer.out_channels
    weights = layer.out_channels * layer.in_channels * layer.kernel**2 * w_bits // 8
    return sum(-(-size // LINE_BYTES) for size in (codes, weights, 4 * results))


def with_sums(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows; after the rows of a configuration their sum."""
    for config in dict.fromkeys(row.config for row in rows):
        some = [row for row in rows if row.config == config]
        yield from some
        counts = {
            form: total([getattr(row, form) for row in some]) for form in ("paper", "kept", "bitsynth", "packing")
        }
        yield Row(config, SUM, "", **counts, floor=sum(row.floor for row in some))


def total(counts: Sequence[Counts]) -> Counts:
    """Their sum."""
    return Counts(*(sum(map(attrgetter(name), counts)) for name in Counts.__dataclass_fields__))


TITLES = (
    *("layer", "paper, M", "bitsynth, M", "ratio", "of kept", "packing, %"),
    *("misses, k: floor", "L1 paper", "bitsynth", "ratio", "L2 paper", "bitsynth", "ratio"),
)


def cells(row: Row) -> list[str]:
    """One printed row."""
    shown = [
        f"{row.config} {row.layer}",
        f"{row.paper.instructions / 1e6:.2f}",
        f"{row.bitsynth.instructions / 1e6:.2f}",
    ]
    shown += [f"{row.ratio('instructions'):.3f}", f"{row.ratio('instructions', 'kept'):.3f}"]
    shown.append(f"{100 * row.packing.instructions / row.bitsynth.instructions:.1f}")
    shown.append(f"{row.floor / 1e3:.1f}")
    for what in ("l1_misses", "l2_misses"):
        shown += [f"{getattr(form, what) / 1e3:.1f}" for form in (row.paper, row.bitsynth)] + [f"{row.ratio(what):.2f}"]
    return shown


def verdicts(rows: Sequence[Row]) -> list[str]:
    """The verdicts of the sums, and the layers that miss more than half of the paper's lines."""
    lines = []
    for row in rows:
        if row.layer == SUM:
            met = report.yes(row.ratio("instructions") <= TARGET)
            lines.append(
                f"{row.config} sum: {row.ratio('instructions'):.3f} of the instructions, at most {TARGET}: {met}"
            )
    worst = max(rows, key=lambda row: row.ratio("instructions"))
    lines.append(f"most of all in {worst.config} {worst.layer}: {worst.ratio('instructions'):.3f}")
    for what in ("l1_misses", "l2_misses"):
        above = [r for r in rows if r.ratio(what) > TARGET]
        bound = sum(row.floor > TARGET * getattr(row.paper, what) for row in above)
        more = [f"{row.config} {row.layer} {row.ratio(what):.2f}" for row in above if row.ratio(what) > 1.05]
        lines.append(
            f"{what.replace('_', ' ')} above {TARGET} of the paper's form: {len(above)} of {len(rows)}, "
            f"{bound} of them where the floor is too; more than the paper's form: {', '.join(more) or 'none'}"
        )
    return lines


def write(folder: Path, facts: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Tables and plots."""
    schedules = report.markdown(
        ("layer", "schedule"), [(f"{r.config} {r.layer}", r.schedule) for r in rows if r.schedule]
    )
    lines = "\n".join(f"- {line}" for line in verdicts(rows))
    table = report.markdown(TITLES, [cells(row) for row in rows])
    report.write(folder, "arm_layers", "Layers on NEON, emulated", __doc__ or "", facts, table, lines, schedules)
    arm_layers_plot.draw(rows, folder / "arm_layers")


def main() -> int:
    parser = report.parser(__doc__)
    parser.add_argument("--only", type=report.widths, help="one configuration")
    parser.add_argument("--layers", default=",".join(layer.name for layer in LAYERS), help="such as C2,C12")
    parser.add_argument("--results", type=report.folder, help="where to write Markdown, JSON, PNG and SVG")
    given = parser.parse_args()
    configs = [given.only] if given.only else report.LAYER_WIDTHS
    rest = digests([ISA], configs, layers=False)
    theirs = {place: digest for place, digest in rest.items() if f"/{PAPER.sketch}-" in place}
    basis = Basis({**digests(sets_of(ISA), configs, layers=True), **theirs})
    with forced("qemu"):
        rows = list(
            with_sums([measured(layer, *config) for config in configs for layer in select_layers(given.layers)])
        )
    facts = report.facts(basis, [ISA], rows=[asdict(row) for row in rows])
    facts["setting"]["caches"] = MODEL
    if given.results:
        write(given.results, facts, rows)
    if given.json:
        print(json.dumps(facts))
    else:
        print(
            report.heading(facts["setting"]),
            report.columns(TITLES, [cells(r) for r in rows]),
            *verdicts(rows),
            sep="\n",
        )
    return 0 if all(row.ratio("instructions") <= TARGET for row in rows) else 1


if __name__ == "__main__":
    report.run(main)
