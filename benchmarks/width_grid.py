"""Layer C2 of ResNet-18 at every width, and how long its kernel took to find (Figure 11 of CGO 2020).

    python benchmarks/width_grid.py [--isa avx2] [--rounds 11] [--only A2W1] [--json] [--results FOLDER]

Time is a whole call of the default schedule on one thread, packing included: CPU time, the fastest call of a burst,
medians over rounds in which all widths are timed alternately. Synthesis is cold and tries every method for tiles of at
most 64 columns, proofs included; scheduling is the choice of the default schedule, certificates of its kernels checked
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import report
import width_grid_plot
from table2 import cold, schedule_seconds

from bitsynth.bench.call_times import sample_calls
from bitsynth.bench.low_bit_layers import prepare_call
from bitsynth.bench.resnet18 import select_layers
from bitsynth.bench.statistics import Summary
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load
from bitsynth.layers import Conv2d
from bitsynth.layers.planning import default_of
from bitsynth.layers.tuned import TuningTask
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import KernelOptions

(LAYER,) = select_layers("C2")
REPEATS = 5


@dataclass(frozen=True)
class Row:
    """A pair of widths: microseconds of a call, seconds of synthesis and of scheduling."""

    act_bits: int
    w_bits: int
    schedule: str
    microseconds: Summary
    gmac_per_second: float
    synthesis_seconds: float
    scheduling_seconds: float

    @property
    def config(self) -> str:
        """The widths as A2W1."""
        return f"A{self.act_bits}W{self.w_bits}"


def measure(isa: str, widths: Sequence[tuple[int, int]], rounds: int) -> list[Row]:
    """Measure calls at all widths, one after the other in every round; then the time that finding each kernel takes."""
    defaults = [default_of(TuningTask(isa, *bits, LAYER.geometry, LAYER.image, 1)) for bits in widths]
    layers = [prepare_call(LAYER, isa, *bits, 1, default) for bits, default in zip(widths, defaults, strict=True)]
    times: list[list[float]] = [[] for _ in widths]
    for _ in range(rounds):
        for (*_, call), mine in zip(layers, times, strict=True):
            mine.append(min(sample_calls(call, REPEATS, 1)) / 1000)
    return [
        find_again(isa, *bits, layer, Summary.of(mine))
        for bits, (layer, *_), mine in zip(widths, layers, times, strict=True)
    ]


def find_again(isa: str, act_bits: int, w_bits: int, layer: Conv2d, microseconds: Summary) -> Row:
    """Return the row of a layer whose calls took `microseconds`, after its kernel was solved and scheduled again."""
    spec = MatmulSpec.plain(isa, act_bits, w_bits)
    seconds = cold(spec, KernelOptions(channels=64)).seconds
    speed = LAYER.macs / microseconds.median / 1000
    return Row(act_bits, w_bits, str(layer.schedule), microseconds, speed, seconds, schedule_seconds(spec, LAYER))


TITLES = ("C2", "us", "quartiles", "GMAC/s", "synthesis, s", "scheduling, s", "schedule")


def cells(r: Row) -> list[str]:
    """Return the cells of a printed row."""
    us = [f"{r.microseconds.median:.0f}", f"{r.microseconds.low:.0f} to {r.microseconds.high:.0f}"]
    return [
        r.config,
        *us,
        f"{r.gmac_per_second:.0f}",
        f"{r.synthesis_seconds:.1f}",
        f"{r.scheduling_seconds:.2f}",
        r.schedule,
    ]


def main() -> int:
    given = report.timing_parser(__doc__, rounds=11).parse_args()
    require_native(load(given.isa).table)
    widths = [given.only] if given.only else report.WIDTHS
    basis = report.layers_basis(given.isa, widths)
    rows = measure(given.isa, widths, given.rounds)
    facts = report.facts(basis, [given.isa], rows=[asdict(r) for r in rows])
    if given.results:
        table = report.markdown(TITLES, [cells(r) for r in rows])
        report.write(given.results, "width_grid", "C2 at every width", __doc__ or "", facts, table)
        width_grid_plot.draw(rows, given.results / "width_grid")
    report.tell(facts, (TITLES, [cells(r) for r in rows]), as_json=given.json)
    return 0


if __name__ == "__main__":
    report.run(main)
