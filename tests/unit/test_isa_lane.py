"""A lane expression can compute, and can do nothing else."""

import numpy as np
import pytest
from support.case_selection import quick

from bitsynth.errors import SpecError
from bitsynth.isa import lane, load
from bitsynth.isa.bits import Bits, indices, sext, trunc, zext
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.domains.forms import BitField, Inexact
from bitsynth.isa.domains.linear import LinearDomain

REFUSED = {
    "__import__('os').system('true')": "Attribute is not allowed",
    "__import__": "unknown name '__import__'",
    "open": "unknown name 'open'",
    "a[i].v": "Attribute is not allowed",
    "a.__class__": "Attribute is not allowed",
    "(lambda: a)()": "Lambda is not allowed",
    "[x for x in a]": "ListComp is not allowed",
    "{1: a}": "Dict is not allowed",
    "(x := a)": "NamedExpr is not allowed",
    "a if i else b": "IfExp is not allowed",
    "a[i] < b[i]": "Compare is not allowed",
    "a[i] and b[i]": "BoolOp is not allowed",
    "sum(*a)": "Starred is not allowed",
    "zext(a[i], to=16)": "keyword is not allowed",
    "2 ** 9": "Pow is not allowed",
    "a[i] / 2": "Div is not allowed",
    "'text'": "constant 'text' is not allowed",
    "1.5": "constant 1.5 is not allowed",
    "True": "constant True is not allowed",
    f"a[i] + {1 << 64}": "is not allowed",
    "a[i] + c[i]": "unknown name 'c'",
    "f'{a}'": "JoinedStr is not allowed",
    "await a": "not allowed",
    "a[i] +": "does not parse",
    "a[i]; b[i]": "does not parse",
    "a = b": "does not parse",
    "": "does not parse",
    "\0": "does not parse",
    "9" * 5000: "5000 characters",
    "(" * 400 + "a[i]" + ")" * 400: "does not parse",
}


@pytest.mark.parametrize(("text", "why"), REFUSED.items(), ids=[t[:30] for t in REFUSED])
def test_refused(text, why):
    with pytest.raises(SpecError) as error:
        lane.parse("here.toml: x", text, ["a", "b"])
    assert str(error.value).startswith("here.toml: x: ")
    assert why in str(error.value)


def form(text):
    """`and.u8x16` with another lane expression."""
    import dataclasses

    return dataclasses.replace(load.load("neon")["and.u8x16"], lane=text)


FAILING = {
    "a[i + 1]": "out of range",
    "a[16]": "out of range",
    "a[i % 0]": "modulo by zero",
    "zext(a[i], 16) + b[i]": "width mismatch",
    "trunc(a[i], 4)": "8 bits or more",
    "zext(a[i], 4)": "cannot be widened",
    "zext(a[i], 128)": "cannot be widened",
    "sext(a[i], 4)": "cannot be widened",
    "trunc(a[i], 16)": "have no low 16",
    "trunc(a[i], 0)": "have no low 0",
    "a[i] << b[i]": "known in advance",
    "a[i] >> (i - 17)": "known in advance",
    "a": "8 bits or more",
    "7": "8 bits or more",
    "a[i](1)": "not callable",
    "a[i][0]": "not subscriptable",
    "sum(a[k] for k in range(10000000000))": "10000000000 indices",
    "sum(a[k] for k in range(0))": "not enough values",
    "ite(ult(a[i], 1), 2, 3)": "bit-vector branch",
    "eq(a[i], b[i])": "8 bits or more",
    "a[i] << (1 << (1 << 40))": "",
}


@pytest.mark.parametrize(("text", "why"), FAILING.items())
def test_meanings_that_are_not_total_fail_as_spec_errors(text, why):
    instr = form(text)
    zero = [[np.zeros(1, dtype=np.uint64)] * 16] * 2
    with pytest.raises(SpecError) as error:
        instr(ConcreteDomain(), zero)
    assert "neon: and.u8x16: " in str(error.value)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "text", ["-" * 900 + "1", "~" * 900 + "a[i]", "(" * 90 + "a[i]" + ")" * 90, "a[i]" + "+a[i]" * 190]
)
def test_deep_nesting_is_an_error_or_works(text):
    """Never a crash and never another exception, whatever the parser's limits are."""
    try:
        form(text)(ConcreteDomain(), [[np.zeros(1, dtype=np.uint64)] * 16] * 2)
    except SpecError as error:
        assert "neon: and.u8x16" in str(error)  # An error need not come.  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "bitwise"),
    [
        ("a[i] & ~b[i]", True),
        ("(m[i] & a[i]) | (~m[i] & b[i])", True),
        ("a[i] + b[i]", False),
        ("a[i - 1] & b[i]", False),
        ("popcount(a[i])", False),
        ("lookup(a, b[i])", False),
        ("concat(a, b)[i]", False),
        ("sum(a[k] for k in range(4))", False),
        ("zext(a[i], 16)", False),
        ("a[i] & -(n >> 3 & 1)", True),
        ("(a[i] & b[i] & -(n >> 1 & 1)) | (~a[i] & -(n >> 0 & 1))", True),
        ("a[i] & -(n >> 3 & 2)", False),
        ("a[i] & -(a[i] >> 3 & 1)", False),
        ("a[i] & (n >> 3 & 1)", False),
        ("a[i] & 1", False),
    ],
)
def test_shape(text, bitwise):
    tree = lane.parse("x", text, ["a", "b", "m", "n"])
    assert lane.is_bitwise(tree) is bitwise


@pytest.mark.parametrize("step", quick([7], of=[7, 1]))
def test_any_function_of_three_bits(step):
    """`ternarylogic` in the linear domain stays a gate, for every immediate."""
    instr = load.load("avx512")["ternarylogic.u8x64"]
    planes = [[BitField(table, 0, 0, 255)] * 64 for table in (0b11110000, 0b11001100, 0b10101010)]
    for imm in instr.imms[::step]:
        want = {0: 0, 255: 255}.get(imm, BitField(imm, 0, 0, 255))
        assert set(map(repr, instr(LinearDomain(8), planes, imm))) == {repr(want)}


def test_a_computed_table_is_computed_as_far_as_it_is_needed():
    """A field that wraps around has no linear meaning; one that does not is that field, shifted."""
    instr = load.load("avx512")["multishift.u8x64"]
    word = BitField(0b10, 0, 0, (1 << 64) - 1)
    shifted = instr(LinearDomain(2), [[n % 57 for n in range(64)], [word] * 8])
    assert [(x.mask, x.position) for x in shifted] == [(255, n % 57) for n in range(64)]
    with pytest.raises(Inexact):
        instr(LinearDomain(2), [[57] * 64, [word] * 8])


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("a[i] & ~b[i]", 0b0010),
        ("a[i] ^ b[i]", 0b0110),
        ("~a[i]", 0b0101),
        ("a[i] & -(n >> 1 & 1) | b[i] & -(n >> 0 & 1)", 0b1010),
        ("a[i] + b[i]", None),
        ("a[i] & 15", None),
        ("a[i - 1] & b[i]", None),
    ],
)
def test_functions_of_bits(text, table):
    tree = lane.parse("x", text, ["a", "b", "n"])
    assert lane.truth_table(tree, ["a", "b"], {"n": 2}) == table


def test_widths_are_kept():
    x = Bits(ConcreteDomain(), 8, np.array([0x80], dtype=np.uint64))
    assert [int(y.v[0]) for y in (zext(x, 8), zext(x, 64), sext(x, 16), trunc(x, 8))] == [0x80, 0x80, 0xFF80, 0x80]
    assert indices(2, 4) == range(2, 4)
