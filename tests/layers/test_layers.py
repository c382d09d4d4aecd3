"""Layers of every kind against plain integer convolutions, to the bit."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from support.case_selection import quick
from support.layer_cases import INT32, QUIET, Case, cases, check, encodings, few_cases, machine, usable

from bitsynth.errors import SpecError
from bitsynth.layers import Conv2d
from bitsynth.layers.schedule import CONV_ALGORITHMS
from bitsynth.spec.matmul import Encoding

FEW = [
    machine("avx2", "lookup", 2, 1),
    machine("avx2", "popcount", 1, 1, "bipolar", "bipolar", unroll=3),
    machine("avx2", "popcount", 2, 3, "signed", "bipolar", bit_axis="outer"),
    machine("avx2", "multiply", 3, 2, "signed", "ternary"),
    machine("avx2", "lookup", 2, 2, "ternary", "signed"),
    machine("avx2", "lookup", 3, 3, "narrow", "narrow"),
]
WIDTHS = list(product(range(1, 5), repeat=2))
METHODS = ("popcount", "lookup", "multiply", "dot")
"""Those of x86, of which AVX2 has all but the last."""
PAIRS = list(product(Encoding, repeat=2))
DEEP = 4608
EXTREMES = list(product(("max", "min"), repeat=2))


def every():
    """All methods and widths of one instruction set, every second of their pairs, and all pairs of encodings."""
    found = [("avx2", method, a, w) for k, method in enumerate(METHODS[:3]) for a, w in WIDTHS if (k + a + w) % 2 == 0]
    found += [("avx512", method, a, w) for method in METHODS for a, w in ((1, 1), (2, 1), (2, 2), (4, 3))]
    assert len(found) >= len(PAIRS)
    for i, (isa, method, a, w) in enumerate(found):
        act, wgt = PAIRS[i % len(PAIRS)]
        yield machine(isa, method, a, w, *(e if e in encodings(b) else "bipolar" for e, b in ((act, a), (wgt, w))))
    yield from (machine("avx2", "lookup", 2, 1, "signed", "signed", rows=rows) for rows in (1, 2))


@pytest.fixture(scope="session")
def few(skip_isa):
    for m in FEW:
        usable(m, skip_isa)


@settings(max_examples=25, **QUIET)
@given(case=few_cases(FEW))
def test_any_layer_is_exact(few, case):
    check(case)


@pytest.mark.slow
@settings(max_examples=250, **QUIET)
@given(case=cases(FEW, most=20, deep=200))
def test_many_layers_are_exact(few, case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("m", list(every()), ids=str)
def test_every_method_width_and_encoding(m, skip_isa):
    usable(m, skip_isa)

    @settings(max_examples=5, **QUIET)
    @given(case=cases([m]))
    def run(case):
        check(case)

    run()


@pytest.mark.parametrize("patterns", EXTREMES, ids="-".join)
@pytest.mark.parametrize("m", FEW, ids=str)
def test_extremes_of_deep_sums(few, m, patterns):
    """Where an accumulator is flushed too late, it overflows here."""
    wide = Case(m, 1, (4, 4), (DEEP // 9, 3), (3, 3), patterns=patterns)
    check(wide)
    check(replace(wide, image=(1, 2), channels=(DEEP + 5, 2), window=(1, 1), gather="im2col"))


@pytest.mark.slow
@pytest.mark.parametrize("patterns", [("max", "max"), ("max", "min")], ids="-".join)
def test_the_deepest_sums(patterns, skip_isa):
    """The greatest K there is, where every sum is next to the end of int32."""
    m = machine("avx2", "lookup", 4, 4, "unsigned", "signed")
    usable(m, skip_isa)
    deepest = Case(m, 1, (1, 1), (1, 1), (1, 1)).made(np.ones((1, 1, 1, 1), int)).k_max
    check(Case(m, 1, (1, 2), (deepest, 1), (1, 1), gather="im2col", patterns=patterns))
    with pytest.raises(SpecError, match="may leave int32"):
        Case(m, 1, (1, 1), (1, 1), (1, 1)).made(np.ones((1, deepest + 1, 1, 1), np.int8))


@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_next_to_the_end_of_int32(skip_isa, sign):
    """The greatest bias there is room for: a sum of signed weights is twice its value."""
    m = machine("avx2", "lookup", 2, 2, "unsigned", "signed")
    usable(m, skip_isa)
    most, schedule = (INT32.max >> 1) - 5 * 3 * 3, Case(m, 1, (1, 1), (1, 1), (1, 1)).schedule
    given: dict[str, Any] = {"act_bits": 2, "w_bits": 2, "weight_encoding": "signed", "schedule": schedule}
    w, x = np.full((2, 5, 1, 1), -2 if sign < 0 else 1), np.full((1, 2, 3, 5), 3)
    assert (Conv2d(w, bias=sign * most, **given)(x) == 15 * w[0, 0, 0, 0] + sign * most).all()
    with pytest.raises(SpecError, match="may leave int32"):
        Conv2d(w, bias=sign * (most + 1), **given)


FORMS = [
    ("lookup", [{"unroll": 2, "rows": 1}], [5]),
    pytest.param("popcount", [{"unroll": 2, "bit_axis": "outer"}], [5], marks=pytest.mark.slow),
    pytest.param("lookup", [{"unroll": 3}, {"rows": 2}], [1], marks=pytest.mark.slow),
    pytest.param("popcount", [{"unroll": 3}, {"bit_axis": "outer"}], [1], marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("method", "others", "flushes"), FORMS)
@settings(max_examples=1, **QUIET)
@given(case=cases(FEW))
def test_no_schedule_changes_a_bit(few, method, others, flushes, case):
    """Of floats either, whatever their sums were made with."""
    plain, *forms = (machine("avx2", method, 2, 2, "signed", "signed", **form) for form in ({}, *others))
    case = replace(case, machine=plain, epilogue="scale", out_layout="NHWC")
    runs = [
        replace(case, gather=g, columns_first=c, block_rows=b, band_rows=r, threads=t)
        for g, c, b, r, t in product(CONV_ALGORITHMS, (False, True), (0, 7), (0, 2), (1, 3))
    ]
    runs += [replace(case, machine=m, gather=g, band_rows=r) for m, g, r in product(forms, CONV_ALGORITHMS, (0, 2))]
    runs += [replace(case, gather=g, flush_steps=n) for g, n in product(CONV_ALGORITHMS, flushes)]
    assert len({run.run_once().tobytes() for run in runs}) == 1


SHARED = [(isa, channels, steps) for isa in ("avx2", "avx512") for channels in (24, 64) for steps in (1, 2, 5, 7, 13)]


@pytest.mark.parametrize("shared", quick([("avx2", 24, 5)], of=SHARED), ids=str)
def test_sums_that_planes_share_end_anywhere(shared, skip_isa):
    """Every plane of a block of K starts where the block does: at the start of a segment of taps, or inside one."""
    isa, channels, steps = shared
    m = machine(isa, "lookup", 2, 2)
    usable(m, skip_isa)
    case = Case(m, 2, (5, 6), (channels, 70), (3, 3), padding=(1, 1, 1, 1))
    check(replace(case, flush_steps=steps))


@pytest.mark.parametrize(
    ("cpu", "channels", "is_first"), [("icelake", 512, True), ("icelake", 64, False), ("zen4", 512, False)]
)
def test_weights_beyond_the_second_cache_are_read_once(cpu, channels, is_first):
    weight = np.ones((channels, channels, 3, 3), int)
    options = {"weight_encoding": "signed", "padding": 1, "isa": "avx512", "cpu": cpu}
    layer = Conv2d(weight, 8, 8, image=(7, 7), **options)
    assert layer.schedule.columns_first == is_first
