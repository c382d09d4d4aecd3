"""The last row of a tile for the A53, whose program is on general-purpose registers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.case_selection import quick
from support.programs import change, lines

import bitsynth
from bitsynth.bench.resnet18 import select_layers
from bitsynth.cli import main
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.domains.forms import BitField, Concat, Inexact, as_form
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import load
from bitsynth.isa.value import WORDS, Part
from bitsynth.kernel.in_order import halves, pipelining
from bitsynth.kernel.in_order.halves import words_of
from bitsynth.kernel.in_order.list_scheduling import issue
from bitsynth.kernel.interpreter import compute_wanted_sums, product
from bitsynth.kernel.names import KernelName
from bitsynth.layers.planning import plan
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.matmul import cached_kernel
from bitsynth.proof import checker, orders
from bitsynth.proof.multiples import prove_multiple
from bitsynth.proof.proved import Proved
from bitsynth.schedule import disassembly, predicted
from bitsynth.schedule.tiles import in_words
from bitsynth.solver.budget import Budget
from bitsynth.spec.options import KernelOptions

NEON = load("neon")
CACHED = cached_kernel(bitsynth.get_kernel("neon", 1, 1).spec, KernelOptions(model="a53"))
KERNEL = CACHED.entry.kernel


def _with(program=None, **loop):
    """The kernel whose last row has another program, or another loop."""
    step = KERNEL.scalar_pass.step
    step = change(step, **({"program": program} if program else {}), **loop)
    return change(KERNEL, scalar_pass=change(KERNEL.scalar_pass, loops=(step,)))


def test_the_one_that_ships_is_made_and_proved_by_the_solver():
    plain = change(KERNEL, scalar_pass=None)
    kernel = in_words.with_last_row(NEON, plain)
    assert kernel == KERNEL
    proved = Proved.by_solver(kernel, Budget())
    assert any(lemma.startswith("last row: ") for lemma in proved.lemmas)
    assert {"add_lsr_x.x64x1", "extr_x.x32x2"} <= {o.op for o in proved.obligations}


def test_sets_without_general_purpose_registers_have_none():
    plain = bitsynth.get_kernel("armv7_neon", 1, 1, method="popcount", channels=64).entry.kernel
    assert in_words.with_last_row(load("armv7_neon"), plain) is plain


@pytest.mark.parametrize("widths", [(2, 1), (1, 2), (2, 2)])
def test_kernels_of_more_bits_have_none(widths):
    assert bitsynth.get_kernel("neon", *widths, cpu="a53").entry.kernel.scalar_pass is None


def test_it_is_as_right_as_the_others_when_interpreted():
    last, rng = KERNEL.alone[-1], np.random.default_rng(1)
    for k in (1, 63, 64, 15 * 64, 15 * 64 + 1, 40 * 64):
        rows, columns = rng.integers(0, 2, (3, k), np.uint8), rng.integers(0, 2, (k, 8), np.uint8)
        rows[0], columns[:, 0] = 1, 0
        assert (product(last, rows, columns) == compute_wanted_sums(last, rows, columns)).all()


def test_sums_that_leave_their_bytes_are_refuted():
    """16 bits a byte and step: 15 steps fit a byte, 16 do not."""
    others = change(KERNEL.passes[0], loops=(change(KERNEL.passes[0].step, trip_count=16),))
    with pytest.raises(Refuted):
        checker.check(change(_with(trip_count=16), passes=(others,)))


@pytest.mark.parametrize(
    "field", ["trip_count", "first"], ids=["another trip count than the others", "no first run where others have one"]
)
def test_a_scalar_pass_with_other_trip_counts_is_refused(field):
    step = KERNEL.scalar_pass.step
    bare = tuple(change(acc, start="") for acc in step.accs)
    other = _with(trip_count=14) if field == "trip_count" else _with(first=(), accs=bare)
    with pytest.raises(SpecError, match="trip counts of the other rows"):
        checker.check(other)


def test_one_row_alone_has_the_program_of_the_others():
    one = CACHED.with_rows(1).with_order("a53").entry.kernel
    assert one.of_group(one.passes[0], 0) is one.passes[0]
    assert "uint64_t acc" not in CACHED.with_rows(1).with_order("a53").source


def test_in_any_other_order_all_rows_have_one_program():
    assert "HELD" not in CACHED.source
    assert KERNEL.of_group(KERNEL.passes[0], KERNEL.groups - 1) is KERNEL.passes[0]


@pytest.mark.parametrize("wrong", ["i of another row", "h for i", "low half in another form"])
def test_an_order_that_loads_another_word_is_refuted(wrong, monkeypatch):
    kernel, right = CACHED.on("a53").entry.kernel, pipelining.pipeline_loop
    own = f"a0_{kernel.rows - 1}i"

    def changed(kernel, loop):
        found = right(kernel, loop)
        breakpoints = list(found.body)
        at, (step, later) = next((k, x) for k, x in enumerate(breakpoints) if x[0].dst == own)
        other = {
            "i of another row": change(step, dst="a0_0i"),
            "h for i": change(step, dst=own[:-1] + "h"),
            "low half in another form": change(step, op="load.u16x4"),
        }[wrong]
        breakpoints[at] = other, later
        lines = [(change(s, args=tuple(other.dst if a == own else a for a in s.args)), x) for s, x in breakpoints]
        return pipelining.PipelinedLoop(found.copies, found.flat, tuple(lines))

    monkeypatch.setattr(pipelining, "pipeline_loop", changed)
    with pytest.raises(Refuted):
        orders.check_order(kernel)


def test_it_is_quicker_by_prediction():
    """As gcc compiles it, it is quicker too: `benchmarks/arm_cycles.py`."""
    with_it = CACHED.on("a53").entry.kernel
    without = change(KERNEL, scalar_pass=None, order="a53", rows=10)
    messages = [predicted.cycles_per_128_mac(NEON, kernel, "a53") for kernel in (with_it, without)]
    assert messages[0] < 0.95 * messages[1]


def test_its_lines_take_no_vector_pipe():
    """In a turn it runs beside the vectors of other rows: no line of its own takes their pipes."""
    kernel = CACHED.on("a53").entry.kernel
    found = pipelining.pipeline_loop(kernel, kernel.passes[0])
    own = [step for step, _ in found.body if step.dst.endswith(f"_{kernel.rows - 1}") or step.dst.part.in_general]
    assert len(own) > 80
    for step in own:
        issued = issue(NEON, "a53", step, {})
        assert not {port for port, _ in issued.takes} & {"vector"}


@pytest.mark.parametrize(
    ("line", "cycles"),
    [("add x0, x1, x2", 1), ("add x0, x1, x2, lsr #4", 2), ("extr x0, x1, x2, #32", 2), ("and x0, x1, #0x55", 1)],
)
def test_shifted_operands_are_wanted_a_cycle_earlier(line, cycles):
    (issued,) = disassembly.read_issued(NEON, "a53", [line])
    assert issued.latency == cycles


def _word(domain, table, position=0):
    return BitField(table, None, position, (1 << 64) - 1)


def test_sums_of_bits_of_a_word_are_fields():
    """Pairs of bits add up in two bits each, and pairs of these in four."""
    domain = LinearDomain(2)
    word = _word(domain, 0b10)
    pairs = domain.add(domain.and_(word, 0x5555555555555555, 64), _shifted(domain, word, 0xAAAAAAAAAAAAAAAA, 1), 64)
    assert isinstance(pairs, Concat)
    assert [bits for _, bits in pairs.pieces] == [2] * 32
    assert {(as_form(x).lo, as_form(x).hi) for x, _ in pairs.pieces} == {(0, 2)}
    fours = domain.add(domain.and_(pairs, 0x3333333333333333, 64), _shifted(domain, pairs, 0xCCCCCCCCCCCCCCCC, 2), 64)
    assert isinstance(fours, Concat)
    assert [bits for _, bits in fours.pieces] == [4] * 16


def _shifted(domain, word, mask, by):
    return domain.lshr(domain.and_(word, mask, 64), by, 64)


def test_a_sum_of_bits_that_may_leave_its_word_is_inexact():
    domain = LinearDomain(2)
    with pytest.raises(Inexact, match="leaves its word"):
        domain.add(_word(domain, 0b10), _word(domain, 0b10), 64)


@pytest.mark.toolchains
def test_compiled_it_is_exact():
    """Tiles and their rest, sums at the end of a block and behind it, all bits set."""
    found, rng = bitsynth.get_kernel("neon", 1, 1, cpu="a53").on("a53"), np.random.default_rng(3)
    rows = found.entry.kernel.rows
    for m, k, n in itertools.product((1, rows, 2 * rows + 1), (1, 64, 15 * 64, 15 * 64 + 1, 31 * 64 + 5), (8, 17)):
        a, w = rng.integers(0, 2, (m, k)), 2 * rng.integers(0, 2, (k, n)) - 1
        a[-1], w[:, 0], w[:, 1] = 1, 1, -1
        assert (found.matmul(a, w) == a @ w).all(), (m, k, n)


def test_a_word_of_a_row_that_is_repeated_four_times_is_not_loaded():
    """Memory has four of its bytes alone, and others behind them."""
    assert words_of(NEON, "dup64.u8x16") == (Part.LOW_WORD,)
    assert words_of(NEON, "load.u8x16") == WORDS
    assert words_of(NEON, "dup32.u32x4") == words_of(NEON, "dup8.u8x16") == ()


@pytest.mark.parametrize("load_form", ["dup32.u32x4", "dup8.u8x16"])
def test_such_a_load_is_another_value(load_form, monkeypatch):
    """An order that has it anyway is refuted."""
    kernel = change(CACHED.on("a53").entry.kernel, memory=change(KERNEL.memory, broadcast=load_form))
    monkeypatch.setattr(halves, "words_of", lambda *_: WORDS)
    with pytest.raises(Refuted):
        orders.check_order(kernel)


def _forged(**changes):
    """The shipped kernel with its last row's pass changed, as it is checked."""
    return checker.check(change(KERNEL, scalar_pass=change(KERNEL.scalar_pass, **changes)))


STEP = KERNEL.scalar_pass.step
OUTER = change(STEP, trip_count=2, program=("t0 = add_x.x64x1 acc4 acc0",), accs=(), first=())


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("one pass of one loop", {"loops": ()}),
        ("one pass of one loop", {"loops": (STEP, OUTER)}),
        ("inputs of the other rows", {"rows": KERNEL.scalar_pass.rows * 2}),
        ("trip counts of the other rows", {"carries": True}),
        ("last row: t0 = add.u8x16", {"flush": ("t0 = add.u8x16 acc0 acc0",)}),
        (
            "general-purpose register",
            {"flush": (*KERNEL.scalar_pass.flush, "t199 = add_x.x64x1 acc0 acc0"), "tile": ("t199",) * 2},
        ),
    ],
)
def test_a_last_row_of_another_shape_is_refused(message, changes):
    with pytest.raises(SpecError, match=message):
        _forged(**changes)


def test_other_rows_are_on_vectors():
    with pytest.raises(SpecError, match="for a last row's own program"):
        checker.check(change(KERNEL, passes=(KERNEL.scalar_pass,), scalar_pass=None))


def test_what_it_joins_again_is_not_ahead():
    """Lines on vectors wait for lines of its own, which are in their turn."""
    program = list(lines(STEP.steps))
    taken = program.index("t0 = low_x.x64x1 a0")
    program[taken + 1 : taken + 1] = ["t190 = fmov_x.u8x8 t0", "t191 = ins_x.u8x16 t190 t0", "t192 = low_x.x64x1 t191"]
    program = [line.replace("eor_x.x64x1 t0 ", "eor_x.x64x1 t192 ") for line in program]
    kernel = change(_with(program, first=()), order="a53", rows=4)
    accs = tuple(change(acc, start="") for acc in STEP.accs)
    own = change(kernel.scalar_pass, loops=(change(kernel.scalar_pass.step, accs=accs),))
    (others,) = kernel.passes
    plain = change(others.step, first=(), accs=tuple(change(acc, start="") for acc in others.step.accs))
    orders.check_order(change(kernel, scalar_pass=own, passes=(change(others, loops=(plain,)),)))


def test_multiples_and_flush_periods_have_it_too():
    doubled = prove_multiple(CACHED.on("a53").proved_entry.proved, 1)
    assert len(doubled.scalar_pass.flush) > len(KERNEL.scalar_pass.flush)
    assert CACHED.with_flushes(7).entry.kernel.scalar_pass.step.trip_count == 7


def test_predictions_count_every_flush():
    """31 steps are flushed three times, 30 twice, and 15 once."""
    kernel = CACHED.on("a53").entry.kernel
    messages = [predicted.call_cycles(NEON, kernel, "a53", 64 * steps) for steps in (15, 30, 31)]
    flush = 7 * kernel.rows
    assert messages[1] > 2 * messages[0] > messages[1] - 3 * flush
    assert messages[2] > messages[1] + flush


@pytest.mark.parametrize("model", quick(["a53"], of=["a53", "a72", "ops"]))
def test_layers_name_a_kernel_that_a_processor_has_to_itself(model):
    spec = LayerSpec(CACHED.spec.act, CACHED.spec.wgt, select_layers("C2")[0].geometry, image=(56, 56))
    cpu = "" if model == "ops" else model
    schedule = plan(spec, isa="neon", cpu=cpu or "a76").schedule
    assert schedule.model == ("a53" if model == "a53" else "ops")


@pytest.mark.parametrize("model", ["a54", "length", 3, None, "x" * 5000])
def test_an_unknown_model_of_a_schedule_is_refused(model):
    with pytest.raises(SpecError, match="unknown model"):
        LayerSchedule("neon", "popcount", 64, "direct", model=model)


def test_show_has_both_programs(capsys):
    """In words and as JSON."""
    name = str(KernelName.of(KERNEL, CACHED.spec))
    for arguments in ([], ["--json"]):
        assert main(["show", f"{name}", "--variant", "a53", *arguments]) == 0
        assert "add_lsr_x.x64x1" in capsys.readouterr().out
