"""Fixed-point codes in 32 bits: numpy's results, compiled layers on every set, refused arguments."""

from typing import Any

import numpy as np
import pytest
from support.case_selection import quick

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.layers.epilogues import FixedPoint, FixedPointFormula, Residual
from bitsynth.run.runner import runner_for
from bitsynth.spec.rescaling import FIXED_SHIFT
from bitsynth.toolchain.library import compile_for

CHANNELS, FEATURES = 32, 40
ONE = 1 << FIXED_SHIFT


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def lines(rng, twice=True):
    """Lines of several signs through a window around 0, whose summands are beyond int32; 7 bits after the second."""
    middle = rng.integers(-200, 200, CHANNELS)
    factor = rng.integers(ONE // 8, ONE // 4, CHANNELS) * rng.choice([-1, 1], CHANNELS)
    line = FixedPointFormula(factor, 128 * ONE - middle * factor)
    then = FixedPointFormula(ONE // 3, ONE // 2) if twice else None
    return FixedPoint(middle - 500, middle + 500, line, 7 if twice else 8, then)


@pytest.mark.parametrize("twice", [False, True])
def test_codes_are_quotients_of_sums_within_the_window(rng, twice):
    epilogue = lines(rng, twice)
    sums = np.concatenate([rng.integers(-1000, 1000, (200, CHANNELS)), np.full((1, CHANNELS), np.iinfo(np.int32).min)])
    least, most = epilogue.window(CHANNELS)
    factor, added = epilogue.first_formula.of(CHANNELS)
    want = np.floor((np.clip(sums, least, most) * factor + added) / ONE)
    want = np.floor((want * (ONE // 3) + ONE // 2) / ONE) if twice else want
    got = epilogue.reference(sums.astype(np.int32))
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, want)
    assert epilogue.codes == (want.min(), want.max())


EMULATED = [pytest.param(name, marks=pytest.mark.slow) for name in ("neon", "armv7_neon")]


@pytest.mark.parametrize("isa", ["avx2", pytest.param("avx512", marks=pytest.mark.slow), *EMULATED])
@pytest.mark.parametrize(("act", "twice"), [("unsigned", False), ("signed", True)])
def test_layers_give_them_on_every_set(rng, isa, twice, act, skip_lesser):
    skip_lesser(isa)
    w = rng.integers(-2, 2, (CHANNELS, FEATURES))
    x = rng.integers(0, 16, (9, FEATURES)) - (8 if act == "signed" else 0)
    epilogue = lines(rng, twice)
    layer = bitsynth.Dense(w, 4, 2, act_encoding=act, weight_encoding="signed", isa=isa, epilogue=epilogue)
    np.testing.assert_array_equal(layer(x), epilogue.reference((x @ w.T).astype(np.int32)))
    assert isinstance(layer.packed.programs.program, ElementwiseProgram)


@pytest.mark.parametrize("twice", quick([True], of=[False, True]))
def test_an_emitted_layer_tests_itself(rng, twice, skip_lesser):
    skip_lesser("avx2")
    w = rng.integers(-2, 2, (CHANNELS, FEATURES))
    layer = bitsynth.Dense(w, 4, 2, weight_encoding="signed", isa="avx2", epilogue=lines(rng, twice))
    isa, needs, files = load("avx2"), layer.kernel.needs, layer.files("layer")
    sources = {n: t for n, t in files.items() if n.endswith((".c", ".h")) and n != "main.c"}
    for wrong in (False, True):
        given = {n: t.replace(">> 23;", ">> 22;") if wrong else t for n, t in sources.items()}
        flags = ["-O0", "-pthread", "-DBITSYNTH_NO_MAIN"]
        library = compile_for(isa, given, needs=needs, flags=flags, cached=given)
        assert runner_for(isa, library, needs=needs).call("layer_selftest", bits=32) == int(wrong)


def test_what_is_no_code_of_32_bits_is_refused():
    line = FixedPointFormula(ONE, 0)
    for least, most, bits, then in (
        (0, 256, 8, None),  # leaves int32
        (0, 200, 7, None),  # codes of 8 bits
        (-1, 100, 8, None),  # below 0
        (5, 4, 8, None),
        (0, 100, 8, FixedPointFormula([ONE, ONE], 0)),  # two channels in what all share
        (0, 100, 8, FixedPointFormula(3 * ONE, 0)),
        (0, 100, 9, None),
    ):
        with pytest.raises(SpecError):
            FixedPoint(least, most, line, bits, then)
    wrong: Any = ((None, None), (line, 3))
    for lines in wrong:
        with pytest.raises(SpecError, match="formulas of fixed-point codes are FixedPointFormula"):
            FixedPoint(0, 100, lines[0], 8, lines[1])
    with pytest.raises(SpecError):
        FixedPoint(0, 100, line, 8, residual=Residual())
    with pytest.raises(SpecError):
        FixedPoint([0, 0, 0], 100, line, 8).reference(np.zeros((1, 2), np.int32))
