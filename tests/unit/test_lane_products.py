"""Products with one lane of a row's register: what has them, and that sums of 16 bits are emptied in time."""

import msgspec
import numpy as np
import pytest

from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.kernel.interpreter import compute_wanted_sums, product
from bitsynth.matmul import get_kernel
from bitsynth.proof import checker
from bitsynth.schedule import predicted
from bitsynth.schedule.flush import with_trip_count
from bitsynth.schedule.tiles.n_in_lanes import cheapest_kernel
from bitsynth.sketches.lanes import terms
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec


@pytest.fixture(scope="module")
def kernel():
    return get_kernel("neon", 4, 4, cpu="a53").entry.kernel


def test_a_row_fills_a_register_of_eight_codes():
    (term,) = [t for t in terms.find(load("neon"), "multiply", slots=True) if t.slots > 1]
    assert (term.op, term.slots, term.code_bytes, term.slot_bytes) == ("mla_lane.u16x8", 8, 2, 2)
    assert all(t.slots == 1 for t in terms.find(load("neon"), "multiply"))


def test_only_kernels_for_the_in_order_processor_have_them(kernel):
    assert {s.op for s in kernel.passes[0].step.steps} == {"mla_lane.u16x8"}
    assert predicted.compares(load("neon"), "a53")
    for options in ({}, {"cpu": "a72"}, {"channels": 64, "method": "multiply"}):
        other = get_kernel("neon", 4, 4, **options).entry.kernel
        assert not any("mla_lane" in s.op for p in other.passes for s in p.step.steps)


def test_layers_have_none_even_there():
    """Their weights of two bytes would take the memory that few bits save."""
    isa, operand = load("neon").for_cpu("a53"), MatmulOperand(4, Encoding.UNSIGNED)
    spec = MatmulSpec("neon", operand, operand)
    alone, in_layers = (cheapest_kernel(isa, spec, "multiply", "a53", Budget(), n).kernel for n in (0, 64))
    ops = [{s.op for p in x.passes for s in p.step.steps} for x in (alone, in_layers)]
    assert ["mla_lane.u16x8" in x for x in ops] == [True, False]


@pytest.mark.parametrize("depth", [1, 7, 8, 288, 289, 296, 1153])
@pytest.mark.parametrize("codes", [(15, 15), (15, 0), (0, 15)])
def test_the_greatest_sums_stay_in_16_bits(kernel, depth, codes):
    rows, columns = np.full((9, depth), codes[0], np.uint8), np.full((depth, 17), codes[1], np.uint8)
    assert (product(kernel, rows, columns) == compute_wanted_sums(kernel, rows, columns)).all()


def test_one_step_more_between_flushes_is_refuted(kernel):
    """291 products of at most 225 fit 16 bits: 36 steps of eight."""
    (loop,) = kernel.passes
    assert loop.step.trip_count == 65535 // 225 // 8
    with pytest.raises(Refuted):
        checker.check(msgspec.structs.replace(kernel, passes=(with_trip_count(loop, 0, 37),)))
