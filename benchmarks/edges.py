"""The first and the last layer of ResNet-18, whose operands have 8 bits, compared with ONNX Runtime's in int8.

    python benchmarks/edges.py [--isa avx512] [--rounds 11] [--only A8W2] [--json] [--results FOLDER]

A convolution 7 x 7, stride 2, of an image of 224 x 224 pixels and 3 channels to 64, and a dense layer of 512 features
to 1000. Both give uint8: ours by `Requantize`, ONNX Runtime's QLinearConv by its scales; weights are signed, weights of
one bit bipolar. Times are one thread's CPU time. All layers are timed alternately, round by round; a ratio above 1 says
how many times faster bitsynth is. Each layer is checked first. Needs `pip install '.[peers]'`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray

from bitsynth.bench.baselines.convolution import ConvOperands
from bitsynth.bench.call_times import sample_calls
from bitsynth.bench.layer_forms import EPILOGUES, LayerForm
from bitsynth.bench.low_bit_layers import in_form
from bitsynth.bench.resnet18 import ResNetLayer
from bitsynth.bench.statistics import Summary
from bitsynth.errors import ToolError
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load

LAYERS = ResNetLayer("first, 7 x 7", 224, 3, 64, 7, 2), ResNetLayer("last, dense", 1, 512, 1000, 1, 1)
WIDTHS = ((8, 8), (8, 4), (8, 2), (8, 1))
BYTES = next(form for form in EPILOGUES if "bytes" in form.name)
CALLS = 3


@dataclass(frozen=True)
class Row:
    """One layer at one width: microseconds of ours and of the peer, and theirs by ours."""

    layer: str
    config: str
    ours: Summary
    peer: Summary
    times: Summary


def form_of(w_bits: int) -> LayerForm:
    """Codes to 8-bit codes, with the weights that networks have."""
    return BYTES if w_bits == 1 else BYTES.replace_weights("signed")


def peer(layer: ResNetLayer) -> Callable[[], object]:
    """ONNX Runtime's layer, checked."""
    try:
        from bitsynth.bench.baselines import onnxruntime_baseline as baseline
    except ImportError as missing:
        raise ToolError(f"{missing}: pip install 'bitsynth[peers]'") from None
    baseline.start(1)
    operands = ConvOperands.of(layer)
    prepared = baseline.prepare("int8", operands, 1)
    prepared.check(operands)
    return prepared.call


def measured(isa: str, layer: ResNetLayer, widths: Sequence[tuple[int, int]], rounds: int) -> list[Row]:
    """The layer at all `widths` and its peer, in turn."""
    calls = [in_form(layer, isa, *pair, form_of(pair[1]))[2] for pair in widths] + [peer(layer)]
    samples = np.array([[min(sample_calls(call, CALLS, 1)) for call in calls] for _ in range(rounds)]) / 1000
    return [row(layer.name, "A{}W{}".format(*pair), samples[:, [i, -1]]) for i, pair in enumerate(widths)]


def row(layer: str, config: str, samples: NDArray[Any]) -> Row:
    """The row of microseconds (rounds, 2), ours first."""
    return Row(layer, config, *(Summary.of(x) for x in (*samples.T, samples[:, 1] / samples[:, 0])))


def cells(found: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """A line a row."""
    lines = [
        [r.layer, r.config, f"{r.ours.median:.0f}", f"{r.peer.median:.0f}", f"{r.times.median:.2f}"] for r in found
    ]
    return ["layer", "bits", "bitsynth, us", "ONNX Runtime int8, us", "times as fast"], lines


def main() -> int:
    given = report.timing_parser(__doc__, rounds=11).parse_args()
    require_native(load(given.isa).table)
    widths = [given.only] if given.only else WIDTHS
    found = [row for layer in LAYERS for row in measured(given.isa, layer, widths, given.rounds)]
    basis = report.layers_basis(given.isa, widths)
    facts = report.facts(basis, [given.isa], isa=given.isa, rows=[asdict(r) for r in found])
    titles, lines = cells(found)
    if given.results:
        table = report.markdown(titles, lines)
        title = f"First and last layers on {given.isa}"
        report.write(given.results, f"edges_{given.isa}", title, __doc__ or "", facts, table)
    report.tell(facts, (titles, lines), as_json=given.json)
    return 0


if __name__ == "__main__":
    report.run(main)
