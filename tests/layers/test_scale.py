"""Floats of layers equal numpy's, to the bit, whatever flags the C is compiled with."""

import re

import numpy as np
import pytest

from bitsynth import toolchain
from bitsynth.emit import elementwise
from bitsynth.emit.runtime_files import runtime_files
from bitsynth.errors import ToolError
from bitsynth.isa.load import load
from bitsynth.kernel import straight_line
from bitsynth.layers import Conv2d, Scale
from bitsynth.layers.epilogues.floats import scale_spec
from bitsynth.run.runner import runner_for
from bitsynth.spec.rescaling import ValueTerms
from bitsynth.store.elementwise import ELEMENTWISE

pytestmark = pytest.mark.toolchains

FUSING = ("-O3", "-std=gnu11", "-ffp-contract=fast")
SETS = {"avx2": ("-mfma",), "avx512": ("-mfma",), "neon": ()}
"""Instruction sets with a program of floats, and what gives them fused instructions."""
COMPILERS = [(isa, c) for isa in SETS for c in toolchain.compilers(load(isa))]
SPEC = scale_spec(ValueTerms(), bias=True)
CALL = """#include <stddef.h>
void scaled(size_t columns, const void *constants, const void *sums, void *to);
void scaled(size_t columns, const void *constants, const void *sums, void *to)
{{
    {name}(constants, NULL, 1, columns, sums, 0, NULL, NULL, 0, to, 0);
}}
"""
COLUMNS = 4096


def program(isa):
    return ELEMENTWISE.find(isa, SPEC).artifact


def text(isa):
    """C of a stored program, with a function that runs it on one row."""
    return elementwise.source([program(isa)]) + CALL.format(name=program(isa).name)


def unfenced(source):
    """The C without what keeps a product from an addition."""
    found = re.sub(r"define ROUNDED\(x\) .*", "define ROUNDED(x) (void)0", source)
    assert found != source
    return found


def wrong(isa, compiler, source):
    """How many channels' results are not numpy's, of the greatest sums and denormal products too."""
    needs = straight_line.needs(program(isa))
    flags = (*FUSING, *SETS[isa])
    library = toolchain.compile_for(load(isa), {"scale.c": source}, needs=needs, flags=flags, compiler=compiler)
    try:
        runner = runner_for(load(isa), library, needs=needs)
    except ToolError as why:
        pytest.skip(str(why))
    rng = np.random.default_rng(5)
    sums = (rng.integers(-(2**31), 2**31, COLUMNS) >> rng.integers(0, 31, COLUMNS)).astype(np.int32)
    factor = np.ldexp(rng.normal(size=COLUMNS), rng.choice([-155, -40, 0, 3], COLUMNS)).astype(np.float32)
    product = sums.astype(np.float32) * factor
    bias = (-product * rng.choice([0, 1, 1.0001], COLUMNS)).astype(np.float32)
    got = np.zeros(COLUMNS, np.float32)
    constants = program(isa).pack(COLUMNS, {"m": factor.view(np.uint32), "b": bias.view(np.uint32)})
    runner.call("scaled", COLUMNS, constants, sums, got)
    return int((got.view(np.uint32) != (product + bias).view(np.uint32)).sum())


@pytest.mark.parametrize(("isa", "compiler"), COMPILERS, ids=lambda x: getattr(x, "name", x))
def test_no_flag_fuses(isa, compiler):
    assert wrong(isa, compiler, text(isa)) == 0


@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_without_its_barrier_it_is_fused(isa):
    """So that the test above may fail."""
    assert wrong(isa, toolchain.compilers(load(isa))[0], unfenced(text(isa)))


@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_fast_math_is_refused(isa):
    sources = {"bs_exact.h": runtime_files(threads=False)["bs_exact.h"], "exact.c": '#include "bs_exact.h"\n'}
    for compiler in toolchain.compilers(load(isa)):
        with pytest.raises(ToolError, match="compile it without -ffast-math"):
            toolchain.compile_for(load(isa), sources, flags=(*FUSING, "-ffast-math"), compiler=compiler)


@pytest.mark.slow
def test_a_layer_that_fuses_fails_its_selftest():
    rng = np.random.default_rng(6)
    weight, factor, bias = rng.choice([-1, 1], (20, 9, 3, 3)), *rng.normal(size=(2, 20))
    layer = Conv2d(weight, 2, 1, padding=1, isa="avx2", epilogue=Scale(factor, bias))
    isa, compiler = load("avx2"), toolchain.compilers(load("avx2"))[0]
    files = {n: t for n, t in layer.files("layer").items() if n.endswith((".c", ".h")) and n != "main.c"}

    def selftest(files):
        flags = (*FUSING, *SETS["avx2"], "-pthread", "-DBITSYNTH_NO_MAIN")
        library = toolchain.compile_for(isa, files, flags=flags, compiler=compiler)
        return runner_for(isa, library).call("layer_selftest", bits=32)

    assert selftest(files) == 0
    (name,) = (n for n, t in files.items() if "define ROUNDED(x)" in t)
    assert selftest(files | {name: unfenced(files[name])}) == 1
