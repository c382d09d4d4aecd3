"""Values of programs: their text, and its fields."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitsynth.errors import SpecError
from bitsynth.isa.step import Step
from bitsynth.isa.value import HALVES, WORDS, Part, Role, Value
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.store.matmul import MATMUL

WITHOUT_NUMBER = (Role.TERM, Role.NAMED)
NUMBERS = st.integers(0, 10**6)


@st.composite
def values(draw):
    """A value of a kernel, from its fields."""
    role = draw(st.sampled_from([role for role in Role if role is not Role.NAMED]))
    number = draw(st.none() | NUMBERS if role is Role.TERM else NUMBERS)
    if role is Role.COLUMN:
        value = Value.of(role, number, register=draw(st.none() | NUMBERS))
    else:
        value = Value.of(role, number, row=draw(st.none() | NUMBERS))
    value = value.of_part(draw(st.sampled_from(Part))).of_copy(draw(st.integers(0, 99)))
    return value.place if draw(st.booleans()) else value


def fields(value):
    return value.role, value.number, value.register, value.row, value.part, value.copy, value.is_place


@given(values())
def test_text_has_all_fields(value):
    again = Value(str(value))
    assert fields(again) == fields(value)
    assert again is value
    assert value.role is not Role.NAMED


@given(values(), values())
def test_values_of_other_fields_have_other_text(one, other):
    assert (one == other) == (fields(one) == fields(other))


@given(values(), NUMBERS, st.integers(1, 99), st.sampled_from(Part))
def test_a_value_of_another_row_copy_or_part_differs_in_that_alone(value, row, number, part):
    role, index, register, own, was, copied, place = fields(value)
    assert fields(value.of_row(row)) == (
        role,
        index,
        register,
        own if value.all_rows_share else row,
        was,
        copied,
        place,
    )
    assert fields(value.of_copy(number))[5] == (copied if value.is_constant else number)
    assert fields(value.of_part(part)) == (role, index, register, own, part, copied, place)
    assert value.of_part(part).whole == value.whole
    assert value.place.stored == value.stored
    assert not value.stored.is_place


@pytest.mark.parametrize("text", ["t", "acc", "t00", "t1_", "w0_0x", "k0_of0", "x", "more_", "_a0", "ta0", "A0", "a٣"])
def test_other_identifiers_are_names_alone(text):
    """`t00` is another value than `t0`: in a program of all rows, too, they may not have the same text."""
    value = Value(text)
    assert value == text
    assert value.role is Role.NAMED
    with pytest.raises(SpecError, match="only values of kernels"):
        value.of_row(1)


def test_parts():
    value = Value("w2_0_of3")
    assert [value.of_part(part) for part in (*HALVES, *WORDS)] == ["w2_0l_of3", "w2_0h_of3", "w2_0i_of3", "w2_0j_of3"]
    assert [part.in_general for part in Part] == [False, False, True, True, True]
    assert [part.is_high for part in Part] == [False, False, True, False, True]


def test_values_and_steps_do_not_change():
    value, step = Value("a0"), Step.parse("t0 = cnt.u8x16 a0 #3")
    for changed, field in ((value, "row"), (step, "op"), (step, "args")):
        with pytest.raises(AttributeError):
            setattr(changed, field, None)
    for kept in (value, step):
        assert copy.deepcopy(kept) == pickle.loads(pickle.dumps(kept)) == kept
    assert step != Step.parse("t0 = cnt.u8x16 a0")
    assert step.replace(imm=0) == Step.parse("t0 = cnt.u8x16 a0")
    assert hash(step.rename(lambda v: v.of_row(1))) == hash(Step.parse("t0_1 = cnt.u8x16 a0_1 #3"))


def programs():
    """Every program of the shipped artifacts, with the roles that its values may have."""
    for path in MATMUL.every():
        kernel = MATMUL.read(path).kernel
        build = kernel.build.steps if kernel.build else ()
        for steps in (build, *(x for p in kernel.every_pass for x in p.programs)):
            yield steps, set(Role) - {Role.NAMED, Role.TERM, Role.START}
    for path in DEPTHWISE.every():
        depthwise = DEPTHWISE.read(path).program
        for steps in (depthwise.steps, *(flush.steps for flush in depthwise.flushes)):
            yield steps, {Role.ROW, Role.COLUMN, Role.ACCUMULATOR, Role.TILE, Role.CONSTANT, Role.TEMPORARY}
    for path in ELEMENTWISE.every():
        yield ELEMENTWISE.read(path).program.steps, set(Role)


def test_values_of_shipped_programs_round_trip():
    for program, roles in programs():
        for value in {value for step in program for value in (step.dst, *step.args)}:
            assert value.role in roles
            if value.role is not Role.NAMED:
                assert Value.of(value.role, value.number, register=value.register, row=value.row) is value
