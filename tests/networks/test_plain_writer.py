"""The writer of loops: constants of real numbers."""

from fractions import Fraction

import numpy as np

from bitsynth.network.plain.loops import ConstantArrays, Loops
from bitsynth.network.plain.writer import Writer


def test_a_real_constant_without_axes_is_a_number_and_its_rest():
    writer = Writer(Loops((), ConstantArrays()), exact=True, paired=True)
    made = writer.held(writer.constant(np.asarray(Fraction(1, 10), object)))
    number, rest = (float.fromhex(text.strip("()")) for text in (made.code, made.rest))
    assert number == 0.1
    assert rest == float(Fraction(1, 10) - Fraction(0.1))
