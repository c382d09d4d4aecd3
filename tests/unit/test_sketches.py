"""The sketches: what they find, what they refuse, and that covers are really the cheapest."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitsynth.errors import NoKernel, SpecError, Undecided
from bitsynth.isa import cost_models
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import load
from bitsynth.kernel.inputs import Planes
from bitsynth.sketches import paper
from bitsynth.sketches.popcount import compute, counts, gates, query
from bitsynth.sketches.popcount import cover as covers
from bitsynth.sketches.reduction import plan as reduction
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.spec.options import KernelOptions
from bitsynth.synth import synthesize

ISAS = ("neon", "avx2")


def spec(isa: str, act_bits: int, w_bits: int) -> MatmulSpec:
    return MatmulSpec(isa, MatmulOperand(act_bits, Encoding.UNSIGNED), MatmulOperand(w_bits, Encoding.BIPOLAR))


def value(form: gates.BitForm, ops: dict[str, gates.GateOp], act: int, wgt: int) -> int:
    """The form's right-hand side, gate by gate."""
    nodes = [t >> act & 1 for t in form.act_planes] + [t >> wgt & 1 for t in form.wgt_planes]
    for gate in form.gates:
        inputs = sum(nodes[n] << k for k, n in enumerate(gate.args))
        nodes.append(ops[gate.op].table(gate.imm) >> inputs & 1)
    return form.g[wgt] + form.h[act] - sum(c * nodes[n] for c, n in form.terms)


PRICES = {
    "avx2": {(1, 1): 3, (2, 1): 6, (1, 2): 6, (2, 2): 10, (3, 1): 8, (1, 3): 8},
    "neon": {(1, 1): 3, (2, 1): 6, (1, 2): 6, (2, 2): 10, (3, 1): 7, (1, 3): 7},
    "avx512": {(1, 1): 3, (2, 1): 6, (1, 2): 6, (2, 2): 9, (3, 1): 7, (1, 3): 7},
}


SHAPES = [
    pytest.param(isa, shape, marks=() if shape in ((1, 1), (2, 1)) else pytest.mark.slow)
    for isa, known in PRICES.items()
    for shape in known
]


@pytest.mark.parametrize(("isa", "shape"), SHAPES)
def test_blocks_are_exact_and_as_cheap_as_known(isa, shape):
    act_bits, w_bits = shape
    ops = gates.gate_ops(load(isa))
    solved = compute.solve_block(ops, act_bits, w_bits, Budget())
    assert solved.form.cost == PRICES[isa][shape]
    assert solved.form.cost == len(solved.form.gates) + copies(solved.form, ops) + 2 * len(solved.form.terms)
    by_name = {op.name: op for op in ops}
    for act, wgt in itertools.product(range(1 << shape[0]), range(1 << shape[1])):
        assert value(solved.form, by_name, act, wgt) == act * (2 * wgt - (1 << shape[1]) + 1)


def copies(form: gates.BitForm, ops: Sequence[gates.GateOp]) -> int:
    """Gates that overwrite an operand although each is a plane or read by a later gate."""
    tied = {op.name: op.tied for op in ops}
    out = 0
    for k, gate in enumerate(form.gates):
        kept = {*range(form.planes), *(n for later in form.gates[k + 1 :] for n in later.args)}
        out += bool(tied[gate.op]) and kept.issuperset(gate.args[j] for j in tied[gate.op])
    return out


def test_a_gate_chosen_by_an_immediate_may_be_any_function():
    (free,) = (op for op in gates.gate_ops(load("avx512")) if op.is_free)
    assert (free.arity, free.tied) == (3, (0, 1, 2))
    assert sorted(free.tables) == list(range(0, 256, 2))
    instr = load("avx512")[free.name]
    for table in (0b10010110, 0b11101000, 0b11001010):
        for x in range(8):
            lanes = [[ConcreteDomain().const(255 * (x >> k & 1), 8)] * 64 for k in range(3)]
            got = instr(ConcreteDomain(), lanes, free.imms[free.tables.index(table)])
            assert [int(b) for b in got] == [255 * (table >> x & 1)] * 64


def test_a_selecting_instruction_is_a_gate_of_three_operands():
    (bsl,) = (op for op in gates.gate_ops(load("neon")) if op.arity == 3)
    assert (bsl.name, bsl.tables, bsl.imms, bsl.tied) == ("bsl.u8x16", (0b11011000,), (0,), (0, 1, 2))
    assert not bsl.is_free


@given(st.permutations(range(3)), st.integers(0, 255))
def test_operands_change_places_with_their_function(nodes, table):
    for k in range(3):
        moved, other = query._move_operand_first(k, tuple(nodes), table)
        assert moved[0] == nodes[k]
        for x in range(8):
            values = {n: x >> j & 1 for j, n in enumerate(nodes)}
            assert table >> x & 1 == other >> sum(values[n] << j for j, n in enumerate(moved)) & 1


@pytest.mark.slow
def test_two_popcounts_do_not_multiply_two_by_two_planes():
    solved = compute.solve_block(gates.gate_ops(load("avx2")), 2, 2, Budget())
    assert "2x2: 2 popcounts of any functions: unsat" in solved.claims
    assert len(solved.form.terms) == 3
    assert not any(solved.form.h)


def test_gates_that_cannot_multiply_are_an_empty_sketch():
    only_and = [op for op in gates.gate_ops(load("avx2")) if op.tables == (0b1000,)]
    with pytest.raises(NoKernel, match="no circuit"):
        compute.solve_block(only_and, 1, 1, Budget())


def test_a_spent_budget_is_undecided():
    compute.forget()
    with pytest.raises(Undecided, match="--rlimit"):
        compute.solve(load("neon"), spec("neon", 3, 3), Budget(1))


FAKE = {
    shape: gates.BitForm((2,), (2,), (), (), (0,) * (1 << shape[1]), (0,) * (1 << shape[0]), cost=price)
    for shape, price in {(1, 1): 3, (1, 2): 6, (2, 1): 6, (2, 2): 10, (1, 3): 8, (3, 1): 8}.items()
}


def partitions(free: frozenset[tuple[int, int]]) -> int:
    """The least cost of any partition, by trying them all."""
    if not free:
        return 0
    act, wgt = min(free)
    prices = []
    for (p, r), form in FAKE.items():
        cells = {(act + i, wgt + j) for i in range(p) for j in range(r)}
        if cells <= free:
            prices.append(form.cost + partitions(free - cells))
    return min(prices)


@pytest.mark.parametrize(("act_bits", "w_bits"), list(itertools.product(range(1, 5), range(1, 5))))
def test_covers_are_partitions_of_the_least_cost(act_bits, w_bits):
    forms = {s: FAKE[s] for s in covers.shapes_within(act_bits, w_bits)}
    cover = covers.cheapest_cover(act_bits, w_bits, forms)
    cells = [
        (b.act_low + i, b.wgt_low + j)
        for b in cover
        for i in range((len(b.form.h) - 1).bit_length())
        for j in range((len(b.form.g) - 1).bit_length())
    ]
    assert sorted(cells) == sorted(itertools.product(range(act_bits), range(w_bits)))
    assert sum(b.form.cost for b in cover) == partitions(frozenset(cells))


def test_counting_instructions_are_found_by_what_they_do():
    assert [(c.op, c.bits_per_byte, c.table) for c in counts.find(load("neon"))] == [("cnt.u8x16", 8, None)]
    assert [(c.op, c.bits_per_byte, c.table) for c in counts.find(load("avx2"))] == [("shuffle_epi8.u8x32", 4, 0)]
    avx512 = load("avx512")
    assert [(c.op, c.most, c.table) for c in counts.find(avx512)] == [("popcnt.u64x8", 64, None)]
    base = counts.find(avx512.for_cpu("skylakex"))
    assert [(c.op, c.bits_per_byte, c.most, c.table) for c in base] == [("shuffle_epi8.u8x64", 4, 4, 0)]


def test_counts_of_wide_lanes_are_merged_before_they_are_added():
    """Two registers of 64-bit counts become one of 32-bit sums: half the accumulators, and no more instructions."""
    isa = load("avx512")
    plan = reduction.plan(isa, reduction.ReductionInput(2, 64, bits=64), 9, cost_models.metric("avx512", "ops"))
    assert (len(plan.pre), str(plan.acc_type), plan.accs) == (1, "u32x16", 1)
    assert sorted(plan.slots) == list(range(16))
    assert (plan.post, plan.flushes) == ((), 1)


def test_neon_reduces_as_the_paper_does():
    plan = reduction.plan(load("neon"), reduction.ReductionInput(4, 8), 9, cost_models.metric("neon", "ops"))
    assert [m.op for m in plan.pre] == ["addp.u8x16", "addp.u8x16"]
    assert plan.accumulate == "uadalp.u8x16"
    assert plan.slots == tuple(range(8))


@pytest.mark.parametrize("isa", ISAS)
def test_a_reduction_that_cannot_fill_the_tile_is_an_empty_sketch(isa):
    with pytest.raises(NoKernel, match="do not fill"):
        reduction.plan(load(isa), reduction.ReductionInput(1, 8), 9, cost_models.metric(isa, "ops"))


def test_the_papers_pair_takes_five_instructions():
    found = paper.solve(load("neon"), Budget())
    assert len(found.pair) == 5
    assert "plane pair: 4 instructions: unsat" in found.claims


@pytest.mark.parametrize(("act_bits", "w_bits"), [(3, 2), (2, 3), (3, 3)])
def test_the_papers_sketch_lacks_what_the_paper_lacks(act_bits, w_bits):
    found = paper.PaperProgram((), ())
    with pytest.raises(NoKernel, match="byte lanes only"):
        paper.build(load("neon"), spec("neon", act_bits, w_bits), found, cost_models.metric("neon", "length"))


def test_an_instruction_set_without_the_papers_list_is_refused():
    with pytest.raises(SpecError, match="no paper sketch"):
        paper.solve(load("avx2"), Budget())


@pytest.mark.parametrize(("isa", "cpu", "method"), [("avx2", "zen5", "multiply"), ("avx512", "icelake", "dot")])
def test_bytes_that_are_signed_take_no_codes_of_8_bits(isa, cpu, method):
    options = KernelOptions(method, model=cpu)
    spec = MatmulSpec(isa, MatmulOperand(8, Encoding.UNSIGNED), MatmulOperand(4, Encoding.BIPOLAR))
    found, _ = synthesize.candidates(options.isa(isa), spec, options, Budget())
    (loop,) = found[0].kernel.passes
    forms = options.isa(isa)
    operands = [(arg, op.type) for s in loop.step.steps for arg, op in zip(s.args, forms[s.op].operands, strict=True)]
    for letter, codes in (("a", loop.rows[0]), ("w", loop.columns[0])):
        assert isinstance(codes, Planes)
        signs = {kind.sign for arg, kind in operands if arg[0] == letter and not arg.startswith("acc")}
        assert signs == ({"u"} if len(codes.tables) == 8 and not codes.signed else {"s"})
