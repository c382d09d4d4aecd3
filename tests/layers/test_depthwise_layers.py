"""Layers with few channels a group on depthwise kernels, against integers in numpy."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from support.case_selection import pairs

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import load
from bitsynth.layers.depthwise import kernel_for, list_estimates
from bitsynth.layers.geometry import geometry_of
from bitsynth.layers.packed_codes import pack_words
from bitsynth.layers.schedule import DEPTHWISE, LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.spec.matmul import Encoding, MatmulOperand

SETS = ("avx2", "avx512", "neon", "neon_dotprod", "armv7_neon")
BITS = range(1, 9)
NATIVE = [name for name in SETS if runs_natively(load(name).table)]
ENCODINGS = ("unsigned", "signed", "bipolar", "ternary")


def plain_convolution(x, w, stride, padding, dilation, groups):
    """Sums (N, OH, OW, OC) of values x (N, H, W, C) and w (OC, IC / groups, KH, KW)."""
    (n, h, width, c), (oc, ic, kh, kw) = x.shape, w.shape
    top, left, bottom, right = padding
    padded = np.zeros((n, h + top + bottom, width + left + right, c), np.int64)
    padded[:, top : top + h, left : left + width] = x
    oh = (padded.shape[1] - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (padded.shape[2] - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    source = np.arange(oc) // (oc // groups) * ic
    out = np.zeros((n, oh, ow, oc), np.int64)
    for ky, kx, i in np.ndindex(kh, kw, ic):
        y, z = ky * dilation[0], kx * dilation[1]
        seen = padded[:, y : y + (oh - 1) * stride[0] + 1 : stride[0], z : z + (ow - 1) * stride[1] + 1 : stride[1]]
        out += seen[..., source + i] * w[:, i, ky, kx]
    return out


def operand(rng, bits, encoding):
    return MatmulOperand(2 if encoding == "ternary" else bits, Encoding(encoding))


def values(rng, of, shape):
    return np.array([of.value(c) for c in of.codes])[rng.integers(0, len(of.codes), shape)]


def geometry(rng) -> dict[str, Any]:
    """A random window that fits a random image: channels, window, image."""
    while True:
        g: dict[str, Any] = {
            "groups": int(rng.choice([2, 3, 16, 31, 33, 64, 100])),
            "ic": int(rng.choice([1, 1, 1, 2, 3])),
            "multiplier": int(rng.choice([1, 1, 2, 3])),
            "kernel": tuple(int(n) for n in rng.integers(1, 5, 2)),
            "stride": tuple(int(n) for n in rng.integers(1, 4, 2)),
            "dilation": tuple(int(n) for n in rng.integers(1, 3, 2)),
            "padding": tuple(int(n) for n in rng.integers(0, 4, 4)),
            "image": (int(rng.integers(1, 3)), int(rng.integers(1, 12)), int(rng.integers(1, 20))),
        }
        top, left, bottom, right = g["padding"]
        reach = [d * (k - 1) + 1 for d, k in zip(g["dilation"], g["kernel"], strict=True)]
        if g["image"][1] + top + bottom >= reach[0] and g["image"][2] + left + right >= reach[1]:
            return g


def epilogue(rng, sums, out_layout):
    """An epilogue, the results it makes of `sums`, and bits of codes."""
    channels, kind = sums.shape[-1], int(rng.integers(0, 2 if out_layout == "packed" else 4))
    if kind == 0:
        levels = np.sort(rng.integers(sums.min() - 1, sums.max() + 2, (channels, 3)))
        return bitsynth.Thresholds(levels), (sums[..., None] > levels).sum(-1), 2
    if kind == 1:
        multiplier = rng.integers(1, 9, channels)
        return bitsynth.Requantize(multiplier, 4, 4), np.clip((sums * multiplier + 8) >> 4, 0, 15), 4
    if kind == 2:
        return bitsynth.Scale(0.5, 1.0), sums.astype(np.float32) * np.float32(0.5) + np.float32(1), 0
    return None, sums, 0


def check_random(rng, isa, act_bits, w_bits):
    """One random layer, exact."""
    act, wgt = (operand(rng, bits, rng.choice(ENCODINGS)) for bits in (act_bits, w_bits))
    g, (layout, out_layout) = geometry(rng), (str(x) for x in rng.choice(["NHWC", "NCHW", "packed"], 2))
    x = values(rng, act, (*g["image"], g["groups"] * g["ic"]))
    w = values(rng, wgt, (g["groups"] * g["multiplier"], g["ic"], *g["kernel"]))
    window: dict[str, Any] = {name: g[name] for name in ("stride", "padding", "dilation", "groups")}
    result, want, out_bits = epilogue(rng, plain_convolution(x, w, **window), out_layout)
    cpu = str(rng.choice(list(load(isa).table.cpu)))  # one without dot products too
    schedule = LayerSchedule(isa, DEPTHWISE, kernel_for(isa, act, wgt, cpu).program.unit, "indirect")
    encodings: dict[str, Any] = {"act_encoding": str(act.encoding), "weight_encoding": str(wgt.encoding)}
    layouts: dict[str, Any] = {
        "layout": layout,
        "out_layout": out_layout,
        "threads": int(rng.integers(1, 4)) if isa in NATIVE else 1,
    }
    conv = bitsynth.Conv2d(
        w, act.bits, wgt.bits, **window, **encodings, **layouts, isa=isa, cpu=cpu, schedule=schedule, epilogue=result
    )
    codes = act.encode(x, "x")
    given = {"NHWC": codes, "NCHW": np.ascontiguousarray(codes.transpose(0, 3, 1, 2))}
    got = conv.run(pack_words(codes, act.bits) if layout == "packed" else given[layout])
    if out_layout == "packed":
        want = pack_words(want.astype(np.uint8), out_bits)
    if out_layout == "NCHW":
        want = want.transpose(0, 3, 1, 2)
    assert np.array_equal(np.asarray(getattr(got, "words", got)), want), (act, wgt, g, layouts, result, cpu)


@pytest.mark.parametrize(("act_bits", "w_bits"), [(1, 8), (8, 4)])
def test_random_layers_are_exact(act_bits, w_bits):
    rng = np.random.default_rng(10 * act_bits + w_bits)
    for _ in range(3):
        check_random(rng, (NATIVE or ["neon"])[0], act_bits, w_bits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("isa", "act_bits", "w_bits"),
    [(isa, *widths) for k, isa in enumerate(SETS) for turn in (k, k + 4) for widths in pairs(BITS, BITS, turn)],
)
def test_all_widths_are_exact_on_every_set(isa, act_bits, w_bits):
    """A quarter of all pairs of widths with each set, each width on both sides twice; all pairs with some set."""
    rng = np.random.default_rng(10 * act_bits + w_bits)
    for _ in range(2 if isa in NATIVE else 1):
        check_random(rng, isa, act_bits, w_bits)


def test_extreme_values_do_not_overflow():
    """All products the greatest there are: lanes are as full as the proof lets them be."""
    for act_bits, w_bits in ((4, 4), (8, 8), (2, 2), (8, 4)):
        act, wgt = MatmulOperand(act_bits, Encoding.UNSIGNED), MatmulOperand(w_bits, Encoding.SIGNED)
        for end in (0, -1):
            x = np.full((1, 12, 12, 40), act.value(act.codes[-1]))
            w = np.full((40, 1, 9, 9), wgt.value(wgt.codes[end]))
            conv = bitsynth.Conv2d(
                w, act_bits, w_bits, groups=40, weight_encoding="signed", schedule=_depthwise(act, wgt)
            )
            assert (conv(x) == 81 * x[0, 0, 0, 0] * w[0, 0, 0, 0]).all()


def _depthwise(act, wgt):
    isa = (NATIVE or ["neon"])[0]
    return LayerSchedule(isa, DEPTHWISE, kernel_for(isa, act, wgt).program.unit, "indirect")


def test_plan_takes_it_when_groups_are_small():
    rng = np.random.default_rng(0)
    small = bitsynth.Conv2d(rng.choice([-1, 1], (128, 1, 3, 3)), 4, 1, groups=128, isa="avx2")
    large = bitsynth.Conv2d(rng.choice([-1, 1], (128, 64, 3, 3)), 1, 1, groups=2, isa="avx2")
    assert small.schedule.method == DEPTHWISE
    assert large.schedule.method != DEPTHWISE
    assert "depthwise" in small.explain()


def test_sums_that_may_leave_int32_are_refused():
    w = np.ones((2, 1, 182, 182), np.int64)
    with pytest.raises(SpecError, match="may leave int32"):
        bitsynth.Conv2d(w, 8, 8, groups=2, weight_encoding="unsigned", image=(200, 200), isa="avx2")


def test_copies_and_pickles():
    rng = np.random.default_rng(1)
    conv = bitsynth.Conv2d(rng.choice([-1, 1], (32, 1, 3, 3)), 4, 1, groups=32)
    x = rng.integers(0, 16, (1, 5, 5, 32))
    want = conv(x)
    assert (copy.copy(conv)(x) == want).all()
    assert (pickle.loads(pickle.dumps(conv))(x) == want).all()


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("channels", "width"), [(8, 24), (12, 10), (16, 13), (5, 7), (40, 12)])
def test_pixels_share_units_of_few_channels(channels, width, stride):
    """Weights and constants are repeated for each pixel of a unit; a call joins as many as divide its rows."""
    rng = np.random.default_rng(channels + stride)
    act, wgt = MatmulOperand(8, Encoding.UNSIGNED), MatmulOperand(8, Encoding.SIGNED)
    x, w = rng.integers(0, 256, (2, 7, width, channels)), rng.integers(-128, 128, (channels, 1, 3, 3))
    window: dict[str, Any] = {"stride": stride, "padding": (1, 1, 1, 1), "groups": channels}
    sums = plain_convolution(x, w, (stride, stride), (1, 1, 1, 1), (1, 1), channels)
    schedule = _depthwise(act, wgt)
    how: dict[str, Any] = {"isa": schedule.isa, "schedule": schedule, "threads": 2 if NATIVE else 1}
    for kind in (bitsynth.Scale(rng.random(channels), rng.random(channels)), None):
        conv = bitsynth.Conv2d(w, 8, 8, **window, **how, weight_encoding="signed", epilogue=kind)
        fits = schedule.channels // channels
        assert conv.packed.constants.numbers["joined_pixels"] == (fits if fits > 1 else 0)
        np.testing.assert_array_equal(conv(x), kind.reference(sums) if kind else sums)


def test_rows_of_joined_pixels_cost_less():
    """A unit of 8 channels takes a pixel where it holds no other, and as many as it has room for otherwise."""
    act, wgt = MatmulOperand(8, Encoding.UNSIGNED), MatmulOperand(8, Encoding.SIGNED)
    isa = (NATIVE or ["neon"])[0]
    cycles = {}
    for width in (47, 48):
        geometry = geometry_of((8, 1, 3, 3), stride=1, padding=1, dilation=1, groups=8)
        layer = LayerSpec(act, wgt, geometry, image=(48, width))
        cycles[width] = list_estimates(layer, isa)[0].cycles
    assert cycles[48] < 0.6 * cycles[47]
