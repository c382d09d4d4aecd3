"""Epilogues as specs: the same results for every sum, whatever was folded into the constants."""

from typing import Any

import numpy as np
import pytest

from bitsynth.errors import SpecError
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.layers.epilogues import (
    FixedPoint,
    FixedPointFormula,
    MultiplyShift,
    Requantize,
    Rescale,
    Residual,
    Scale,
    Thresholds,
)
from bitsynth.layers.epilogues.accumulators import Accumulators

INT32 = np.iinfo(np.int32)
CHANNELS = 5


def unsigned(values: Any, bits: int) -> Any:
    return np.asarray(values).astype(np.int64).astype(np.uint64) & np.uint64((1 << bits) - 1)


def evaluated(spec, inputs, sums, row):
    """The spec's results of sums (n, channels)."""
    given = {"s": sums, "r": np.full(sums.shape, row), **inputs}
    payloads = {
        x.name: [unsigned(value, x.lane.bits) for value in (given[x.name] if x.count else [given[x.name]])]
        for x in spec.inputs
    }
    with np.errstate(over="ignore"):
        assert all(np.all(x == 1) for x in spec.bits(spec.assumes, ConcreteDomain(), payloads))
        return np.broadcast_to(spec.value(ConcreteDomain(), payloads), sums.shape)


FOLDS = [(1, 0, False), (1, 1, False), (2, 0, False), (2, 1, False), (1, 0, True), (1, 1, True)]
RNG = np.random.default_rng(5)
SCALES = RNG.choice([1e-4, 0.5, 0.25, 3e-3, -0.125, 1.0, 0.0, 700.0], CHANNELS).astype(np.float32)
MULTIPLIERS = RNG.choice([0, 1, -3, 1 << 10, 12345, 77], CHANNELS)
EPILOGUES: dict[str, Scale | Requantize | Rescale | MultiplyShift] = {
    "rescale": Rescale(SCALES, 8, 3),
    "rescale signed": Rescale(SCALES, 8, -7, signed=True, low=-100, bias=0.5),
    "rescale to 16 bits": Rescale(SCALES, 16, signed=True),
    "rescale to 2 bits": Rescale(SCALES, 2, low=1),
    "rescale to all codes": Rescale(SCALES, 8, bias=-0.5),
    "rescale to all signed codes": Rescale(SCALES, 8, signed=True),
    "scale": Scale(SCALES, 0.25),
    "up": Requantize(MULTIPLIERS, 9, 8, zero_point=4),
    "even": Requantize(MULTIPLIERS, 9, 4, "even", signed=True),
    "powers of two": Requantize(1 << 20, 23, 8, "even"),
    "no shift": Requantize([1, -1, 0, 2, 3], 0, 8, "even", high=200),
    "multiply shift": MultiplyShift(RNG.integers(1 << 30, 1 << 31, CHANNELS), [0, 1, 2, 5, 9], 8, 99),
    "a wide product": Requantize(RNG.integers(1 << 29, 1 << 30, CHANNELS), 38, 8),
    "a wide product to even": Requantize(1 << 30, 37, 8, "even", 9, signed=True),
}


@pytest.mark.parametrize("fold", FOLDS, ids=str)
@pytest.mark.parametrize("name", EPILOGUES)
def test_specs_give_the_results_of_values(name, fold):
    factor, shift, row = fold
    epilogue, rng, bound = EPILOGUES[name], np.random.default_rng(1), 3000
    columns = rng.integers(-500, 500, CHANNELS) << shift
    sums = np.concatenate([rng.integers(-bound, bound, (400, CHANNELS)), [[-bound] * CHANNELS, [bound] * CHANNELS]])
    addend = 2 * int(rng.integers(-9, 9)) if row else 0
    sums = sums - addend if shift == 0 else sums // 2 * 2
    value = (factor * (sums + addend) + columns) >> shift
    found = list(epilogue.lower(Accumulators(factor, columns, shift, row, bound + 20), 0))
    is_plain = factor == 1 and not shift
    assert found or (not is_plain if isinstance(epilogue, MultiplyShift) else factor == 2 and not shift)
    assert found or not isinstance(epilogue, Requantize)
    want = epilogue.reference(value.astype(np.int32))
    bits = want.view(np.uint32) if want.dtype == np.float32 else want
    for spec, inputs in found:
        got = evaluated(spec, inputs, sums, addend)
        assert np.array_equal(got, unsigned(bits, spec.out_bits)), spec.name


OF_VALUES = EPILOGUES | {
    "a threshold": Thresholds([-7]),
    "thresholds": Thresholds(np.sort(RNG.integers(-2000, 2000, (CHANNELS, 15)), axis=1)),
    "many thresholds": Thresholds(np.arange(-1000, 1000, 8)[:200]),
    "falling thresholds": Thresholds([[-9, 4, 70]] * CHANNELS, rising=[True, False, False, True, False]),
    "gated": Rescale(np.abs(SCALES) + 0.01, 8, 3, bias=0.25, gate=(0.125, 0.5)),
    "fixed point": FixedPoint(-900, 900, FixedPointFormula(700, 1 << 21), 1),
    "fixed point twice": FixedPoint(
        0, 3000, FixedPointFormula(8000, 1 << 22), 2, then=FixedPointFormula(1 << 22, 1 << 22)
    ),
}


@pytest.mark.parametrize("name", OF_VALUES)
def test_the_reference_is_the_text_of_every_spec(name):
    """Where accumulators are the values themselves, references in numpy and all texts agree."""
    epilogue, rng, bound = OF_VALUES[name], np.random.default_rng(2), 5000
    sums = np.concatenate([rng.integers(-bound, bound, (900, CHANNELS)), [[-bound] * CHANNELS, [bound] * CHANNELS]])
    want = epilogue.reference(sums.astype(np.int32))
    bits = want.view(np.uint32) if want.dtype == np.float32 else want
    found = [(spec, evaluated(spec, inputs, sums, 0)) for spec, inputs in epilogue.lower(values(bound), 0)]
    assert found
    for spec, got in found:
        assert np.array_equal(got, unsigned(bits, spec.out_bits)), spec.name


@pytest.mark.parametrize(
    ("epilogue", "bound", "names"),
    [
        (Rescale(0.5, 8), 1 << 29, ["rescale_small_whole_u8", "rescale_small_u8", "rescale_u8"]),
        (Rescale(0.5, 8, 3), 1 << 29, ["rescale_small_u8", "rescale_u8"]),
        (Rescale(0.5, 8, high=254), 1 << 29, ["rescale_small_u8", "rescale_u8"]),
        (Rescale(0.5, 8), 1 << 30, ["rescale_u8"]),
        (Rescale(0.5, 8, bias=2.0**28), 1 << 29, ["rescale_bias_u8"]),
    ],
)
def test_small_values_need_no_limit_and_all_codes_no_clamp(epilogue, bound, names):
    assert [spec.name for spec, _ in epilogue.lower(values(bound), 0)] == names


def values(bound: int) -> Accumulators:
    return Accumulators(1, np.zeros(CHANNELS, np.int64), 0, False, bound)


FIRST: dict[type, Any] = {
    Scale: [SCALES],
    Rescale: [SCALES],
    Requantize: [3, 2, 8],
    MultiplyShift: [1 << 30, 2],
    Thresholds: [[1, 5]],
}


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "float32"])
@pytest.mark.parametrize("family", FIRST)
def test_the_text_of_a_residual_gives_the_values_of_the_reference(family, kind):
    rng = np.random.default_rng(3)
    residual = Residual(kind, 3, 0 if kind in {"int32", "float32"} else 5)
    if kind == "float32" and not family.adds_floats:
        with pytest.raises(SpecError, match="a residual of float32"):
            family(*FIRST[family], residual=residual)
        return
    epilogue = family(*FIRST[family], residual=residual)
    sums = rng.integers(-3000, 3000, (500, CHANNELS))
    elements = rng.integers(0, 100, sums.shape).astype(kind)
    spec, inputs, _ = epilogue.lower_residual(values(3000))
    read = elements.view(np.uint32) if kind == "float32" else elements
    got = evaluated(spec, {**inputs, "e": read}, sums, 0)
    want = epilogue.value(sums.astype(np.int32), elements)
    assert np.array_equal(got, unsigned(want.view(np.uint32) if want.dtype == np.float32 else want, 32))


ANY = "requantize_any_u8"


def test_products_are_narrow_where_sums_are_small():
    epilogue = Requantize(1000, 16, 8)
    small, great = (Accumulators(1, np.zeros(2, np.int64), 0, False, bound) for bound in (2000, 30000000))
    assert [spec.name for spec, _ in epilogue.lower(small, 0)] == ["requantize32_u8", "requantize64_u8", ANY]
    assert [spec.name for spec, _ in epilogue.lower(great, 0)] == ["requantize64_u8", ANY]
    words = [spec.name for spec, _ in epilogue.lower(small, 8)]
    assert words == ["requantize32_words8", "requantize64_words8", "requantize_any_words8"]


@pytest.mark.parametrize(
    "epilogue",
    [
        Requantize(INT32.max, 31, 8),
        Requantize(1, 2, 16, zero_point=1, signed=True),
        Rescale(2.0**-140),
    ],
)
def test_what_does_not_fit_has_no_spec(epilogue):
    assert not list(epilogue.lower(Accumulators(1, np.full(3, 1 << 40), 1, False, INT32.max), 0))
