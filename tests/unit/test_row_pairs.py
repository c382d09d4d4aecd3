"""Lookups of two rows at once: what instruction sets have for them, sums in halves of bytes, and their proof."""

import re
from dataclasses import replace

import numpy as np
import pytest
from support.programs import change
from support.solved_kernels import entry

from bitsynth import paths
from bitsynth.errors import NoKernel, Refuted, SpecError
from bitsynth.isa.load import load
from bitsynth.isa.step import Step, to_builtins
from bitsynth.kernel.interpreter import compute_wanted_sums, product
from bitsynth.kernel.wellformed import check_shape
from bitsynth.matmul import get_kernel
from bitsynth.proof import checker, independent
from bitsynth.proof.counterexample import counterexample
from bitsynth.schedule import cost, predicted
from bitsynth.schedule.flush import with_trip_count
from bitsynth.schedule.quickest import quickest
from bitsynth.sketches.lanes import pairs, terms


@pytest.fixture(scope="module")
def kernel():
    return entry("neon", "pairs", 2, 1).kernel


@pytest.mark.parametrize(
    ("isa", "ops", "span"),
    [
        ("neon", ("usra.u8x16",), 1),
        ("armv7_neon", ("ushr.u8x16", "add.u8x16"), 1),
        ("avx2", ("srl.u16x16", "add.u8x32"), 2),
        ("avx512", ("srl.u16x32", "add.u8x64"), 2),
    ],
)
def test_high_halves_are_added_up_by_what_a_set_has(isa, ops, span):
    """Where nothing shifts bytes, two of them are shifted at once, and the low half of the upper one comes in."""
    (term,) = {t.add: t for t in terms.find(load(isa), "pairs")}.values()
    assert term.rows == 2
    found = pairs.find(load(isa), term.add)
    assert (found.ops, found.span, found.bits, found.most) == (ops, span, 4, 15)


def test_a_set_without_shifts_has_no_pairs():
    isa = load("avx2")
    without = replace(isa, instrs={name: x for name, x in isa.instrs.items() if not name.startswith("srl.")})
    with pytest.raises(NoKernel, match="avx2 has no instructions that add the high halves of bytes"):
        pairs.find(without, "add.u8x32")


def test_a_program_serves_two_rows(kernel):
    assert (kernel.method, kernel.together, kernel.groups * 2) == ("pairs", 2, kernel.rows)
    assert sum(step.op.startswith("tbl") for step in kernel.passes[0].step.steps) == len(kernel.slots) // 16
    assert cost.loop_ops_per_128_mac(load("neon"), kernel) == 3.0
    with pytest.raises(SpecError, match="whole groups"):
        check_shape(load("neon"), change(kernel, rows=3))


@pytest.mark.parametrize(("first", "second"), [(3, 3), (3, 0), (0, 3), (1, 3)])
@pytest.mark.parametrize("depth", [1, 83, 85, 4608])
def test_rows_do_not_run_into_each_other(kernel, first, second, depth):
    """All-max, all-ones, and either row alone, up to the end of a run and beyond; the last row has no partner."""
    rows = np.repeat(np.array([first, second, first], np.uint8)[:, None], depth, axis=1)
    for code in (0, 1):
        columns = np.full((depth, 70), code, np.uint8)
        assert (product(kernel, rows, columns) == compute_wanted_sums(kernel, rows, columns)).all()


def test_sums_are_bounded_by_what_tables_hold(kernel):
    """21 lookups of at most 12 a half, 252; one more, and the low sum would not be known from 8 bits."""
    (loop,) = kernel.passes
    assert loop.step.trip_count == 255 // (4 * 3)
    with pytest.raises(Refuted, match="may hold"):
        checker.check(change(kernel, passes=(with_trip_count(loop, 0, 22),)))


@pytest.fixture(scope="module")
def neighbours():
    """A kernel whose shifts bring the low half of the next byte into the sums of high halves."""
    return entry("avx2", "pairs", 1, 1).kernel


def test_what_comes_in_from_the_byte_above_is_taken_away_once(neighbours):
    """Of each two accumulators first 16 times the second is taken, then 16 times the byte above of what is left."""
    (loop,) = neighbours.passes
    assert cost.loop_ops_per_128_mac(load("avx2"), neighbours) == pytest.approx(4 / 3)
    ops = [step.op for step in loop.loops[1].steps]
    assert ops[:6] == ["and.u8x32", "sll.u16x16", "sub.u8x32", "and.u8x32", "srl.u16x16", "sub.u8x32"]
    assert loop.step.trip_count == 255 // 12
    longer = change(neighbours, passes=(with_trip_count(loop, 0, 22),))
    with pytest.raises(Refuted, match="may hold"):
        checker.check(longer)


@pytest.mark.parametrize("left_out", ["sub.u8x32 acc1", "sub.u8x32 acc0"])
def test_sums_that_are_not_separated_are_refused(neighbours, left_out):
    """Both checkers refuse an accumulator from which the other one's sums are not taken."""
    (loop,) = neighbours.passes
    taken = next(s for s in loop.loops[1].steps if f"{s.op} {s.args[0]}" == left_out)
    steps = [
        s.rename(lambda name: taken.args[0] if name == taken.dst else name)
        for s in loop.loops[1].steps
        if s is not taken
    ]
    wider = change(loop.loops[1], steps=tuple(steps))
    wrong = change(neighbours, passes=(change(loop, loops=(loop.step, wider, *loop.loops[2:])),))
    with pytest.raises(Refuted):
        checker.check(wrong)
    found = entry("avx2", "pairs", 1, 1)
    record = {"name": found.name, "kernel": to_builtins(wrong), "certificate": {"k_max": 1000}}
    with pytest.raises(independent.Wrong):
        independent.check(record, paths.isa_folder("avx2"))


@pytest.mark.parametrize("depth", [1, 13, 252, 253, 600])
def test_bytes_do_not_run_into_each_other(neighbours, depth):
    """Greatest sums in some columns and none in their neighbours, in either row or both."""
    for first, second in ((1, 1), (1, 0), (0, 1)):
        rows = np.repeat(np.array([first, second, second], np.uint8)[:, None], depth, axis=1)
        for on in (slice(0, None, 2), slice(1, None, 2), slice(0, None)):
            columns = np.zeros((depth, 70), np.uint8)
            columns[:, on] = 1
            assert (product(neighbours, rows, columns) == compute_wanted_sums(neighbours, rows, columns)).all()


@pytest.mark.parametrize("imm", [3, 5])
def test_halves_parted_elsewhere_are_refused(kernel, imm):
    (loop,) = kernel.passes
    step = change(loop.step, first=(), steps=tuple(_other(loop.step.steps, imm)))
    accs = tuple(change(acc, start="") for acc in step.accs)
    with pytest.raises((Refuted, SpecError)):
        checker.check(change(kernel, passes=(change(loop, loops=(change(step, accs=accs), *loop.loops[1:])),)))


def _other(steps: tuple[Step, ...], imm: int) -> list[Step]:
    return [change(s, imm=imm) if s.op.startswith("usra") else s for s in steps]


def test_a_row_has_no_more_than_its_share_of_a_byte(kernel):
    """Sums of four codes of the second row are bounded by nothing else: it is what fills a byte up."""
    (loop,) = kernel.passes
    wide = change(kernel, passes=(change(loop, rows=tuple(change(x, values=(0, 1, 2, 4)) for x in loop.rows)),))
    with pytest.raises(SpecError, match="sums that fit a row's share of an entry"):
        check_shape(load("neon"), wide)


def test_only_tables_are_shared():
    planes = entry("neon", "popcount", 2, 1).kernel
    with pytest.raises(SpecError, match="tables, if rows share a program"):
        check_shape(load("neon"), change(planes, together=2, rows=2))


def test_the_tile_of_the_other_row_is_a_counterexample(kernel):
    (loop,) = kernel.passes
    half = len(loop.tile) // 2
    crossed = change(kernel, passes=(change(loop, tile=loop.tile[half:] + loop.tile[:half]),))
    with pytest.raises(Refuted):
        checker.check(crossed)
    found = counterexample(crossed, thorough=False)
    assert found is not None
    assert found.got != found.want
    assert counterexample(kernel, thorough=False) is None


@pytest.mark.parametrize("cpu", ["a53", "a72", "a76"])
def test_rows_are_pairs_on_every_processor(kernel, cpu):
    found = quickest(kernel, cpu)
    assert found.rows % 2 == 0
    bound = cost.cycles_per_128_mac(load("neon"), found, cpu)
    assert bound < predicted.cycles_per_128_mac(load("neon"), found, cpu) < 2 * bound


def test_a_flush_wants_few_registers():
    """Of three tiles of two rows by 64 columns, 32 registers: each is stored before the next is loaded."""
    kernel = get_kernel("neon", 2, 1, method="pairs", channels=64)
    flush = kernel.files[f"{kernel.name}.c"].partition("/* Flush:")[2].partition("_sizes")[0]
    found = re.findall(r"(load|store)_u32x4\((?:from|to)_(\d(?: \+ \d+)?)", flush)
    assert [kind for kind, _ in found] == ["load", "store"] * 96
    assert [place for kind, place in found if kind == "load"] == [place for kind, place in found if kind == "store"]
