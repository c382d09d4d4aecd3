"""A network made by hand whose layers read the same codes: one for each way in which the runtime moves them."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bitsynth import Conv2d, Residual, Thresholds
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Edge, Integers, Reals
from bitsynth.layers.depthwise import kernel_for
from bitsynth.layers.schedule import DEPTHWISE, LayerSchedule, gathers
from bitsynth.network.arena import plan_arena
from bitsynth.network.library import NetworkText
from bitsynth.network.program import Buffer, Format, LayerStep, NetworkProgram, PlainStep, caller_format
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand

CHANNELS, HIGH, WIDE = 6, 5, 7
BITS = 2
"""Bits of the codes, and of the weights."""
QUANTIZE = f"for (size_t k = 0; k < {CHANNELS * HIGH * WIDE}; ++k)\n    out0[k] = (uint8_t)in0[k];"


@dataclass(frozen=True)
class Case:
    """A layer: how its convolution is made, and what is changed in its schedule."""

    out_channels: int
    kernel: tuple[int, int]
    how: dict[str, Any]
    schedule: dict[str, Any]


NARROW = {"method": "lookup", "channels": 64, "operands": "", "rows": 0}
"""A kernel of the layer's own bits, which has terms of rows, as signed bytes have none."""
CASES = {
    "direct": Case(70, (3, 3), {"padding": 1}, {"gather": "direct"}),
    "strided": Case(20, (3, 2), {"stride": (2, 1), "padding": (1, 0, 2, 1)}, {"gather": "direct"}),
    "dilated": Case(12, (3, 3), {"dilation": (2, 3), "padding": (2, 3), "groups": 2}, {"gather": "direct", **NARROW}),
    "indirect": Case(9, (3, 2), {"padding": (1, 1)}, {"gather": "indirect", **NARROW}),
    "patches": Case(66, (2, 3), {"stride": 2, "padding": 1}, {"gather": "im2col"}),
    "columns": Case(130, (3, 3), {"padding": 1}, {"gather": "direct", "columns_first": True, "block_rows": 9}),
    "banded": Case(10, (3, 3), {"padding": 1}, {"gather": "direct", "band_rows": 2}),
    "first": Case(18, (3, 3), {"padding": 1, "out_layout": Layout.NCHW}, {"gather": "direct"}),
    "codes": Case(100, (3, 3), {"padding": 1, "epilogue": "thresholds"}, {"gather": "direct"}),
    "added": Case(100, (3, 3), {"padding": 1, "epilogue": "residual"}, {"gather": "direct", "columns_first": True}),
    "kept": Case(100, (3, 3), {"padding": 1, "epilogue": "kept residual"}, {"gather": "direct"}),
}
"""Layers by name; a residual is what the layer "codes" made."""
DEPTHWISE_CASES = {
    "plain": Case(6, (3, 3), {"padding": 1, "groups": 6}, {}),
    "joined": Case(6, (3, 2), {"padding": (1, 0), "groups": 6}, {}),
    "split": Case(6, (2, 3), {"stride": (1, 2), "padding": (0, 1), "groups": 6}, {}),
    "down": Case(6, (3, 3), {"stride": 2, "padding": 1, "groups": 6}, {}),
    "holes": Case(6, (2, 3), {"dilation": (2, 3), "padding": (1, 3, 2, 2), "groups": 6}, {}),
    "spread": Case(12, (3, 3), {"padding": 1, "groups": 6}, {}),
    "units": Case(78, (3, 2), {"stride": (1, 2), "padding": 1, "groups": 6}, {}),
    "eights": Case(96, (2, 2), {"groups": 6}, {}),
    "twos": Case(6, (3, 3), {"padding": 1, "groups": 3}, {}),
    "threes": Case(8, (2, 3), {"stride": 2, "padding": 1, "groups": 2}, {}),
    "turned": Case(6, (3, 3), {"padding": 1, "groups": 6, "out_layout": Layout.NCHW}, {}),
    "codes": Case(6, (3, 3), {"padding": 1, "groups": 6, "epilogue": "thresholds"}, {}),
    "added": Case(6, (3, 3), {"padding": 1, "groups": 6, "epilogue": "residual"}, {}),
    "kept": Case(6, (3, 3), {"padding": 1, "groups": 6, "epilogue": "kept residual"}, {}),
}
"""Layers on depthwise kernels."""
PAIRED = {name: case for name, case in CASES.items() if case.schedule["gather"] in gathers(pairs=True)}
"""The programs that kernels of pairs of rows can have."""


def _epilogue(name: str, channels: int, bits: int, rng: np.random.Generator) -> Any:
    levels = np.sort(rng.integers(-20, 20, (channels, (1 << bits) - 1)), axis=1)
    residual = {"residual": Residual(), "kept residual": Residual(keep_sum=True)}.get(name)
    return Thresholds(levels, residual=residual)


def depthwise_conv_of(name: str, isa: str) -> Conv2d:
    """The layer of a depthwise case."""
    act, wgt = MatmulOperand(BITS, Encoding.UNSIGNED), MatmulOperand(BITS, Encoding.TERNARY)
    schedule = LayerSchedule(isa, DEPTHWISE, kernel_for(isa, act, wgt).program.unit, "indirect")
    weight, how, common = arguments_of(DEPTHWISE_CASES[name], name, isa, BITS)
    return Conv2d(weight, BITS, BITS, schedule=schedule, **common, **how)


def arguments_of(case: Case, name: str, isa: str, bits: int) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The weights of a case's layer, what it says of the window and the epilogue, and what all layers have."""
    rng = np.random.default_rng([*name.encode()])
    how = {**case.how}
    if "epilogue" in how:
        how["epilogue"] = _epilogue(how["epilogue"], case.out_channels, bits, rng)
    weight = rng.integers(-1, 2, (case.out_channels, CHANNELS // how.get("groups", 1), *case.kernel))
    bias = rng.integers(-9, 9, case.out_channels)
    return weight, how, {"isa": isa, "weight_encoding": "ternary", "bias": bias, "image": (HIGH, WIDE)}


def conv_of(name: str, isa: str, bits: int = BITS) -> Conv2d:
    """The layer of a case, of pairs of rows if codes have one bit."""
    case = CASES[name]
    weight, how, common = arguments_of(case, name, isa, bits)
    schedule = LayerSchedule(isa, "pairs", 64, "direct")
    if bits > 1:
        zeros = np.zeros((case.out_channels, CHANNELS, 3, 3), int)
        schedule = Conv2d(zeros, bits, BITS, isa=isa, weight_encoding="ternary").schedule
    return Conv2d(weight, bits, BITS, schedule=msgspec.structs.replace(schedule, **case.schedule), **common, **how)


@cache
def text_of(isa: str, bits: int = BITS) -> NetworkText:
    """The C of the network of all cases, or with codes of one bit of all `PAIRED` ones."""
    chosen = CASES if bits > 1 else PAIRED
    return _text_of({name: (case, conv_of(name, isa, bits)) for name, case in chosen.items()}, isa, bits)


@cache
def depthwise_text_of(isa: str) -> NetworkText:
    """The C of the network of all depthwise cases."""
    return _text_of({name: (case, depthwise_conv_of(name, isa)) for name, case in DEPTHWISE_CASES.items()}, isa, BITS)


def _text_of(convs: dict[str, tuple[Case, Conv2d]], isa: str, bits: int) -> NetworkText:
    """The C of a network of some layers of the same codes."""
    of_codes = Integers.between(0, (1 << bits) - 1)
    codes = Format.codes(MatmulOperand(bits, Encoding.UNSIGNED))
    edges = {x: Edge(x, (1, CHANNELS, HIGH, WIDE), "float32", of_codes) for x in ("x", "q")}
    buffers = {"x": Buffer("x", edges["x"], caller_format(edges["x"]), "input")}
    buffers["q"] = Buffer("q", edges["q"], codes)
    steps: list[Any] = [PlainStep(("quantize",), ("x",), ("q",), QUANTIZE)]
    for name, (case, conv) in convs.items():
        high, wide = conv.geometry.output(HIGH, WIDE)
        kind = of_codes if conv.packed.out_type == np.uint8 else Integers.between(-3000, 3000)
        edges[name] = Edge(name, (1, conv.geometry.out_channels, high, wide), "float32", kind)
        layout = Layout.PLAIN if conv.out_layout == Layout.NCHW else Layout.NHWC
        result = codes if conv.packed.out_type == np.uint8 else Format(str(conv.packed.out_type), None, layout)
        buffers[name] = Buffer(name, edges[name], result)
        residual = ("codes",) if "residual" in case.how.get("epilogue", "") else ()
        sums = (f"{name} sum",) if conv.packed.kept_type else ()
        for kept in sums:
            edges[kept] = Edge(kept, edges[name].shape, "float32", Integers.between(-3000, 3000))
            buffers[kept] = Buffer(kept, edges[kept], Format(str(conv.packed.kept_type), None, Layout.NHWC))
        steps.append(LayerStep((name,), ("q", *residual), (name, *sums), conv.packed, (1, HIGH, WIDE)))
    edges["y"] = Edge("y", (1, 1), "float32", Reals())
    buffers["out"] = Buffer("out", edges["y"], caller_format(edges["y"]), "output")
    steps.append(PlainStep(("out",), tuple(convs), ("out",), "out0[0] = (float)in0[0];"))
    graph = Graph("by hand", "exact", (), edges, {}, ("x",), ("y",))
    program = NetworkProgram(graph, isa, 1, tuple(steps), buffers, ("x",), ("out",))
    return NetworkText("net", program, plan_arena(program))


def write_files(text: NetworkText, folder: Path) -> None:
    """Write the files of a network into a folder, but for its self-test."""
    for name, content in text.get_untested().items():
        (folder / name).write_text(content)
