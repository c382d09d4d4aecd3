"""How fast is glue between convolutions? Gigabytes read and written a second, compared with numpy's time.

    python benchmarks/glue.py [--isa ISA] [--rounds N] [--json]

An image of 56 x 56 pixels and 64 channels (a global mean's of 7 x 7 and 512), codes of 2 bits unless a row names
others, on one thread: medians of processor time; calls are timed alternately. Results are first compared with numpy's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray

from bitsynth.layers import glue

CHANNELS, CALLS = 64, 20
Q = glue.Quantization


def layers(isa: str) -> dict[str, tuple[glue.Glue, tuple[int, int]]]:
    """Layers by the name of their operation, with the height and width of their image."""
    by_name: dict[str, tuple[glue.Glue, tuple[int, int]]] = {}
    for layout in ("NHWC", "packed"):
        o: dict[str, Any] = {"layout": layout, "isa": isa}
        of_layout: dict[str, glue.Glue] = {
            "maximum 3 x 3, stride 2": glue.MaxPool2d(CHANNELS, 2, 3, stride=2, padding=1, **o),
            "mean 2 x 2, 4 bits": glue.AvgPool2d(CHANNELS, Q(4), 2, **o),
            "sum": glue.Add(CHANNELS, Q(2, 0.3), Q(2, 0.2), Q(2, 0.4), **o),
            "concatenation": glue.Concatenate([(CHANNELS, Q(2))] * 2, Q(2), **o),
            "concatenation of two scales": glue.Concatenate([(CHANNELS, Q(2)), (CHANNELS, Q(2, 0.5))], Q(2), **o),
            "padding": glue.Pad2d(CHANNELS, 2, 1, **o),
            "twice the size": glue.Resize(CHANNELS, 2, 2, **o),
            "depth to space": glue.DepthToSpace(4 * CHANNELS, 2, 2, **o),
            "table of 16": glue.Lookup(CHANNELS, np.arange(16), 4, **o),
            "quantization": glue.Quantize(CHANNELS, Q(2, 0.5), **o),
            "dequantization": glue.Dequantize(CHANNELS, Q(2, 0.5), **o),
        }
        by_name |= {f"{name}, {layout}": (layer, (56, 56)) for name, layer in of_layout.items()}
        by_name[f"mean of 7 x 7, {layout}"] = glue.GlobalAvgPool2d(512, Q(4), **o), (7, 7)
    by_name["table of 256, NHWC"] = glue.Lookup(CHANNELS, np.arange(256), 8, isa=isa), (56, 56)
    by_name["image of bytes, NHWC"] = glue.QuantizeImage([0.4] * 3, [0.2] * 3, Q(8, 0.02, 100), isa=isa), (224, 224)
    return by_name


def given(layer: glue.Glue, size: tuple[int, int]) -> list[NDArray[Any]]:
    """Codes or floats (1, H, W, C) for each input."""
    rng = np.random.default_rng(0)
    shapes = [(1, *size, kind.channels) for kind in layer.inputs]
    return [
        rng.integers(0, kind.last + 1, shape, np.uint8) if kind.operand else rng.normal(size=shape).astype(np.float32)
        for kind, shape in zip(layer.inputs, shapes, strict=True)
    ]


def microseconds(call: Callable[[], Any], calls: int) -> float:
    """Processor time of one of `calls` in a row."""
    start = time.process_time_ns()
    call()
    return (time.process_time_ns() - start) / 1e3 / calls


def measure(layer: glue.Glue, size: tuple[int, int], rounds: int) -> tuple[float, float, float]:
    """Microseconds, gigabytes a second, and times as fast as numpy; AssertionError if a result is wrong."""
    codes = given(layer, size)
    laid = [kind.lay_out(x) for kind, x in zip(layer.inputs, codes, strict=True)]
    call, out = layer.bind(*laid, times=CALLS)
    call()
    np.testing.assert_array_equal(out, layer.output.lay_out(layer.meaning(*codes)))
    pairs = [(microseconds(call, CALLS), microseconds(lambda: layer.meaning(*codes), 1)) for _ in range(rounds)]
    ours = median(x for x, _ in pairs)
    ratio = median(numpy / max(x, 1e-3) for x, numpy in pairs)
    return ours, (sum(x.nbytes for x in laid) + out.nbytes) / ours / 1e3, ratio


def main() -> int:
    parser = report.parser(__doc__)
    parser.add_argument("--isa", default="auto", help="an instruction set; the widest by default")
    parser.add_argument("--rounds", type=int, default=9, help="samples of all that is timed")
    arguments = parser.parse_args()
    found = {name: measure(*case, arguments.rounds) for name, case in layers(arguments.isa).items()}
    isa = next(iter(layers(arguments.isa).values()))[0].isa
    rows = [{"glue": n, "microseconds": us, "gb_per_s": gb, "times_numpy": r} for n, (us, gb, r) in found.items()]
    if arguments.json:
        print(json.dumps({"setting": report.setting(isa), "rows": rows}, indent=1))
    else:
        table = [(n, f"{us:.1f}", f"{gb:.1f}", f"{r:.0f}") for n, (us, gb, r) in found.items()]
        print(report.heading(report.setting(isa)), "\n")
        print(report.columns(("glue", "us", "GB/s", "times numpy"), table))
    return 0


if __name__ == "__main__":
    report.run(main)
