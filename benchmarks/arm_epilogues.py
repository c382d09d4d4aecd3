"""Executed instructions of ResNet-18's layers on Arm from packed codes to packed codes, and from codes to int32.

    python benchmarks/arm_epilogues.py [--isa neon] [--only A2W1] [--layers C5,C8] [--json]

A whole call under qemu-user, packing of activations included; results are checked in the same run. They are codes of as
many bits as activations have, by thresholds that part each channel's sums evenly. No figure here is a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import report
from cache_counts import watched
from forced import forced

from bitsynth.bench.layer_forms import PACKED, SUMS, LayerForm
from bitsynth.bench.layers import SUM
from bitsynth.bench.low_bit_layers import codes_of, exact_sums, layer_of
from bitsynth.bench.resnet18 import LAYERS, ResNetLayer, select_layers
from bitsynth.errors import Refuted
from bitsynth.layers.layer import Layer

WIDTHS = ((1, 1), (2, 1), (2, 2), (3, 3))
TARGET = 1.15


@dataclass(frozen=True)
class Row:
    """Instructions of a layer, or the sum of all, in both forms."""

    config: str
    layer: str
    sums: int
    packed: int

    @property
    def ratio(self) -> float:
        """Packed codes to packed codes over codes to int32."""
        return self.packed / self.sums


def count(layer: ResNetLayer, isa: str, widths: tuple[int, int], form: LayerForm) -> int:
    """The instructions of a call; Refuted if its results are wrong."""
    codes = codes_of(layer, widths[0])
    sums = exact_sums(layer, layer_of(layer, isa, *widths), codes)
    epilogue = form.make_epilogue(sums, widths[0])
    planned = layer_of(layer, isa, *widths, layout=form.layout, out_layout=form.out_layout, epilogue=epilogue)
    with watched(planned.kernel, planned.packed.programs, caches=False) as (runner, counter):
        call, out = Layer(planned.packed, runner, planned.pool).bind(form.codes(codes, widths[0]))
        counter.clear()
        call()
        found = counter.counts.instructions
    if not np.array_equal(out, form.results(epilogue, sums, widths[0])):
        raise Refuted(f"{layer.name}, {form.name}: {planned!r} gives a wrong result")
    return found


def measured(isa: str, widths: tuple[int, int], layers: Sequence[ResNetLayer]) -> Iterator[Row]:
    """A row a layer, and their sum."""
    config = "A{}W{}".format(*widths)
    rows = [Row(config, x.name, *(count(x, isa, widths, form) for form in (SUMS, PACKED))) for x in layers]
    yield from rows
    yield Row(config, SUM, sum(row.sums for row in rows), sum(row.packed for row in rows))


def main() -> int:
    parser = report.parser(__doc__)
    parser.add_argument("--isa", default="neon", help="an instruction set of Arm")
    parser.add_argument("--only", type=report.widths, help="one configuration")
    parser.add_argument("--layers", default=",".join(layer.name for layer in LAYERS), help="such as C2,C12")
    given = parser.parse_args()
    configs = [given.only] if given.only else WIDTHS
    basis = report.layers_basis(given.isa, configs)
    with forced("qemu"):
        rows = [row for widths in configs for row in measured(given.isa, widths, select_layers(given.layers))]
    titles = "layer", "codes to int32", "packed to packed", "ratio", f"at most {TARGET}"
    cells = [(f"{r.config} {r.layer}", r.sums, r.packed, f"{r.ratio:.3f}", report.yes(r.ratio <= TARGET)) for r in rows]
    report.tell(report.facts(basis, [given.isa], rows=[asdict(r) for r in rows]), (titles, cells), as_json=given.json)
    return 0 if all(row.ratio <= TARGET for row in rows) else 1


if __name__ == "__main__":
    report.run(main)
