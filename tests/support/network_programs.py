"""A program made by hand: layers, glue between them, plain C before and behind, an alias at the end."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bitsynth import Conv2d, MaxPool2d, Thresholds, unpack
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Edge, Integers, Reals, Tensor
from bitsynth.network.library.golden import Golden
from bitsynth.network.program import Buffer, Format, GlueStep, LayerStep, NetworkProgram, PlainStep, caller_format
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand

CODES = MatmulOperand(2, Encoding.UNSIGNED)
CHANNELS, SIDE, CLASSES = 64, 6, 5
QUANTIZE = """
for (size_t y = 0; y < {pixels}; ++y)
    for (size_t k = 0; k < {channels}; ++k) {{
        const float x = in0[k * {pixels} + y];
        if (!(x >= 0 && x <= 3))
            return BS_CODES;
        out0[y * {channels} + k] = (uint8_t)x;
    }}
"""
DEQUANTIZE = """
for (size_t k = 0; k < {count}; ++k)
    out0[k] = (float)in0[k] * k0[k % {channels}];
"""


def layers(isa: str, threads: int) -> tuple[Conv2d, MaxPool2d, Conv2d]:
    """The two convolutions and the pooling between."""
    rng = np.random.default_rng(3)
    levels = np.sort(rng.integers(-60, 60, (CHANNELS, 3)), 1)
    common: dict[str, Any] = {"isa": isa, "threads": threads, "padding": 1}
    first = Conv2d(
        rng.choice([-1, 1], (CHANNELS, CHANNELS, 3, 3)),
        2,
        1,
        out_layout=Layout.PACKED,
        epilogue=Thresholds(levels),
        image=(SIDE, SIDE),
        **common,
    )
    pool = MaxPool2d(CHANNELS, 2, 2, layout=Layout.PACKED, isa=isa, threads=threads)
    last = Conv2d(
        rng.choice([-1, 1], (CLASSES, CHANNELS, 3, 3)),
        2,
        1,
        layout=Layout.PACKED,
        out_layout=Layout.NHWC,
        image=(SIDE // 2, SIDE // 2),
        **common,
    )
    return first, pool, last


def by_hand(isa: str, threads: int = 1) -> tuple[NetworkProgram, Callable[[Tensor], dict[str, Any]]]:
    """The program, and a function that computes it by the layers themselves."""
    first, pool, last = layers(isa, threads)
    half = SIDE // 2
    scale = np.linspace(0.5, 2, CLASSES, dtype=np.float32)
    codes = Integers.between(0, 3)
    edges = {
        "x": Edge("x", (1, CHANNELS, SIDE, SIDE), "float32", codes),
        "q": Edge("q", (1, CHANNELS, SIDE, SIDE), "float32", codes),
        "t": Edge("t", (1, CHANNELS, SIDE, SIDE), "float32", codes),
        "p": Edge("p", (1, CHANNELS, half, half), "float32", codes),
        "s": Edge("s", (1, CLASSES, half, half), "float32", Integers.between(-3000, 3000)),
        "f": Edge("f", (1, half, half, CLASSES), "float32", Reals()),
        "y": Edge("y", (1, half * half * CLASSES), "float32", Reals()),
    }
    sums = Format("int32", None, Layout.NHWC)
    formats = {
        "q": Format.codes(CODES),
        "t": Format.codes(CODES, Layout.PACKED),
        "p": Format.codes(CODES, Layout.PACKED),
    }
    formats |= {"s": sums, "f": Format("float32"), "y": Format("float32")}
    buffers = {name: Buffer(name, edges[name], form) for name, form in formats.items()}
    buffers["x"] = Buffer("x", edges["x"], caller_format(edges["x"]), "input")
    buffers["y"] = Buffer("y", edges["y"], Format("float32"), alias="f")
    buffers["out"] = Buffer("out", edges["y"], caller_format(edges["y"]), "output")
    count = half * half * CLASSES
    steps = (
        PlainStep(("quantize",), ("x",), ("q",), QUANTIZE.format(pixels=SIDE * SIDE, channels=CHANNELS)),
        LayerStep(("first",), ("q",), ("t",), first.packed, (1, SIDE, SIDE)),
        GlueStep(("pool",), ("t",), ("p",), pool, (1, SIDE, SIDE)),
        LayerStep(("last",), ("p",), ("s",), last.packed, (1, half, half)),
        PlainStep(("scale",), ("s",), ("f",), DEQUANTIZE.format(count=count, channels=CLASSES), (scale,)),
        PlainStep(("out",), ("y",), ("out",), f"for (size_t k = 0; k < {count}; ++k)\n    out0[k] = in0[k];"),
    )
    graph = Graph("by hand", "exact", (), edges, {}, ("x",), ("y",))
    program = NetworkProgram(graph, isa, threads, steps, buffers, ("x",), ("out",))

    def wanted(x: Tensor) -> dict[str, Any]:
        q = np.moveaxis(x, 1, -1).astype(np.uint8)
        t: Any = first(q)
        p: Any = pool(t)
        s = last(p)
        y = (s * scale).reshape(1, -1)
        return {"q": q, "t": unpack(t), "p": unpack(p), "s": s, "y": y}

    return program, wanted


def golden_of(program: NetworkProgram, wanted: Callable[[Tensor], dict[str, Any]]) -> Golden:
    """What the program's self-test compares with."""
    values = wanted(Golden(program).inputs["x"])
    return Golden(program, {n: x if n == "y" else np.moveaxis(x, -1, 1).astype(np.int64) for n, x in values.items()})
