"""What an instruction is tried on covers what it is said to cover."""

import numpy as np
import pytest

from bitsynth.isa import inputs, load
from bitsynth.isa.types import VecType


def base_of(isa):
    """Names of the forms it has from the set that it extends."""
    return load.load(isa.table.extends).instrs if isa.table.extends else ()


OF_BASES = {(isa.name, name) for isa in map(load.load, load.names()) for name in base_of(isa)}
CASES = [
    pytest.param(isa.name, instr.name, imm, marks=pytest.mark.slow if (isa.name, instr.name) in OF_BASES else ())
    for isa in map(load.load, load.names())
    for instr in isa.instrs.values()
    for imm in sorted({instr.imms[0], instr.imms[-1]})
]


def bits_seen(instr, pieces):
    return sum(instr.operands[k].type.bits for k, _ in pieces)


@pytest.mark.parametrize(("isa", "name", "imm"), CASES)
def test_coverage(isa, name, imm):
    instr = load.load(isa)[name]
    args = inputs.inputs(instr, imm)
    for a, o in zip(args, instr.operands, strict=True):
        assert a.shape == (o.type.lanes, args[0].shape[1])
        assert int(a.max()) < 1 << o.type.bits
    if max(bits_seen(instr, p) for p in inputs.reads(instr, imm)) <= 16:
        assert all(everything_occurs(instr, args, p) for p in inputs.reads(instr, imm))
    if inputs.crosses_lanes(inputs.reads(instr, imm)):
        assert one_hot_occurs(instr, args)


def everything_occurs(instr, args, pieces):
    """Every combination of the lanes in `pieces` is some record."""
    code, width = np.zeros(args[0].shape[1], dtype=np.uint64), 0
    for k, lane in sorted(pieces):
        code |= args[k][lane] << np.uint64(width)
        width += instr.operands[k].type.bits
    return bool(np.bincount(code.astype(np.intp), minlength=1 << width).all())


def one_hot_occurs(instr, args):
    set_lanes = sum((a != 0).sum(axis=0) for a in args)
    alone = [{int(x) for x in a[j, (set_lanes == 1) & (a[j] != 0)]} for a in args for j in range(len(a))]
    wide = [(1 << o.type.bits) - 1 for o in instr.operands for _ in range(o.type.lanes)]
    return all({1, most} <= values for values, most in zip(alone, wide, strict=True))


def test_inputs_are_the_same_every_time():
    instr = load.load("avx2")["maddubs.u8x32"]
    first, second = inputs.inputs(instr, 0), inputs.inputs(instr, 0)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_extremes_meet():
    """Saturation and wrapping need the largest of both operands in both lanes of a pair."""
    instr = load.load("avx2")["maddubs.u8x32"]
    a, b = inputs.inputs(instr, 0)
    for x in (0, 255):
        for y in (0, 127, 128, 255):
            assert ((a[:2] == x).all(axis=0) & (b[:2] == y).all(axis=0)).any()


def test_lanes_that_cannot_be_placed_are_sampled():
    """Three bytes of which any two meet do not fit in one 16-bit counter."""
    pairs = [frozenset({(0, i), (0, j)}) for i, j in ((0, 1), (1, 2), (0, 2))]
    assert inputs.exhaustive_places([VecType("u", 8, 3)], pairs) is None
    assert inputs.exhaustive_places([VecType("u", 8, 3)], pairs[:2]) == {(0, 0): 0, (0, 1): 8, (0, 2): 0}
    assert inputs.exhaustive_places([VecType("u", 32, 1)], [frozenset({(0, 0)})]) is None
