"""The domains are one arithmetic: numpy, Z3, and combinations of one-bit atoms."""

import random
from dataclasses import dataclass

import numpy as np
import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from bitsynth.isa import bits, inputs, load
from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.domains.forms import Field, Form, Inexact, as_form
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.symbolic import SymbolicDomain

CONCRETE, SYMBOLIC = ConcreteDomain(), SymbolicDomain()
WIDTHS = (8, 16, 32, 64)
FORMS = [(n, form) for n in load.names() for form in load.load(n).instrs]

BINARY = {n: getattr(Bits, f"__{n}__") for n in ("add", "sub", "mul", "and", "or", "xor")}
UNARY = {
    "invert": Bits.__invert__,
    "popcount": bits.popcount,
    "doubled": lambda x: bits.trunc(bits.zext(x, 64) * 2 if x.w < 64 else x, x.w),
    "sext": lambda x: bits.sext(x, min(64, 2 * x.w)),
    "zext": lambda x: bits.zext(x, min(64, 2 * x.w)),
    "sclamp": lambda x: bits.sclamp(x, x.w // 2),
    "uclamp": lambda x: bits.uclamp(x, x.w // 2),
}
CONDITIONS = {"ult": bits.ult, "slt": bits.slt, "eq": bits.eq}


def words(w):
    edges = [0, 1, (1 << (w - 1)) - 1, 1 << (w - 1), (1 << w) - 1]
    return st.one_of(st.sampled_from(edges), st.integers(0, (1 << w) - 1))


def concrete(value, w):
    return Bits(CONCRETE, w, np.array([value], dtype=np.uint64))


def symbolic(value, w):
    return Bits(SYMBOLIC, w, z3.BitVecVal(value, w))


def same(numpy_value, z3_value):
    got = z3.simplify(z3_value.v)
    assert numpy_value.w == z3_value.w
    assert int(np.broadcast_to(numpy_value.v, 1)[0]) == got.as_long()


def both(function, values, w):
    same(function(*(concrete(v, w) for v in values)), function(*(symbolic(v, w) for v in values)))


@pytest.mark.parametrize("name", BINARY)
@given(data=st.data(), w=st.sampled_from(WIDTHS))
def test_binary(name, data, w):
    both(BINARY[name], [data.draw(words(w)), data.draw(words(w))], w)


@pytest.mark.parametrize("name", UNARY)
@given(data=st.data(), w=st.sampled_from(WIDTHS))
def test_unary(name, data, w):
    both(UNARY[name], [data.draw(words(w))], w)


@pytest.mark.parametrize("name", CONDITIONS)
@given(data=st.data(), w=st.sampled_from(WIDTHS))
def test_choices(name, data, w):
    values = [data.draw(words(w)), data.draw(words(w))]
    both(lambda a, b: bits.ite(CONDITIONS[name](a, b), a, b - 1), values, w)


@given(data=st.data(), w=st.sampled_from(WIDTHS), n=st.integers(0, 80))
def test_shifts(data, w, n):
    value = data.draw(words(w))
    both(lambda a: a << n, [value], w)
    both(lambda a: a >> n, [value], w)


@given(data=st.data(), w=st.sampled_from(WIDTHS))
def test_absolute_difference_is_symmetric(data, w):
    a, b = data.draw(words(w)), data.draw(words(w))
    both(bits.absdiff, [a, b], w)
    assert int(bits.absdiff(concrete(a, w), concrete(b, w)).v[0]) == abs(a - b)


@given(data=st.data(), w=st.sampled_from(WIDTHS), size=st.sampled_from([2, 4, 8, 16]))
def test_lookup(data, w, size):
    table = [data.draw(words(w)) for _ in range(size)]
    both(lambda *v: bits.lookup(v[:-1], v[-1]), [*table, data.draw(words(w))], w)


@given(table=st.lists(words(8), min_size=4, max_size=4), index=words(8))
def test_lookup_of_constants(table, index):
    entries = [Bits(CONCRETE, 8, np.uint64(t)) for t in table]
    for at in (np.uint64(index), np.array([index, index], dtype=np.uint64)):
        assert np.all(bits.lookup(entries, Bits(CONCRETE, 8, at)).v == table[index % 4])


@given(data=st.data(), w=st.sampled_from(WIDTHS), to=st.sampled_from(WIDTHS))
def test_join_undoes_split(data, w, to):
    small, large = sorted((w, to))
    value = data.draw(words(large))
    parts = CONCRETE.split(np.array([value], dtype=np.uint64), large, small)
    terms = [z3.simplify(t).as_long() for t in SYMBOLIC.split(z3.BitVecVal(value, large), large, small)]
    assert [int(p[0]) for p in parts] == terms
    assert int(CONCRETE.join(parts, small)[0]) == value
    assert z3.simplify(SYMBOLIC.join([z3.BitVecVal(t, small) for t in terms], small)).as_long() == value


@pytest.mark.parametrize(("isa", "form"), FORMS)
def test_forms_mean_the_same_to_numpy_and_z3(isa, form):
    instr = load.load(isa)[form]
    imms = sorted({instr.imms[0], instr.imms[-1], instr.imms[len(instr.imms) // 2], *instr.try_imm})
    for imm in imms:
        tried = inputs.inputs(instr, imm)
        at = random.Random(form).randrange(tried[0].shape[1])
        terms = [
            [z3.BitVecVal(int(x), o.type.bits) for x in a[:, at]] for a, o in zip(tried, instr.operands, strict=True)
        ]
        want = [z3.simplify(t).as_long() for t in instr(SYMBOLIC, terms, imm)]
        assert [int(x[at]) for x in instr(CONCRETE, [list(a) for a in tried], imm)] == want


def mask(kind):
    return np.uint64((1 << kind.bits) - 1)


@pytest.mark.parametrize(("isa", "form"), FORMS)
def test_forms_read_what_they_are_said_to_read(isa, form):
    """Changing all lanes but those an output is said to read does not change the output."""
    instr = load.load(isa)[form]
    imm = instr.imms[len(instr.imms) // 2]
    rng = np.random.default_rng(7)
    args = [rng.integers(0, 1 << 62, (o.type.lanes, 8), dtype=np.uint64) & mask(o.type) for o in instr.operands]
    before = instr(CONCRETE, [list(a) for a in args], imm)
    for lane, pieces in enumerate(inputs.reads(instr, imm)):
        others = [[a[j] if (k, j) in pieces else ~a[j] & mask(o.type) for j in range(o.type.lanes)]
                  for k, (a, o) in enumerate(zip(args, instr.operands, strict=True))]  # fmt: skip
        assert np.array_equal(instr(CONCRETE, others, imm)[lane], before[lane])


ACT_BITS, WGT_BITS, COLUMNS, POSITIONS = 2, 1, 2, 160
ROWS = 1 << (ACT_BITS + WGT_BITS)
LINEAR = LinearDomain(ROWS)


@dataclass
class World:
    """Codes at every position: what atoms are, once they are known."""

    act: list
    wgt: list

    def bit(self, table, column, position):
        code = self.act[position] + (self.wgt[column or 0][position] << ACT_BITS)
        return table >> code & 1

    def field(self, f):
        bits_ = [self.bit(f.tt, f.column, f.position + n) << n for n in range(64) if f.mask >> n & 1]
        return sum(bits_) | f.ones

    def form(self, f):
        total = f.const
        for (table, column), by in f.atoms.items():
            for coef, mask in by.items():
                total += coef * sum(self.bit(table, column, p) for p in range(mask.bit_length()) if mask >> p & 1)
        return total

    def value(self, payload):
        if isinstance(payload, int):
            return payload
        return self.field(payload) if isinstance(payload, Field) else self.form(payload)


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
    return Field(table, column, draw(st.sampled_from([0, w])), held, draw(words(w)) & ~held)


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


@pytest.mark.parametrize("w", WIDTHS)
@settings(max_examples=150, deadline=None)
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
    value = known.value(payload)
    assert value % 2**w == machine
    form = as_form(payload)
    assert form.lo <= value <= form.hi


@pytest.mark.parametrize("w", [8, 16, 32])
@settings(max_examples=150, deadline=None)
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


@pytest.mark.parametrize("w", [16, 32, 64])
@settings(max_examples=100, deadline=None)
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


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_linear_lookup(data):
    """A table that is a sum over its index's bits is taken; any other is refused."""
    known = data.draw(worlds)
    weights = data.draw(st.lists(st.integers(-20, 20), min_size=4, max_size=4))
    base = data.draw(st.integers(90, 120))
    table = [base + sum(v for n, v in enumerate(weights) if k >> n & 1) for k in range(16)]
    index = data.draw(fields(8))
    index = Field(index.tt, index.column, index.position, index.mask & 15, index.ones & 15)
    holds(known, LINEAR.lookup(table, index, 8), table[known.field(index)], 8)
    table[15] += 1
    if index.mask == 15:
        with pytest.raises(Inexact):
            LINEAR.lookup(table, index, 8)
    assert isinstance(LINEAR.popcount(index, 8), Form)
