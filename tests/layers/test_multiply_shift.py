"""Codes by TensorFlow Lite's fixed point: numpy, texts and compiled layers against gemmlowp on Python's integers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bitsynth
from bitsynth.errors import NoKernel, SpecError
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.layers.epilogues import MultiplyShift
from bitsynth.layers.epilogues.accumulators import Accumulators
from bitsynth.layers.epilogues.multiply_shift import multiply_shift_spec
from bitsynth.spec.rescaling import CodeForm, ValueTerms
from bitsynth.synth.elementwise import solve

INT32 = np.iinfo(np.int32)
multipliers = st.one_of(st.just(0), st.integers(1 << 30, (1 << 31) - 1), st.just(1 << 30), st.just((1 << 31) - 1))


def gemmlowp(x: int, multiplier: int, right: int) -> int:
    """SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT."""
    product = x * multiplier
    nudged = product + (1 << 30 if product >= 0 else 1 - (1 << 30))
    high = abs(nudged) >> 31
    high = high if nudged >= 0 else -high
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def near_ties(multiplier: int, right: int, code: int) -> int:
    """The sum nearest to the middle between two codes."""
    return round((2 * code + 1) * (1 << (30 + right)) / max(multiplier, 1))


@given(
    multiplier=multipliers,
    right=st.integers(0, 31),
    sums=st.lists(st.one_of(st.integers(INT32.min, INT32.max), st.integers(-99, 99)), min_size=1, max_size=9),
    codes=st.lists(st.tuples(st.integers(-140, 140), st.integers(-1, 1)), max_size=9),
    zero=st.integers(-128, 127),
)
def test_codes_are_those_of_gemmlowp(multiplier, right, sums, codes, zero):
    ties = [near_ties(multiplier, right, code) + by for code, by in codes]
    points = [x for x in (*sums, *ties) if INT32.min <= x <= INT32.max]
    epilogue = MultiplyShift(multiplier, right, 8, zero, signed=True, low=-120)
    got = epilogue.reference(np.array(points, np.int32)[:, None])
    assert got.dtype == np.int8
    assert got[:, 0].tolist() == [min(max(gemmlowp(x, multiplier, right) + zero, -120), 127) for x in points]


def test_halves_go_up_and_then_away_from_0():
    epilogue = MultiplyShift(1 << 30, 1, 8, signed=True)
    assert epilogue.reference(np.array([[5], [-5], [6], [-6], [-1]], np.int32)).ravel().tolist() == [2, -1, 2, -2, 0]


EMULATED = [pytest.param(name, marks=pytest.mark.slow) for name in ("neon", "armv7_neon")]


@pytest.mark.parametrize("isa", ["avx2", pytest.param("avx512", marks=pytest.mark.slow), *EMULATED])
@pytest.mark.parametrize("channels", [64, 12])
def test_layers_give_them_on_every_set(isa, channels, skip_lesser):
    """With 64 channels columns lie in the program's order, with 12 joined pixels need the order of channels."""
    skip_lesser(isa)
    rng = np.random.default_rng(channels)
    weights, x = rng.integers(-7, 8, (channels, 70)), rng.integers(0, 16, (37, 70))
    multiplier = rng.integers(1 << 30, 1 << 31, channels)
    right = rng.integers(0, 6, channels)
    epilogue = MultiplyShift(multiplier, right, 8, 100)
    layer = bitsynth.Dense(weights, 4, 4, weight_encoding="signed", isa=isa, epilogue=epilogue)
    sums = x @ weights.T
    want = [
        [gemmlowp(int(s), int(m), int(n)) + 100 for s, m, n in zip(row, multiplier, right, strict=True)] for row in sums
    ]
    np.testing.assert_array_equal(layer(x), np.clip(want, 0, 255))
    assert isinstance(layer.packed.programs.program, ElementwiseProgram)


def test_sums_that_32_bits_do_not_hold_have_64():
    """A quotient plus half a unit leaves int32 where both are great."""
    epilogue = MultiplyShift([INT32.max, 1 << 30], [31, 0])
    names = [spec.name for spec, _ in epilogue.lower(Accumulators(1, np.zeros(2, np.int64), 0, False, INT32.max), 0)]
    assert names == ["multiply_shift_wide_u8"]
    assert epilogue.reference(np.array([[INT32.max, 7]], np.int32)).tolist() == [[1, 4]]
    with pytest.raises(NoKernel):
        solve("avx2", multiply_shift_spec(ValueTerms(), CodeForm("u8"), wide=True))


def test_what_is_no_multiplier_or_shift_is_refused():
    wrong: Any = ((-1, 0), (1 << 31, 0), (0.5, 0), (1, 32), (1, -1), ([1, 2], [1, 2, 3]))
    for multiplier, right in wrong:
        with pytest.raises(SpecError):
            MultiplyShift(multiplier, right)
