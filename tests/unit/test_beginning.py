"""The first turn of a loop for an in-order processor, which sets accumulators."""

from __future__ import annotations

import msgspec
import pytest

import bitsynth
from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.kernel.in_order import ahead
from bitsynth.kernel.in_order.beginning import beginning
from bitsynth.proof import orders
from bitsynth.schedule import predicted

NEON = load("neon")


def _kernel(widens):
    """One that widens what it adds, for layers, or one that adds bytes."""
    options = {"method": "popcount", "channels": 64} if widens else {"cpu": "a53"}
    return bitsynth.get_kernel("neon", 1, 1, **options).with_order("a53").entry.kernel


def _begun(kernel):
    loop = kernel.passes[0]
    return beginning(kernel, loop, ahead.ordered(kernel, loop))


@pytest.mark.parametrize("widens", [False, True])
def test_a_first_turn_adds_to_nothing(widens):
    """Where a step widens what it adds, its first run widens alone; else it has no line for that."""
    kernel = _kernel(widens)
    found, accs = _begun(kernel), kernel.passes[0].step.accs
    assert found is not None
    assert len(found.instead) == kernel.rows * len(accs)
    assert all((line is not None) == widens for line in found.instead.values())
    orders.check_order(kernel)


def test_it_takes_neither_zeros_nor_sums(monkeypatch):
    kernel = _kernel(False)
    quick = predicted.tile_cycles(NEON, kernel, "a53")
    monkeypatch.setattr(predicted, "beginning", lambda *_: None)
    predicted.tile_cycles.cache_clear()
    accs = kernel.rows * len(kernel.passes[0].step.accs)
    assert quick <= predicted.tile_cycles(NEON, kernel, "a53") - 3 * accs // 2
    predicted.tile_cycles.cache_clear()


def test_loops_that_are_entered_again_have_none():
    """Sums of the segment before are in the accumulators there."""
    assert (
        _begun(bitsynth.get_kernel("neon", 2, 1, method="lookup", channels=64).with_order("a53").entry.kernel) is None
    )


@pytest.mark.parametrize("widens", [False, True])
def test_a_first_turn_that_leaves_something_else_is_refuted(monkeypatch, widens):
    kernel = _kernel(widens)
    found, turns = _begun(kernel), ahead.ordered(kernel, kernel.passes[0]).turns
    assert found is not None
    one, other, *rest = found.flat.accs
    swapped = (msgspec.structs.replace(one, next=other.next), msgspec.structs.replace(other, next=one.next), *rest)
    dropped = next(step.dst for step, later in turns if not later and step.dst not in found.instead)
    line = next((line for line in found.instead.values() if line), None)
    forged = [
        type(found)(found.instead, msgspec.structs.replace(found.flat, accs=swapped)),
        type(found)({**found.instead, dropped: None}, found.flat),
        type(found)(dict(list(found.instead.items())[1:]), found.flat),
    ]
    if line:
        forged.append(
            type(found)({**found.instead, line.dst: msgspec.structs.replace(line, args=("a0_0",))}, found.flat)
        )
    for wrong in forged:
        monkeypatch.setattr(orders, "beginning", lambda *_, wrong=wrong: wrong)
        with pytest.raises(Refuted):
            orders.check_order(kernel)
