"""The first turn of a loop for an in-order processor, which sets accumulators."""

from __future__ import annotations

import pytest
from support.programs import change, lines

import bitsynth
from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.kernel.in_order import pipelining
from bitsynth.kernel.in_order.first_iteration import FirstIteration, begin_loop
from bitsynth.proof import orders
from bitsynth.schedule import predicted

NEON = load("neon")


def _kernel(widens):
    """One that widens what it adds, for layers, or one that adds bytes in all rows."""
    options = {"method": "popcount", "channels": 64} if widens else {"cpu": "a53"}
    kernel = bitsynth.get_kernel("neon", 1, 1, **options).with_order("a53").entry.kernel
    return change(kernel, scalar_pass=None)


def _begun(kernel):
    loop = kernel.passes[0]
    return begin_loop(kernel, loop, pipelining.pipeline_loop(kernel, loop))


def _swaps(found, kernel):
    """The lines of the turn that the first has not, or has others for."""
    breakpoints = pipelining.pipeline_loop(kernel, kernel.passes[0]).body
    return [line for (step, _), (line, _) in zip(breakpoints, found.body, strict=True) if line != step]


@pytest.mark.parametrize("widens", [False, True])
def test_a_first_turn_adds_to_nothing(widens):
    """Where a step widens what it adds, its first run widens alone; else it has no line for that."""
    kernel = _kernel(widens)
    found, accs = _begun(kernel), kernel.passes[0].step.accs
    assert found is not None
    other = _swaps(found, kernel)
    assert len(other) == kernel.rows * len(accs)
    assert all((line is not None) == widens for line in other)
    orders.check_order(kernel)


def test_a_last_row_of_its_own_adds_to_nothing():
    """Where it adds to a sum twice, it adds up in the first turn what it adds then."""
    kernel = bitsynth.get_kernel("neon", 1, 1, cpu="a53").on("a53").entry.kernel
    other = _swaps(_begun(kernel), kernel)
    own = len(kernel.scalar_pass.step.accs)
    assert len(other) == 2 * own + (kernel.rows - 1) * len(kernel.passes[0].step.accs)
    assert [line.op for line in other if line] == ["add_lsr_x.x64x1"] * own
    orders.check_order(kernel)


def test_it_takes_neither_zeros_nor_sums(monkeypatch):
    kernel = _kernel(False)
    quick = predicted.call_cycles(NEON, kernel, "a53")
    one = predicted.call_cycles(NEON, kernel, "a53", kernel.k_step)
    monkeypatch.setattr(predicted, "begin_loop", lambda *_: None)
    predicted.call_cycles.cache_clear()
    accs = kernel.rows * len(kernel.passes[0].step.accs)
    assert quick <= predicted.call_cycles(NEON, kernel, "a53") - 3 * accs // 2
    assert one <= predicted.call_cycles(NEON, kernel, "a53", kernel.k_step) + accs
    predicted.call_cycles.cache_clear()


def test_loops_that_are_entered_again_have_none():
    """Sums of the segment before are in the accumulators there."""
    found = bitsynth.get_kernel("neon", 2, 1, method="lookup", channels=64).with_order("a53")
    assert _begun(found.entry.kernel) is None


def test_passes_that_go_on_with_others_sums_have_none():
    kernel = _kernel(False)
    (loop,) = kernel.passes
    carries = change(kernel, passes=(change(loop, carries=True),))
    assert begin_loop(carries, loop, pipelining.pipeline_loop(kernel, loop)) is None


def test_a_first_run_of_other_values_is_none():
    """One that negates what it counts is no part of a turn."""
    kernel = _kernel(False)
    (loop,) = kernel.passes
    odd = tuple(line.replace("cnt.u8x16", "mvn.u8x16") for line in lines(loop.step.first))
    other = change(loop, loops=(change(loop.step, first=odd),))
    assert begin_loop(change(kernel, passes=(other,)), other, pipelining.pipeline_loop(kernel, loop)) is None


def test_sums_that_the_next_step_replaces_are_none():
    """Where what a first turn sets is made a step ahead, the next step's is in its place when the turn ends."""
    kernel = _kernel(False)
    (loop,) = kernel.passes
    found, start = pipelining.pipeline_loop(kernel, loop), _begun(kernel).flat.accs[0].next
    breakpoints = tuple((step, later or step.dst == start) for step, later in found.body)
    assert begin_loop(kernel, loop, pipelining.PipelinedLoop(found.copies, found.flat, breakpoints)) is None


def _forged(found, kernel):
    one, other, *rest = found.flat.accs
    swapped = (change(one, next=other.next), change(other, next=one.next), *rest)
    breakpoints, places = list(found.body), range(len(found.body))
    dropped = next(k for k in places if breakpoints[k][0] and not breakpoints[k][1] and breakpoints[k][0].args)
    every = pipelining.pipeline_loop(kernel, kernel.passes[0]).body
    added = next(k for k in places if breakpoints[k][0] != every[k][0])
    yield FirstIteration(found.body, change(found.flat, accs=swapped))
    yield FirstIteration((*breakpoints[:dropped], (None, False), *breakpoints[dropped + 1 :]), found.flat)
    yield FirstIteration(((None, False), *breakpoints), found.flat)
    loads = [k for k in places if breakpoints[k][1] and not breakpoints[k][0].args]
    at, to = loads[0], next(k for k in places if breakpoints[k][0] and breakpoints[k][0].args)
    moved = [breakpoints[at] if k == to else breakpoints[to] if k == at else breakpoints[k] for k in places]
    yield FirstIteration(tuple(moved), found.flat)
    yield FirstIteration((*breakpoints[:added], every[added], *breakpoints[added + 1 :]), found.flat)
    if line := breakpoints[added][0]:
        wrong = change(line, args=("a0_0",))
        yield FirstIteration((*breakpoints[:added], (wrong, False), *breakpoints[added + 1 :]), found.flat)


@pytest.mark.parametrize("widens", [False, True])
def test_a_first_turn_that_leaves_something_else_is_refuted(monkeypatch, widens):
    kernel = _kernel(widens)
    found = _begun(kernel)
    assert found is not None
    for wrong in _forged(found, kernel):
        monkeypatch.setattr(orders, "begin_loop", lambda *_, wrong=wrong: wrong)
        with pytest.raises(Refuted):
            orders.check_order(kernel)
