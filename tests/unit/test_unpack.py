"""Weights that are multiplied: packed as densely as bytes allow, unpacked in the step, once for all rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.case_selection import quick
from support.programs import change
from support.solved_kernels import kernel

from bitsynth.errors import NoKernel, Refuted
from bitsynth.isa import cost_models, load
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.step import Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.value import Value
from bitsynth.kernel.inputs import Planes, Table
from bitsynth.kernel.interpreter import compute_wanted_sums, product
from bitsynth.kernel.program import find_held_for_rows
from bitsynth.proof import checker, counterexample
from bitsynth.schedule import cost
from bitsynth.schedule.quickest import fits_registers
from bitsynth.sketches.lanes import unpack

PACKED = [
    ("neon", "multiply", 2, 2),
    ("armv7_neon", "multiply", 7, 4),
    ("avx2", "multiply", 4, 3),
    ("avxvnni", "dot", 7, 2),
    ("avx512", "dot", 8, 1),
]
"""Bipolar weights of less than 8 bits: with codes of 8 bits, weights of 2 bits and more are signed, a byte each."""

BYTES = [
    ("neon_dotprod", "dot", 3, 3),
    ("armv7_neon", "multiply", 8, 4),
    ("avxvnni", "dot", 8, 2),
    ("neon", "multiply", 5, 5),
]
"""Weights that are multiplied by lane, that are beside codes of 8 bits, or that leave no room in their byte."""


def unpacked(isa, ways, numbers):
    """What each way makes of bytes `numbers`, lane by lane."""
    for way in ways:
        trace = Trace(isa, ConcreteDomain())
        x = trace.bind(Value("x"), Register(isa.word, tuple(map(np.uint64, numbers))))
        yield [int(x) for x in trace.registers[way.apply(trace, x)].view_as(trace.domain, isa.word).lanes]


@pytest.mark.parametrize("isa", load.names())
@pytest.mark.parametrize("bits", range(1, 9))
def test_every_code_of_a_byte_is_found(isa, bits):
    per_byte = 8 // bits
    found = load.load(isa)
    numbers = np.random.default_rng(bits).integers(0, 1 << bits * per_byte, found.word.lanes).tolist()
    ways = unpack.find(found, bits, per_byte, cost_models.metric(isa, "ops"))
    for number, got in enumerate(unpacked(found, ways, numbers)):
        assert got == [x >> number * bits & ((1 << bits) - 1) for x in numbers]


def test_nothing_is_done_that_need_not_be():
    """A code alone in its byte is left there, and a shift of bytes leaves nothing beside the highest."""
    ways = unpack.find(load.load("neon"), 2, 4, cost_models.metric("neon", "ops"))
    assert [(bool(w.shift), bool(w.keep)) for w in ways] == [(False, True), (True, True), (True, True), (True, False)]
    (alone,) = unpack.find(load.load("neon"), 5, 1, cost_models.metric("neon", "ops"))
    assert (alone.shift, alone.keep) == ("", "")


def test_a_set_without_masks_has_no_way():
    isa = load.load("neon")
    gates = {name: instr for name, instr in isa.instrs.items() if not name.startswith("and.")}
    with pytest.raises(NoKernel, match="neon has no instructions that take code 0 of 2 from a byte"):
        unpack.find(replace(isa, instrs=gates), 4, 2, cost_models.metric("neon", "ops"))


@pytest.mark.parametrize("config", PACKED, ids=str)
def test_memory_holds_as_many_weights_as_fit(config):
    found = kernel(*config)
    (loop,) = found.passes
    bytes_of_weights = found.slot_bytes * len(loop.columns)
    assert not found.swapped
    assert bytes_of_weights * (8 // found.w_bits) == found.k_step


@pytest.mark.parametrize("config", quick(BYTES, of=[*BYTES, ("neon_dotprod", "dot", 8, 8)]), ids=str)
def test_bytes_stay_bytes(config):
    found = kernel(*config)
    assert {x.per_byte for p in found.passes for x in (*p.rows, *p.columns) if isinstance(x, Planes)} == {1}
    assert not any(isinstance(x, Table) for p in found.passes for x in (*p.rows, *p.columns))
    assert not cost.shared_program(found.passes[0])


@pytest.mark.parametrize("config", PACKED, ids=str)
def test_all_rows_share_what_unpacks_and_pay_for_it(config):
    found = kernel(*config)
    isa = load.load(found.isa)
    shared = cost.shared_program(found.passes[0])
    assert len(shared) >= len(found.passes[0].rows)
    one, more = (cost.loop_ops_per_128_mac(isa, change(found, rows=rows)) for rows in (1, 2))
    assert one - more == pytest.approx(len(shared) / 2 * 128 / (found.columns * found.k_step))
    once, twice = (cost.ops_per_128_mac(isa, change(found, rows=rows)) for rows in (1, 2))
    assert once - twice >= one - more - 1e-9


@pytest.mark.parametrize("config", PACKED, ids=str)
def test_what_is_unpacked_is_held(config):
    """A row that adds as many registers as are free fits only where nothing else is held."""
    found = kernel(*config)
    isa = load.load(found.isa)
    (loop,) = found.passes
    assert fits_registers(isa, found, loop)
    held = len(find_held_for_rows(loop))
    rows = (isa.table.registers - held) // len(loop.step.accs) + 1
    assert not fits_registers(isa, change(found, rows=rows), loop)


@pytest.mark.parametrize("config", PACKED, ids=str)
def test_sums_of_the_greatest_codes_long_and_short(config):
    found = kernel(*config)
    rng = np.random.default_rng(3)
    for k in (1, found.k_step - 1, found.k_step, found.k_step + 1, counterexample.REGRESSION_K + 5):
        rows = np.full((2, k), (1 << found.row_bits) - 1, np.uint8)
        columns = np.full((k, found.columns + 1), (1 << found.column_bits) - 1, np.uint8)
        rows[1] = rng.integers(0, 1 << found.row_bits, k)
        columns[:, 0] = rng.integers(0, 1 << found.column_bits, k)
        assert (product(found, rows, columns) == compute_wanted_sums(found, rows, columns)).all()


def unpacking(found):
    """The steps that unpack, by their places in the step's program."""
    shared = cost.shared_program(found.passes[0])
    return [(n, s) for n, s in enumerate(found.passes[0].step.steps) if s in shared]


def with_step(found, n, step):
    """Without a first run, which would be another."""
    (loop,) = found.passes
    accs = tuple(change(acc, start="") for acc in loop.step.accs)
    steps = (*loop.step.steps[:n], step, *loop.step.steps[n + 1 :])
    return change(
        found, passes=(change(loop, loops=(change(loop.step, steps=steps, first=(), accs=accs), *loop.loops[1:])),)
    )


@pytest.mark.parametrize("config", PACKED, ids=str)
def test_other_shifts_are_refused(config):
    found = kernel(*config)
    shifts = [(n, s) for n, s in unpacking(found) if s.imm]
    assert shifts
    for n, step in shifts:
        for imm in (step.imm - 1, step.imm + 1):
            wrong = with_step(found, n, Step(step.dst, step.op, step.args, imm))
            if imm in load.load(found.isa)[step.op].imms:
                with pytest.raises(Refuted):
                    checker.check(wrong)


@pytest.mark.parametrize("config", PACKED, ids=str)
def test_other_masks_are_refused(config):
    """One bit more or less in one lane."""
    found = kernel(*config)
    used = {a for _, s in unpacking(found) for a in s.args if a[0] == "k"}
    (mask,) = (c for c in found.constants if c.name in used)
    for lane in (mask.lanes[0] >> 1, mask.lanes[0] << 1 | 1):
        other = change(mask, lanes=(lane, *mask.lanes[1:]))
        constants = tuple(other if c is mask else c for c in found.constants)
        with pytest.raises(Refuted):
            checker.check(change(found, constants=constants))
