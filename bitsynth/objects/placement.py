"""Where the object, the buffers and the stack of a call lie: at random addresses, and at their complements."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bitsynth.objects.declared import MachineTable
from bitsynth.objects.elf import PAGE, ObjectFile, read_object

RANDOM = secrets.SystemRandom()
"""Draws addresses, which nobody may know when an object is written."""
_USER_BITS, _REGION_BITS, _SPAN_BITS = 47, 42, 40
"""Bits of a process's addresses, of addresses in a region, which has one buffer, and in a quarter of a region."""
_ROWS_APART = 1 << 24
"""The bytes from a row of `a` to the next, about; rows have less than a half of it."""
_PLACES = {"back": 1, "stack": 16}
"""Alignments of what each call has: where the function returns to, and the stack, by the ABI."""


@dataclass(frozen=True)
class MemoryLayout:
    """Where things lie in memory: at random `places`, in regions that are distinct, with the bits `flipped`.

    A call runs in two layouts, in which each bit of an address above the alignment that is promised differs. So code
    that depends on one of these bits, such as an instruction that needs more alignment, is right in at most one of the
    two.

        a place, aligned to 8:    0x05a3_9c10_7d48 in the first layout, 0x7a5c_63ef_82b0 in the second
    """

    places: Mapping[str, int]
    aligned: Mapping[str, int]
    flipped: int

    def start(self, name: str) -> int:
        """Return the address of a buffer, or that which the function returns to."""
        return (self.places[name] ^ self.flipped) & -self.aligned[name]

    def row(self, k: int) -> int:
        """Return the address of row `k` of `a`: rows are `_ROWS_APART` bytes from each other, give or take a half."""
        # An odd number times these has each value of each bit, so rows have each residue beyond their alignment.
        apart: int = ((self.places["rows"] | 1) * (k * k + 1) >> 7) % (_ROWS_APART // 2)
        place = (self.places["rows"] & -(1 << _SPAN_BITS)) + k * _ROWS_APART + apart
        return (place ^ self.flipped) & -self.aligned["rows"]


def _place(region: int) -> int:
    """Return a random address of a region, not near to its ends, nor is its complement."""
    half: int = RANDOM.choice((1, 2))
    return region << _REGION_BITS | half << _SPAN_BITS | RANDOM.getrandbits(_SPAN_BITS)


def layouts_of(loaded: int, aligned: Mapping[str, int]) -> tuple[MemoryLayout, MemoryLayout]:
    """Return two layouts of an object that is loaded at `loaded` in the first, and at its complement in the second.

    They have the places that are named in `aligned`, a stack, and an address to return to.
    """
    aligned = {**_PLACES, **aligned}
    regions = [k for k in range(1 << _USER_BITS - _REGION_BITS) if k != loaded >> _REGION_BITS]
    places = {name: _place(k) for name, k in zip(aligned, RANDOM.sample(regions, len(aligned)), strict=True)}
    return MemoryLayout(places, aligned, 0), MemoryLayout(places, aligned, (1 << _USER_BITS) - 1)


def random_start() -> int:
    """Return a random address of an object, in the first of two layouts."""
    return _place(RANDOM.randrange(1 << _USER_BITS - _REGION_BITS))


def two_files(path: Path, table: MachineTable, loaded: int) -> list[ObjectFile]:
    """Return the object loaded at `loaded`, and at its complement."""
    bases = [at & -PAGE for at in (loaded, loaded ^ (1 << _USER_BITS) - 1)]
    return [read_object(path, table, at, even=k > 0) for k, at in enumerate(bases)]
