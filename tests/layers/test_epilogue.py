"""Epilogues in numpy: their results for hard sums, and the arguments that they refuse."""

import dataclasses
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.layers import Requantize, Rescale, Residual, Scale, Thresholds

INT32 = np.iinfo(np.int32)
EDGES = np.array([INT32.min, INT32.min + 1, -(2**24) - 1, -3, -1, 0, 1, 3, 2**24 + 1, INT32.max], np.int32)
int32s = st.one_of(st.sampled_from(EDGES.tolist()), st.integers(-600, 600), st.integers(INT32.min, INT32.max))


def rounded(x: Fraction, rounding: str) -> int:
    """Halves up, or to even, by exact arithmetic."""
    below = x.numerator // x.denominator
    rest = x - below
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and (rounding == "up" or below % 2))
    return below + up


@given(
    sums=st.lists(int32s, min_size=1, max_size=9),
    multiplier=int32s,
    shift=st.integers(0, 62),
    rounding=st.sampled_from(["up", "even"]),
    zero_point=st.integers(0, 15),
)
def test_requantized_sums_are_rounded_quotients(sums, multiplier, shift, rounding, zero_point):
    epilogue = Requantize(multiplier, shift, 4, rounding, zero_point, low=1, high=14)
    want = [rounded(Fraction(s * multiplier, 1 << shift), rounding) + zero_point for s in sums]
    got = epilogue.reference(np.array(sums, np.int32)[:, None])
    assert got.dtype == np.uint8
    assert got[:, 0].tolist() == np.clip(np.array(want, object), 1, 14).tolist()


def test_ties_go_up_or_to_even():
    sums = np.array([[-3], [-1], [1], [3], [5]], np.int32)
    up, even = (Requantize(1, 1, 8, r, signed=True).reference(sums) for r in ("up", "even"))
    assert up.ravel().tolist() == [-1, 0, 1, 2, 3]
    assert even.ravel().tolist() == [-2, 0, 0, 2, 2]
    assert even.dtype == np.int8


@given(sums=st.lists(int32s, min_size=1, max_size=9), power=st.integers(-40, 3), zero_point=st.integers(-8, 7))
def test_rescaled_by_powers_of_two_is_exact_above_the_precision(sums, power, zero_point):
    epilogue = Rescale(2.0**power, 4, zero_point, signed=True)
    exact = np.array(sums, np.int32).astype(np.float32)
    want = [rounded(Fraction(float(s)) * Fraction(2) ** power, "even") + zero_point for s in exact]
    got = epilogue.reference(np.array(sums, np.int32)[:, None])
    assert got[:, 0].tolist() == np.clip(np.array(want, object), -8, 7).tolist()


def test_every_step_of_a_rescale_is_rounded_to_float32():
    """2**24 + 1 is no float32, nor is its triple; the zero point is added to what was rounded."""
    sums = np.array([[2**24 + 1]], np.int32)
    assert Rescale(3 * 2.0**-20, 8).reference(sums) == 48
    assert Scale(1.0, 0.5).reference(sums) == np.float32(2**24)
    assert Rescale(0.5, 8, zero_point=1).reference(np.array([[1], [3]], np.int32)).ravel().tolist() == [1, 3]
    assert Rescale(3e38, 8).reference(EDGES[:, None]).ravel().tolist() == [0] * 6 + [255] * 4
    assert Rescale(1.0, bias=-0.5).reference(np.array([[1], [2]], np.int32)).ravel().tolist() == [0, 2]


def test_gated_values_fall_and_rise():
    """Of hard swish in steps of 1/8: -0.375 at -1.5, and nothing below -3."""
    epilogue = Rescale(0.125, 8, 3, bias=0.0, gate=(1 / 6, 0.5))
    sums = np.array([[-99], [-24], [-12], [0], [8], [24], [80]], np.int32)
    assert epilogue.reference(sums).ravel().tolist() == [3, 3, 3, 3, 4, 6, 13]
    sums = np.arange(-4, 2, dtype=np.int32)[:, None]
    steep = Rescale(8.0, 8, 3, bias=0.0, gate=(1 / 48, 0.5))
    assert steep.reference(sums).ravel().tolist() == [3, 3, 0, 0, 3, 8]


def test_a_gate_stays_as_it_was_given():
    given = [1, 0.5]
    epilogue = Rescale(0.125, bias=0.0, gate=given)  # type: ignore[arg-type]
    given[0] = np.nan
    assert epilogue.gate == (1.0, 0.5)


def test_great_gates_are_no_warnings():
    """What leaves float32 is kept between 0 and 1."""
    epilogue = Rescale(1e17, 8, 3, bias=-1e17, gate=(-1e17, 1e17))
    assert epilogue.reference(np.array([[-9], [0], [1], [2**31 - 1]], np.int32)).ravel().tolist() == [0, 0, 3, 3]


@given(st.floats(-9, 9), st.floats(-9, 9), st.floats(-2, 2), st.floats(-2, 2), int32s, st.integers(0, 1 << 20))
def test_bounds_hold_every_code_between(scale, bias, factor, summand, first, count):
    epilogue = Rescale(scale / 1000, 8, 100, bias=bias, gate=(factor, summand))
    last = min(first + count, 2**31 - 1)
    low, high = epilogue.bounds(np.array([[first]]), np.array([[last]]))
    between = epilogue.reference(
        np.linspace(first, last, 99).astype(np.int64)[:, None].clip(first, last).astype(np.int32)
    )
    assert (low <= between).all()
    assert (between <= high).all()


def test_codes_of_sixteen_bits():
    assert Requantize(1, 0, 16, signed=True).reference(EDGES[:, None]).dtype == np.int16
    got = Requantize(1, 0, 16, signed=True).reference(EDGES[:, None]).ravel()
    assert got.tolist() == EDGES.clip(-(2**15), 2**15 - 1).tolist()


LEVELS = np.array([[-5, 0, 7], [1, 1, 2]])
SUMS = np.array([[-5, 1], [-4, 2], [8, 3], [INT32.max, INT32.min]], np.int32)


def test_thresholds_rise_or_fall_by_channel():
    assert Thresholds(LEVELS).reference(SUMS).tolist() == [[0, 0], [1, 2], [3, 3], [3, 0]]
    assert Thresholds(LEVELS, False).reference(SUMS).tolist() == [[2, 1], [2, 0], [0, 0], [0, 3]]
    assert Thresholds(LEVELS, [True, False]).reference(SUMS).tolist() == [[0, 1], [1, 0], [3, 0], [3, 3]]


@pytest.mark.parametrize("values", [[0, 9], [[0, 9]], np.array([0, 9], np.int8)])
def test_thresholds_of_all_channels(values):
    assert Thresholds(values).reference(SUMS).tolist() == [[0, 1], [0, 1], [1, 1], [2, 0]]


@pytest.mark.parametrize("rising", [True, False])
def test_channels_may_have_fewer_levels(rising):
    ragged = Thresholds([[-5, 0, 7], [2], []], rising)
    masked = np.ma.masked_equal([[-5, 0, 7], [99, 2, 99], [99, 99, 99]], 99)
    sums = np.array([[-9, 1, 4], [9, 3, INT32.max]], np.int32)
    want = [[0, 0, 0], [3, 1, 0]] if rising else [[3, 1, 0], [0, 0, 0]]
    assert ragged.reference(sums).tolist() == want
    assert Thresholds(masked, rising).reference(sums).tolist() == want
    assert (ragged.bits, ragged.codes) == (2, (0, 3))


def test_levels_beyond_int32_are_never_or_always_below():
    sums = np.array([[INT32.min], [INT32.max]], np.int32)
    assert Thresholds([[-(2**40), 2**40]]).reference(sums).ravel().tolist() == [1, 1]
    assert Thresholds([[INT32.min, INT32.max]]).reference(sums).ravel().tolist() == [0, 1]
    assert Thresholds([[-(2**40), INT32.max, 2**40]], False).reference(sums).ravel().tolist() == [2, 1]
    assert Thresholds(np.array([[2**63]], np.uint64)).reference(sums).ravel().tolist() == [0, 0]
    assert Thresholds(np.array([[2**63]], np.uint64), False).reference(sums).ravel().tolist() == [1, 1]


def test_levels_above_every_sum_count_where_channels_fall():
    """Absent levels do not."""
    sums = np.array([[INT32.min], [0], [INT32.max]], np.int32)
    assert Thresholds([[-5, 2**40]], False).reference(sums).ravel().tolist() == [2, 1, 1]
    few = Thresholds([[-5, INT32.max], [7]], False)
    for each in (few, pickle.loads(pickle.dumps(few)), dataclasses.replace(few, rising=[False, False])):
        assert each.reference(np.repeat(sums, 2, axis=1)).tolist() == [[2, 1], [1, 1], [0, 0]]
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(few.values)[0, 0] = 0


def test_residuals_are_added_before_rounding():
    sums, codes = np.array([[10, -3]], np.int32), np.array([[3, 1]], np.uint8)
    whole, real = Residual(scale=[2, -4], zero_point=1), Residual(scale=[0.25, 0.5])
    assert Thresholds([[13], [-4]], residual=whole).value(sums, codes).tolist() == [[14, -3]]
    assert Thresholds([[13], [-4]], residual=whole).reference(sums, codes).tolist() == [[1, 1]]
    assert Requantize(1, 2, 4, residual=whole).reference(sums, codes).tolist() == [[4, 0]]
    assert Rescale(0.25, residual=real).reference(sums, codes).tolist() == [[3, 0]]
    assert Scale(0.25, 1.0, residual=real).reference(sums, codes).tolist() == [[4.25, 0.75]]


def test_a_float_residual_keeps_its_order():
    """(sum * scale + bias) + element * scale: another order rounds otherwise."""
    sums, more = np.array([[1]], np.int32), np.array([[2.0**24]], np.float32)
    assert Scale(1.0, -(2.0**24), Residual("float32", 1.0)).reference(sums, more) == 1.0
    assert Scale(1.0, 0.0, Residual("float32", 1.0)).reference(sums, more) == 2**24


ONE: Any = 1

BAD: dict[str, Any] = {
    "levels out of order": (lambda: Thresholds([[0, 1], [3, 2]]), "thresholds of channel 1 are out of order: 3, 2"),
    "levels of floats": (lambda: Thresholds([[0.5]]), "thresholds must be integers"),
    "levels in a cube": (lambda: Thresholds(np.zeros((1, 1, 1), int)), r"thresholds must be .* not int64 \(1, 1, 1\)"),
    "no levels": (lambda: Thresholds([[], []]), "not 2 channels of 0"),
    "rising by numbers": (lambda: Thresholds([0], 1), "rising is True, False"),
    "rising of other channels": (
        lambda: Thresholds([0], [True] * 3).reference(SUMS),
        "3 channels of thresholds for 2",
    ),
    "rounding of an array": (lambda: Requantize(1, 1, 4, rounding=np.ones(2)), "rounding is one of up, even"),  # type: ignore[arg-type]
    "sums of floats": (lambda: Rescale(1.0).reference(SUMS * 1.5), "sums must be integers"),
    "a list of sums": (lambda: Rescale(1.0).reference([0.5]), "sums must be integers"),  # type: ignore[arg-type]
    "sum without channels": (lambda: Thresholds([0]).reference(SUMS[0, 0]), "sums must be integers"),
    "sums beyond int32": (lambda: Thresholds([0]).reference(np.array([1 << 40])), "sums must be int32"),
    "rounding": (lambda: Requantize(1, 1, 4, "down"), "rounding is one of up, even"),
    "zero point": (lambda: Requantize(1, 1, 4, zero_point=16), "zero_point must be .* from 0 to 15"),
    "low above high": (lambda: Requantize(1, 1, 4, low=3, high=2), "low is 3, above high, 2"),
    "low beyond the bits": (lambda: Rescale(1.0, 4, low=-1), "low must be a whole number from 0 to 15"),
    "wide codes without a sign": (lambda: Rescale(1.0, 9), "bits must be a whole number from 1 to 8"),
    "wide codes": (lambda: Rescale(1.0, 17, signed=True), "bits must be a whole number from 1 to 16"),
    "signed by a number": (lambda: Rescale(1.0, signed=ONE), "signed is True or False"),
    "scale not a number": (lambda: Rescale(np.nan).reference(SUMS), "scale has numbers"),
    "scale infinite": (lambda: Rescale([1.0, np.inf]).reference(SUMS), "scale has numbers"),
    "scale beyond float32": (lambda: Rescale(1e39).reference(SUMS), "scale has numbers"),
    "bias not a number": (lambda: Rescale(1.0, bias=np.nan).reference(SUMS), "bias has numbers"),
    "scale of other channels": (lambda: Rescale([1.0, 2.0, 3.0]).reference(SUMS), "scale must be one number or 2"),
    "residual type": (lambda: Residual("float64"), "type is one of uint8"),
    "residual zero point": (lambda: Residual("int8", zero_point=128), "zero_point must be .* from -128 to 127"),
    "residual of a zero point": (lambda: Residual("float32", zero_point=1), "from 0 to 0"),
    "residual scale in integers": (lambda: Requantize(1, 1, 4, residual=Residual(scale=0.5)), "residual's scale must"),
    "residual of floats in integers": (lambda: Thresholds([0], residual=Residual("float32")), "needs Rescale or Scale"),
    "a gate without a bias": (lambda: Rescale(1.0, gate=(0.5, 0.5)), "a gate wants a bias"),
    "a gate of three": (lambda: Rescale(1.0, bias=0.0, gate=(1.0, 2.0, 3.0)), "a gate is two numbers"),  # type: ignore[arg-type]
    "a gate of no number": (lambda: Rescale(1.0, bias=0.0, gate=(np.nan, 0.5)), "a gate is two numbers"),
    "a gate with a gap": (
        lambda: Rescale(1.0, bias=0.0, gate=np.ma.masked_array([1.0, 2.0], [1, 0])),  # type: ignore[arg-type]
        "gate is a masked array",
    ),
    "a word as scale with a gate": (lambda: Rescale("x", bias=0.0, gate=(0.5, 0.5)), "with a gate, scale"),
    "no scale with a gate": (lambda: Rescale(None, bias=0.0, gate=(0.5, 0.5)), "with a gate, scale"),
    "a great scale with a gate": (lambda: Rescale(1e30, bias=0.0, gate=(0.5, 0.5)), "with a gate, scale"),
    "residual scale": (lambda: Rescale(1.0, residual=Residual(scale=np.inf)), "residual's scale has numbers"),
    "no Residual": (lambda: Rescale(1.0, residual=ONE), "residual is a Residual, not 1"),
    "no residual": (lambda: Rescale(1.0, residual=Residual()).reference(SUMS), "a residual is given where"),
    "a residual too much": (lambda: Rescale(1.0).reference(SUMS, SUMS), "a residual is given where"),
    "residual of another shape": (
        lambda: Thresholds([0], residual=Residual()).reference(SUMS, np.zeros((1, 2), np.uint8)),
        r"want a residual of uint8 \(4, 2\), not uint8 \(1, 2\)",
    ),
    "residual of another type": (
        lambda: Thresholds([0], residual=Residual()).reference(SUMS, SUMS),
        r"want a residual of uint8 \(4, 2\), not int32",
    ),
    "keep_sum": (lambda: Residual(keep_sum=ONE), "keep_sum is True or False"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused(name):
    make, why = BAD[name]
    with pytest.raises(SpecError, match=why):
        make()


@pytest.mark.parametrize(
    "epilogue",
    [Thresholds([[1, 2], [3]], False, Residual()), Rescale([1.0, 2.0]), Requantize(3, 4, 5, "even"), Scale(1.0)],
)
def test_epilogues_can_be_pickled(epilogue):
    again = pickle.loads(pickle.dumps(epilogue))
    given_ = (np.zeros(SUMS.shape, np.uint8),) if epilogue.residual else ()
    assert np.array_equal(again.reference(SUMS, *given_), epilogue.reference(SUMS, *given_))


def test_they_are_public():
    assert bitsynth.Rescale is Rescale
    assert bitsynth.Residual is Residual
