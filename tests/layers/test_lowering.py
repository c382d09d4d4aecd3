"""Epilogues as specs: the same results for every sum, whatever was folded into the constants."""

from typing import Any

import numpy as np
import pytest

from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.layers.epilogues import Requantize, Rescale, Scale
from bitsynth.layers.epilogues.accumulators import Sums

INT32 = np.iinfo(np.int32)
CHANNELS = 5


def unsigned(values: Any, bits: int) -> Any:
    return np.asarray(values).astype(np.int64).astype(np.uint64) & np.uint64((1 << bits) - 1)


def evaluated(spec, inputs, sums, row):
    """The spec's results of sums (n, channels)."""
    given = {"s": sums, "r": np.full(sums.shape, row), **inputs}
    payloads = {x.name: [unsigned(given[x.name], x.lane.bits)] for x in spec.inputs}
    with np.errstate(over="ignore"):
        assert all(np.all(x == 1) for x in spec.bits(spec.assumes, ConcreteDomain(), payloads))
        return np.broadcast_to(spec.value(ConcreteDomain(), payloads), sums.shape)


FOLDS = [(1, 0, False), (1, 1, False), (2, 0, False), (2, 1, False), (1, 0, True), (1, 1, True)]
RNG = np.random.default_rng(5)
SCALES = RNG.choice([1e-4, 0.5, 0.25, 3e-3, -0.125, 1.0, 0.0, 700.0], CHANNELS).astype(np.float32)
MULTIPLIERS = RNG.choice([0, 1, -3, 1 << 10, 12345, 77], CHANNELS)
EPILOGUES: dict[str, Scale | Requantize | Rescale] = {
    "rescale": Rescale(SCALES, 8, 3),
    "rescale signed": Rescale(SCALES, 8, -7, signed=True, low=-100, bias=0.5),
    "rescale to 16 bits": Rescale(SCALES, 16, signed=True),
    "rescale to 2 bits": Rescale(SCALES, 2, low=1),
    "scale": Scale(SCALES, 0.25),
    "up": Requantize(MULTIPLIERS, 9, 8, zero_point=4),
    "even": Requantize(MULTIPLIERS, 9, 4, "even", signed=True),
    "powers of two": Requantize(1 << 20, 23, 8, "even"),
    "no shift": Requantize([1, -1, 0, 2, 3], 0, 8, "even", high=200),
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
    found = list(epilogue.lower(Sums(factor, columns, shift, row, bound + 20), 0))
    assert found or (factor == 2 and not shift and not isinstance(epilogue, Requantize))
    want = epilogue.reference(value.astype(np.int32))
    bits = want.view(np.uint32) if want.dtype == np.float32 else want
    for spec, inputs in found:
        got = evaluated(spec, inputs, sums, addend)
        assert np.array_equal(got, unsigned(bits, spec.out_bits)), spec.name


ANY = "requantize_any_u8"


def test_products_are_narrow_where_sums_are_small():
    epilogue = Requantize(1000, 16, 8)
    small, great = (Sums(1, np.zeros(2, np.int64), 0, False, bound) for bound in (2000, 30000000))
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
    assert not list(epilogue.lower(Sums(1, np.full(3, 1 << 40), 1, False, INT32.max), 0))
