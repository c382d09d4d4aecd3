"""The search of flushes: it takes at most as many levels as it is given."""

import pytest

from bitsynth.isa.domains.forms import variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import load
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.sketches.reduction import writeback


@pytest.mark.parametrize("most", range(4))
def test_a_flush_has_at_most_as_many_levels_as_are_searched(most, monkeypatch):
    """Bytes that are whole columns have to be widened once before they can be taken from the tile of int32."""
    monkeypatch.setattr(writeback, "POST", most)
    isa = load("neon")
    trace = Trace(isa, LinearDomain(1))
    lanes = tuple(variable((column, 0), 0, 1) for column in range(16))
    names = [trace.bind(Value("x0"), Register(VecType("u", 8, 16), lanes))]
    flush = writeback.cheapest_flush(trace, names, 1, lambda instr: 1.0, isa.tile)
    assert (flush is None) == (most == 0)
    assert flush is None or len(flush[1]) == 1
