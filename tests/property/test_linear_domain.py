"""The linear domain: what it accepts is what the machine gives, whatever atoms are; anything else it refuses."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bit_operations import BINARY, UNARY, WIDTHS, words
from support.case_selection import quick

from bitsynth.isa import bits
from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.domains.forms import (
    BitField,
    Concat,
    Inexact,
    LinearForm,
    TableEntry,
    add_forms,
    as_form,
    cut,
    side_by_side,
    total,
    variable,
)
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.sums import gate, product

CONCRETE = ConcreteDomain()

ACT_BITS, WGT_BITS, COLUMNS, POSITIONS = 2, 1, 2, 160
ROWS = 1 << (ACT_BITS + WGT_BITS)
LINEAR = LinearDomain(ROWS)


@dataclass
class World:
    """Codes at every position, and unknowns: what atoms are, once they are known."""

    act: list[Any]
    wgt: list[Any]
    unknowns: dict[Any, Any] = field(default_factory=dict)

    def bit(self, table, column, position):
        code = self.act[position] + (self.wgt[column or 0][position] << ACT_BITS)
        return table >> code & 1

    def field(self, f):
        bits_ = [self.bit(f.tt, f.column, f.position + n) << n for n in range(64) if f.mask >> n & 1]
        return sum(bits_) | f.ones

    def atom(self, key, position):
        match key:
            case ("product", a, b):
                return self.atom(a, 0) * self.atom(b, 0)
            case ("crossed", low, high):
                return self.bit(*low) * self.bit(*high)
            case ("gated", table, column, at, inner):
                return self.bit(table, column, at) * self.atom(inner, 0)
            case ("x", _):
                return self.unknowns[key]
            case (table, column):
                return self.bit(table, column, position)

    def form(self, f):
        value = f.const
        for key, by in f.atoms.items():
            for coef, mask in by.items():
                value += coef * sum(self.atom(key, p) for p in range(mask.bit_length()) if mask >> p & 1)
        return value

    def value(self, payload, w=64):
        """What a payload of `w` bits says the lane holds."""
        match payload:
            case int():
                return payload
            case BitField():
                return self.field(payload)
            case LinearForm():
                return self.form(payload)
            case TableEntry():
                return sum(self.form(part) for n, part in enumerate(payload.parts) if payload.chosen >> n & 1)
            case Concat():
                assert sum(bits_ for _, bits_ in payload.pieces) == w
                out = at = 0
                for piece, bits_ in payload.pieces:
                    out, at = out + (self.value(piece, bits_) % 2**bits_ << at), at + bits_
                return out


def world(seed):
    rng = random.Random(seed)
    codes = [rng.choices(range(1 << bits_), k=POSITIONS) for bits_ in (ACT_BITS, *[WGT_BITS] * COLUMNS)]
    return World(codes[0], codes[1:])


worlds = st.builds(world, st.integers(0, 1 << 30))


@st.composite
def fields(draw, w):
    """Bits of one function; without a column, of the activations alone."""
    column = draw(st.sampled_from([None, *range(COLUMNS)]))
    act_rows = 1 << ACT_BITS
    table = draw(st.integers(0, (1 << ROWS) - 1))
    if column is None:
        table = sum((table & ((1 << act_rows) - 1)) << k for k in range(0, ROWS, act_rows))
    held = draw(words(w))
    return BitField(table, column, draw(st.sampled_from([0, w])), held, draw(words(w)) & ~held)


@st.composite
def programs(draw, w):
    """Values of `w` bits made step by step; the payload of both domains."""
    start = [draw(fields(w)) for _ in range(3)] + [draw(st.integers(0, 7)), draw(st.integers(0, (1 << w) - 1))]
    names = st.sampled_from([*BINARY, "invert", "popcount", "shl", "shr", "ite"])
    index = st.integers(0, 20)
    return start, draw(st.lists(st.tuples(names, index, index), min_size=1, max_size=6))


def step(domain, name, values, i, j, w):
    a, b = Bits(domain, w, values[i % len(values)]), Bits(domain, w, values[j % len(values)])
    if name in BINARY:
        return BINARY[name](a, b).v
    if name in UNARY:
        return UNARY[name](a).v
    if name == "ite":
        return bits.ite(bits.ult(a, b), a + b, b).v
    return (a << j if name == "shl" else a >> j).v


def test_a_count_of_no_unknown_bits_has_no_atoms():
    """Else a product with it has bits before the first position."""
    counted = LINEAR.popcount(BitField(17, None, 0, 0, 5), 32)
    assert counted == LinearForm(2, {}, 2, 2)
    holds(
        world(0), LINEAR.mul(BitField(17, None, 0, 2**31 - 1), LINEAR.popcount(BitField(17, None, 0, 0), 32), 32), 0, 32
    )


@pytest.mark.parametrize("w", quick([8, 32], of=WIDTHS))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_linear_values_are_the_machines(w, data):
    """Whatever the linear domain accepts is equal modulo 2**w, and within its interval."""
    known = data.draw(worlds)
    start, steps = data.draw(programs(w))
    linear = list(start)
    plain = [np.array([known.value(p)], dtype=np.uint64) for p in start]
    for name, i, j in steps:
        try:
            linear.append(step(LINEAR, name, linear, i, j, w))
        except Inexact:
            continue
        plain.append(step(CONCRETE, name, plain, i % len(plain), j if name in {"shl", "shr"} else j % len(plain), w))
        holds(known, linear[-1], int(plain[-1][0]), w)


def holds(known, payload, machine, w):
    assert known.value(payload, w) % 2**w == machine
    try:
        form = as_form(payload)
    except Inexact:
        return
    value = known.form(form)
    assert value % 2**w == machine
    assert form.lo <= value <= form.hi


@pytest.mark.parametrize("w", quick([16], of=[8, 16, 32]))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_linear_changes_of_width(w, data):
    known = data.draw(worlds)
    start, steps = data.draw(programs(w))
    for name, i, j in steps:
        try:
            payload = step(LINEAR, name, start, i, j, w)
            machine = step(CONCRETE, name, [np.array([known.value(p)], dtype=np.uint64) for p in start], i, j, w)
        except Inexact:
            continue
        for change, to in ((bits.zext, 2 * w), (bits.sext, 2 * w), (bits.trunc, w // 2)):
            changed(known, lambda x, c=change, to=to: c(x, to), payload, machine, w)


def changed(known, change, payload, machine, w):
    try:
        got = change(Bits(LINEAR, w, payload))
    except Inexact:
        return
    holds(known, got.v, int(change(Bits(CONCRETE, w, machine)).v[0]), got.w)


def unmixed(domain, x, y, times, more, less):
    """What is left of x + times * y, in 16 bits, when y * 2**more is taken from it and y * less added."""
    x, y = Bits(domain, 16, x), Bits(domain, 16, y)
    return bits.zext((x + y * times) - (y << more) + y * less, 32)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), times=st.integers(0, 600), more=st.integers(0, 15), less=st.integers(-3, 3))
def test_sums_that_cancel(data, times, more, less):
    """A sum that wrapped is widened only if the remaining sum fits, and is then the number it was."""
    ends: dict[Any, Any] = {
        ("x", k): sorted(data.draw(st.tuples(*[st.integers(-(1 << 17), 1 << 17)] * 2))) for k in "xy"
    }
    known = {key: data.draw(st.integers(*of)) for key, of in ends.items()}
    x, y = (variable(key, *of) for key, of in ends.items())
    try:
        got = unmixed(LinearDomain(1, ends), x, y, times, more, less & 0xFFFF)
    except Inexact:
        return
    a, b = (np.array([v % 2**16], np.uint64) for v in known.values())
    machine = unmixed(CONCRETE, a, b, times, more, less & 0xFFFF)
    assert World([], [], known).form(got.v) % 2**32 == int(machine.v[0])


@pytest.mark.parametrize(("most", "more", "fits"), [(65535, 8, True), (65536, 8, False), (9, 7, False)])
def test_what_is_left_has_to_fit(most, more, fits):
    ends: dict[Any, Any] = {("x", "x"): (0, most), ("x", "y"): (0, 1 << 20)}
    x, y = (variable(key, *of) for key, of in ends.items())
    if fits:
        assert unmixed(LinearDomain(1, ends), x, y, 256, more, 0).v == variable(("x", "x"), 0, most)
    else:
        with pytest.raises(Inexact, match="a 16-bit lane is widened"):
            unmixed(LinearDomain(1, ends), x, y, 256, more, 0)
    with pytest.raises(Inexact, match="a 16-bit lane is widened"):
        unmixed(LinearDomain(1), x, y, 256, more, 0)


@pytest.mark.parametrize("w", [16, 32, 64])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_linear_split_and_join(w, data):
    known = data.draw(worlds)
    payload = data.draw(st.one_of(fields(w), words(w)))
    to = data.draw(st.sampled_from([8, w // 2]))
    parts = LINEAR.split(payload, w, to)
    want = CONCRETE.split(np.array([known.value(payload)], dtype=np.uint64), w, to)
    for part, number in zip(parts, want, strict=True):
        holds(known, part, int(number[0]), to)
    holds(known, LINEAR.join(parts, to), known.value(payload), w)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lookups_of_linear_forms_are_exact_or_refused(data):
    """A table that is a sum over its index's bits is taken; any other is refused."""
    known = data.draw(worlds)
    weights = data.draw(st.lists(st.integers(-20, 20), min_size=4, max_size=4))
    base = data.draw(st.integers(90, 120))
    table = [base + sum(v for n, v in enumerate(weights) if k >> n & 1) for k in range(16)]
    index = data.draw(fields(8))
    index = BitField(index.tt, index.column, index.position, index.mask & 15, index.ones & 15)
    holds(known, LINEAR.lookup(table, index, 8), table[known.field(index)], 8)
    table[15] += 1
    if index.mask == 15:
        with pytest.raises(Inexact):
            LINEAR.lookup(table, index, 8)
    assert isinstance(LINEAR.popcount(index, 8), LinearForm)


NAMES = 4
LIMITS = (3, 60, 200, 400)
"""The most each unknown may be: two of them leave a byte where they are added, the last on its own."""


@st.composite
def sums(draw, known):
    """A sum of unknowns and bits, which may leave its lane."""
    forms = [variable(("x", k), 0, LIMITS[k]) for k in range(NAMES)]
    forms += [as_form(draw(fields(8))), LinearForm(draw(st.integers(0, 9)), {}, 0, 9)]
    forms[-1] = LinearForm(forms[-1].const, {}, forms[-1].const, forms[-1].const)
    for key, most in zip([("x", k) for k in range(NAMES)], LIMITS, strict=True):
        known.unknowns.setdefault(key, draw(st.integers(0, most)))
    out = draw(st.sampled_from(forms))
    for _ in range(draw(st.integers(0, 2))):
        out = add_forms(out, draw(st.sampled_from(forms)).scale(draw(st.sampled_from([1, 1, 2, -1]))))
    return out


@st.composite
def bytes_(draw, known):
    """A byte's payload: bits, a constant, a sum, an entry of a table."""
    parts = tuple(variable(("x", k), 0, LIMITS[k]) for k in range(2))
    for k in range(2):
        known.unknowns.setdefault(("x", k), draw(st.integers(0, LIMITS[k])))
    table = st.integers(0, 3).map(lambda chosen: TableEntry(parts, chosen))
    return draw(st.one_of(fields(8), words(8), sums(known), table))


CHANGES = ["shl", "lshr", "add", "and", "or", "trunc", "zext", "sext", "split", "join", "not", "mul", "xor", "sub"]


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_lanes_of_narrower_lanes(data):
    """Pieces and entries through every operation: what is accepted is what the machine gives, modulo its width."""
    known = data.draw(worlds)
    parts = [data.draw(bytes_(known)) for _ in range(4)]
    numbers = [np.array([known.value(p, 8) % 256], dtype=np.uint64) for p in parts]
    w = 32
    payload, machine = LINEAR.join(parts, 8), CONCRETE.join(numbers, 8)
    holds(known, payload, int(machine[0]), w)
    for name in data.draw(st.lists(st.sampled_from(CHANGES), max_size=4)):
        try:
            payload, machine, w = changed_lane(data, name, payload, machine, w)
        except Inexact:
            return
        holds(known, payload, int(machine[0]), w)


def changed_lane(data, name, payload, machine, w):
    """The lane after one operation, in both domains."""
    if name in ("shl", "lshr"):
        n = data.draw(st.sampled_from([0, 1, 4, 8, 12, 16, 24, 31, w]))
        return getattr(LINEAR, name)(payload, n, w), getattr(CONCRETE, name)(machine, n, w), w
    if name in ("add", "sub", "mul", "or", "xor"):
        op = f"{name}_" if name == "or" else name
        value = data.draw(st.sampled_from([0, 1, 3, 1 << (w - 1)]))
        return getattr(LINEAR, op)(payload, value, w), getattr(CONCRETE, op)(machine, np.uint64(value), w), w
    if name == "and":
        mask = data.draw(st.sampled_from([0, 0xFF, 0xFF00, 0xFFFF, 0x00FF00FF, 0x0F0F0F0F, 0xFFFFFF, (1 << w) - 1]))
        mask &= (1 << w) - 1
        return LINEAR.and_(payload, mask, w), CONCRETE.and_(machine, np.array(mask, np.uint64), w), w
    if name == "not":
        return LINEAR.not_(payload, w), CONCRETE.not_(machine, w), w
    if name in ("zext", "sext", "trunc"):
        to = max(8, w // 2) if name == "trunc" else min(64, 2 * w)
        return getattr(LINEAR, name)(payload, w, to), getattr(CONCRETE, name)(machine, w, to), to
    if name == "split":
        to = data.draw(st.sampled_from([k for k in (8, 16, 32) if k <= w]))
        at = data.draw(st.integers(0, w // to - 1))
        return LINEAR.split(payload, w, to)[at], CONCRETE.split(machine, w, to)[at], to
    if w == 64:
        return payload, machine, w
    return LINEAR.join([payload, payload], w), CONCRETE.join([machine, machine], w), 2 * w


@settings(max_examples=50, deadline=None)
@given(data=st.data(), first=st.integers(0, 31), size=st.integers(1, 32))
def test_cuts_of_linear_forms_are_exact_or_refused(data, first, size):
    """Bits of a lane, wherever they are cut, or a refusal."""
    known = data.draw(worlds)
    parts = [data.draw(bytes_(known)) for _ in range(4)]
    lane = side_by_side([(p, 8) for p in parts])
    value = known.value(lane, 32) % 2**32
    last = min(32, first + size)
    try:
        got = cut(lane, first, last)
    except Inexact:
        return
    holds(known, got, value >> first & ((1 << (last - first)) - 1), last - first)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_products_of_sums(data):
    """Of bits of one position and of unknowns; anything else is refused."""
    known = data.draw(worlds)
    a, b = data.draw(sums(known)), data.draw(sums(known))
    try:
        got = product(a, b)
    except Inexact:
        return
    want = known.form(a) * known.form(b)
    assert known.form(got) == want
    assert got.lo <= want <= got.hi


def plane(table, position, column=None):
    return LinearForm(0, {(table, column): {1: 1 << position}}, 0, 1)


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        (plane(0b10101010, 0, 0), plane(0b11110000, 0, 1), "two columns are multiplied"),
        (plane(0b10101010, 0, 0), plane(0b11110000, 1, 1), "two columns are multiplied"),
        (LinearForm(0, {(0b10101010, None): {1: 3}}, 0, 2), plane(0b11110000, 0, 1), "several positions of K"),
    ],
    ids=str,
)
def test_products_that_are_refused(a, b, why):
    for left, right in ((a, b), (b, a)):
        with pytest.raises(Inexact, match=why):
            product(left, right)


def test_a_product_of_bits_that_exclude_each_other_is_nothing():
    assert product(plane(0b1010, 0), plane(0b0101, 0)).atoms == {}


@settings(max_examples=80, deadline=None)
@given(data=st.data(), tables=st.lists(st.integers(1, (1 << ROWS) - 1), min_size=1, max_size=4))
def test_equal_planes_add_up(data, tables):
    """Planes of one function, gated or not, are under one coefficient: sums of sums count each of them."""
    known = data.draw(worlds)
    position = data.draw(st.integers(0, 5))
    number = total(plane(t, position).scale(1 << j) for j, t in enumerate(tables))
    index = BitField(data.draw(st.sampled_from(tables)), 0, position, 1)
    for form in (number, gate(number, index, 0), product(number, number)):
        out, want = LinearForm(0, {}, 0, 0), 0
        for factor in data.draw(st.lists(st.sampled_from([1, 2, -1, -2, 3]), max_size=5)):
            out, want = add_forms(out, form.scale(factor)), want + factor * known.form(form)
        assert known.form(out) == want
        for by in out.atoms.values():
            assert not any(a & b for k, a in enumerate(by.values()) for b in list(by.values())[:k])


PARTS = tuple(variable(("x", k), 0, 9) for k in range(4))
TABLE = [TableEntry(PARTS, e) for e in range(16)]
INDEX = BitField(0b11110000, 1, 0, 15)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_lookups_in_a_table_of_sums(data):
    """The parts that the index's bits select, whatever they are."""
    known = data.draw(worlds)
    known.unknowns = {("x", k): data.draw(st.integers(0, 9)) for k in range(4)}
    held = data.draw(st.integers(0, 15))
    index = BitField(data.draw(st.integers(1, (1 << ROWS) - 1)), 1, 0, held, data.draw(st.integers(0, 15)) & ~held)
    got = LINEAR.lookup(TABLE, index, 8)
    chosen = known.field(index)
    holds(known, got, sum(known.unknowns["x", k] for k in range(4) if chosen >> k & 1), 8)


def turned(table):
    return [*table[1:], table[0]]


OTHER = tuple(variable(("x", k), 0, 9) for k in (1, 0, 2, 3))


@pytest.mark.parametrize(
    ("table", "index", "why"),
    [
        (turned(TABLE), INDEX, "entry 0 of the table is not the sum its number selects"),
        ([*TABLE[:5], TABLE[6], TABLE[5], *TABLE[7:]], INDEX, "entry 5 of the table"),
        ([*TABLE[:15], TableEntry(OTHER, 15)], INDEX, "entry 15 of the table"),
        ([TableEntry(OTHER, 0), *TABLE[1:]], INDEX, "entry 1 of the table"),
        ([*TABLE[:15], 0], INDEX, "entry 15 of the table"),
        ([0, *TABLE[1:]], INDEX, "a table of unknown values"),
        ([as_form(e) for e in TABLE], INDEX, "a table of unknown values"),
        (TABLE, BitField(0b11110000, 1, 0, 31), "an index beyond the table"),
        (TABLE, BitField(0b11110000, 1, 0, 15, 16), "an index beyond the table"),
        (TABLE[:8], INDEX, "an index beyond the table"),
        (TABLE, as_form(INDEX), "a sum is used as an index"),
        (TABLE, TableEntry(PARTS, 1), "a sum is used as an index"),
        (TABLE, Concat(((INDEX, 4), (variable(("x", 0), 0, 9), 4))), "a sum is used as an index"),
    ],
)
def test_lookups_that_are_refused(table, index, why):
    """Entries permuted, two tables mixed, an index beyond: none is the lemma's case."""
    with pytest.raises(Inexact, match=why):
        LINEAR.lookup(table, index, 8)


def test_a_lookup_in_a_table_of_planes_takes_its_own_positions():
    parts = tuple(plane(0b10101010, n) for n in range(4))
    table = [TableEntry(parts, e) for e in range(16)]
    assert as_form(LINEAR.lookup(table, INDEX, 8)).atoms == {(0b10100000, 1): {1: 15}}
    for position in (1, 4):
        with pytest.raises(Inexact, match=r"positions? of K"):
            LINEAR.lookup(table, BitField(0b11110000, 1, position, 15), 8)


def test_what_leaves_its_lane_is_not_shifted_out_of_it():
    """A byte that may wrap, alone or beside others, is not the sum it stands for once it is a wider lane's."""
    wrapping, byte = variable(("x", 3), 0, 400), variable(("x", 1), 0, 60)
    lane = LINEAR.join([byte, byte, byte, wrapping], 8)
    for payload in (LINEAR.lshr(lane, 24, 32), LINEAR.lshr(lane, 8, 32), LINEAR.zext(lane, 32, 64)):
        with pytest.raises(Inexact, match=r"a 8-bit piece may hold \[0, 400\]"):
            as_form(payload)
    assert as_form(LINEAR.lshr(LINEAR.join([wrapping, byte, byte, byte], 8), 8, 32))


def test_pieces_fill_the_lane_they_are_put_beside_another_in():
    with pytest.raises(Inexact, match="not filled"):
        side_by_side([(Concat(((1, 8), (variable(("x", 0), 0, 3), 8))), 32), (1, 32)])
