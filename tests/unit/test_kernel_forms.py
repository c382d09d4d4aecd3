"""Forms of a kernel that differ in speed alone: how often its loop over K is unrolled, where planes lie in memory."""

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from support.case_selection import quick
from support.programs import change

from bitsynth import toolchain
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa.load import load
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.matmul import get_kernel
from bitsynth.proof import checker

COMPILERS = [
    pytest.param(isa, c, marks=pytest.mark.slow if (isa, k) != ("avx2", 0) else ())
    for isa in ("avx2", "neon")
    for k, c in enumerate(toolchain.compilers(load(isa)))
]


def popcount(isa="avx2"):
    return get_kernel(isa, 2, 2, method="popcount", channels=64)


def size_of(kernel, compiler):
    """Bytes of the microkernel's machine code."""
    files = {f"{kernel.name}.h": kernel.header, f"{kernel.name}.c": kernel.source}
    with toolchain.compile_for(load(kernel.spec.isa), files, needs=kernel.needs, compiler=compiler).open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        (symbol,) = table.get_symbol_by_name(kernel.name)
        return symbol["st_size"]


@pytest.mark.toolchains
@pytest.mark.parametrize(("isa", "compiler"), COMPILERS, ids=lambda x: getattr(x, "name", x))
def test_compilers_unroll_as_often_as_asked(isa, compiler):
    once, twice, more = (size_of(popcount(isa).with_unroll(times), compiler) for times in (1, 2, 6))
    assert once / 4 < twice - once < (more - once) / 2


@pytest.mark.parametrize("times", quick([3], of=[1, 2, 3, 16]))
@pytest.mark.parametrize("depth", [1, 31, 32 * 16, 5000])
def test_an_unrolled_kernel_takes_any_number_of_steps(times, depth, skip_isa):
    rng, kernel = np.random.default_rng(depth), popcount().with_unroll(times)
    a, w = rng.integers(0, 4, (3, depth)), rng.choice([-3, -1, 1, 3], (depth, 9))
    try:
        assert (kernel.matmul(a, w) == a @ w).all()
    except ToolError as why:
        skip_isa("avx2", str(why))


def test_what_is_unrolled_is_the_same_program():
    kernel = popcount()
    unrolled = kernel.with_unroll(4)
    assert unrolled.certificate == change(kernel.certificate, minimality=())
    assert change(unrolled.entry.kernel, unroll=0) == kernel.entry.kernel
    assert unrolled.name == f"{kernel.name}_u4"
    assert unrolled.with_unroll(0).entry.kernel == kernel.entry.kernel
    assert kernel.with_unroll(0) is kernel


@pytest.mark.parametrize("times", [-1, 17, 2.0, True])
def test_what_cannot_be_unrolled(times):
    with pytest.raises(SpecError, match="a loop can be unrolled 0 to 16 times, not"):
        popcount().with_unroll(times)


@pytest.mark.parametrize(
    "case",
    quick(
        [("avx2", 3, 4), ("neon", 2, 1)],
        of=[(isa, *widths) for isa in ("avx2", "neon") for widths in ((1, 2), (2, 1), (2, 2), (3, 4))],
    ),
    ids=str,
)
@pytest.mark.parametrize("depth", [1, 33, 2000])
def test_planes_apart_give_the_same_sums(case, depth, skip_isa):
    isa, act_bits, w_bits = case
    rng, kernel = np.random.default_rng(depth), get_kernel(isa, act_bits, w_bits, method="popcount", channels=64)
    a = rng.integers(0, 1 << act_bits, (5, depth))
    w = 2 * rng.integers(0, 1 << w_bits, (depth, 11)) - (1 << w_bits) + 1
    try:
        assert (kernel.with_bit_axis("outer").matmul(a, w) == a @ w).all()
    except ToolError as why:
        skip_isa(isa, str(why))


def test_planes_apart_are_the_same_program():
    kernel = popcount()
    apart = kernel.with_bit_axis("outer")
    assert apart.certificate == change(kernel.certificate, minimality=())
    assert change(apart.entry.kernel, bit_axis="inner") == kernel.entry.kernel
    assert apart.with_unroll(2).name == f"{kernel.name}_u2_outer"
    assert apart.with_bit_axis("inner").entry.kernel == kernel.entry.kernel


@pytest.mark.parametrize(
    ("method", "act_bits", "w_bits"), [("popcount", 1, 1), ("lookup", 2, 2), ("multiply", 2, 2), ("multiply", 1, 1)]
)
def test_only_planes_have_a_bit_axis(method, act_bits, w_bits):
    kernel = get_kernel("avx2", act_bits, w_bits, method=method, channels=64)
    assert kernel.with_bit_axis("inner") is kernel
    with pytest.raises(SpecError, match=rf"the bit axis of {kernel.name} can be inner, not 'outer'"):
        kernel.with_bit_axis("outer")
    with pytest.raises(SpecError, match="it lacks a bit axis that has its place"):
        checker.check(change(kernel.entry.kernel, bit_axis="outer"))


def test_a_bit_axis_is_inner_or_outer():
    with pytest.raises(SpecError, match="can be inner or outer, not 'middle'"):
        popcount().with_bit_axis("middle")


def test_a_schedule_says_its_form():
    schedule = LayerSchedule("avx2", "popcount", 64, "direct", unroll=4, bit_axis="outer")
    assert str(schedule) == "avx2 popcount, unrolled 4 times, outer bit axis, direct, pixels first"
