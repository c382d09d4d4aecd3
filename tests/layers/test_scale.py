"""Floats of layers: what numpy gives, to the bit, whatever flags the C is compiled with."""

import re

import numpy as np
import pytest

from bitsynth import toolchain
from bitsynth.emit.runtime_files import runtime_files
from bitsynth.errors import ToolError
from bitsynth.isa.load import load
from bitsynth.layers import Conv2d, Scale
from bitsynth.run.runner import runner_for

pytestmark = pytest.mark.toolchains

FUSING = ("-O3", "-std=gnu11", "-ffp-contract=fast")
SETS = {"avx2": ("-mfma",), "avx512": ("-mfma",), "neon": (), "armv7_neon": ("-mfpu=neon-vfpv4",)}
"""Instruction sets, and what gives them fused instructions."""
COMPILERS = [(isa, c) for isa in SETS for c in toolchain.compilers(load(isa))]
FILES = runtime_files(threads=False)
HEADER, EXACT = FILES["bs_scale.h"], FILES["bs_exact.h"]
SCALE = """#include "bs_scale.h"
void scaled(size_t count, const int32_t *sums, const float *scale, const float *bias, float *to);
void scaled(size_t count, const int32_t *sums, const float *scale, const float *bias, float *to)
{
    bs_scale(count, sums, scale, bias, to);
}
"""


def compiled(isa, compiler, header=HEADER, flags=()):
    """`bs_scale`, compiled so that a multiplication and an addition are fused where they may be."""
    sources = {"bs_scale.h": header, "bs_exact.h": EXACT, "scale.c": SCALE}
    return toolchain.compile_for(load(isa), sources, flags=(*FUSING, *SETS[isa], *flags), compiler=compiler)


def wrong(isa, library):
    """Counts of channels whose results are not numpy's; the greatest sums, and denormal products too."""
    try:
        runner = runner_for(load(isa), library)
    except ToolError as why:
        pytest.skip(str(why))
    rng, out = np.random.default_rng(5), []
    for count in (*range(1, 36), 64, 70):
        sums = (rng.integers(-(2**31), 2**31, count) >> rng.integers(0, 31, count)).astype(np.int32)
        scale = np.ldexp(rng.normal(size=count), rng.choice([-155, -40, 0, 3], count)).astype(np.float32)
        product = sums.astype(np.float32) * scale
        bias = (-product * rng.choice([0, 1, 1.0001], count)).astype(np.float32)
        got = np.zeros(count, np.float32)
        runner.call("scaled", count, sums, scale, bias, got)
        out += [count] * (got.tobytes() != (product + bias).tobytes())
    return out


@pytest.mark.parametrize(("isa", "compiler"), COMPILERS, ids=lambda x: getattr(x, "name", x))
def test_no_flag_fuses(isa, compiler):
    assert wrong(isa, compiled(isa, compiler)) == []


@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_without_its_barrier_it_is_fused(isa):
    """So that the test above may fail."""
    header = HEADER.replace("BS_ROUNDED(scaled);", "")
    assert header != HEADER
    assert wrong(isa, compiled(isa, toolchain.compilers(load(isa))[0], header))


@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_fast_math_is_refused(isa):
    for compiler in toolchain.compilers(load(isa)):
        with pytest.raises(ToolError, match="compile it without -ffast-math"):
            compiled(isa, compiler, flags=("-ffast-math",))


@pytest.mark.slow
def test_a_layer_that_fuses_fails_its_selftest():
    rng = np.random.default_rng(6)
    weight, scale, bias = rng.choice([-1, 1], (20, 9, 3, 3)), *rng.normal(size=(2, 20))
    layer = Conv2d(weight, 2, 1, padding=1, isa="avx2", epilogue=Scale(scale, bias))
    isa, compiler = load("avx2"), toolchain.compilers(load("avx2"))[0]
    files = {n: t for n, t in layer.files("layer").items() if n.endswith((".c", ".h")) and n != "main.c"}

    def selftest(files):
        flags = (*FUSING, *SETS["avx2"], "-pthread", "-DBITSYNTH_NO_MAIN")
        library = toolchain.compile_for(isa, files, flags=flags, compiler=compiler)
        return runner_for(isa, library).call("layer_selftest", bits=32)

    assert selftest(files) == 0
    fused = {n: re.sub(r"define ROUNDED\(x\) .*", "define ROUNDED(x) (void)0", t) for n, t in files.items()}
    assert fused != files
    assert selftest(fused) == 1
