"""Layers that add a second tensor before they round: what C gives is what Python says of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.case_selection import quick

from bitsynth.errors import SpecError
from bitsynth.layers import Conv2d, Dense, Requantize, Rescale, Residual, Scale, Thresholds
from bitsynth.layers.packed import pack
from bitsynth.layers.packed_codes import unpack

INTEGERS = ("uint8", "int8", "int16", "int32")
CHANNELS = 70
EPILOGUES = ("thresholds", "falling", "requantize", "rescale", "scale")


def residual(rng, kind, integers, **more):
    """A residual whose sums reach both ends of codes, and with int32 wrap."""
    scale = rng.integers(-3, 4, CHANNELS) if integers else rng.normal(size=CHANNELS).astype(np.float32)
    zero = 0 if kind in ("int32", "float32") else int(rng.integers(np.iinfo(kind).min, np.iinfo(kind).max))
    return Residual(kind, scale, zero, **more)


def elements(rng, kind, shape):
    if kind == "float32":
        return (rng.normal(size=shape) * 100).astype(np.float32)
    ends = np.iinfo(kind)
    any_of_it = rng.integers(ends.min, ends.max + 1, shape)
    return np.where(rng.integers(0, 2, shape), any_of_it, any_of_it % 100).astype(kind)


def epilogue(rng, name, **options):
    if name in ("thresholds", "falling"):
        rising = rng.integers(0, 2, CHANNELS).astype(bool) if name == "falling" else True
        return Thresholds(np.sort(rng.integers(-300, 300, (CHANNELS, 3)), axis=1), rising, **options)
    if name == "requantize":
        return Requantize(rng.integers(-(1 << 22), 1 << 22, CHANNELS), 24, 8, "even", zero_point=9, **options)
    scale = rng.normal(size=CHANNELS).astype(np.float32)
    return Rescale(scale, zero_point=100, **options) if name == "rescale" else Scale(scale, 0.25, **options)


def channels_last(layer, result):
    """Results (N, H, W, C) of any layout."""
    if layer.out_layout == "packed":
        return unpack(result)
    return result.transpose(0, 2, 3, 1) if layer.out_layout == "NCHW" else result


def check(kind, name, isa="avx2", seed=0, layouts=("NHWC", "NCHW", "packed"), **options: Any):
    """Every layout gives numpy's results, on the integers of the sums."""
    rng = np.random.default_rng(seed)
    groups = options.get("groups", 1)
    w = rng.choice([-1, 1], (CHANNELS, CHANNELS // groups, 3, 3))
    x = rng.integers(0, 4, (2, 4, 5, CHANNELS))
    keep = bool(rng.integers(0, 2))
    what = residual(rng, kind, name not in ("rescale", "scale"), keep_sum=keep)
    how = epilogue(rng, name, residual=what)
    sums = Conv2d(w, 2, 1, padding=1, isa=isa, **options)(x)
    given = elements(rng, kind, sums.shape)
    for layout in layouts if name != "scale" else set(layouts) - {"packed"}:
        layer = Conv2d(w, 2, 1, padding=1, isa=isa, out_layout=layout, epilogue=how, **options)
        got = layer(x, residual=given)
        if keep:
            got, kept = got
            np.testing.assert_array_equal(kept, how.value(sums, given), strict=True)
        np.testing.assert_array_equal(channels_last(layer, got), how.reference(sums, given), strict=True)


@pytest.mark.parametrize(("kind", "name"), [("uint8", "thresholds"), ("int32", "requantize"), ("float32", "scale")])
def test_residuals_are_added_exactly(kind, name):
    check(kind, name)


@pytest.mark.parametrize("rising", quick([True], of=[True, False]))
def test_sums_at_the_ends_of_int32(rising):
    """A level there is exact; one beyond, which no program can compare with, is refused."""
    ends = np.iinfo(np.int32)
    what, x = Residual("int32"), np.zeros((4, 8), np.uint8)
    given = np.repeat(np.array([[ends.min], [ends.min + 1], [ends.max - 1], [ends.max]], np.int32), 3, axis=1)
    w = np.ones((3, 8), int)
    levels = [[ends.min, 0], [ends.min + 1, ends.max], [ends.max - 1, 2**40] if rising else [-(2**40), ends.max]]
    how = Thresholds(levels, rising, residual=what)
    got = Dense(w, 2, 1, isa="avx2", epilogue=how)(x, residual=given)
    np.testing.assert_array_equal(got, how.reference(np.zeros_like(given), given), strict=True)
    beyond = Thresholds([[0]] * 2 + [[-(2**40) if rising else 2**40]], rising)
    np.testing.assert_array_equal(Dense(w, 2, 1, isa="avx2", epilogue=beyond)(x), [[0, 0, 1]] * 4)
    with pytest.raises(SpecError, match="thresholds of channel 2 lie beyond int32"):
        Dense(w, 2, 1, isa="avx2", epilogue=replace(beyond, residual=what))


@pytest.mark.slow
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("kind", [*INTEGERS, "float32"])
def test_every_kind_of_residual(kind, name):
    if kind != "float32" or name in ("rescale", "scale"):
        for groups, threads in ((1, 3), (2, 1), (CHANNELS, 2)):
            check(kind, name, seed=groups, groups=groups, threads=threads)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx512", "neon", "armv7_neon"])
@pytest.mark.parametrize(("kind", "name"), [("uint8", "thresholds"), ("int16", "requantize"), ("int8", "falling")])
def test_residuals_on_other_sets(isa, kind, name):
    check(kind, name, isa, layouts=("packed",))


@pytest.fixture(scope="module")
def dense():
    weight = np.random.default_rng(3).choice([-1, 1], (5, 9))
    return Dense(weight, 2, 1, isa="avx2", epilogue=Scale(0.5, residual=Residual("float32", 2.0, keep_sum=True)))


def test_dense_layers_add_residuals(dense):
    x, more = np.ones((3, 9), int), np.arange(15, dtype=np.float32).reshape(3, 5)
    want = x @ dense.weight.reshape(5, 9).T * np.float32(0.5) + 2 * more
    for got in (*dense(x, residual=more), *dense.run(x.astype(np.uint8), residual=more[:, ::-1].copy()[:, ::-1])):
        np.testing.assert_array_equal(got, want)
    call, (out, kept) = dense.bind(x.astype(np.uint8), residual=more)
    assert call() == 0
    np.testing.assert_array_equal([out, kept], [want, want])
    assert [y.shape for y in dense(x[:0], residual=more[:0])] == [(0, 5), (0, 5)]


BAD = {
    "none": (None, r"adds a residual: give one of float32 \(3, 5\)"),
    "a list": ([1.0], "want a residual of float32"),
    "doubles": (np.zeros((3, 5)), r"not float64 \(3, 5\)"),
    "another shape": (np.zeros((5, 3), np.float32), r"not float32 \(5, 3\)"),
    "a masked array": (np.ma.zeros((3, 5), np.float32), "is a masked array; fill its gaps"),
    "infinity": (np.full((3, 5), np.inf, np.float32), "not finite"),
    "no number": (np.where(np.arange(15).reshape(3, 5) == 7, np.float32(np.nan), np.float32(1)), "not finite"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_wrong_residuals_are_refused(dense, given, message):
    x = np.ones((3, 9), np.uint8)
    for call in (dense, dense.run, dense.bind):
        with pytest.raises(SpecError, match=message):
            call(x, residual=given)


def test_a_residual_that_nothing_adds(dense):
    plain = Dense(dense.weight.reshape(5, 9), 2, 1, isa="avx2")
    with pytest.raises(SpecError, match="adds no residual"):
        plain(np.ones((3, 9), int), residual=np.zeros((3, 5), np.float32))


def test_c_refuses_what_is_missing_or_superfluous(dense):
    """By its return value: nothing is written."""
    plain, codes, out = Dense(dense.weight.reshape(5, 9), 2, 1, isa="avx2"), np.zeros((1, 1, 3, 9), np.uint8), None
    for layer, given in ((dense, None), (plain, codes)):
        compiled = layer.compiled
        out = np.full((1, 1, 3, 5), 77, layer.packed.out_type)
        arguments = compiled._arguments((codes, given, out, None), 0, 1)
        assert compiled.runner.call(compiled._symbol("run"), *arguments, bits=32) == -4
        assert (out == 77).all()


def test_what_no_layer_can_add(dense):
    weight = np.ones((5, 9), int)
    wrong = {
        "int32 has no zero_point": lambda: Scale(1.0, residual=Residual("int32", zero_point=1)),
        "may leave float32": lambda: Dense(weight, 2, 1, isa="avx2", epilogue=Scale(3e38, residual=Residual("uint8"))),
        "float32 needs Rescale or Scale": lambda: Thresholds([1], residual=Residual("float32")),
        "type is one of uint8": lambda: Residual(np.array(["uint8", "int8"])),  # type: ignore[arg-type]
    }
    for word, make in wrong.items():
        with pytest.raises(SpecError, match=word):
            make()


def test_a_packed_layer_is_pickled_with_its_residual(dense):
    packed = replace(dense.packed)
    assert packed.programs == dense.packed.programs is not None
    assert pack(dense.plan, dense.weight, dense.epilogue).programs == packed.programs
