"""Depthwise 3 x 3 convolutions, compared with ONNX Runtime's in int8, which have channels last and uint8 in and out.

    python benchmarks/depthwise.py [--isa avx2] [--only A4W4] [--layers 128x28,960x7] [--rounds 11] [--json]
        [--results FOLDER]

Weights are signed. Times are one thread's CPU time in microseconds. All layers are timed alternately, round by round. A
ratio is the median of the rounds' ratios; above 1 it says how many times faster bitsynth is. Each of our layers is
checked against numpy first. Needs `pip install '.[peers]'`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import depthwise_plot
import numpy as np
import onnxruntime
import report
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bitsynth import Conv2d, Requantize, Thresholds
from bitsynth.bench.setting import Basis
from bitsynth.bench.statistics import Summary
from bitsynth.errors import Refuted, SpecError
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load
from bitsynth.layers.packed_codes import pack_words
from bitsynth.store.depthwise import DEPTHWISE

WIDTHS = (4, 4)
MACS = 2e7
"""Multiply-accumulates of a timed call, so that the clock's part is small."""
CALLS = 3
SHIFT = 8
MULTIPLIER = 64


@dataclass(frozen=True)
class Layer:
    """A square depthwise layer of a MobileNet or the like: channels, pixels a side, stride."""

    channels: int
    size: int
    stride: int = 1

    @property
    def name(self) -> str:
        """The name, as --layers takes it."""
        return f"{self.channels}x{self.size}" + (f"/{self.stride}" if self.stride > 1 else "")


LAYERS = Layer(128, 28), Layer(32, 112), Layer(512, 14), Layer(64, 112, 2), Layer(960, 7)


@dataclass(frozen=True)
class Row:
    """One layer in one form: microseconds of ours and of the peer, and theirs by ours."""

    layer: str
    config: str
    form: str
    ours: Summary
    peer: Summary
    times: Summary


@dataclass(frozen=True)
class Operands:
    """Codes (1, H, W, C), weights (C, 1, 3, 3) and the sums of integers in numpy."""

    x: NDArray[np.uint8]
    w: NDArray[Any]
    sums: NDArray[np.int64]
    stride: int

    @classmethod
    def of(cls, layer: Layer, act_bits: int, w_bits: int) -> Operands:
        """Random ones."""
        rng = np.random.default_rng(0)
        x = rng.integers(0, 1 << act_bits, (1, layer.size, layer.size, layer.channels)).astype(np.uint8)
        w = rng.integers(-(1 << w_bits - 1) + 1, 1 << w_bits - 1, (layer.channels, 1, 3, 3))
        padded = np.pad(x.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)))
        seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, :: layer.stride, :: layer.stride]
        return cls(x, w, (seen * w[:, 0]).sum((-2, -1)), layer.stride)


def forms(given: Operands, act_bits: int, w_bits: int, isa: str) -> dict[str, tuple[Conv2d, NDArray[Any], Any]]:
    """Our layers by the name of their results, with inputs and expected results."""
    x, sums = given.x, given.sums
    levels = np.linspace(-99, 99, 3).astype(np.int64)
    codes = (sums[..., None] > levels).sum(-1)
    how: dict[str, Any] = {"weight_encoding": "signed", "stride": given.stride, "padding": 1, "groups": len(given.w)}
    how |= {"isa": isa, "image": x.shape[1:3]}

    def layer(**more: Any) -> Conv2d:
        return Conv2d(given.w, act_bits, w_bits, **how, **more)

    eight = np.clip(sums * MULTIPLIER + (1 << SHIFT - 1) >> SHIFT, 0, 255)
    packed = {"layout": "packed", "out_layout": "packed"}
    first = {"layout": "NCHW", "out_layout": "NCHW"}
    requantize, to_codes = Requantize(MULTIPLIER, SHIFT, 8), Thresholds(levels)
    return {
        "codes to int32": (layer(), x, sums),
        "codes to bytes, Requantize": (layer(epilogue=requantize), x, eight),
        "codes to codes, thresholds": (layer(epilogue=to_codes), x, codes),
        "packed to packed, thresholds": (
            layer(epilogue=to_codes, **packed),
            pack_words(x, act_bits),
            pack_words(codes.astype(np.uint8), 2),
        ),
        "codes to bytes, Requantize, channels first": (
            layer(epilogue=requantize, **first),
            np.ascontiguousarray(x.transpose(0, 3, 1, 2)),
            eight.transpose(0, 3, 1, 2),
        ),
    }


def measured(isa: str, layer: Layer, widths: tuple[int, int], rounds: int) -> list[Row]:
    """The layer in every form and its peer, in turn."""
    given = Operands.of(layer, *widths)
    times = max(1, round(MACS * layer.stride**2 / (9 * layer.channels * layer.size**2)))
    every = forms(given, *widths, isa)
    calls = []
    for form, (conv, x, want) in every.items():
        got = conv.run(x)
        if not np.array_equal(np.asarray(getattr(got, "words", got)), want):
            raise Refuted(f"{conv!r}, {form}, is wrong")
        calls.append(conv.bind(x, times=times)[0])
    calls.append(peer_call(given.x, given.w, layer.stride, times))
    samples = np.array([[spent(call) / times for call in calls] for _ in range(rounds)]) * 1e6
    config, theirs = "A{}W{}".format(*widths), samples[:, -1]
    return [
        Row(layer.name, config, form, Summary.of(mine), Summary.of(theirs), Summary.of(theirs / mine))
        for form, mine in zip(every, samples.T, strict=False)
    ]


def peer_call(x: NDArray[np.uint8], w: NDArray[Any], stride: int, times: int) -> Callable[[], Any]:
    """ONNX Runtime's QLinearConv with channels last, to which it converts networks, `times` times."""
    one, zero = np.float32(1), np.uint8(0)
    named = {"xs": one, "xz": zero, "w": w.astype(np.int8), "ws": one, "wz": np.int8(0)}
    named |= {"ys": np.float32(4), "yz": np.uint8(128)}
    window: dict[str, Any] = {
        "kernel_shape": [3, 3],
        "strides": [stride] * 2,
        "pads": [1] * 4,
        "group": len(w),
        "channels_last": 1,
    }
    node = helper.make_node("QLinearConv", ["x", *named], ["y"], domain="com.microsoft", **window)
    ends = [helper.make_tensor_value_info(n, 2, shape) for n, shape in (("x", x.shape), ("y", None))]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in named.items()]
    graph = helper.make_graph([node], "depthwise", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    return lambda: [session.run_with_iobinding(binding) for _ in range(times)]


def spent(call: Callable[[], Any]) -> float:
    """Seconds of this thread's CPU time, the least of a few: the first finds its memory in no cache."""
    times = []
    for _ in range(CALLS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def cells(found: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """A line a layer and form."""
    lines = [
        [f"{r.layer} {r.form}", f"{r.ours.median:.1f}", f"{r.peer.median:.1f}", f"{r.times.median:.2f}"] for r in found
    ]
    return ["", "bitsynth, us", "ONNX Runtime int8, us", "times as fast"], lines


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = report.timing_parser(__doc__, rounds=11)
    parser.add_argument("--layers", default="", help=f"some of {', '.join(layer.name for layer in LAYERS)}")
    given = parser.parse_args()
    known = {layer.name: layer for layer in LAYERS}
    if wrong := [name for name in given.layers.split(",") if name and name not in known]:
        raise SpecError(f"--layers: unknown {wrong[0]!r}; known: {', '.join(known)}")
    given.layers = [known[name] for name in given.layers.split(",")] if given.layers else list(LAYERS)
    return given


def basis(isa: str) -> Basis:
    """The basis of the figures: the depthwise kernels that layers choose from."""
    return Basis({f"{isa}/{DEPTHWISE.name}/{p.stem}": DEPTHWISE.read(p).program.digest for p in DEPTHWISE.every(isa)})


def main() -> int:
    given = parsed()
    require_native(load(given.isa).table)
    widths, rests_on = given.only or WIDTHS, basis(given.isa)
    found = [row for layer in given.layers for row in measured(given.isa, layer, widths, given.rounds)]
    facts = report.facts(rests_on, [given.isa], isa=given.isa, rows=[asdict(r) for r in found])
    titles, lines = cells(found)
    if given.results:
        stem, table = f"depthwise_{given.isa}", report.markdown(titles, lines)
        title = f"Depthwise layers on {given.isa}"
        report.write(given.results, stem, title, __doc__ or "", facts, table)
        depthwise_plot.draw(found, given.isa, given.results / stem)
    report.tell(facts, (titles, lines), as_json=given.json)
    return 0


if __name__ == "__main__":
    report.run(main)
