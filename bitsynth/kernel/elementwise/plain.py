"""Elementwise specs that plain C computes, where no program of instructions is proved."""

from __future__ import annotations

import msgspec

from bitsynth.kernel.elementwise.constants import UnitConstants
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.spec.elementwise import WORD_BITS, ElementwiseSpec

LEAST_UNIT = 16


class PlainProgram(UnitConstants, msgspec.Struct, frozen=True):
    """The meaning of `spec`, element by element in the order of channels, `unit` of them at a time.

    Any whole number of eights will do: compilers take a unit to vector registers at once. Words want 64.
    """

    spec: ElementwiseSpec
    unit: int

    @classmethod
    def of(cls, spec: ElementwiseSpec, vector_bytes: int, channels: int) -> PlainProgram:
        """Return the program whose results fill registers of that many bytes, at least half of the channels in use."""
        unit = max(LEAST_UNIT, min(vector_bytes, 1 << (channels - 1).bit_length()))
        return cls(spec, WORD_BITS if spec.planes else unit)

    @property
    def name(self) -> str:
        """The name of the program."""
        return f"{self.spec.name}_plain"


EpilogueProgram = ElementwiseProgram | PlainProgram
"""What makes results of an epilogue."""
