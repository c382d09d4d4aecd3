"""The domains are one arithmetic: numpy, Z3, and combinations of one-bit atoms."""

import random

import numpy as np
import pytest
import z3
from hypothesis import assume, given
from hypothesis import strategies as st
from support.bit_operations import BINARY, CONDITIONS, UNARY, WIDTHS, words
from support.case_selection import quick

from bitsynth.conformance import inputs, lanes
from bitsynth.conformance.values import float_landmarks
from bitsynth.isa import bits, doubles, functions, load
from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.domains.forms import (
    Inexact,
    variable,
)
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.symbolic import SymbolicDomain
from bitsynth.isa.functions import FUNCTIONS
from bitsynth.isa.instr import Instr

CONCRETE, SYMBOLIC = ConcreteDomain(), SymbolicDomain()


def forms():
    """Every form of another meaning, by sets: they share tables, and lanes do not know their set."""
    seen = set()
    found: dict[str, list[Instr]] = {name: [] for name in load.names()}
    for name, own in found.items():
        for instr in load.load(name).instrs.values():
            meaning = instr.lane, instr.operands, instr.out, instr.imm, instr.try_imm, repr(instr.names)
            if meaning not in seen:
                seen.add(meaning)
                own.append(instr)
    return found


FORMS = forms()


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
def test_binary_operations_agree_in_all_domains(name, data, w):
    both(BINARY[name], [data.draw(words(w)), data.draw(words(w))], w)


@pytest.mark.parametrize("name", UNARY)
@given(data=st.data(), w=st.sampled_from(WIDTHS))
def test_unary_operations_agree_in_all_domains(name, data, w):
    both(UNARY[name], [data.draw(words(w))], w)


@pytest.mark.parametrize("name", CONDITIONS)
@given(data=st.data(), w=st.sampled_from(WIDTHS))
def test_choices_agree_in_all_domains(name, data, w):
    values = [data.draw(words(w)), data.draw(words(w))]
    both(lambda a, b: bits.ite(CONDITIONS[name](a, b), a, b - 1), values, w)


@given(data=st.data(), w=st.sampled_from(WIDTHS), n=st.integers(0, 80))
def test_shifts_agree_in_all_domains(data, w, n):
    value = data.draw(words(w))
    both(lambda a: a << n, [value], w)
    both(lambda a: a >> n, [value], w)


@pytest.mark.parametrize("shift", [functions.asr, functions.lsr, functions.lsl])
@given(data=st.data(), w=st.sampled_from(WIDTHS), n=st.integers(0, 80))
def test_shifts_by_lanes_are_those_by_numbers(shift, data, w, n):
    value = data.draw(words(w))
    both(shift, [value, n], w)
    assert int(shift(concrete(value, w), concrete(n, w)).v[0]) == int(shift(concrete(value, w), n).v[0])


def test_shift_to_the_right_keeps_the_sign():
    assert [int(functions.asr(concrete(0x80, 8), n).v[0]) for n in (0, 3, 9)] == [0x80, 0xF0, 0xFF]
    assert int(functions.asr(concrete(0x70, 8), 9).v[0]) == 0


FLOATS = float_landmarks().tolist()


@pytest.mark.parametrize("name", ["fmul", "fadd", "fmin", "fmax", "fmul_flushed"])
@given(values=st.tuples(*[st.one_of(st.sampled_from(FLOATS), words(32))] * 2))
def test_float_operations_agree_in_all_domains(name, values):
    both(FUNCTIONS[name], values, 32)


@pytest.mark.parametrize("name", ["float_of", "nearest", "flushed"])
@given(value=st.one_of(st.sampled_from(FLOATS), words(32)))
def test_float_conversions_agree_in_all_domains(name, value):
    both(FUNCTIONS[name], [value], 32)


@given(values=st.tuples(*[st.one_of(st.sampled_from(FLOATS), words(32))] * 3))
def test_clips_and_comparisons_of_floats_agree_in_all_domains(values):
    both(FUNCTIONS["fclip"], values, 32)
    both(lambda a, b: FUNCTIONS["bit"](FUNCTIONS["fle"](a, b)), values[:2], 32)
    both(lambda x, *thresholds: FUNCTIONS["reached"](thresholds, x), [values[0], *values], 32)


@given(value=st.one_of(st.sampled_from(FLOATS), words(32)))
def test_conversions_of_floats_to_doubles_agree_in_all_domains(value):
    """But for the bits of what is not a number, which are unspecified."""
    assume(is_number(int(FUNCTIONS["double_of_float"](concrete(value, 32)).v[0])))
    both(FUNCTIONS["double_of_float"], [value], 32)


def bits_of(*numbers):
    return [int(x) for x in np.array(numbers, np.float32).view(np.uint32)]


@pytest.mark.parametrize(
    ("name", "given", "want"),
    [
        ("fmul", (1 + 2**-23, 1.5), 1.5 + 2**-22),
        ("fmul", (3e38, 2), np.inf),
        ("fadd", (2**24, 1), 2**24),
        ("fadd", (-(2**24), -3), -(2**24) - 4),
        ("fmin", (0.0, -0.0), -0.0),
        ("fmax", (-0.0, 0.0), 0.0),
        ("fmin", (np.nan, 1), np.nan),
        ("fmul_flushed", (2**-126, 0.5), 0.0),
        ("fmul_flushed", (2**-127, 2**100), 0.0),
        ("fmul_flushed", (-(2**-126) * (1 - 2**-24) * 2, 0.5), -0.0),
        ("flushed", (-(2**-127),), -0.0),
        ("fclip", (np.nan, -1, 3), -1),
        ("fclip", (np.inf, -1, 3), 3),
        ("fclip", (-5e-40, -1, 3), -5e-40),
    ],
)
def test_float_results_are_as_given(name, given, want):
    assert int(FUNCTIONS[name](*(concrete(x, 32) for x in bits_of(*given))).v[0]) == bits_of(want)[0]


@pytest.mark.parametrize(
    ("number", "want"),
    [(0.5, 0), (1.5, 2), (-2.5, -2), (2**31, 2**31 - 1), (-3e9, -(2**31)), (np.inf, 2**31 - 1), (np.nan, 0)],
)
def test_nearest_whole_number(number, want):
    assert int(FUNCTIONS["nearest"](concrete(bits_of(number)[0], 32)).v[0]) == want % (1 << 32)


DOUBLES = [doubles.bits_of(x) for x in (0.0, -0.0, 0.5, 1.5, -2.5, 1e300, 5e-324, 2.0**52, np.inf, 1 / 3, -255.0)]


def is_number(value):
    return not np.isnan(doubles.number_of(value))


@pytest.mark.parametrize("name", ["dmul", "dadd", "dsub", "ddiv", "dmin", "dmax"])
@given(values=st.tuples(*[st.one_of(st.sampled_from(DOUBLES), words(64))] * 2))
def test_double_operations_agree_in_all_domains(name, values):
    """But for the bits of what is not a number, which are unspecified."""
    assume(is_number(int(FUNCTIONS[name](*(concrete(v, 64) for v in values)).v[0])))
    both(FUNCTIONS[name], values, 64)


@given(value=words(32))
def test_conversions_to_doubles_agree_in_all_domains(value):
    both(FUNCTIONS["double_of"], [value], 32)


@pytest.mark.parametrize("name", ["int_of", "dnearest"])
@given(number=st.floats(-(2.0**31), 2.0**31 - 1))
def test_conversions_of_doubles_agree_in_all_domains(name, number):
    both(FUNCTIONS[name], [doubles.bits_of(number)], 64)
    want = int(number) if name == "int_of" else round(number)
    assert int(FUNCTIONS[name](concrete(doubles.bits_of(number), 64)).v[0]) == want % (1 << 32)


def test_doubles_have_64_bits_and_are_no_linear_form():
    with pytest.raises(TypeError, match="float64 has 64 bits, not 32"):
        FUNCTIONS["dabs"](concrete(1, 32))
    with pytest.raises(TypeError, match="numbers of 32 bits become float64, not of 64"):
        FUNCTIONS["double_of"](concrete(1, 64))
    with pytest.raises(Inexact, match="float64"):
        FUNCTIONS["dadd"](Bits(LinearDomain(4), 64, variable("x", 0, 1)), Bits(LinearDomain(4), 64, 1))


def test_floats_have_32_bits_and_are_no_linear_form():
    with pytest.raises(TypeError, match="float32 has 32 bits, not 16"):
        FUNCTIONS["float_of"](concrete(1, 16))
    with pytest.raises(Inexact, match="float32"):
        FUNCTIONS["fadd"](Bits(LinearDomain(4), 32, variable("x", 0, 1)), Bits(LinearDomain(4), 32, 1))


@given(data=st.data(), w=st.sampled_from(WIDTHS))
def test_absolute_difference_is_symmetric(data, w):
    a, b = data.draw(words(w)), data.draw(words(w))
    both(bits.absdiff, [a, b], w)
    assert int(bits.absdiff(concrete(a, w), concrete(b, w)).v[0]) == abs(a - b)


@given(data=st.data(), w=st.sampled_from(WIDTHS), size=st.sampled_from([2, 4, 8, 16]))
def test_lookups_agree_in_all_domains(data, w, size):
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


@pytest.mark.parametrize("isa", quick([isa for isa in FORMS if isa != "avx512"], of=FORMS))
def test_forms_mean_the_same_to_numpy_and_z3(isa):
    for instr in FORMS[isa]:
        for imm in sorted({instr.imms[0], instr.imms[-1], instr.imms[len(instr.imms) // 2], *instr.try_imm}):
            tried = next(inputs.FormTrial(instr, imm).batches())
            at = random.Random(instr.name).randrange(tried[0].shape[1])
            tried = [a[:, at : at + 1] for a in tried]
            both_kinds = zip(tried, instr.operands, strict=True)
            terms = [[z3.BitVecVal(int(x), o.type.bits) for (x,) in a] for a, o in both_kinds]
            want = [z3.simplify(t).as_long() for t in instr(SYMBOLIC, terms, imm)]
            got = [int(x[0]) for x in instr(CONCRETE, [list(a) for a in tried], imm)]
            assert got == want, (instr.name, imm)


def mask(kind):
    return np.uint64((1 << kind.bits) - 1)


@pytest.mark.parametrize("isa", FORMS)
def test_forms_read_what_they_are_said_to_read(isa):
    for instr in FORMS[isa]:
        reads_what_it_is_said_to_read(instr)


def reads_what_it_is_said_to_read(instr):
    """Changing all lanes but those an output is said to read does not change the output."""
    imm = instr.imms[len(instr.imms) // 2]
    rng = np.random.default_rng(7)
    args = [rng.integers(0, 1 << 62, (o.type.lanes, 8), dtype=np.uint64) & mask(o.type) for o in instr.operands]
    before = instr(CONCRETE, [list(a) for a in args], imm)
    reads = lanes.find_read_lanes(instr, imm)
    changed = [
        [np.stack([x if (k, j) in pieces else ~x & mask(o.type) for pieces in reads]) for j, x in enumerate(a)]
        for k, (a, o) in enumerate(zip(args, instr.operands, strict=True))
    ]
    for lane, (now, was) in enumerate(zip(instr(CONCRETE, changed, imm), before, strict=True)):
        assert np.array_equal(now[lane], was), instr.name
