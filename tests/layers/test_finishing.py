"""Epilogues of layers, by programs or in plain C: their results equal Python's."""

from functools import cache

import numpy as np
import pytest
from support.case_selection import HERE, quick

from bitsynth.errors import ToolError
from bitsynth.kernel.elementwise.program import PlainProgram
from bitsynth.layers import Conv2d, Requantize, Rescale, Scale, Thresholds, unpack_words
from bitsynth.layers.epilogues import Epilogue, gives_codes

RNG = np.random.default_rng(5)
CHANNELS, INT32 = 70, np.iinfo(np.int32)
W = RNG.integers(0, 2, (CHANNELS, 24, 3, 3)) * 2 - 1
X = RNG.integers(0, 4, (1, 5, 6, 24))
FALLING = RNG.integers(0, 2, CHANNELS).astype(bool)
SMALL = RNG.integers(-90, 90, CHANNELS)
SCALES = RNG.normal(size=CHANNELS).astype(np.float32) / 8
HALVES = RNG.choice([0.5, -0.25, 2.0**-140, 1.0, 3e38], CHANNELS).astype(np.float32)
LAYERS = {"one group": (W, 1), "groups": (np.concatenate([W[:, :12], W[:, 12:]])[:CHANNELS], 2)}

ISAS = ["avx2", "avx512", "neon", "armv7_neon"]


def levels(count):
    return np.sort(RNG.integers(-60, 60, (CHANNELS, count)), axis=1)


EPILOGUES: dict[str, Epilogue] = {
    "up": Requantize(SMALL, 9, 8, zero_point=3),
    "to even": Requantize(SMALL, 6, 4, "even", 3),
    "to even, signed": Requantize(SMALL, 9, 8, "even", -7, low=-100, signed=True),
    "wide products": Requantize(SMALL << 24, 31, 8, low=2),
    "wide products to even": Requantize(SMALL << 24, 30, 8, "even", high=77),
    "the greatest shift": Requantize(RNG.choice([INT32.max, INT32.min], CHANNELS), 62, 3, "even", 4),
    "no shift": Requantize(SMALL, 0, 8, "even", zero_point=9, high=200),
    "16 bits": Requantize(SMALL, 2, 16, signed=True),
    "16 bits, a zero point": Requantize(SMALL, 3, 16, "even", -700, signed=True),
    "rescaled": Rescale(SCALES, 8, 3),
    "rescaled halves": Rescale(HALVES, 5, 8, bias=0.5),
    "rescaled, a bias": Rescale(SCALES, 8, 5, bias=SCALES[::-1], signed=True),
    "rescaled to 16 bits": Rescale(SCALES * 64, 12, 33, signed=True, bias=0.5),
    "gated": Rescale(SCALES, 8, 20, bias=SCALES[::-1], gate=(0.17, 0.5)),
    "gated, signed": Rescale(SCALES, 4, -1, signed=True, bias=HALVES[::-1].clip(-9, 9), gate=(-0.4, 0.25)),
    "floats": Scale(HALVES, SCALES),
    "thresholds": Thresholds(levels(3)),
    "falling": Thresholds(levels(6), rising=FALLING),
    "many levels": Thresholds(levels(200), rising=FALLING),
}


@cache
def sums(layer):
    weight, groups = LAYERS[layer]
    return Conv2d(weight, 2, 1, padding=1, groups=groups, isa=HERE)(X)


def made(layer, epilogue, out_layout, isa):
    weight, groups = LAYERS[layer]
    return Conv2d(weight, 2, 1, padding=1, groups=groups, epilogue=epilogue, out_layout=out_layout, isa=isa)


def check(layer, epilogue, out_layout, isa):
    """The layer, whose results are what the epilogue says."""
    one = made(layer, epilogue, out_layout, isa)
    got = one(X)
    if out_layout == "packed":
        got = unpack_words(np.asarray(got), epilogue.bits, CHANNELS)
    want = epilogue.reference(sums(layer))
    np.testing.assert_array_equal(got.transpose(0, 2, 3, 1) if out_layout == "NCHW" else got, want)
    return one


@pytest.mark.parametrize("isa", quick([HERE], of=[HERE, "auto"]))
@pytest.mark.parametrize("out_layout", ["NHWC", "packed"])
def test_falling_channels_are_exact(out_layout, isa):
    layer = check("one group", Thresholds(levels(3), rising=FALLING), out_layout, isa)
    order = list(layer.packed.programs.program.order)
    assert sorted(order) == list(range(len(order)))


def test_what_no_program_makes_is_plain_c():
    layer = check("one group", EPILOGUES["16 bits, a zero point"], "NHWC", "avx2")
    assert isinstance(layer.packed.programs.program, PlainProgram)
    layer = made("groups", EPILOGUES["rescaled"], "packed", "armv7_neon")
    assert isinstance(layer.packed.programs.program, PlainProgram)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", EPILOGUES)
def test_every_epilogue_in_every_set(name, isa, skip_isa):
    """As codes, either way round, or as words: half of the sets each, as each has a library."""
    epilogue, number = EPILOGUES[name], [*EPILOGUES].index(name) + ISAS.index(isa) // 2
    packable = gives_codes(epilogue) and epilogue.codes[0] >= 0
    try:
        for layout in ("packed",) if packable and (number + ISAS.index(isa)) % 2 else ("NHWC", "NCHW"):
            check([*LAYERS][number % 2], epilogue, layout, isa)
    except ToolError as why:
        skip_isa(isa, str(why))
