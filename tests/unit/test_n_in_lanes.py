"""Lookup, multiply and dot: terms found by their effect, tables built, paths to the tile, first runs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from support.case_selection import quick
from support.programs import change, lines
from support.solved_kernels import REPRESENTATIVE, kernel, name

from bitsynth.emit.packing import packing
from bitsynth.errors import NoKernel, Refuted, SpecError
from bitsynth.isa import cost_models, load
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.interpreter import compute_wanted_sums, product
from bitsynth.kernel.order import interleave
from bitsynth.proof import checker
from bitsynth.proof.accumulation import step_summary
from bitsynth.schedule import cost, peel
from bitsynth.schedule.flush import with_trip_count
from bitsynth.schedule.memory import repeats, stores
from bitsynth.schedule.quickest import fits_registers
from bitsynth.schedule.tiles import n_in_lanes
from bitsynth.sketches.lanes import tables, terms
from bitsynth.sketches.reduction import stages
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import MatmulSpec

BYTES = ["mul.u8x16 + add.u8x16", "mul.s8x16 + add.s8x16", "mla.u8x16", "mla.s8x16"]
LONG = ["umlal.u8x16 + umlal2.u8x16", "smlal.s8x16 + smlal2.s8x16"]
# An instruction of unsigned times signed bytes is there with rows as either operand; without dot products also with two
# lanes a column.
FOUND = {
    ("neon", "lookup"): ["tbl.u8x16 + add.u8x16"],
    ("neon", "multiply"): [*BYTES, *LONG],
    ("neon", "dot"): [],
    ("neon_dotprod", "lookup"): ["tbl.u8x16 + add.u8x16"],
    ("neon_dotprod", "multiply"): [*BYTES, *LONG],
    ("neon_dotprod", "dot"): ["udot.u8x16", "sdot.s8x16", "udot_lane.u8x16"],
    ("armv7_neon", "lookup"): ["tbl.u8x16 + add.u8x16"],
    ("armv7_neon", "multiply"): [*BYTES, *LONG],
    ("armv7_neon", "dot"): [],
    ("avx2", "lookup"): ["shuffle_epi8.u8x32 + add.u8x32"],
    ("avx2", "multiply"): ["maddubs.u8x32 + add.s16x16"] * 4,
    ("avx2", "dot"): [],
    ("avxvnni", "lookup"): ["shuffle_epi8.u8x32 + add.u8x32"],
    ("avxvnni", "multiply"): ["maddubs.u8x32 + add.s16x16"] * 2,
    ("avxvnni", "dot"): ["dpbusd.u8x32"] * 2,
    ("avx512", "lookup"): [
        f"{op}.u8x64 + {add}.u8x64" for op in ("shuffle_epi8", "permutexvar") for add in ("add", "adds")
    ],
    ("avx512", "multiply"): ["maddubs.u8x64 + add.s16x32"] * 2,
    ("avx512", "dot"): ["dpbusd.u8x64"] * 2,
}
FOUND |= {("avx512_amx", method): FOUND["avx512", method] for method in ("lookup", "multiply", "dot")}


@pytest.mark.parametrize(("isa", "method"), FOUND, ids=str)
def test_terms_are_found_by_what_they_do(isa, method):
    if not FOUND[isa, method]:
        with pytest.raises(NoKernel, match=f"{isa} has no instruction for the {method} method"):
            terms.find(load.load(isa), method)
        return
    assert [str(t) for t in terms.find(load.load(isa), method)] == FOUND[isa, method]


WIDE = {
    "avx2": ["madd.s16x16 + add.s32x8"],
    "avxvnni": ["dpwssd.s16x16", "madd.s16x16 + add.s32x8"],
    "avx512": ["dpwssd.s16x32", "madd.s16x32 + add.s32x16"],
    "avx512_amx": ["dpwssd.s16x32", "madd.s16x32 + add.s32x16"],
}


@pytest.mark.parametrize("isa", load.names())
def test_wide_terms_sum_products_of_16_bits(isa):
    found = terms.find(load.load(isa), "multiply", wide=True)
    wide = [t for t in found if t.code_bytes > 1]
    assert tuple(found[: len(found) - len(wide)]) == terms.find(load.load(isa), "multiply")
    assert sorted(map(str, wide)) == WIDE.get(isa, [])
    assert {(t.slot_bytes, t.positions, t.code_bytes) for t in wide} <= {(4, 2, 2)}


def test_every_instruction_set_is_looked_at():
    assert {isa for isa, _ in FOUND} == set(load.names())


@pytest.mark.parametrize("isa", load.names())
def test_what_a_term_covers(isa):
    for method in ("lookup", "multiply", "dot"):
        for term in terms.find(load.load(isa), method) if FOUND[isa, method] else ():
            lanes = load.load(isa).word.lanes
            assert term.slot_bytes * len(term.halves) * term.acc_type.lanes == lanes * term.sum_lanes
            assert (term.acc is None) == (term.add is not None)
            assert term.positions == {"lookup": term.positions, "multiply": term.slot_bytes, "dot": 4}[method]
            places = term.arguments(Value("r"), Value("c"), Value("a"))
            assert places[term.row] == "r"
            assert places[term.column] == "c"
    assert {t.positions for t in terms.find(load.load(isa), "lookup")} == (
        {4, 6} if isa in ("avx512", "avx512_amx") else {4}
    )


def numbers(isa, term, rng):
    """Operands of a term as numpy bytes, small enough for no sum to wrap."""
    instr = isa[term.op]
    args = [[np.uint64(rng.integers(0, 4)) for _ in range(o.type.lanes)] for o in instr.operands]
    for k in range(len(args)):
        if k == term.row and term.slots == 1:
            args[k] = [args[k][b % term.slot_bytes] for b in range(len(args[k]))]
    return args


@pytest.mark.parametrize("isa", load.names())
@pytest.mark.parametrize("method", ["multiply", "dot"])
def test_terms_on_numbers(isa, method):
    """Every lane is the sum of its slot's products, and of the accumulator."""
    rng = np.random.default_rng(0)
    for term in terms.find(load.load(isa), method) if FOUND[isa, method] else ():
        args = numbers(load.load(isa), term, rng)
        for (half, op), imm in itertools.product(enumerate(term.halves), range(term.slots)):
            instr = load.load(isa)[op]
            got = [int(x) for x in instr(ConcreteDomain(), args, imm)]
            for i, x in enumerate(got):
                each = term.slot_bytes // term.sum_lanes
                first = (half * instr.out.lanes + i) * each
                slot = range(first, first + each)
                of_row = [imm * term.slot_bytes + b - first if term.slots > 1 else b for b in slot]
                sum_ = sum(
                    int(args[term.row][r]) * int(args[term.column][b]) for r, b in zip(of_row, slot, strict=True)
                )
                assert x == sum_ + (int(args[term.acc][i]) if term.acc is not None else 0), (term, i)


def looked_up(isa, term, rounds, codes):
    """The bytes a table program stores for staged values, by numpy."""
    built = tables.build(isa, term, repeats(isa, 8), stores(isa, isa.word), rounds)
    trace = Trace(isa, ConcreteDomain())
    trace.bind_constants(built.constants)
    staged = [*codes, *[255] * 8]
    stage = [np.uint64(staged[n] if n >= 0 else 0) for n in built.stage]
    trace.bind(Value("x0"), Register(isa.word, tuple(stage[b % 8] for b in range(isa.word.lanes))))
    for step in built.steps:
        trace.run(step)
    return [int(x) for x in trace.registers[built.table].lanes], built


@pytest.mark.parametrize(
    ("isa", "bits"),
    [("neon", 4), ("avx2", 4), ("avx512", 4), pytest.param("avx512", 6, marks=pytest.mark.slow)],
    ids=str,
)
def test_tables_hold_every_sum(isa, bits):
    """In two rounds for 4 codes and in three for 6; the minimality claim is what was unsat."""
    term = next(t for t in terms.find(load.load(isa), "lookup") if t.positions == bits)
    rounds = tables.solve(bits, Budget())
    lookups = rounds.lookups[1:] if rounds.arranged else rounds.lookups
    assert len(lookups) == tables.rounds_needed(bits) == {4: 2, 6: 3}[bits]
    rng = np.random.default_rng(1)
    for _ in range(20):
        codes = rng.integers(0, 256 // bits, bits).tolist()
        got, built = looked_up(load.load(isa), term, rounds, codes)
        assert got[: 1 << bits] == [sum(c for n, c in enumerate(codes) if e >> n & 1) for e in range(1 << bits)]
    assert len(built.steps) == 2 * len(lookups) + rounds.arranged


def test_an_index_that_leads_elsewhere_makes_another_table():
    """So that the test above can fail, and the checker with it."""
    isa = load.load("neon")
    (term,) = terms.find(isa, "lookup")
    rounds = tables.solve(4, Budget())
    codes = [1, 2, 4, 8]
    right, _ = looked_up(isa, term, rounds, codes)
    last = rounds.lookups[-1]
    for entry in range(16):
        for other in range(16):
            lookups = (*rounds.lookups[:-1], (*last[:entry], other, *last[entry + 1 :]))
            got, built = looked_up(isa, term, replace(rounds, lookups=lookups), codes)
            found = change(kernel("neon", "lookup", 2, 1), build=built)
            if got[:16] == right[:16]:
                checker.check(found)
            else:
                with pytest.raises(Refuted, match="table"):
                    checker.check(found)


@pytest.mark.parametrize("isa", load.names())
@pytest.mark.parametrize("increment", [4, 12, 60])
def test_paths_to_the_tile(isa, increment):
    """Each lane of the accumulators ends in one of the tile; no stage holds more than its lanes can."""
    start = load.load(isa).word
    path = stages.cheapest(
        load.load(isa), stages.LaneSums(stages.SumLanes(start), increment, 144, -2), cost_models.metric(isa, "ops"), 2
    )
    assert sorted(path.order) == list(range(start.lanes))
    most, kind = increment, start
    for stage in path.stages:
        most *= stage.trip_count
        assert most < 1 << kind.bits
        kind = stage.kind
    assert kind == load.load(isa).tile
    assert [s.coef for s in path.stages[:-1]] == [-1] * (len(path.stages) - 1)
    assert path.stages[-1].coef == -2


@pytest.mark.parametrize(("isa", "widenings", "mixed"), [("avx2", 2, False), ("avx2", 3, True), ("neon", 100, False)])
def test_low_lanes_stay_unmasked_where_that_is_cheaper(isa, widenings, mixed):
    """Each widening saves a mask, the flush takes two more; widening adds need none."""
    start = load.load(isa).word
    path = stages.cheapest(
        load.load(isa),
        stages.LaneSums(stages.SumLanes(start), 5, widenings * 51, -2),
        cost_models.metric(isa, "ops"),
        2,
    )
    assert path.runs == (widenings, 1)
    assert [stage.unmix is not None for stage in path.stages] == [False, mixed]


@pytest.mark.parametrize("w_bits", [2, 4])
def test_signed_weights_have_two_lanes_a_column(w_bits):
    """One instruction of the flush adds both, and rows have no terms; a lane never holds more than a sign leaves."""
    isa = load.load("avx2")
    found = n_in_lanes.cheapest_kernel(isa, MatmulSpec.plain(isa.name, 8, w_bits), "multiply", "ops", Budget()).kernel
    assert found.method == "multiply"
    assert not any(found.row_terms)
    (loop,) = found.passes
    registers = len(loop.step.accs)
    assert [step.op for step in loop.flush].count("madd.s16x16") == registers == found.columns // isa.tile.lanes
    greatest = 2 * 255 << w_bits - 1
    assert loop.step.trip_count == 0x7FFF // greatest
    assert checker.check(found)
    with pytest.raises(Refuted):
        checker.check(change(found, passes=(with_trip_count(loop, 0, loop.step.trip_count + 1),)))


def test_no_way_where_a_step_already_overflows():
    neon = load.load("neon")
    with pytest.raises(NoKernel, match=r"no way from u8x?1?6? accumulators that grow by 256"):
        stages.cheapest(
            neon, stages.LaneSums(stages.SumLanes(neon.word), 256, 144, -2), cost_models.metric("neon", "ops"), 2
        )


@pytest.mark.parametrize("config", quick(REPRESENTATIVE[::3], of=REPRESENTATIVE), ids=name)
def test_first_runs_leave_what_a_run_adds(config):
    """The kernel without them is right as well, and gives the same sums."""
    found = kernel(*config)
    steady = change(found, passes=tuple(without_first(p) for p in found.passes))
    checker.check(steady)
    rng = np.random.default_rng(2)
    for k in (1, found.k_step, 3 * found.k_step + 1):
        rows = rng.integers(0, 1 << found.row_bits, (3, k), dtype=np.uint8)
        columns = rng.integers(0, 1 << found.column_bits, (k, found.columns + 1), dtype=np.uint8)
        assert (product(found, rows, columns) == product(steady, rows, columns)).all()
        assert (product(found, rows, columns) == compute_wanted_sums(found, rows, columns)).all()


def without_first(loop):
    accs = tuple(change(acc, start="") for acc in loop.step.accs)
    return change(loop, loops=(change(loop.step, first=(), accs=accs), *loop.loops[1:]))


@pytest.mark.parametrize("config", REPRESENTATIVE, ids=name)
def test_first_runs_are_found_again(config):
    """No shorter than they are, and not where the code of all rows would grow too long."""
    found = kernel(*config)
    for loop in found.passes:
        again = peel.peel_first_run(load.load(found.isa), without_first(loop), found.rows)
        assert again == loop
        assert len(loop.step.first) <= len(loop.step.steps)
        assert peel.peel_first_run(load.load(found.isa), without_first(loop), 10_000) == without_first(loop)


def test_a_sum_that_starts_is_no_addition():
    """Adding to zero is left out; what accumulates becomes the form that does not."""
    (loop,) = kernel("neon", "popcount", 1, 1).passes
    assert any(" uadalp" in line for line in lines(loop.step.steps))
    assert not any("acc" in line or " uadalp" in line for line in lines(loop.step.first))
    (loop,) = kernel("avx2", "multiply", 2, 2).passes
    first, steady = (sum(" add." in line for line in lines(x)) for x in (loop.step.first, loop.step.steps))
    assert first == steady - len(loop.step.accs)


def test_accumulators_are_of_full_registers():
    for config in REPRESENTATIVE:
        found = kernel(*config)
        for nested in (nested for p in found.passes for nested in p.loops):
            for acc in nested.accs:
                assert VecType.parse(acc.type).total_bits == load.load(found.isa).table.vector_bits


def test_a_saturating_sum_is_exact_while_it_fits():
    """Nothing but the loop's bound keeps it from saturating."""
    found = kernel("avx512", "lookup", 2, 1)
    assert all(step.op == "adds.u8x64" for p in found.passes for step in p.step.steps if "acc" in " ".join(step.args))
    (loop,) = found.passes
    assert loop.step.trip_count == 255 // (6 * 3)
    longer = change(loop, loops=(change(loop.step, trip_count=loop.step.trip_count + 1), *loop.loops[1:]))
    with pytest.raises(Refuted, match="the step cannot be shown exact"):
        step_summary(load.load("avx512"), found, longer)


def test_one_instruction_takes_every_second_lane_to_a_tile_register():
    found = kernel("avx512", "lookup", 2, 1)
    (loop,) = found.passes
    into_tile = [step for step in loop.flush if step.dst in loop.tile]
    assert len(into_tile) == found.tile_registers(512)
    for k in {arg for step in into_tile for arg in step.args if arg.is_constant}:
        (constant,) = (c for c in found.constants if c.name == k)
        assert sorted(set(constant.lanes)) == [0, 2]
        for lanes in ((2,) * len(constant.lanes), constant.lanes[1:] + constant.lanes[:1]):
            wrong = tuple(change(c, lanes=lanes) if c is constant else c for c in found.constants)
            with pytest.raises(Refuted):
                checker.check(change(found, constants=wrong))


def test_adders_that_crowd_the_ports_of_lookups_lose():
    found = kernel("avx512", "lookup", 2, 1)
    anywhere = change(found, passes=tuple(with_add(p) for p in found.passes))
    checker.check(anywhere)
    isa = load.load("avx512")
    assert cost.cycles_per_128_mac(isa, anywhere, "zen5") == cost.cycles_per_128_mac(isa, found, "zen5")
    assert cost.crowding_per_128_mac(isa, anywhere, "zen5") > 1.2 * cost.crowding_per_128_mac(isa, found, "zen5")


def with_add(loop):
    program = tuple(line.replace(" adds.", " add.") for line in lines(loop.step.steps))
    return change(loop, loops=(change(loop.step, program=program), *loop.loops[1:]))


def test_rows_lie_in_registers_of_which_an_instruction_takes_a_slot():
    """Nothing is broadcast: rows are packed as codes lie, and every lane of a register is taken once."""
    found = kernel("neon_dotprod", "dot", 3, 3)
    (of_row,) = found.passes[0].rows
    assert isinstance(of_row, Planes)
    assert (of_row.slots, found.input_bytes(of_row), found.memory.broadcast) == (4, 16, "load.u8x16")
    registers = found.column_registers(128)
    lanes = [s.imm for s in found.passes[0].step.steps if s.op == "udot_lane.u8x16"]
    assert lanes == [lane for lane in range(4) for _ in range(registers)]
    assert packing(found).rows == "bytes"
    assert packing(found).in_order
    for wrong in (change(of_row, slots=2), change(of_row, first=1)):
        with pytest.raises((Refuted, SpecError)):
            checker.check(change(found, passes=(change(found.passes[0], rows=(wrong,)),)))


def test_a_step_by_instructions_holds_all_rows_in_registers():
    found, isa = kernel("neon_dotprod", "dot", 3, 3), load.load("neon_dotprod")
    (loop,) = found.passes
    flat = interleave(found, loop.step)
    loads = [s.dst for s in flat.steps if not s.args]
    columns = [f"w{g}_{u}" for g in range(found.column_registers(128)) for u in range(4)]
    assert sorted(loads) == sorted([*columns, *(f"a0_{row}" for row in range(found.rows))])
    assert len(flat.steps) == len(loads) + len(columns) * found.rows
    assert fits_registers(isa, found, loop)
    assert not fits_registers(isa, change(found, rows=16), loop)
