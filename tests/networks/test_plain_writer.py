"""The writer of loops: constants of real numbers."""

from fractions import Fraction

import numpy as np

from bitsynth.network.plain.loops import ConstantArrays, Loops
from bitsynth.network.plain.writer import Writer


def test_a_real_constant_without_axes_is_a_number_and_its_rest():
    writer = Writer(Loops((), ConstantArrays()), exact=True, paired=True)
    result = writer.hold(writer.constant(np.asarray(Fraction(1, 10), object)))
    number, rest = (float.fromhex(text.strip("()")) for text in (result.code, result.rest))
    assert number == 0.1
    assert rest == float(Fraction(1, 10) - Fraction(0.1))


def test_what_is_made_of_real_constants_alone_is_rounded_as_real_numbers():
    writer = Writer(Loops((), ConstantArrays()), exact=True)
    halves = writer.constant(np.array([Fraction(5, 2), Fraction(-7, 2), Fraction(1, 3)]))
    for name, want in (("rint", [2, -4, 0]), ("floor", [2, -4, 0]), ("ceil", [3, -3, 1])):
        assert writer.operate(name, halves).value.tolist() == want
