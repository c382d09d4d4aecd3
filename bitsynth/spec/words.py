"""Functions of packed words, a word for each plane of 64 codes, that are computed without unpacking."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bitsynth.isa import lane
from bitsynth.isa.bits import Bits
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.glue import greatest
from bitsynth.spec.matmul import MAX_BITS


class WordsSpec(msgspec.Struct, frozen=True):
    """A function of two operands of `planes` planes, a[k] and b[k]; `meaning` is plane i of the result.

    At every place of the words that is what `of_codes` says of the two codes there, as `discharge_words` of
    `proof/elementwise/discharge.py` shows.
    """

    name: str
    planes: int
    meaning: str
    of_codes: ElementwiseSpec

    def values(self, a: Sequence[Bits], b: Sequence[Bits]) -> list[Bits]:
        """Return the planes of the result."""
        tree = lane.parse(self.name, self.meaning, "ab")
        return lane.compile_lanes(tree, self.planes, ["a", "b"])(tuple(a), tuple(b))


def every() -> tuple[WordsSpec, ...]:
    """Return the specs of words, by their planes."""
    return tuple(greatest_words(planes) for planes in range(1, MAX_BITS + 1))


def greatest_words(planes: int) -> WordsSpec:
    """Return the greater of two codes: a, if it has the 1 in the highest plane in which they differ, else b."""
    above = "a[0] & ~b[0]"
    for k in range(1, planes):
        above = f"a[{k}] & ~b[{k}] | ~(a[{k}] ^ b[{k}]) & ({above})"
    return WordsSpec(f"greatest_words{planes}", planes, f"b[i] ^ (a[i] ^ b[i]) & ({above})", greatest())
