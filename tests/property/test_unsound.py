"""Kernels that once passed the checker although they are wrong: each stays refused, with a wrong sum."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.programs import acc, constant, steps
from support.programs import change as replace
from support.programs import lines as text
from support.solved_kernels import kernel

from bitsynth.errors import Refuted
from bitsynth.isa.step import Step
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass
from bitsynth.proof import checker, counterexample
from bitsynth.schedule.flush import with_trip_count

ONES = constant("k7", "u8x32", (1,) * 32)
EIGHTS = constant("k8", "u32x8", (8,) * 8)
ONE_EACH = constant("k9", "u32x8", (1,) * 8)


def base() -> tuple[Kernel, Pass]:
    """A kernel of one pass and one loop, without a first run of its own."""
    found = kernel("avx2", "popcount", 1, 1)
    (only,) = found.passes
    accs = tuple(replace(acc, start="") for acc in only.step.accs)
    return found, replace(only, loops=(replace(only.step, first=(), accs=accs),))


def with_step(loop: Pass, step: tuple[str, ...], **fields: object) -> Pass:
    return replace(loop, loops=(replace(loop.step, program=step, **fields),))


def before_the_first_count(loop: Pass, *lines: str, total: str = "acc0 t900") -> tuple[str, ...]:
    """The step with `lines` in front and their sum in the first accumulator."""
    added = f"t901 = add.u8x32 {total}"
    return (*lines, added, *(line.replace(" acc0 ", " t901 ") for line in text(loop.step.steps)))


def two_columns_exclude_each_other() -> Kernel:
    found, loop = base()
    lines = ("t910 = permute2x128.u8x32 w0_0 w0_0 #1", "t900 = xor.u8x32 w0_0 t910")
    return replace(found, passes=(with_step(loop, before_the_first_count(loop, *lines)),))


def two_columns_are_counted_as_none() -> Kernel:
    found, loop = base()
    table = next(s.args[0] for s in loop.step.steps if s.op.startswith("shuffle_epi8"))
    lines = (
        "t910 = permute2x128.u8x32 w0_0 w0_0 #1",
        "t911 = andnot.u8x32 w0_0 t910",
        f"t900 = shuffle_epi8.u8x32 {table} t911",
    )
    return replace(found, passes=(with_step(loop, before_the_first_count(loop, *lines)),))


def a_constant_a_step_against_one_a_flush() -> Kernel:
    found, loop = base()
    step = before_the_first_count(loop, total=f"acc0 {ONES.name}")
    flush = (*loop.flush, f"t920 = add.u32x8 {loop.tile[0]} {EIGHTS.name}")
    changed = replace(with_step(loop, step, trip_count=20), flush=flush, tile=("t920",))
    return replace(found, constants=(*found.constants, ONES, EIGHTS), passes=(changed,))


def two_passes_whose_flushes_cancel() -> Kernel:
    found, loop = base()

    def flushing(op: str, times: int) -> Pass:
        flush = (*loop.flush, f"t920 = {op}.u32x8 {loop.tile[0]} {ONE_EACH.name}")
        return replace(with_trip_count(loop, 0, times), flush=flush, tile=("t920",))

    passes = flushing("add", loop.step.trip_count), flushing("sub", 7)
    return replace(found, constants=(*found.constants, ONE_EACH), passes=passes)


def planes_of_a_table_that_are_the_same() -> Kernel:
    """Values 0 and 3 have two equal planes: three of a bit, added and taken away twice, once stayed."""
    found = kernel("neon", "lookup", 1, 1)
    (loop,) = found.passes
    (one,), step = loop.rows, loop.step
    three = replace(one, values=(0, 3))
    lines: list[str] = []
    accs = list[Acc]()
    for g, old in enumerate(step.accs):
        n = 100 * g
        lines += [f"t{n} = tbl.u8x16 a0 w{g}_0", f"t{n + 1} = tbl.u8x16 a1 w{g}_0"]
        value: str = old.name
        for k, (op, what) in enumerate([("add", 0), ("add", 0), ("sub", 0), ("sub", 0), ("sub", 1), ("sub", 1)]):
            lines.append(f"t{n + 2 + k} = {op}.u8x16 {value} t{n + what}")
            value = f"t{n + 2 + k}"
        accs.append(replace(old, next=value, start=""))
    inner = Loop(step.trip_count, steps(lines), tuple(accs))
    return replace(found, passes=(replace(loop, rows=(three, one), loops=(inner, *loop.loops[1:])),))


def bytes_that_wrap_are_shifted_out() -> Kernel:
    """A byte that leaves its lane by a shift was once taken for the sum it holds, however large that is."""
    found, loop = widening()
    outer, out = loop.loops[1], list[Step]()
    for step in outer.steps:
        if step.args[1:] and step.args[1] in {acc.name for acc in loop.step.accs}:
            up, low = f"{step.dst}0", f"{step.dst}1"
            out += steps([f"{up} = sll.u16x16 {step.args[1]} #8", f"{low} = srl.u16x16 {up} #8"])
            out.append(replace(step, args=(step.args[0], low)))
        else:
            out.append(step)
    assert len(out) > len(outer.steps)
    inner = replace(loop.step, trip_count=200)
    nested = inner, replace(outer, trip_count=50, program=tuple(out))
    return replace(found, passes=(replace(loop, loops=nested, flush=never_unmixed(loop)),))


def widening() -> tuple[Kernel, Pass]:
    """A kernel of one pass whose widenings leave low lanes below the high ones."""
    found = kernel("avx2", "lookup", 2, 1)
    (loop,) = found.passes
    assert any(taken(step) for step in loop.flush)
    return found, loop


def taken(step: Step) -> bool:
    """Whether it takes high sums from mixed ones."""
    return step.op == "sub.u16x16"


def never_unmixed(loop: Pass) -> tuple[Step, ...]:
    """The flush with mixed sums in the place of what is left of them."""
    mixed = {step.dst: step.args[0] for step in loop.flush if taken(step)}
    return tuple(replace(s, args=tuple(mixed.get(a, a) for a in s.args)) for s in loop.flush if not taken(s))


def flushing(change: Callable[[Step], Step]) -> Kernel:
    found, loop = widening()
    return replace(found, passes=(replace(loop, flush=tuple(change(s) for s in loop.flush)),))


def mixed_sums_are_taken_for_low_ones() -> Kernel:
    found, loop = widening()
    return replace(found, passes=(replace(loop, flush=never_unmixed(loop)),))


def high_sums_are_taken_from_another_place() -> Kernel:
    return flushing(lambda s: replace(s, imm=7) if s.op == "sll.u16x16" else s)


def high_sums_are_taken_from_other_lanes() -> Kernel:
    other = {"acc3": "acc5", "acc5": "acc3"}
    return flushing(lambda s: replace(s, args=(other[s.args[0]],)) if s.op == "sll.u16x16" else s)


def high_sums_are_added_once_more() -> Kernel:
    return flushing(lambda s: replace(s, op="add.u16x16") if taken(s) else s)


def low_sums_wrap_too() -> Kernel:
    """Mixed sums may wrap; what is left of them may not, a run beyond the last that is proved."""
    found, loop = widening()
    return replace(found, passes=(with_trip_count(loop, 1, loop.loops[1].trip_count + 1),))


def bytes_wrap_below_mixed_sums() -> Kernel:
    found, loop = widening()
    return replace(found, passes=(with_trip_count(loop, 0, loop.step.trip_count + 1),))


def one_more_pass_of_mixed_sums() -> Kernel:
    """What a third loop takes in are sums modulo 2**16: they are no numbers, whatever is added to them."""
    found, loop = widening()
    outer = loop.loops[1]
    names = {str(x.name): f"acc{10 + k}" for k, x in enumerate(outer.accs)}
    lines = tuple(f"t{k} = srl.u16x16 {old} #1" for k, old in enumerate(names))
    sums = tuple(f"t{10 + k} = add.u16x16 {new} t{k}" for k, new in enumerate(names.values()))
    accs = tuple(acc(new, "u16x16", f"t{10 + k}") for k, new in enumerate(names.values()))
    flush = tuple(" ".join(names.get(word, word) for word in line.split()) for line in text(loop.flush))
    nested = *loop.loops, Loop(1, steps((*lines, *sums)), accs)
    return replace(found, passes=(replace(loop, loops=nested, flush=flush),))


def sharing() -> tuple[Kernel, Pass, Pass]:
    """A kernel of two passes that share accumulators: the sums of the first are doubled."""
    found = kernel("avx2", "lookup", 2, 2)
    high, low = found.passes
    assert high.carries
    assert not low.carries
    return found, high, low


def shared_sums_are_tripled() -> Kernel:
    found, high, low = sharing()
    more = [(f"t9{k}", s) for k, s in enumerate(high.flush)]
    again = tuple(f"{new} = {s.op} {s.dst} {s.args[0]}" for new, s in more)
    return replace(found, passes=(replace(high, flush=(*high.flush, *again), tile=tuple(new for new, _ in more)), low))


def shared_sums_are_doubled_twice() -> Kernel:
    found, high, low = sharing()
    twice = [(f"t9{k}", s) for k, s in enumerate(high.flush)]
    again = tuple(f"{new} = {s.op} {s.dst} {s.dst}" for new, s in twice)
    return replace(found, passes=(replace(high, flush=(*high.flush, *again), tile=tuple(new for new, _ in twice)), low))


def shared_sums_change_places() -> Kernel:
    found, high, low = sharing()
    return replace(found, passes=(replace(high, tile=high.tile[::-1]), low))


def shared_sums_are_those_of_the_lower_plane() -> Kernel:
    found, high, low = sharing()
    return replace(found, passes=(replace(high, columns=low.columns), replace(low, columns=high.columns)))


def shared_sums_last_as_long_as_those_of_a_pass() -> Kernel:
    """They hold three times what a pass adds."""
    found, high, low = sharing()
    longer = (with_trip_count(p, 1, 3 * p.loops[1].trip_count) for p in (high, low))
    return replace(found, passes=tuple(longer))


WRONG = [
    two_columns_exclude_each_other,
    two_columns_are_counted_as_none,
    a_constant_a_step_against_one_a_flush,
    two_passes_whose_flushes_cancel,
    planes_of_a_table_that_are_the_same,
    bytes_that_wrap_are_shifted_out,
    mixed_sums_are_taken_for_low_ones,
    high_sums_are_taken_from_another_place,
    high_sums_are_taken_from_other_lanes,
    high_sums_are_added_once_more,
    low_sums_wrap_too,
    bytes_wrap_below_mixed_sums,
    one_more_pass_of_mixed_sums,
    shared_sums_are_tripled,
    shared_sums_are_doubled_twice,
    shared_sums_change_places,
    shared_sums_are_those_of_the_lower_plane,
    shared_sums_last_as_long_as_those_of_a_pass,
]


@pytest.mark.smoke
@pytest.mark.parametrize("result", WRONG)
def test_it_is_refused_and_wrong(result):
    built = result()
    assert counterexample.counterexample(built) is not None
    with pytest.raises(Refuted):
        checker.check(built)
