"""Operands for integers of edges and for weights: the encodings that hold them, the narrowest first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bitsynth.graph.types import Integers, Tensor
from bitsynth.spec.matmul import MAX_BITS, Encoding, MatmulOperand

_PREFERRED = (Encoding.BIPOLAR, Encoding.TERNARY, Encoding.UNSIGNED, Encoding.NARROW, Encoding.SIGNED)
"""Encodings of as many bits, in the order in which they are tried."""
_OPERANDS = tuple(
    MatmulOperand(bits, encoding)
    for bits in range(1, MAX_BITS + 1)
    for encoding in _PREFERRED
    if bits in encoding.widths
)


def activations(kind: Integers) -> Iterator[MatmulOperand]:
    """Yield operands that hold integers: of their own bits and encoding first, then of as many bits or more."""
    if kind.bits > MAX_BITS:  # No encoding of fewer bits holds them.
        return
    first = MatmulOperand(kind.bits, kind.encoding) if kind.bits in _widths(kind) else None
    if first and _holds(first, kind.least, kind.most, kind.step):
        yield first
    for operand in _OPERANDS:
        if operand != first and _holds(operand, kind.least, kind.most, kind.step):
            yield operand


def weights(values: Tensor, act_bits: int) -> Iterator[MatmulOperand]:
    """Return operands that hold all values of an array, the narrowest first, next to activations of `act_bits` bits.

    Among operands of one width signed ones are first where one side has 8 bits, as they need no sums of rows there.
    Operands with a zero point are last.
    """
    least, most = int(values.min()), int(values.max())
    step = 2 if bool((np.abs(values) % 2 == 1).all()) else 1
    fitting = [operand for operand in _OPERANDS if _holds(operand, least, most, step)]
    if least < 0:
        widths = range((most - least).bit_length(), MAX_BITS + 1)
        zeros = ((bits, -least) for bits in widths if -least < 1 << bits)
        # Unsigned codes less half of them all are signed ones.
        fitting += [MatmulOperand(bits, Encoding.UNSIGNED, zero) for bits, zero in zeros if zero != 1 << (bits - 1)]

    def rank(operand: MatmulOperand) -> tuple[int, int, bool]:
        needs_row_sums = MAX_BITS in (operand.bits, act_bits) and operand.encoding is not Encoding.SIGNED
        return operand.bits, operand.zero, needs_row_sums

    return iter(sorted(fitting, key=rank))


def _widths(kind: Integers) -> range:
    widths = kind.encoding.widths
    return range(widths.start, min(widths.stop, MAX_BITS + 1))


def _holds(operand: MatmulOperand, least: int, most: int, step: int) -> bool:
    """Return whether codes stand for the integers from `least` to `most`, every `step`-th."""
    if step % operand.scale or (least - operand.offset) % operand.scale:
        return False
    return operand.value(0) <= least and most <= operand.value(operand.codes[-1])
