"""Glue: what each operation means, that C gives it, and what is refused."""

import copy
import pickle
import re
from fractions import Fraction
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from support.glue_cases import SCALES, GlueCase, cases, check
from support.layer_cases import QUIET

import bitsynth
from bitsynth import Packed, Pool, SpecError, pack, unpack
from bitsynth.layers.glue import (
    Add,
    AvgPool2d,
    Concatenate,
    DepthToSpace,
    Dequantize,
    FloatLookup,
    GlobalAvgPool2d,
    Lookup,
    MaxPool2d,
    Pad2d,
    PairLookup,
    Quantization,
    Quantize,
    QuantizeImage,
    Resize,
    programs,
)

Q: Any = Quantization
RNG = np.random.default_rng(0)


def codes(channels, bits, size=(6, 7)):
    return RNG.integers(0, 1 << bits, (2, *size, channels), np.uint8)


@settings(max_examples=150, **QUIET)
@given(case=cases())
def test_c_gives_what_numpy_does(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx2", "avx512", "neon", "armv7_neon"])
def test_c_gives_what_numpy_does_on_every_architecture(isa, skip_isa):
    try:
        programs.library(isa)
    except bitsynth.ToolError as why:
        skip_isa(isa, str(why))

    @settings(max_examples=600 if isa.startswith("avx") else 150, **QUIET)
    @given(case=cases(isa=isa))
    def each(case):
        check(case)

    each()


def test_codes_are_said_by_bits_or_a_quantization():
    x = codes(3, 2)
    np.testing.assert_array_equal(MaxPool2d(3, Q(2), 2)(x), MaxPool2d(3, 2, 2)(x))
    np.testing.assert_array_equal(AvgPool2d(3, 2, 2)(x), AvgPool2d(3, Q(2), 2)(x))
    assert MaxPool2d(3, Q(2, encoding="signed"), 2, layout="packed").output.operand.encoding == "signed"


def test_threads_share_the_lines():
    x = codes(70, 3, (19, 5))
    with Pool(3) as pool:
        for layout in ("NHWC", "packed"):
            layer = MaxPool2d(70, 3, 3, padding=1, layout=layout, threads=pool)
            laid = layer.inputs[0].lay_out(x)
            np.testing.assert_array_equal(layer(laid), layer.output.lay_out(layer.meaning(x)))


def half_even(x):
    whole = x.numerator // x.denominator
    return whole + (x - whole > Fraction(1, 2) or (x - whole == Fraction(1, 2) and whole % 2 == 1))


def real(q, code):
    return Fraction(float(np.float32(q.scale))) * (q.operand.value(code) - q.zero_point)


def code_of(q, value):
    value = half_even(value / Fraction(float(np.float32(q.scale)))) + q.zero_point
    return int(np.clip(value - q.operand.offset, 0, q.operand.codes[-1]))


@pytest.mark.parametrize(("first", "second"), list(product(SCALES, (1.0, 0.1, 3.0))))
def test_a_sum_is_rounded_once(first, second):
    a, b, out = Q(3, first, 2), Q(2, second, -1, "signed"), Q(4, 0.5, 3)
    want = [[code_of(out, real(a, i) + real(b, j)) for j in b.operand.codes] for i in a.operand.codes]
    np.testing.assert_array_equal(Add(1, a, b, out).pairs, want)


def test_sums_that_fixed_point_cannot_give_are_a_table():
    """Thirds have ties, and no binary fraction is a third."""
    layer = Add(1, Q(8), Q(8), Q(8, 6.0))
    assert "tables" in layer.constants.arrays
    assert "tables" not in Add(1, Q(8, 0.1), Q(8, 0.23), Q(8, 0.31)).constants.arrays
    x = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    np.testing.assert_array_equal(layer(x, x[:, ::-1]), layer.meaning(x, x[:, ::-1]))


@pytest.mark.parametrize(
    ("scales", "zeros"),
    [
        ((0.00094598020, 0.0013178551, 0.0014428732), (106, 135, 140)),
        ((0.0016685065, 0.0012259316, 0.0018901263), (120, 168, 139)),
        ((0.0018901263, 0.0010708376, 0.0020732775), (139, 118, 128)),
        ((0.0016964695, 0.0013768991, 0.0020861784), (131, 125, 122)),
        ((0.03, 0.0217, 0.035), (130, 119, 130)),
    ],
)
@pytest.mark.parametrize("isa", ["avx2", pytest.param("neon", marks=pytest.mark.slow)])
def test_shortcuts_of_mobilenet_are_sums_for_all_pairs(scales, zeros, isa):
    """Factors next to the scales are wrong for some pair; others, and the summand in their room, are not."""
    layer = Add(256, *(Q(8, float(np.float32(s)), z) for s, z in zip(scales, zeros, strict=True)), isa=isa)
    assert "tables" not in layer.constants.arrays
    a, b = np.meshgrid(*(np.arange(256, dtype=np.uint8),) * 2, indexing="ij")
    np.testing.assert_array_equal(np.asarray(layer(a[None, None], b[None, None]))[0, 0], layer.pairs)


@pytest.mark.parametrize(("first", "second"), [(1e30, 1.0), (1.0, 1e30), (1e-30, 1e30)])
def test_scales_of_sums_lie_as_far_apart_as_they_like(first, second):
    a, b, out = Q(2, first), Q(3, second, 2), Q(4, 0.5, 3)
    want = [[code_of(out, real(a, i) + real(b, j)) for j in range(8)] for i in range(4)]
    x, y = codes(3, 2), codes(3, 3)
    np.testing.assert_array_equal(Add(3, a, b, out)(x, y), np.array(want)[x, y])
    for isa in ("avx2", "avx512", "neon", "armv7_neon"):  # of which not all look pairs of few bits up
        np.testing.assert_array_equal(Add(3, a, b, out, isa=isa).pairs, want)


def qlinear_add(a, b, out):
    """ONNX Runtime's, for every pair: each operation in float32."""
    f = np.float32
    first, second = ((np.arange(256, dtype=f) - f(q.zero_point)) * f(q.scale) for q in (a, b))
    return np.clip(np.rint((first[:, None] + second) / f(out.scale)) + out.zero_point, 0, 255).astype(int)


@pytest.mark.parametrize(("first", "second", "out"), [(0.023, 0.031, 0.047), (0.1, 0.25, 0.3), (1.0, 0.5, 6.0)])
def test_pairs_by_a_formula_of_floats(first, second, out):
    """Sums if there are such, else a table of all."""
    a, b, out = Q(8, first, 130), Q(8, second, 3), Q(8, out, 120)
    pairs = qlinear_add(a, b, out)
    layer = PairLookup(256, pairs, a, b, out)
    x, y = (np.ascontiguousarray(x.reshape(1, 1, 256, 256).astype(np.uint8)) for x in np.indices((256, 256)))
    np.testing.assert_array_equal(layer(x, y)[0, 0], pairs)


def test_any_function_of_pairs_and_codes():
    x, y = codes(3, 8), codes(3, 3)
    product = np.arange(256)[:, None] * np.arange(8) % 32
    np.testing.assert_array_equal(PairLookup(3, product, 8, 3, 5)(x, y), product[x, y])
    roots = (np.sqrt(np.arange(8)) * [[1], [-1], [np.nan]]).astype(np.float32)
    np.testing.assert_array_equal(FloatLookup(3, roots, 3)(y), roots[np.arange(3), y])
    np.testing.assert_array_equal(FloatLookup(3, roots[0], 3, layout="packed")(pack(y, 3)), roots[0][y])


def test_concatenated_codes_are_requantized():
    a, b, out = Q(2, 0.3), Q(4, 0.11, 3, "signed"), Q(3, 0.25, 1)
    x, y = codes(2, 2), codes(1, 4)
    want = [[code_of(out, real(q, int(c))) for c in part.ravel()] for q, part in ((a, x), (b, y))]
    result = Concatenate([(2, a), (1, b)], out)(x, y)
    np.testing.assert_array_equal(result[..., :2].ravel(), want[0])
    np.testing.assert_array_equal(result[..., 2:].ravel(), want[1])


@pytest.mark.parametrize("out", [None, Q(3, 0.7, 2)])
def test_a_mean_is_rounded_once(out):
    q = Q(4, 0.3, 1, "signed")
    x = codes(3, 4, (3, 4))
    result = GlobalAvgPool2d(3, q, out)(x)
    want = [
        [code_of(out or q, sum(real(q, int(c)) for c in x[n, ..., k].ravel()) / 12) for k in range(3)] for n in (0, 1)
    ]
    np.testing.assert_array_equal(result[:, 0, 0], want)


@pytest.mark.parametrize("q", [Q(4, 1.0, 1, "signed"), Q(4, 1.0, 2, "signed"), Q(3, 2.0, 1), Q(2, 1.0, 0, "ternary")])
def test_a_half_goes_to_the_even_number_not_the_even_code(q):
    x = np.array([c for code in range(2) for c in (code, code + 1)], np.uint8).reshape(1, 1, 4, 1)
    want = [code_of(q, (real(q, c) + real(q, c + 1)) / 2) for c in range(2)]
    np.testing.assert_array_equal(AvgPool2d(1, q, (1, 2))(x).ravel(), want)


@pytest.mark.parametrize("rounding", ["even", "up", "down"])
def test_a_mean_beyond_the_last_code_is_that(rounding):
    """Scales are alike, but the codes that are given are fewer."""
    x = np.array([0, 2, 6, 8, 15, 15], np.uint8).reshape(1, 1, 6, 1)
    for out, last in ((Q(2), 3), (Q(2, encoding="ternary"), 2)):
        result = AvgPool2d(1, Q(4), (1, 2), out, rounding=rounding)(x)
        values = [out.operand.value(int(c)) for c in result.ravel()]
        top = out.operand.value(last)
        assert values == [1, top, top]
        assert GlobalAvgPool2d(1, Q(4), out, rounding=rounding)(x).ravel().tolist() == [last]


def test_rounding_of_means():
    x = np.array([0, 1, 1, 2, 0, 3], np.uint8).reshape(1, 1, 6, 1)
    means = {r: AvgPool2d(1, Q(2), (1, 2), rounding=r)(x).ravel().tolist() for r in ("even", "up", "down")}
    assert means == {"even": [0, 2, 2], "up": [1, 2, 2], "down": [0, 1, 1]}
    assert AvgPool2d(1, Q(2), (1, 2), stride=1, padding=(0, 1))(x).ravel().tolist() == [0, 0, 1, 2, 1, 2, 3]


@pytest.mark.parametrize(
    "out",
    [
        bitsynth.Requantize(3, 5, 4),
        bitsynth.Requantize(-77, 6, 8, "even", zero_point=5, low=2, high=90),
        bitsynth.Requantize(1, 0, 5, "up", zero_point=-3, signed=True),
        bitsynth.Requantize(12345678, 29, 8, "even", zero_point=3, low=-100, high=99, signed=True),
    ],
)
@pytest.mark.parametrize("q", [Q(4, 1.0, 3), Q(8, 1.0, -1, "signed"), Q(2, encoding="bipolar")])
def test_sums_of_windows_are_requantized(q, out):
    x = codes(5, q.bits, (4, 6))
    values = q.operand.decode(x).astype(int) - q.zero_point
    layer = AvgPool2d(5, q, 2, out)
    want = out.reference(values.reshape(2, 2, 2, 3, 2, 5).sum((2, 4)))
    np.testing.assert_array_equal(layer.output.operand.decode(layer(x)), want)
    pool = GlobalAvgPool2d(5, q, out)
    np.testing.assert_array_equal(pool.output.operand.decode(pool(x))[:, 0, 0], out.reference(values.sum((1, 2))))


@pytest.mark.parametrize(
    "q", [Q(3), Q(2, 0.3, 1), Q(4, 0.1, -3, "signed"), Q(2, 1.0, 0, "bipolar"), Q(2, encoding="ternary")]
)
@pytest.mark.parametrize("layout", ["NHWC", "packed"])
def test_sums_of_windows(q, layout):
    """Of values less the zero point; padding is none of them."""
    x = RNG.integers(0, q.operand.codes[-1] + 1, (2, 5, 6, 70)).astype(np.uint8)
    pool = AvgPool2d(70, q, (2, 3), "int32", stride=1, padding=(1, 0), layout=layout)
    values = np.pad(q.operand.decode(x) - q.zero_point, ((0, 0), (1, 1), (0, 0), (0, 0)))
    want = np.lib.stride_tricks.sliding_window_view(values, (2, 3), axis=(1, 2)).sum(axis=(-2, -1))
    np.testing.assert_array_equal(pool(pool.inputs[0].lay_out(x)), want.astype(np.int32), strict=True)
    check(GlueCase(GlobalAvgPool2d(70, q, "int32", layout=layout), (x,)))


def test_resizing_and_blocks():
    x = np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4)
    assert Resize(4, 8, (1, 2))(x)[0, 0, :, 0].tolist() == [0, 0, 4, 4, 8, 8]
    assert Resize(4, 8, size=(1, 2))(x)[0, 0, :, 0].tolist() == [0, 4]
    assert Resize(4, 8, size=(1, 2), centers=True)(x)[0, 0, :, 0].tolist() == [0, 8]
    assert DepthToSpace(4, 8, 2)(x)[0, :, :, 0].tolist() == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    eight = np.arange(8, dtype=np.uint8).reshape(1, 1, 1, 8)
    assert DepthToSpace(8, 8, 2)(eight)[0].tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert DepthToSpace(8, 8, 2, mode="CRD")(eight)[0].tolist() == [[[0, 4], [1, 5]], [[2, 6], [3, 7]]]


def test_floats_are_quantized_as_onnx_says():
    x = np.array([-9, -0.75, -0.25, 0.25, 0.75, 1.25, 9, np.nan, np.inf, -np.inf], np.float32).reshape(1, 1, -1, 1)
    assert Quantize(1, Q(3, 0.5, 1))(x).ravel().tolist() == [0, 0, 1, 1, 3, 3, 7, 0, 7, 0]
    assert Quantize(1, Q(3, 0.5, 0, "signed"), low=-1, high=2)(x).ravel().tolist() == [3, 3, 4, 4, 6, 6, 6, 3, 6, 3]
    assert Quantize(1, Q(1, 0.5, 0, "bipolar"))(x).ravel().tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 1, 0]
    assert Dequantize(1, Q(2, 0.1, -1, "signed"))(np.array([[[[0], [3]]]], np.uint8)).ravel().tolist() == [
        np.float32(-1) * np.float32(0.1),
        np.float32(2) * np.float32(0.1),
    ]


def test_an_image_is_quantized_as_its_formula():
    image = RNG.integers(0, 256, (1, 9, 5, 3), np.uint8)
    mean, std = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)
    x = (image.astype(np.float32) / np.float32(255) - mean) / std
    want = np.clip(np.rint(x / np.float32(0.02)) + 110, 0, 255)
    np.testing.assert_array_equal(QuantizeImage(mean, std, Q(8, 0.02, 110))(image), want)


def test_words_are_read_and_given_with_their_type():
    words = pack(codes(70, 2) % 3, 2, "ternary")
    result = MaxPool2d(70, 2, 2, encoding="ternary", layout="packed")(words)
    assert isinstance(result, Packed)
    assert (result.bits, result.encoding, result.channels) == (2, "ternary", 70)
    np.testing.assert_array_equal(unpack(result), MaxPool2d(70, 2, 2)(unpack(words)))
    with pytest.raises(SpecError, match="want words of 2-bit unsigned, 70 channels, not of 2-bit ternary"):
        MaxPool2d(70, 2, 2, layout="packed")(words)


def test_a_layer_of_weights_and_glue():
    w = RNG.choice([-1, 1], (64, 64, 1, 1))
    levels = np.array([-8, 0, 9])
    conv = bitsynth.Conv2d(w, 2, 1, isa="avx2", layout="packed", epilogue=bitsynth.Thresholds([levels] * 64))
    x = codes(64, 2)
    result: Any = MaxPool2d(64, 2, 2, layout="packed")(conv(pack(x, 2)))
    sums = x.astype(int) @ w[..., 0, 0].T
    want = (sums[..., None] > levels).sum(-1)[:, :, :6].reshape(2, 3, 2, 3, 2, 64).max((2, 4))
    np.testing.assert_array_equal(unpack(result), want)


def test_codes_that_are_none_change_nothing():
    layer = Lookup(3, [0, 1, 2, 3], 2)
    call, out = layer.bind(np.full((1, 2, 2, 3), 4, np.uint8))
    out[...] = 77
    assert (call(), set(out.ravel().tolist())) == (-3, {77})


def test_no_images_and_copies():
    assert MaxPool2d(3, 2, 2)(codes(3, 2)[:0]).shape == (0, 3, 3, 3)
    words = pack(codes(3, 2)[:0], 2)
    result: Any = MaxPool2d(3, 2, 2, layout="packed")(words)
    assert (words.shape[-1], result.shape, unpack(result).shape) == (2, (0, 3, 3, 2), (0, 3, 3, 3))
    with Pool(2) as pool:
        first, x = MaxPool2d(3, 2, 2, threads=pool), codes(3, 2)
        for layer in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(MaxPool2d(3, 2, 2)))):
            np.testing.assert_array_equal(layer(x), first(x))


X = codes(3, 2)
REFUSED: dict[str, Any] = {
    "codes too great": (lambda: Lookup(3, [0, 1, 2, 3], 2)(X + 4), "codes of 2-bit unsigned go to 3; some are greater"),
    "ternary words": (
        lambda: MaxPool2d(3, 2, 2, encoding="ternary", layout="packed")(np.full((1, 2, 2, 2), 1, np.uint64)),
        "codes of 2-bit ternary go to 2",
    ),
    "narrow words": (
        lambda: MaxPool2d(3, 3, 2, encoding="narrow", layout="packed")(np.full((1, 2, 2, 3), 1, np.uint64)),
        "codes of 3-bit narrow go to 6",
    ),
    "codes of another input": (lambda: Add(3, Q(8), Q(1), Q(8))(X, X), "codes of 1-bit unsigned go to 1"),
    "other type": (
        lambda: MaxPool2d(3, 2, 2)(X.astype(int)),
        "want uint8 activations (N, H, W, C) with C = 3, not int64",
    ),
    "a list": (lambda: MaxPool2d(3, 2, 2)(cast(Any, [[1]])), "not list"),
    "masked": (lambda: MaxPool2d(3, 2, 2)(np.ma.masked_equal(X, 0)), "masked"),
    "axes": (lambda: MaxPool2d(3, 2, 2)(X[0]), "want uint8 activations"),
    "channels": (lambda: MaxPool2d(4, 2, 2)(X), "with C = 4"),
    "inputs": (lambda: Add(3, Q(2), Q(2), Q(2))(X), "takes 2 inputs, not 1"),
    "sizes": (lambda: Add(3, Q(2), Q(2), Q(2))(X, X[:, 1:]), "inputs differ in size"),
    "room": (lambda: MaxPool2d(3, 2, 9)(X), "no room for a window"),
    "wide padding": (lambda: MaxPool2d(3, 2, 2, padding=2), "must be less than the window reaches over"),
    "large window": (lambda: AvgPool2d(3, Q(2), (9999, 9999)), "is more than sums can take"),
    "large image": (lambda: GlobalAvgPool2d(1, Q(8), Q(8, 1e-30)), "too far apart"),
    "multipliers": (
        lambda: AvgPool2d(3, 2, 2, bitsynth.Requantize([1, 2, 3], 3, 4)),
        "the multiplier of sums must be one number",
    ),
    "a great shift": (lambda: AvgPool2d(3, 2, 2, bitsynth.Requantize(1, 62, 4)), "leaves no room for sums"),
    "sums of 16 bits": (lambda: AvgPool2d(3, 2, 2, "int16"), "a Requantize or 'int32', not 'int16'"),
    "packed sums": (lambda: AvgPool2d(3, 2, 2, "int32", out_layout="packed"), "only codes can be packed, not int32"),
    "a residual": (
        lambda: AvgPool2d(3, 2, 2, bitsynth.Requantize(1, 3, 4, residual=bitsynth.Residual())),
        "sums of a window have no residual",
    ),
    "bits of a sum": (lambda: AvgPool2d(3, 2, 2, bitsynth.Requantize(1, 3, 16, signed=True)), "bits must be"),
    "rounding": (lambda: AvgPool2d(3, Q(2), 2, rounding="away"), "unknown rounding 'away'"),
    "layout": (lambda: MaxPool2d(3, 2, 2, layout="NCHW"), "unknown layout 'NCHW'"),
    "no channels": (lambda: MaxPool2d(0, 2, 2), "channels must be"),
    "isa": (lambda: MaxPool2d(3, 2, 2, isa="mmx"), "mmx"),
    "threads": (lambda: MaxPool2d(3, 2, 2, threads=0), "threads must be"),
    "scale NaN": (lambda: Q(2, np.nan), "scale must be a number that float32 holds"),
    "scale infinite": (lambda: Q(2, np.inf), "scale must be a number that float32 holds"),
    "scale too great": (lambda: Q(2, 1e39), "scale must be a number that float32 holds"),
    "scale 0": (lambda: Q(2, 0), "scale must be above 0"),
    "scale that is 0 in float32": (lambda: Q(2, 1e-60), "scale must be above 0"),
    "scale in words": (lambda: Q(2, "1"), "scale must be a number"),
    "zero point": (lambda: Q(2, 1.0, 4), "zero_point must be a whole number from 0 to 3"),
    "zero point of a half": (lambda: Q(2, 1.0, 0.5), "zero_point must be"),
    "bits": (lambda: Q(9), "bits must be"),
    "encoding": (lambda: Q(2, 1.0, 0, "float"), "unknown encoding 'float'"),
    "bipolar sums": (
        lambda: Add(3, Q(2), Q(2), Q(2, 1.0, 0, "bipolar")),
        "bipolar codes stand for every second number",
    ),
    "bipolar floats": (lambda: Quantize(3, Q(2, 1.0, 0, "bipolar")), "bipolar codes of floats are of 1 bit"),
    "pad code": (lambda: Pad2d(3, 2, 1, code=4), "code must be a whole number from 0 to 3"),
    "no padding": (lambda: Pad2d(3, 2, -1), "padding must be"),
    "nothing to pad": (lambda: Pad2d(3, 2, 1)(X[:, :0]), "has nothing to pad"),
    "scale and size": (lambda: Resize(3, 2, 2, size=(2, 2)), "give one of them"),
    "size": (lambda: Resize(3, 2, size=(0, 2)), "size must be"),
    "no pixel": (lambda: Resize(3, 2, 2)(X[:, :0]), "has no nearest pixel"),
    "no mean": (lambda: GlobalAvgPool2d(3, Q(2))(X[:, :0]), "has no mean"),
    "blocks": (lambda: DepthToSpace(3, 2, 2), "3 channels are no blocks of 2 x 2"),
    "mode": (lambda: DepthToSpace(4, 2, 2, mode="RCD"), "unknown mode 'RCD'"),
    "short table": (
        lambda: Lookup(3, [0, 1, 2], 2),
        "table must be integers of shape (4,) or (1, 4) or (3, 4), not int64 (3,)",
    ),
    "table of 256": (lambda: Lookup(3, np.zeros(256, int), 2), "table must be integers of shape (4,)"),
    "tables of others": (
        lambda: Lookup(3, np.zeros((2, 4), int), 2),
        "table must be integers of shape (4,) or (1, 4) or (3, 4)",
    ),
    "entries": (lambda: Lookup(3, [0, 1, 2, 4], 2), "entries of the table are codes from 0 to 3"),
    "entries below 0": (lambda: Lookup(3, [0, 1, 2, -1], 2), "entries of the table are codes"),
    "table of floats": (lambda: Lookup(3, [0.0, 1, 2, 3], 2), "table must be integers of shape (4,)"),
    "pairs of others": (
        lambda: PairLookup(3, np.zeros((3, 4), int), 2, Q(2, encoding="ternary"), 2),
        "table must be integers of shape (4, 3), not int64 (3, 4)",
    ),
    "entries of pairs": (lambda: PairLookup(3, np.full((4, 4), 4), 2, 2, 2), "entries of the table are codes"),
    "no floats": (lambda: FloatLookup(3, ["0"] * 4, 2), "table must be numbers of shape (4,) or (1, 4) or (3, 4)"),
    "great floats": (lambda: FloatLookup(3, [0, 1, 2, 1e39], 2), "the table has numbers that float32 does not hold"),
    "many inputs": (lambda: Concatenate([(1, Q(2))] * 5, Q(2)), "has 1 to 4 inputs, not 5"),
    "mean NaN": (lambda: QuantizeImage([np.nan], [1], Q(8)), "mean has numbers that float32 does not hold"),
    "std 0": (lambda: QuantizeImage([0], [0], Q(8)), "std and unit must be above 0"),
    "unit infinite": (lambda: QuantizeImage([0], [1], Q(8), unit=np.inf), "unit must be a number"),
    "std of others": (lambda: QuantizeImage([0, 1], [1], Q(8)), "want a mean and a std a channel"),
    "scales NaN": (lambda: Quantize(2, Q(2), scale=[1, np.nan]), "scale must have numbers above 0"),
    "scales below 0": (lambda: Dequantize(2, Q(2), scale=[1, -1]), "scale must have numbers above 0"),
    "scales of others": (lambda: Quantize(2, Q(2), scale=[1, 1, 1]), "scale must be one number or 2"),
    "limits": (lambda: Quantize(2, Q(2), low=2, high=1), "low and high must be whole numbers from 0 to 3"),
    "doubles": (lambda: Quantize(3, Q(2))(X * 1.0), "want float32 activations"),
    "no quantization": (
        lambda: Add(3, Q(2), cast(Any, "2"), Q(2)),
        "second must be a Quantization, or a number of bits",
    ),
    "no inputs": (lambda: Concatenate([Q(2)], Q(2)), "inputs are pairs of channels and a Quantization"),
    "channels of a mean": (lambda: AvgPool2d(cast(Any, "3"), 2, 2), "channels must be a whole number"),
    "layouts": (lambda: MaxPool2d(3, 2, 2, layout=cast(Any, np.zeros(2))), "unknown layout"),
    "no layout": (lambda: MaxPool2d(3, 2, 2, out_layout=""), "unknown layout ''"),
    "rounding of others": (lambda: AvgPool2d(3, 2, 2, rounding=cast(Any, np.zeros(2))), "unknown rounding"),
    "centers": (lambda: Resize(3, 2, 2, centers=cast(Any, "yes")), "centers must be True or False"),
    "two encodings": (lambda: MaxPool2d(3, Q(2), 2, encoding="ternary"), "another encoding, 'ternary'"),
    "name": (lambda: MaxPool2d(3, 2, 2).files("main"), "a layer cannot be named 'main'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_glue_is_refused(what):
    make, message = REFUSED[what]
    with pytest.raises((SpecError, TypeError), match=re.escape(message)):
        make()
