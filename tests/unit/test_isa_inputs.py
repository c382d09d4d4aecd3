"""The inputs on which an instruction is tried cover the values that their coverage names."""

import itertools

import numpy as np
import pytest
from support.isa_forms import own_forms

from bitsynth.conformance import lanes
from bitsynth.conformance.inputs import FormTrial
from bitsynth.isa import load
from bitsynth.isa.types import VecType

KINDS = [
    ("avx2", "add.u8x32", 0),
    ("avx2", "add.u16x16", 0),
    ("avx2", "sll.u32x8", 31),
    ("avx2", "add.u64x4", 0),
    ("avx2", "maddubs.u8x32", 0),
    ("avx2", "unpacklo.u16x16", 0),
    ("avx512", "multishift.u8x64", 0),
    ("avx512", "permutexvar.u32x16", 0),
    ("neon", "sli.u8x16", 7),
    ("neon", "uadalp.u16x4", 0),
]
"""Cases of every kind: exhaustive, lanes of all widths, swept each alone and all of an operand."""


def trial(isa, name, imm):
    return FormTrial(load.load(isa)[name], imm)


def whole(tried):
    """All of its batches as one."""
    return [np.concatenate(parts, axis=1) for parts in zip(*tried.batches(), strict=True)]


@pytest.mark.parametrize(("isa", "name", "imm"), KINDS)
def test_coverage(isa, name, imm):
    assert_covered(load.load(isa)[name], imm)


@pytest.mark.slow
@pytest.mark.parametrize("name", load.names())
def test_coverage_of_all_forms(name):
    """Of forms with the same types that see the same lanes one stands for all, and every sixth of these is tried.

    Forms of a set that `name` extends are tried there.
    """
    isa = load.load(name)
    own = [isa[form] for form in own_forms(isa)]
    cases = ((i, imm) for i in own for imm in {i.imms[0], i.imms[-1]})
    kinds = {(tuple(o.type for o in i.operands), *lanes.find_read_lanes(i, imm)): (i, imm) for i, imm in cases}
    for instr, imm in list(kinds.values())[::6]:
        assert_covered(instr, imm)


def assert_covered(instr, imm):
    tried = FormTrial(instr, imm)
    types, seen, args = [o.type for o in instr.operands], lanes.find_read_lanes(instr, imm), whole(tried)
    for a, t in zip(args, types, strict=True):
        assert a.shape == (t.lanes, args[0].shape[1])
        assert int(a.max()) < 1 << t.bits
    if max(bits_seen(types, p) for p in seen) <= 16:
        assert tried.coverage.exhaustive
        assert all(everything_occurs(types, args, p) for p in seen)
    else:
        assert_families_occur(types, args, seen, tried.coverage)
    if lanes.crosses_lanes(seen):
        assert one_hot_occurs(types, args)


def bits_seen(types, pieces):
    return sum(types[k].bits for k, _ in pieces)


def everything_occurs(types, args, pieces):
    """Every combination of the lanes in `pieces` is some record."""
    code, width = np.zeros(args[0].shape[1], dtype=np.uint64), 0
    for k, lane in sorted(pieces):
        code |= args[k][lane] << np.uint64(width)
        width += types[k].bits
    return bool(np.bincount(code.astype(np.intp), minlength=1 << width).all())


def assert_families_occur(types, args, seen, coverage):
    """The first and the last output lane get what the coverage says, whatever lanes they see."""
    assert not coverage.exhaustive
    for pieces in {seen[0], seen[-1]}:
        for piece in pieces:
            for others in (0, 1):
                rest = pieces - {piece} if coverage.one_by_one else set()
                assert swept(types, args, piece, rest, others), f"{piece} of {pieces} among {others}"
        for one, other in itertools.combinations(sorted(pieces), 2):
            if coverage.one_by_one or one[0] != other[0]:
                assert all_landmarks_meet(types, args, one, other), f"{one} and {other}"


def swept(types, args, piece, rest, others):
    """Whether it takes all values, or all values of each byte, while all other bits are `others`."""
    k, lane = piece
    neighbours = [args[n][j] == filled(types[n], others) for n, j in rest]
    values = args[k][lane][np.logical_and.reduce(neighbours)] if neighbours else args[k][lane]
    bits = types[k].bits
    if bits <= 16:
        return bool(np.bincount(values.astype(np.intp), minlength=1 << bits).all())
    bytes_ = [filled(types[k], others) & ~(255 << at) | x << at for at in range(0, bits, 8) for x in range(256)]
    return set(bytes_) <= set(values.tolist()) >= set(near_powers(bits))


def filled(kind, others):
    return (1 << kind.bits) - 1 if others else 0


def near_powers(bits):
    near = [(1 << p) + d for p in range(bits) for d in (-1, 0, 1)]
    return sorted({x % (1 << bits) for y in near for x in (y, -y)})


def all_landmarks_meet(types, args, one, other):
    x, y = (args[k][lane] for k, lane in (one, other))
    p, q = (np.array(near_powers(types[k].bits), dtype=np.uint64) for k, _ in (one, other))
    at_x, at_y = np.searchsorted(p, x).clip(max=len(p) - 1), np.searchsorted(q, y).clip(max=len(q) - 1)
    both = (p[at_x] == x) & (q[at_y] == y)
    return bool(np.bincount((at_x * len(q) + at_y)[both], minlength=len(p) * len(q)).all())


def one_hot_occurs(types, args):
    set_lanes = sum((a != 0).sum(axis=0) for a in args)
    alone = [{int(x) for x in a[j, (set_lanes == 1) & (a[j] != 0)]} for a in args for j in range(len(a))]
    wide = [(1 << t.bits) - 1 for t in types for _ in range(t.lanes)]
    return all({1, most} <= values for values, most in zip(alone, wide, strict=True))


def test_inputs_are_the_same_every_time():
    first, second = (whole(trial("avx2", "maddubs.u8x32", 0)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_extremes_meet():
    """Saturation and wrapping need the largest of both operands in both lanes of a pair."""
    a, b = next(trial("avx2", "maddubs.u8x32", 0).batches())
    for x in (0, 255):
        for y in (0, 127, 128, 255):
            assert ((a[:2] == x).all(axis=0) & (b[:2] == y).all(axis=0)).any()


def test_lanes_that_cannot_be_placed_are_sampled():
    """Three bytes, any two of which meet, do not fit in one 16-bit counter."""
    pairs = [frozenset({(0, i), (0, j)}) for i, j in ((0, 1), (1, 2), (0, 2))]
    assert lanes.exhaustive_places([VecType("u", 8, 3)], pairs) is None
    assert lanes.exhaustive_places([VecType("u", 8, 3)], pairs[:2]) == {(0, 0): 0, (0, 1): 8, (0, 2): 0}
    assert lanes.exhaustive_places([VecType("u", 32, 1)], [frozenset({(0, 0)})]) is None


def test_a_coverage_says_what_is_sampled():
    assert str(trial("avx2", "add.u8x32", 0).coverage).startswith("exhaustive  every value of the 16 bits")
    message = str(trial("avx2", "add.u16x16", 0).coverage)
    assert message == "sampled     each lane: every value of 16 bits; all pairs of landmarks; random ones"
    assert "of 32 bits every value of each byte, and landmarks" in str(trial("avx2", "add.u32x8", 0).coverage)
    assert "all lanes of an operand at once" in str(trial("avx512", "permutexvar.u8x64", 0).coverage)


def test_the_worst_case_speaks_for_a_form():
    assert trial("avx2", "add.u8x32", 0).coverage < trial("avx2", "add.u16x16", 0).coverage
