"""Chains of layers and glue, codes or packed words between them, equal to integers in numpy."""

from typing import Any

import numpy as np
import pytest
from cases import QUIET, convolution
from hypothesis import given, settings
from hypothesis import strategies as st

from bitsynth import ToolError, pack, unpack
from bitsynth.layers import Conv2d, Thresholds
from bitsynth.layers.glue import (
    Add,
    AvgPool2d,
    Concatenate,
    GlobalAvgPool2d,
    Lookup,
    MaxPool2d,
    Pad2d,
    Quantization,
    Resize,
)
from bitsynth.layers.schedule import LayerSchedule

BITS = 2
Q = Quantization
SCHEDULES = {
    "avx2": LayerSchedule("avx2", "lookup", 64, gather="direct"),
    "avx512": LayerSchedule("avx512", "popcount", 64, gather="direct"),
    "neon": LayerSchedule("neon", "lookup", 64, gather="direct"),
    "armv7_neon": LayerSchedule("armv7_neon", "lookup", 64, gather="direct"),
}
LAYOUTS = ("NHWC", "packed")


class Chain:
    """What the layers have given so far, as they give it and by numpy."""

    def __init__(self, draw: Any, isa: str) -> None:
        self.draw, self.isa = draw, isa
        self.rng = np.random.default_rng(self.one(0, 999))
        shape = (self.one(1, 2), self.one(1, 6), self.one(1, 6), self.any(1, 3, 64, 70))
        self.codes = self.rng.integers(0, 1 << BITS, shape).astype(np.uint8)
        self.layout = self.any(*LAYOUTS)
        self.made: Any = pack(self.codes, BITS) if self.layout == "packed" else self.codes

    def one(self, low: int, high: int) -> Any:
        return self.draw(st.integers(low, high))

    def any(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    @property
    def channels(self) -> int:
        return int(self.codes.shape[-1])

    def run(self, layer: Any, want: Any, out_layout: str, inputs: int = 1) -> None:
        """Go through a layer, whose results must be the codes `want`."""
        self.made, self.layout = layer(*[self.made] * inputs), out_layout
        self.codes = want.astype(np.uint8)
        np.testing.assert_array_equal(unpack(self.made) if out_layout == "packed" else self.made, self.codes)

    def convolve(self) -> None:
        oc, side = self.any(8, 64, 65), self.any(1, 3)
        w = self.rng.choice([-1, 1], (oc, self.channels, side, side))
        reach = 2 * self.channels
        levels = np.sort(self.rng.integers(-reach, reach, (oc, (1 << BITS) - 1)), axis=1)
        out, pad = self.any(*LAYOUTS), (side // 2,) * 4
        options: dict[str, Any] = {"layout": self.layout, "out_layout": out, "schedule": SCHEDULES[self.isa]}
        layer = Conv2d(w, BITS, 1, padding=side // 2, epilogue=Thresholds(levels), **options)
        sums = convolution(self.codes, w, stride=(1, 1), padding=pad, dilation=(1, 1), groups=1)
        self.run(layer, (sums[..., None] > levels).sum(-1), out)

    def glue(self) -> None:
        out = self.any(*LAYOUTS)
        same: dict[str, Any] = {"layout": self.layout, "isa": self.isa}
        both, c = {**same, "out_layout": out}, self.channels
        table = self.rng.integers(0, 1 << BITS, (self.any(1, c), 1 << BITS))
        made = {
            "max": lambda: (MaxPool2d(c, BITS, 2, stride=1, padding=1, **both), out, 1),
            "mean": lambda: (AvgPool2d(c, Q(BITS), 2, stride=1, padding=1, **both), out, 1),
            "mean of all": lambda: (GlobalAvgPool2d(c, Q(BITS), Q(BITS, 0.7), **both), out, 1),
            "add": lambda: (Add(c, Q(BITS, 0.3), Q(BITS, 0.5), Q(BITS, 0.6), **both), out, 2),
            "concat": lambda: (Concatenate([(c, Q(BITS)), (c, Q(BITS, 0.4))], Q(BITS), **both), out, 2),
            "lookup": lambda: (Lookup(c, table, BITS, **both), out, 1),
            "pad": lambda: (Pad2d(c, BITS, (0, 1), code=1, **same), self.layout, 1),
            "resize": lambda: (Resize(c, BITS, size=(4, 5), **same), self.layout, 1),
        }
        layer, lies, inputs = made[self.any(*made)]()
        self.run(layer, layer.meaning(*[self.codes] * inputs), lies, inputs)


def chains(isa: str, count: int) -> None:
    @settings(max_examples=count, **QUIET)
    @given(data=st.data())
    def each(data: Any) -> None:
        chain = Chain(data.draw, isa)
        for _ in range(chain.one(2, 5)):
            (chain.convolve if chain.any(True, False) else chain.glue)()

    each()


def test_some_chains() -> None:
    chains("avx2", 20)


@pytest.mark.slow
@pytest.mark.parametrize("isa", SCHEDULES)
def test_many_chains(isa, skip_isa):
    try:
        chains(isa, 1)
    except ToolError as why:
        skip_isa(isa, str(why))
    chains(isa, 2000 if isa.startswith("avx") else 100)
