"""Issue rules: what starts when, in order and out of order; listings; predicted cycles; orders for in-order cores."""

from __future__ import annotations

import numpy as np
import pytest
from support.programs import acc, change, lines
from support.solved_kernels import kernel

import bitsynth
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa import scoreboard
from bitsynth.isa.load import load
from bitsynth.isa.scoreboard import InOrder, busy, cycles, of_kind
from bitsynth.isa.value import Role
from bitsynth.kernel.in_order import folds, pipelining
from bitsynth.kernel.in_order.halves import half_loads, split_loads
from bitsynth.kernel.in_order.list_scheduling import issue
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.wellformed import check_shape
from bitsynth.matmul import MatmulKernel
from bitsynth.proof.orders import check_order
from bitsynth.schedule import cost, disassembly, predicted

NEON = load("neon")


def took(cpu, *lines):
    """Cycles that lines take beyond none."""
    return cycles(NEON.rules(cpu), disassembly.read_issued(NEON, cpu, lines))


def test_in_order_two_start_a_cycle_and_one_on_vectors():
    adds = [f"add v{k}.16b, v30.16b, v31.16b" for k in range(8)]
    scalars = [f"add x{k}, x20, #1" for k in range(8)]
    assert took("a53", *adds) == 7 + 2
    assert took("a53", *(x for pair in zip(adds, scalars, strict=True) for x in pair)) == 7 + 2
    assert took("a53", *(f"ldr q{k}, [x0, #{16 * k}]" for k in range(4))) == 2 * 3 + 4


MEASURED = {
    ("ldr d0, [x1]", "fadd v1.4s, v1.4s, v1.4s"): 2,
    ("fadd v1.4s, v1.4s, v1.4s", "ldr d0, [x1]"): 2,
    ("fadd v0.4s, v0.4s, v0.4s", "ldr x0, [x1]"): 1,
    ("ldr d0, [x1]", "mov v1.d[1], x0"): 1,
    ("mov v1.d[1], x0", "ldr d0, [x1]"): 1,
    ("ldr d0, [x1]", "mov v0.d[1], x0"): 2,
    ("mov v0.d[1], x0", "mov v1.d[1], x1"): 1,
    ("mov v0.d[0], x0", "mov v0.d[1], x1"): 2,
    ("ld1 {v0.d}[0], [x1]", "mov v1.d[1], x0"): 2,
    ("fadd v0.4s, v0.4s, v0.4s", "str q1, [x1]"): 2,
    ("str q1, [x1]", "fadd v0.4s, v0.4s, v0.4s"): 2,
    ("ldr d0, [x1]", "str q1, [x1]"): 2,
    ("mov v0.d[1], x0", "str q1, [x1]"): 2,
    ("fadd v0.4s, v0.4s, v0.4s", "str x0, [x1]"): 1,
    ("fadd v0.4s, v0.4s, v0.4s", "mov x0, v1.d[0]"): 2,
    ("ldr q0, [x1]", "fadd v0.4s, v0.4s, v0.4s"): 5,
    ("ldr q0, [x1]", "ldr q1, [x1]", "fadd v0.4s, v0.4s, v0.4s"): 5,
    ("ldr q0, [x1]", "ldr q1, [x1]", "fadd v1.4s, v1.4s, v1.4s"): 7,
    ("ldp q0, q1, [x1]", "fadd v1.4s, v1.4s, v1.4s"): 7,
    ("ldr d0, [x1]", "fadd v0.4s, v0.4s, v0.4s"): 4,
    ("ldr d0, [x1]", "ldr d1, [x1]", "fadd v1.4s, v1.4s, v1.4s"): 5,
    ("mov v0.d[1], x0", "fadd v0.4s, v0.4s, v0.4s"): 3,
}
"""Cycles of the Cortex-A53 by its counter (`a53_issue` in the sources of the instruction set)."""


@pytest.mark.parametrize("lines", MEASURED, ids="; ".join)
def test_an_a53_starts_what_it_was_measured_to_start(lines):
    """An instruction behind that waits for nothing but a slot starts in the cycle after."""
    core = InOrder(NEON.rules("a53"))
    for x in disassembly.read_issued(NEON, "a53", lines):
        core.issue(x)
    assert core.now + 1 == MEASURED[lines]


def test_in_order_waits_for_operands_and_out_of_order_goes_on():
    lines = ["ldr q0, [x0]", "add v1.16b, v0.16b, v0.16b", *(f"eor v{k}.16b, v30.16b, v31.16b" for k in range(2, 12))]
    late = [lines[0], *lines[2:], lines[1]]
    assert took("a53", *lines) > took("a53", *late)
    assert took("a76", *lines) == took("a76", *late)


def test_accumulators_are_forwarded():
    assert took("a76", *["umlal v0.8h, v1.8b, v2.8b"] * 9) < took("a76", *["mul v0.16b, v0.16b, v2.16b"] * 9)


def test_a_broadcast_takes_a_vector_slot_where_it_does():
    loads = [f"ld1r {{v{k}.2d}}, [x{k}]" for k in range(16)]
    adds = [f"add v{16 + k}.16b, v30.16b, v31.16b" for k in range(8)]
    assert took("a76", *loads, *adds) > took("a76", *(x.replace("ld1r {", "ldr ").replace(".2d}", "") for x in loads))
    assert NEON["dup64.u8x16"].cost["a53"].slots == 0
    assert NEON["dup64.u8x16"].cost["a76"].slots == 1


def test_what_a_listing_says():
    load_, back, flags, taken = disassembly.read_issued(
        NEON, "a76", ["ldr q3, [x1], #16", "subs x2, x2, #1", "b.ne 40"]
    )
    assert (load_.reads, load_.writes) == (("x1",), ("v3",))
    assert back.writes == ("x1",)
    assert "flags" in flags.writes
    assert "flags" in taken.reads
    (half,) = disassembly.read_issued(NEON, "a53", ["mov v2.d[1], v3.d[0]"])
    assert (set(half.reads), half.writes) == ({"v2", "v3"}, ("v2",))
    pair = list(disassembly.read_issued(NEON, "a53", ["ldp q0, q1, [x0]", "uadalp v4.8h, v2.16b"]))
    assert [x.writes for x in pair] == [("v0",), ("v1",), ("v4",)]
    assert pair[-1].forwarded == "v4"


@pytest.mark.parametrize(("isa", "cpu"), [("neon", "a53"), ("neon", "a72"), ("neon_dotprod", "a76")])
def test_no_program_takes_less_than_what_is_busiest(isa, cpu):
    """Whatever depends on what; and one kind of instructions that nothing holds up takes just that."""
    rules, rng = load(isa).rules(cpu), np.random.default_rng(0)
    kinds = sorted(rules.kinds)
    for _ in range(20):
        picked = rng.choice(kinds, 60)
        program = [of_kind(rules, kind, [f"r{rng.integers(8)}"], [f"r{rng.integers(8)}"]) for kind in picked]
        assert cycles(rules, program) >= max(busy(rules, program).values())
    moves = [of_kind(rules, "move")] * 120
    assert busy(rules, moves)["vector"] == 120 * rules.kinds["move"].takes["vector"] / len(rules.ports["vector"])
    assert abs(cycles(rules, moves) - busy(rules, moves)["vector"]) <= 8


def test_no_rules_no_prediction():
    with pytest.raises(SpecError, match="no issue rules for zen5"):
        load("avx2").rules("zen5")


def test_a_prediction_is_no_less_than_the_bound():
    for config in (("neon", "popcount", 2, 2), ("neon", "lookup", 2, 1), ("neon_dotprod", "dot", 3, 1)):
        found, isa = kernel(*config), load(config[0])
        for cpu in isa.table.cpu:
            got = predicted.cycles_per_128_mac(isa, found, cpu)
            least = cost.cycles_per_128_mac(isa, found, cpu)
            assert least * 0.75 < got < 5 * least, (config, cpu)


def test_tiles_of_a_call_overlap_out_of_order():
    found = kernel("neon", "popcount", 1, 1)
    assert (found.columns, predicted.tiles_of_call(found)) == (8, 8)
    for cpu, least, most in (("a53", 0.99, 1.01), ("a72", 0.8, 0.97)):
        facts = predicted.cycles_per_128_mac(NEON, found, cpu)
        assert facts == predicted.call_cycles(NEON, found, cpu, tiles=8) * 128 / (8 * found.rows * found.columns * 576)
        assert least < facts / predicted.tile_cycles_per_128_mac(NEON, found, cpu) < most


@pytest.mark.parametrize("order", ["rows", "steps"])
def test_lines_that_are_the_same_are_predicted_once(order):
    """But for one that an accumulator becomes; one that differs by its immediate alone is another."""
    found = change(kernel("neon", "popcount", 1, 1), order=order)
    (loop,) = found.passes
    first, second, *others = lines(loop.step.steps)
    assert (first[:5], second) == ("t0 = ", "t1 = cnt.u8x16 t0")
    again, of_it = first.replace("t0", "t99", 1), "t98 = cnt.u8x16 t99"

    def told(*program, **step):
        of = change(loop.step, program=program, **step)
        return predicted.call_cycles(NEON, change(found, passes=(change(loop, loops=(of, *loop.loops[1:])),)), "a72")

    least = told(*loop.step.steps)
    assert told(first, again, of_it, second, *others) == least
    assert told(first, again, "t98 = cnt.u8x16 t3", second, *others) > least
    shifts = [f"t{90 + k} = ushr.u8x16 t0 #{1 + k}" for k in range(8)]
    assert told(first, *shifts, second, *others) > told(first, *shifts[:1] * 8, second, *others)
    sums = tuple(acc(f"acc{90 + k}", "u8x16", f"t{90 + k}", "t0") for k in range(8))
    same = [f"{x.next} = add.u8x16 t0 t0" for x in sums]
    assert told(first, *same, second, *others, accs=(*loop.step.accs, *sums)) > told(first, *same, second, *others)


@pytest.mark.parametrize("config", [("neon", "lookup", 2, 1), ("neon", "popcount", 2, 2)], ids=str)
def test_an_order_has_the_same_lines_and_is_quicker(config):
    found = kernel(*config)
    ordered = change(found, order="a53")
    check_shape(NEON, ordered)
    check_order(ordered)
    for loop in ordered.passes:
        pipelined = pipelining.pipeline_loop(ordered, loop)
        assert sorted(map(str, [*pipelined.prologue, *pipelined.tail])) == sorted(lines(pipelined.flat.steps))
    assert predicted.call_cycles(NEON, ordered, "a53") < predicted.call_cycles(NEON, found, "a53")
    with pytest.raises(SpecError, match="an order of its steps"):
        check_shape(NEON, change(found, order="a72"))


LOOPS = {(1, 1): 1.01, (2, 1): 1, (2, 2): 1, (3, 2): 1, (4, 1): 1.04, (3, 3): 1.04, (4, 4): 1.04}
"""What loops of the kernels that the A53 takes take, of what pipes alone are busy with: no order takes less than 1."""


@pytest.mark.parametrize("widths", LOOPS, ids=str)
def test_no_order_of_a_loop_would_gain_much(widths):
    found = bitsynth.get_kernel("neon", *widths, cpu="a53").on("a53").entry.kernel
    for loop in found.passes:
        pipelined = pipelining.pipeline_loop(found, loop)
        round_number = [issue(NEON, "a53", step, pipelined.becomes) for step, _ in pipelined.body]
        some, more = (scoreboard.run_blocks(NEON.rules("a53"), [round_number] * n)[0] for n in (20, 40))
        assert more - some <= LOOPS[widths] * 20 * max(busy(NEON.rules("a53"), round_number).values())


def _swapped(breakpoints, k, later):
    """The turns with line k ahead or not, or in the place of the one before it."""
    step, ahead_ = breakpoints[k]
    changed = [(step, not ahead_)] if later else [breakpoints[k], breakpoints[k - 1]]
    return (*breakpoints[: k + 1 - len(changed)], *changed, *breakpoints[k + 1 :])


@pytest.mark.parametrize("later", [False, True])
def test_an_order_that_changes_sums_is_refuted(monkeypatch, later):
    ordered = change(kernel("neon", "popcount", 1, 1), order="a53")
    pipelined = pipelining.pipeline_loop(ordered, ordered.passes[0])
    refuted = 0
    for k in range(1, len(pipelined.body), 7):
        wrong = pipelining.PipelinedLoop(pipelined.copies, pipelined.flat, _swapped(pipelined.body, k, later))
        monkeypatch.setattr(pipelining, "pipeline_loop", lambda *_, wrong=wrong: wrong)
        try:
            check_order(ordered)
        except Refuted:
            refuted += 1
    assert refuted > 1


@pytest.mark.parametrize("forged", ["form", "name"])
def test_an_order_with_other_loads_is_refuted(monkeypatch, forged):
    """A row that is loaded as it lies is not what is repeated over a register."""
    ordered = change(kernel("neon", "popcount", 1, 1), order="a53")
    pipelined = pipelining.pipeline_loop(ordered, ordered.passes[0])
    k, (step, later) = next(
        (k, round_number) for k, round_number in enumerate(pipelined.body) if round_number[0].dst.role is Role.ROW
    )
    other = change(step, op=ordered.memory.load) if forged == "form" else change(step, dst="a7_7")
    wrong = pipelining.PipelinedLoop(
        pipelined.copies, pipelined.flat, (*pipelined.body[:k], (other, later), *pipelined.body[k + 1 :])
    )
    monkeypatch.setattr(pipelining, "pipeline_loop", lambda *_: wrong)
    with pytest.raises(Refuted, match="in another form" if forged == "form" else "is no instruction of a step"):
        check_order(ordered)


def test_whole_registers_are_loaded_in_halves_where_nothing_starts_beside_a_load():
    forms = half_loads(NEON, "a53")
    assert forms is not None
    assert half_loads(NEON, "a72") is None
    adds = [f"add v{8 + k}.16b, v30.16b, v31.16b" for k in range(3)]
    whole = ["ldr q0, [x0]", "ldr q1, [x0, #16]"]
    low, high = ["ldr d0, [x0]", "ldr d1, [x0, #16]"], ["ldr x1, [x0, #8]", "ldr x2, [x0, #24]"]
    halves = [adds[0], high[0], low[0], adds[1], high[1], low[1], "mov v0.d[1], x1", adds[2], "mov v1.d[1], x2"]
    assert took("a53", *halves) < took("a53", *whole, *adds)
    lookup = change(kernel("neon", "lookup", 2, 1), order="a53")
    steps = pipelining.pipeline_loop(lookup, lookup.passes[0]).flat.steps
    joins = [s for s in steps if s.op == forms.join]
    assert joins
    assert all(s.args == (f"{s.dst}l", f"{s.dst}h") for s in joins)
    assert {s.op for s in steps if not s.args} == {forms.load}


def _folds(found):
    """Folds and flushes of a kernel as written."""
    for loop in found.passes:
        yield from (folds.fold(found, outer) for outer in loop.loops[1:])
        if not loop.carries:
            yield folds.flush(NEON, found, loop, row_terms=found.has_row_terms)


def test_folds_are_quicker_in_order():
    found = change(kernel("neon", "lookup", 2, 1), order="a53")
    for flat in _folds(found):
        lines = pipelining.order_fold(NEON, found, flat)
        row_by_row, ordered = (
            cycles(NEON.rules("a53"), [issue(NEON, "a53", s, {}) for s in some]) for some in (flat.steps, lines)
        )
        assert ordered < row_by_row


@pytest.mark.parametrize("wrong", ["swapped", "stored twice", "half"])
def test_a_fold_that_stores_something_else_is_refuted(monkeypatch, wrong):
    found = change(kernel("neon", "lookup", 2, 1), order="a53", rows=3)
    right = pipelining.order_fold

    def changed(isa, of, flat):
        lines = list(right(isa, of, split_loads(isa, "a53", flat)))
        two = [k for k, s in enumerate(lines) if isa[s.op].store == (wrong == "stored twice") and len(s.args) > 0][:2]
        first, second = (lines[k] for k in two)
        if wrong == "half":
            first = next(s for s in lines if s.op == half_loads(isa, "a53").join)
            lines[lines.index(first)] = change(first, args=first.args[::-1])
        else:
            lines[two[0]], lines[two[1]] = (change(a, dst=b.dst) for a, b in ((first, second), (second, first)))
        return tuple(lines)

    check_order(found)
    monkeypatch.setattr(pipelining, "order_fold", changed)
    with pytest.raises(Refuted, match=r"fold or a flush|before it is computed"):
        check_order(found)


def test_a_kernel_for_an_in_order_processor_is_a_form():
    found = bitsynth.get_kernel("neon", 2, 1)
    ordered = found.with_order("a53")
    assert ordered.name == f"{found.name}_for_a53"
    assert str(KernelName.parse(ordered.name)) == ordered.name
    assert ordered.entry.certificate.lemmas == found.entry.certificate.lemmas
    assert "HOLD(" in ordered.source
    assert "HOLD(" not in found.source
    with pytest.raises(SpecError, match="an order of its steps"):
        found.with_order("a76")


def test_layers_of_an_in_order_processor_are_ordered_for_it():
    weights = np.ones((8, 64, 1, 1), np.int64)
    orders = {}
    for cpu in ("a53", "a72"):
        plan = bitsynth.Conv2d(weights, act_bits=1, w_bits=1, image=(4, 4), isa="neon", cpu=cpu).plan
        assert isinstance(plan.kernel, MatmulKernel)
        orders[cpu] = plan.kernel.entry.kernel.order
    assert orders == {"a53": "a53", "a72": "rows"}


def test_sums_leave_registers_in_an_order():
    """Six rows of 32 columns would have 24 of 32 registers, around which compilers copy."""
    wide = bitsynth.get_kernel("neon", 4, 4, method="multiply", channels=32)
    assert (wide.entry.kernel.rows, wide.on("a72").entry.kernel.rows, wide.on("a53").entry.kernel.rows) == (6, 6, 5)
    for method in ("popcount", "lookup", "pairs", "multiply"):
        found = bitsynth.get_kernel("neon", 2, 2, method=method, channels=64).on("a53").entry.kernel
        assert max(len(p.step.accs) for p in found.passes) * found.groups < 3 / 4 * NEON.table.registers


def test_a_turn_has_one_step_where_sums_are_a_third_of_all_registers():
    """Compilers copy them around longer turns."""
    wide = bitsynth.get_kernel("neon", 4, 4, method="multiply", channels=32)
    copies = {}
    for rows in (2, 5):
        ordered = wide.with_rows(rows).with_order("a53").entry.kernel
        (loop,) = ordered.passes
        copies[len(loop.step.accs) * ordered.groups] = pipelining.pipeline_loop(ordered, loop).copies
    assert copies == {8: 4, 20: 1}


def test_what_rows_share_of_columns_takes_registers_from_outer_sums():
    """Three rows of 3 and 6 sums leave 5 registers; halves of columns alone take 6."""
    found = bitsynth.get_kernel("neon", 3, 3, method="multiply", channels=64)
    in_memory = {n: folds.in_memory(NEON, found.with_rows(n).with_order("a53").entry.kernel) for n in (2, 3)}
    assert in_memory == {2: False, 3: True}
    assert found.on("a53").entry.kernel.rows == 2
