"""Every epilogue and form of a layer, compared with codes to int32, the form that does least, on C2 to C12 of
ResNet-18.

    python benchmarks/epilogues.py [--isa avx512] [--rounds 11] [--only A2W1] [--layers C2,C6] [--forms WORD] [--json]
                                   [--results FOLDER]

Times are one thread's CPU time of whole calls from C, packing of activations included. All forms of a layer are timed
alternately, round by round. A ratio is the median of the rounds' ratios of fastest calls. Results have as many bits as
activations, and each layer is checked first. `--forms` chooses the forms whose name has the word, such as Requantize.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import epilogues_plot
import numpy as np
import report
from numpy.typing import NDArray

from bitsynth.bench.call_times import sample_calls
from bitsynth.bench.layer_forms import EPILOGUES, SUMS, LayerForm
from bitsynth.bench.layers import SUM
from bitsynth.bench.low_bit_layers import in_form
from bitsynth.bench.resnet18 import LAYERS, ResNetLayer, select_layers
from bitsynth.bench.statistics import Summary
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load

WIDTHS = ((1, 1), (2, 1), (2, 2), (3, 3))
CALLS = 5
CALL_MACS = 5e7
"""Multiply-accumulates of a call, so that Python's part is small."""


@dataclass(frozen=True)
class Row:
    """One form on one layer, or the sum of layers: microseconds, also divided by the microseconds of codes to int32."""

    config: str
    form: str
    layer: str
    microseconds: Summary
    times: Summary


def measured(
    isa: str, widths: tuple[int, int], layers: Sequence[ResNetLayer], forms: Sequence[LayerForm], rounds: int
) -> list[Row]:
    """Every form that these widths have on every layer, and their sums."""
    forms = [form for form in forms if form.has(*widths)]
    each = [max(1, round(CALL_MACS / layer.macs)) for layer in layers]
    calls = [
        [in_form(layer, isa, *widths, form, times=times)[2] for form in forms]
        for layer, times in zip(layers, each, strict=True)
    ]
    samples = np.array([[timed(some, times) for some, times in zip(calls, each, strict=True)] for _ in range(rounds)])
    names = [layer.name for layer in layers]
    return rows("A{}W{}".format(*widths), names, forms, samples.transpose(2, 1, 0) / 1000)


def timed(calls: Sequence[Callable[[], object]], times: int) -> list[float]:
    """Nanoseconds of a run of each call, which makes so many: the fastest of a few."""
    return [min(sample_calls(call, CALLS, 1)) / times for call in calls]


def rows(config: str, layers: Sequence[str], forms: Sequence[LayerForm], samples: NDArray[Any]) -> list[Row]:
    """Rows of microseconds by form, layer and round; other forms are compared with the first."""
    whole = np.concatenate([samples, samples.sum(1, keepdims=True)], 1)
    return [
        Row(config, form.name, layer, Summary.of(mine[j]), Summary.of(mine[j] / whole[0, j]))
        for form, mine in zip(forms, whole, strict=True)
        for j, layer in enumerate([*layers, SUM])
    ]


def cells(found: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """A line a configuration and form: microseconds of the sum, and all ratios."""
    layers = list(dict.fromkeys(r.layer for r in found))
    lines = []
    for config, form in dict.fromkeys((r.config, r.form) for r in found):
        mine = [r for r in found if (r.config, r.form) == (config, form)]
        ratios = [f"{r.times.median:.2f}" for r in mine]
        lines.append([f"{config} {form}", f"{mine[-1].microseconds.median:.0f}", *ratios])
    return ["", "sum, us", *layers], lines


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = report.timing_parser(__doc__, rounds=11)
    parser.add_argument("--layers", help="layers of ResNet-18, such as C2,C6; all by default")
    parser.add_argument("--forms", default="", help="only forms whose names have this in them")
    return parser.parse_args()


def main() -> int:
    given = parsed()
    require_native(load(given.isa).table)
    layers = LAYERS if given.layers is None else select_layers(given.layers)
    forms = [form for form in EPILOGUES if form is SUMS or given.forms in form.name]
    widths = [given.only] if given.only else WIDTHS
    basis = report.layers_basis(given.isa, widths)
    found = [row for pair in widths for row in measured(given.isa, pair, layers, forms, given.rounds)]
    facts = report.facts(basis, [given.isa], isa=given.isa, rows=[asdict(r) for r in found])
    titles, lines = cells(found)
    if given.results:
        stem, table = f"epilogues_{given.isa}", report.markdown(titles, lines)
        report.write(given.results, stem, f"Epilogues on {given.isa}", __doc__ or "", facts, table)
        epilogues_plot.draw(found, given.isa, given.results / stem)
    report.tell(facts, (titles, lines), as_json=given.json)
    return 0


if __name__ == "__main__":
    report.run(main)
