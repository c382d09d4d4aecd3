"""Emitted layers and glue refuse, by each value that their header says, and then write nothing."""

import re

import numpy as np
import pytest
from support.layer_cases import laid

from bitsynth import toolchain
from bitsynth.isa import load
from bitsynth.layers import Conv2d, Requantize, Rescale, Residual, Scale, Thresholds, glue
from bitsynth.layers.glue.programs import requirements
from bitsynth.run.runner import runner_for

pytestmark = pytest.mark.toolchains

CALL = """#include "made.h"
#include <stdint.h>
#include <string.h>
int made_call(size_t height, intptr_t arena_bytes{given}, void *output{sum}, void *arena);
int made_call(size_t height, intptr_t arena_bytes{given}, void *output{sum}, void *arena)
{{
    const struct bs_shape in = {{1, height, 4}};
    const size_t bytes = made_arena_bytes(in, 1);
    const size_t given = arena_bytes < 0 ? bytes + (size_t)(arena_bytes + 1) : SIZE_MAX;
    return made_run(in{names}, output{sum_name}, arena, given, NULL);
}}
"""
"""An arena of as many bytes as are wanted, and `arena_bytes` + 1 more; SIZE_MAX if that is not negative."""
WANTED, TOO_FEW, ALL = -1, -2, 0
HUGE = 1 << 62
STATUSES = {"BS_OK": 0, "BS_EMPTY": -1, "BS_ARENA": -2, "BS_CODES": -3, "BS_RESIDUAL": -4, "BS_NULL": -5}
RNG = np.random.default_rng(8)
W = RNG.choice([-1, 1], (5, 3, 3, 3))
OWN = RNG.choice([-1, 1], (5, 1, 3, 3))
T = np.array([-3, 0, 4])
BYTES, SUMS = Residual("uint8", keep_sum=True), Residual("float32", keep_sum=True)
LAYERS = {
    "plain": lambda: Conv2d(W, 2, 1),
    "bytes": lambda: Conv2d(W, 8, 1),
    "codes": lambda: Conv2d(W, 2, 1, epilogue=Thresholds(T, residual=BYTES)),
    "words": lambda: Conv2d(W, 2, 1, act_encoding="ternary", layout="packed", epilogue=Thresholds(T)),
    "requantized": lambda: Conv2d(
        W, 3, 1, act_encoding="narrow", layout="NCHW", epilogue=Requantize(7, 5, 2, residual=BYTES)
    ),
    "floats": lambda: Conv2d(W, 2, 1, epilogue=Scale(0.5, residual=SUMS)),
    "rescaled": lambda: Conv2d(W, 2, 1, epilogue=Rescale(0.5, 4, residual=SUMS)),
    "depthwise": lambda: Conv2d(OWN, 2, 1, groups=5, epilogue=Thresholds(T, residual=BYTES)),
}
Q = glue.Quantization
GLUE = {
    "MaxPool2d": lambda: glue.MaxPool2d(5, 2, 3, encoding="ternary", layout="packed"),
    "AvgPool2d": lambda: glue.AvgPool2d(5, 2, 3),
    "sums": lambda: glue.GlobalAvgPool2d(5, 2, "int32"),
    "Add": lambda: glue.Add(5, Q(2), Q(3), Q(2), out_layout="packed"),
    "Concatenate": lambda: glue.Concatenate([(3, Q(2)), (4, Q(3, encoding="narrow"))], Q(2)),
    "Pad2d": lambda: glue.Pad2d(5, 2, 1),
    "Resize": lambda: glue.Resize(5, 2, 2),
    "DepthToSpace": lambda: glue.DepthToSpace(8, 2, 2),
    "Lookup": lambda: glue.Lookup(5, [3, 2, 1, 0], 2),
    "Dequantize": lambda: glue.Dequantize(5, 2),
    "Quantize": lambda: glue.Quantize(5, 2),
}
"""What makes each: solving takes long, which only these tests shall wait for."""


class Call:
    """The `NAME_run` of an emitted layer on an image of 5 x 4 pixels, and what may be handed to it."""

    def __init__(self, files, isa, needs, inputs, outputs, residual=False):
        given = [f", const void *input_{i}" for i in range(len(inputs))]
        values = {"given": "".join(given), "names": "".join(x.replace("const void *", "") for x in given)}
        kept = {"sum": ", void *sum", "sum_name": ", sum"} if residual else {"sum": "", "sum_name": ""}
        sources = {n: t for n, t in files.items() if n.endswith((".c", ".h")) and n != "main.c"}
        flags = ["-O0", "-pthread", "-DBITSYNTH_NO_MAIN"]
        text = {**sources, "call.c": CALL.format(**values, **kept)}
        library = toolchain.compile_for(isa, text, needs=needs, flags=flags, cached=text)
        self.runner = runner_for(isa, library, needs=needs)
        self.inputs, self.outputs = inputs, outputs
        (returned,) = re.findall(r"Returns (BS_OK.*?)\*/", files["made.h"], re.DOTALL)
        self.statuses = set(re.findall(r"BS_[A-Z]+", returned))
        self.seen = set()

    def gives(self, status, *, height=5, arena=WANTED, without=(), **changed):
        """A call gives a status; unless that is BS_OK, its outputs are as they were."""
        inputs = {f"input_{i}": x for i, x in enumerate(self.inputs)} | changed
        outputs = {f"output_{i}": np.full(x.nbytes, 0xA5, np.uint8) for i, x in enumerate(self.outputs)}
        memory = {**inputs, **outputs, "arena": np.zeros(1 << 16, np.uint64)}
        given = [None if name in without else array for name, array in memory.items()]
        assert self.runner.call("made_call", height, arena, *given, bits=32) == STATUSES[status]
        assert status == "BS_OK" or all((x == 0xA5).all() for x in outputs.values())
        self.seen.add(status)

    def refuses_shapes_and_memory(self, missing):
        self.gives("BS_OK")
        self.gives("BS_EMPTY", height=0)
        self.gives("BS_ARENA", arena=TOO_FEW)
        self.gives("BS_ARENA", height=HUGE, arena=ALL)
        for name in missing:
            self.gives("BS_NULL", without=[name])

    def has_seen_all(self):
        assert self.seen == self.statuses


def with_last(array, value):
    """The last element changed, or the words of the last pixel: all bits of its codes are set."""
    changed = array.copy()
    if array.dtype == np.uint64:
        changed[-1, -1, -1] = ~np.uint64(0)
    else:
        changed.reshape(-1)[-1] = value
    return changed


@pytest.mark.slow
@pytest.mark.parametrize("case", LAYERS)
def test_bad_input_of_a_layer_is_refused(case):
    layer = LAYERS[case]()
    epilogue, act, channels = layer.epilogue, layer.act, layer.geometry.in_channels
    residual, last = epilogue.residual if epilogue else None, act.codes[-1]
    plain = RNG.integers(0, last + 1, (1, 5, 4, channels)).astype(np.uint8)
    codes = laid(plain, layer.layout, act.bits)
    result = layer.run(codes, residual=np.zeros((1, 3, 2, 5), residual.type) if residual else None)
    outputs = [*result] if isinstance(result, tuple) else [result]
    given = [codes, np.ones((1, 3, 2, 5), residual.type)] if residual else [codes]
    if residual and len(outputs) < 2:
        outputs.append(np.zeros((1, 3, 2, 5), np.int32))
    call = Call(
        layer.files("made"), load.load(layer.kernel.spec.isa), layer.kernel.needs, given, outputs, bool(residual)
    )
    call.refuses_shapes_and_memory(["input_0", "output_0", "arena"])
    call.gives("BS_EMPTY", height=2)
    if last < 255:
        call.gives("BS_CODES", input_0=with_last(codes, last + 1))
    if residual:
        call.gives("BS_RESIDUAL", without=["input_1"])
        if residual.keep_sum:
            call.gives("BS_OK", without=["output_1"])
        for value in (np.nan, np.inf, -np.inf) if residual.type == "float32" else ():
            call.gives("BS_RESIDUAL", input_1=with_last(given[1], value))
    call.has_seen_all()


@pytest.mark.slow
@pytest.mark.parametrize("case", GLUE)
def test_bad_input_of_glue_is_refused(case):
    layer = GLUE[case]()
    plain = [np.zeros((1, 5, 4, x.channels), np.uint8 if x.operand else np.float32) for x in layer.inputs]
    given = [kind.lay_out(x) for kind, x in zip(layer.inputs, plain, strict=True)]
    call = Call(layer.files("made"), load.load(layer.isa), requirements(layer.isa), given, [layer(*given)])
    call.refuses_shapes_and_memory([*(f"input_{i}" for i in range(len(given))), "output_0", "arena"])
    for i, (kind, codes) in enumerate(zip(layer.inputs, given, strict=True)):
        if kind.operand:
            call.gives("BS_CODES", **{f"input_{i}": with_last(codes, kind.last + 1)})
    call.has_seen_all()
