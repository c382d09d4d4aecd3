"""Registers as arrays: every form of every instruction set gives what it gives lane by lane."""

import numpy as np
import pytest

from bitsynth.isa import load
from bitsynth.isa.array_trace import ArrayTrace
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.step import Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value

INPUTS = 3


def given(kind, rng):
    """Lanes of any value, most of them small."""
    values = rng.integers(0, 1 << 64, (kind.lanes, INPUTS), dtype=np.uint64) >> rng.integers(0, 60, dtype=np.uint64)
    return values & np.uint64((1 << kind.bits) - 1)


@pytest.mark.parametrize("name", ["avx2", "avx512", "neon", "armv7_neon"])
def test_a_form_gives_all_lanes_at_once(name):
    isa, rng, domain = load.load(name), np.random.default_rng(1), ConcreteDomain()
    for form in isa.instrs.values():
        if not form.on_registers:
            continue
        imm = form.imms[-1]
        lanes, rows = Trace(isa, domain), ArrayTrace(isa, domain)
        for k, operand in enumerate(form.operands):
            values = given(operand.type, rng)
            lanes.bind(Value(f"x{k}"), Register(operand.type, tuple(values)))
            rows.bind(Value(f"x{k}"), rows.register(operand.type, values))
        step = Step(Value("v0"), form.name, tuple(Value(f"x{k}") for k in range(len(form.operands))), imm)
        with np.errstate(all="ignore"):
            wanted, found = (t.registers[t.run(step)] for t in (lanes, rows))
        assert (np.array(np.broadcast_arrays(*wanted.lanes)) == found.lanes).all(), form.name


@pytest.mark.parametrize("kind", ["u8x8", "s16x4", "u32x2", "u64x1"])
def test_views_of_arrays_have_the_same_bits(kind):
    rng, domain, have = np.random.default_rng(2), ConcreteDomain(), VecType.parse(kind)
    values = given(have, rng)
    for text in ("u8x8", "u16x4", "u32x2", "s64x1"):
        want = VecType.parse(text)
        wanted = Register(have, tuple(values)).view_as(domain, want).lanes
        found = ArrayTrace(load.load("avx2"), domain).register(have, values).view_as(domain, want).lanes
        assert (np.array(wanted) == found).all()
