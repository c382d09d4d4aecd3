"""Kernels that once passed the checker although they are wrong: each stays refused, with a wrong sum."""

from __future__ import annotations

import msgspec
import pytest

from bitsynth import get_kernel, simulate, verify
from bitsynth.errors import Refuted
from bitsynth.program import Constant, Kernel

replace = msgspec.structs.replace
BASE = get_kernel("avx2", 1, 1).entry.kernel
PASS = BASE.passes[0]
ONES = Constant("k7", "u8x32", (1,) * 32)
EIGHTS = Constant("k8", "u32x8", (8,) * 8)
ONE_EACH = Constant("k9", "u32x8", (1,) * 8)


def before_the_first_count(*lines: str, total: str = "acc0 t900") -> tuple[str, ...]:
    """The step with `lines` in front and their sum in the first accumulator."""
    acc = PASS.step_program[-1].args[0] if len(PASS.accs) == 1 else "acc0"
    added = f"t901 = add.u8x32 {total}"
    return (*lines, added, *(line.replace(f" {acc} ", " t901 ") for line in PASS.step))


def one_pass(step: tuple[str, ...]) -> Kernel:
    return replace(BASE, passes=(replace(PASS, step=step),))


def two_columns_exclude_each_other() -> Kernel:
    lines = ("t910 = permute2x128.u8x32 w0_0 w0_0 #1", "t900 = xor.u8x32 w0_0 t910")
    return one_pass(before_the_first_count(*lines))


def two_columns_are_counted_as_none() -> Kernel:
    table = next(s.args[0] for s in PASS.step_program if s.op.startswith("shuffle_epi8"))
    lines = (
        "t910 = permute2x128.u8x32 w0_0 w0_0 #1",
        "t911 = andnot.u8x32 w0_0 t910",
        f"t900 = shuffle_epi8.u8x32 {table} t911",
    )
    return one_pass(before_the_first_count(*lines))


def a_constant_a_step_against_one_a_flush() -> Kernel:
    step = before_the_first_count(total=f"acc0 {ONES.name}")
    flush = (*PASS.flush, f"t920 = add.u32x8 {PASS.tile[0]} {EIGHTS.name}")
    changed = replace(PASS, step=step, flush=flush, tile=("t920",), flush_every=20)
    return replace(BASE, constants=(*BASE.constants, ONES, EIGHTS), passes=(changed,))


def two_passes_whose_flushes_cancel() -> Kernel:
    def flushing(op: str, **changes: object) -> object:
        flush = (*PASS.flush, f"t920 = {op}.u32x8 {PASS.tile[0]} {ONE_EACH.name}")
        return replace(PASS, flush=flush, tile=("t920",), **changes)

    return replace(
        BASE, constants=(*BASE.constants, ONE_EACH), passes=(flushing("add"), flushing("sub", flush_every=7))
    )


@pytest.mark.parametrize(
    "kernel",
    [
        two_columns_exclude_each_other,
        two_columns_are_counted_as_none,
        a_constant_a_step_against_one_a_flush,
        two_passes_whose_flushes_cancel,
    ],
)
def test_it_is_refused_and_wrong(kernel):
    built = kernel()
    with pytest.raises(Refuted):
        verify.check(built)
    assert simulate.counterexample(built) is not None
