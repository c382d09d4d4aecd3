"""Layers drawn at random, their inputs, and the integers they must give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from hypothesis import HealthCheck
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray

from bitsynth.errors import ToolError
from bitsynth.layers import Conv2d, Pool, Requantize, Residual, Scale, Thresholds
from bitsynth.layers.schedule import LayerSchedule, gathers
from bitsynth.run.runner import Runner
from bitsynth.spec.matmul import Encoding, MatmulOperand

LAYOUTS = ("NHWC", "NCHW", "packed")
PATTERNS = ("random", "max", "min", "zero")
EPILOGUES = ("none", "scale", "requantize", "thresholds")
LEVELS = (1, 2, 3, 7, 15, 255)
QUIET: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
    "derandomize": True,
}
"""Settings of every property test here: the same cases in every run."""
INT32 = np.iinfo(np.int32)

Values = NDArray[Any]


@dataclass(frozen=True)
class Machine:
    """A kernel: instruction set, method, the layer's widths and encodings, and its form; it may have wider operands."""

    isa: str
    method: str
    act: MatmulOperand
    wgt: MatmulOperand
    channels: int = 64
    rows: int = 0
    unroll: int = 0
    bit_axis: str = "inner"
    operands: str = ""

    def __str__(self) -> str:
        form = [f"{self.rows} rows"] * bool(self.rows) + [f"unrolled {self.unroll} times"] * bool(self.unroll)
        form += ["planes apart"] * (self.bit_axis == "outer") + [f"{self.operands} bits"] * bool(self.operands)
        return ", ".join((f"{self.isa} {self.method} {self.act} x {self.wgt}", *form))


def machine(
    isa: str, method: str, act_bits: int, w_bits: int, act: str = "unsigned", wgt: str = "bipolar", **form: Any
) -> Machine:
    weights = MatmulOperand(w_bits, Encoding(wgt), form.pop("zero", 0))
    return Machine(isa, method, MatmulOperand(act_bits, Encoding(act)), weights, **form)


def encodings(bits: int) -> list[str]:
    return [e.value for e in Encoding if bits in e.widths]


@dataclass(frozen=True)
class Case:
    """A layer, how it is run, and which operands it meets."""

    machine: Machine
    batch: int
    image: tuple[int, int]
    channels: tuple[int, int]
    """Input and output channels of one group."""
    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    zero_point: int = 0
    biased: bool = False
    layout: str = "NHWC"
    out_layout: str = "NHWC"
    epilogue: str = "none"
    levels: int = 3
    residual: str = ""
    gather: str = "direct"
    columns_first: bool = False
    block_rows: int = 0
    band_rows: int = 0
    flush_steps: int = 0
    threads: int | Pool = 1
    patterns: tuple[str, str] = ("random", "random")
    seed: int = 0

    @property
    def schedule(self) -> LayerSchedule:
        m = self.machine
        return LayerSchedule(
            isa=m.isa,
            method=m.method,
            channels=m.channels,
            rows=m.rows,
            gather=self.gather,
            columns_first=self.columns_first,
            block_rows=self.block_rows,
            band_rows=self.band_rows,
            unroll=m.unroll,
            bit_axis=m.bit_axis,
            flush_steps=self.flush_steps,
            operands=m.operands,
        )

    def operands(self) -> tuple[Values, Values]:
        """Activations (N, H, W, C) and weights."""
        rng, (ic, oc) = np.random.default_rng(self.seed), self.channels
        x = operand(rng, self.machine.act, (self.batch, *self.image, self.groups * ic), self.patterns[0])
        return x, operand(rng, self.machine.wgt, (self.groups * oc, ic, *self.window), self.patterns[1])

    @property
    def bias(self) -> Values:
        """Integers of any size that sums leave room for."""
        channels = self.groups * self.channels[1]
        return np.random.default_rng(self.seed).integers(-(1 << 28), 1 << 28, channels) * self.biased

    def made(self, w: Values, epilogue: Any = None) -> Conv2d:
        """The layer."""
        m = self.machine
        return Conv2d(
            w + m.wgt.zero,
            m.act.bits,
            m.wgt.bits,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            act_encoding=m.act.encoding,
            weight_encoding=m.wgt.encoding,
            zero_point=self.zero_point,
            weight_zero_point=m.wgt.zero,
            bias=self.bias,
            layout=self.layout,
            out_layout=self.out_layout,
            epilogue=epilogue,
            threads=self.threads,
            schedule=self.schedule,
        )

    def sums(self) -> Values:
        """What the epilogue takes (N, H, W, C)."""
        x, w = self.operands()
        window: Any = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}
        return convolution(x.astype(np.int64) - self.zero_point, w, **window) + self.bias

    def residual_and_sums(self) -> tuple[Values, Values]:
        """A residual of any elements, and the sums with it; empty if there is none."""
        if not self.residual:
            return np.zeros(0), np.zeros(0)
        sums = self.sums()
        epilogue, _ = finished(self, sums)
        more = elements(self, sums.shape)
        return more, epilogue.value(sums, more)

    def prepared(self) -> tuple[Conv2d, Values, Values]:
        """The layer, its input as it lies in memory, and the output it must give."""
        (x, w), sums = self.operands(), self.sums()
        epilogue, want = finished(self, sums)
        bits = getattr(epilogue, "bits", 0)
        return self.made(w, epilogue), given(self, x), laid(want, self.out_layout, bits)

    def run_once(self) -> Values:
        """What the layer gives."""
        layer, x, _ = self.prepared()
        results: Values = layer(x)
        return results


def operand(rng: Generator, what: MatmulOperand, shape: tuple[int, ...], pattern: str) -> Values:
    """Values of an operand: any, or the greatest, the least or the one nearest 0 everywhere."""
    values = np.array([what.value(c) for c in what.codes])
    if pattern == "random":
        return values[rng.integers(0, len(values), shape)]
    return np.full(shape, {"max": values[-1], "min": values[0], "zero": min(values, key=abs)}[pattern])


def given(case: Case, x: Values) -> Values:
    """Values, or words where the layer reads those."""
    act = case.machine.act
    return words(act.encode(x, "x"), act.bits) if case.layout == "packed" else laid(x, case.layout, 0)


def laid(x: Values, layout: str, bits: int) -> Values:
    """`x` (N, H, W, C) as a layout has it."""
    if layout == "packed":
        return words(x, bits)
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if layout == "NCHW" else x


def words(codes: Values, bits: int) -> Values:
    """For every 64 channels a word a bit; bit 8 b + q is channel 8 q + b."""
    channels = codes.shape[-1]
    codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], -channels % 64), codes.dtype)], axis=-1)
    codes = codes.reshape(*codes.shape[:-1], -1, 1, 8, 8).swapaxes(-1, -2).reshape(*codes.shape[:-1], -1, 1, 64)
    planes = codes.astype(np.uint64) >> np.arange(bits, dtype=np.uint64)[:, None] & np.uint64(1)
    out: Values = (planes << np.arange(64, dtype=np.uint64)).sum(axis=-1, dtype=np.uint64)
    return out.reshape(*out.shape[:-2], -1)


def convolution(
    x: Values,
    w: Values,
    *,
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Values:
    """int64 sums of values `x` (N, H, W, C) and `w` (OC, C / groups, KH, KW); padding is 0."""
    top, left, bottom, right = padding
    x = np.pad(x.astype(np.int64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    n, h, wide, _ = x.shape
    oc, ic, kh, kw = w.shape
    oh = (h - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (wide - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((n, oh, ow, groups, oc // groups), np.int64)
    parts = w.astype(np.int64).reshape(groups, oc // groups, ic, kh, kw)
    for ky in range(kh):
        for kx in range(kw):
            y0, x0 = ky * dilation[0], kx * dilation[1]
            seen = x[:, y0 : y0 + stride[0] * (oh - 1) + 1 : stride[0], x0 : x0 + stride[1] * (ow - 1) + 1 : stride[1]]
            seen = seen.reshape(n, oh, ow, groups, ic)
            out += np.einsum("nyxgi,goi->nyxgo", seen, parts[..., ky, kx])
    return out.reshape(n, oh, ow, oc)


def elements(case: Case, shape: tuple[int, ...]) -> Values:
    """Elements of a residual: of any size, or whole numbers of few bits."""
    rng = np.random.default_rng(case.seed + 2)
    if case.residual == "float32":
        return rng.normal(size=shape).astype(np.float32)
    ends = np.iinfo(case.residual)
    some = rng.integers(ends.min, ends.max + 1, shape)
    return np.where(rng.integers(0, 2, shape), some, some % 100).astype(case.residual)


def residual(rng: Generator, case: Case, shape: tuple[int, ...]) -> tuple[Residual, Values]:
    """A residual, and what it adds."""
    given, channels = elements(case, shape), shape[-1]
    if case.residual == "float32":
        factor = rng.normal(size=channels).astype(np.float32)
        return Residual(case.residual, factor, keep_sum=True), given * factor
    zero = 0 if case.residual == "int32" else int(np.iinfo(case.residual).max)
    distance = given.astype(np.int64) - zero
    if case.epilogue == "scale":
        factor = rng.normal(size=channels).astype(np.float32)
        return Residual(case.residual, factor, zero, keep_sum=True), factor * distance.astype(np.float32)
    whole = rng.integers(-9, 10, channels)
    return Residual(case.residual, whole, zero, keep_sum=True), whole * distance


def finished(case: Case, sums: Values) -> tuple[Any, Values]:
    """An epilogue that the sums make hard, and what it must make of them."""
    rng, channels = np.random.default_rng(case.seed + 1), sums.shape[-1]
    more: dict[str, Any] = {}
    added: Values = np.zeros((), np.float32)
    if case.residual:
        more["residual"], added = residual(rng, case, sums.shape)
    if case.epilogue == "scale":
        scale, bias = rng.normal(size=(2, channels)).astype(np.float32)
        values = sums.astype(np.float32) * scale + bias
        return Scale(scale, bias, **more), values + added if more else values
    sums = (sums + added).astype(np.int32).astype(np.int64) if more else sums
    if case.epilogue == "requantize":
        shift, bits = int(rng.integers(0, 40)), case.levels.bit_length()
        multiplier = rng.choice([0, 1, -1, 3, INT32.max, INT32.min, 1 << 20], channels)
        half = (1 << shift) >> 1
        codes = (sums * multiplier + half) >> shift
        return Requantize(multiplier, shift, bits, **more), codes.clip(0, (1 << bits) - 1).astype(np.uint8)
    if case.epilogue == "thresholds":
        levels = thresholds(rng, sums, case.levels)
        return Thresholds(levels, **more), (sums[..., None] > levels).sum(axis=-1).astype(np.uint8)
    return None, sums


def thresholds(rng: Generator, sums: Values, count: int) -> Values:
    """Levels on sums that occur, next to them, and at the ends of int32."""
    channels = sums.shape[-1]
    some = rng.choice(sums.reshape(-1), (channels, count)) + rng.integers(-1, 2, (channels, count))
    ends = rng.choice([INT32.min, INT32.max, -1, 0], (channels, count))
    return np.sort(np.where(rng.integers(0, 4, (channels, count)) > 0, some, ends), axis=1)


def check(case: Case) -> None:
    """The layer gives what it must, to the bit."""
    layer, x, want = case.prepared()
    got = layer(x)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want, strict=False)


def pairs(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.tuples(values, values)


@st.composite
def cases(
    draw: st.DrawFn,
    machines: Sequence[Machine],
    *,
    most: int = 9,
    threads: int = 4,
    deep: int = 80,
    epilogues: Sequence[str] = EPILOGUES,
    levels: Sequence[int] = LEVELS,
) -> Case:
    """Any layer around one of `machines`."""
    m = draw(st.sampled_from(machines))
    epilogue = draw(st.sampled_from(epilogues))
    codes = epilogue in ("requantize", "thresholds")
    window, dilation = draw(pairs(st.integers(1, 4))), draw(pairs(st.integers(1, 3)))
    padding = draw(st.one_of(st.just((0, 0, 0, 0)), st.tuples(*[st.integers(0, 3)] * 4)))
    pads = padding[0] + padding[2], padding[1] + padding[3]
    least = [max(1, d * (k - 1) + 1 - p) for k, d, p in zip(window, dilation, pads, strict=True)]
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 5)))
    sizes = st.one_of(st.integers(1, deep // groups + 1), st.sampled_from((1, 3, 4, 8, 16, 64, 65)))
    return Case(
        machine=m,
        batch=draw(st.integers(1, 3)),
        image=(draw(st.integers(least[0], least[0] + most)), draw(st.integers(least[1], least[1] + most))),
        channels=(draw(sizes), draw(sizes)),
        window=window,
        stride=draw(pairs(st.integers(1, 3))),
        padding=padding,
        dilation=dilation,
        groups=groups,
        zero_point=draw(st.sampled_from((0, 0, 1, -1, 3, 200))),
        biased=draw(st.booleans()),
        layout=draw(st.sampled_from(LAYOUTS)),
        out_layout=draw(st.sampled_from(LAYOUTS if codes else LAYOUTS[:2])),
        epilogue=epilogue,
        levels=draw(st.sampled_from(levels)),
        gather=draw(st.sampled_from(gathers(pairs=m.method == "pairs"))),
        columns_first=draw(st.booleans()),
        block_rows=draw(st.sampled_from((0, 0, 1, 7, 1 << 20))),
        band_rows=draw(st.sampled_from((0, 0, 1, 2, 5))),
        threads=draw(st.integers(1, threads)),
        patterns=draw(pairs(st.sampled_from(PATTERNS))),
        seed=draw(st.integers(0, 1 << 16)),
    )


def few_cases(machines: Sequence[Machine]) -> st.SearchStrategy[Case]:
    """Layers with sums or one kind of epilogue a machine: each pair of kernel and epilogue's program is a library."""
    kinds = zip(machines, cycle(EPILOGUES[:0:-1]), cycle((3, 15, 255, 7)), strict=False)
    return st.one_of([cases([m], epilogues=("none", kind), levels=(levels,)) for m, kind, levels in kinds])


def usable(m: Machine, skip_isa: Callable[[str, str], None]) -> Runner | None:
    """The layers of `m` are compiled, or the test is skipped where nothing runs them."""
    try:
        return Case(m, 1, (1, 1), (1, 1), (1, 1)).prepared()[0].runner
    except ToolError as why:
        skip_isa(m.isa, str(why))
        return None
