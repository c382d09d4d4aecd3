"""Memory of a call whose sizes are not known: buffers at unknown addresses, and the stack at a known one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from bitsynth.kernel.program import Kernel
from bitsynth.objects.affine import AffineNumber, array_part, number
from bitsynth.objects.facts import LinearFacts
from bitsynth.objects.memory import CallMemory, NotShown
from bitsynth.objects.values import Byte, Content

_POINTER = 8
"""Bytes of an address in memory."""


@dataclass(frozen=True)
class Access:
    """Bytes of a buffer that an instruction reads or writes: they must end at `limit`, and not begin below 0."""

    at: int
    array: Hashable
    first: AffineNumber
    size: int
    limit: AffineNumber


@dataclass
class AffineMemory(CallMemory):
    """Memory on one path.

    Attributes:
        kernel: The kernel whose buffers these are.
        row_terms: Whether the kernel reads `h`; if not, a caller may pass any address.
        facts: What is known on the path.
        tile: The tile that may be written.
        has_tile: Whether the result holds that tile from the start of the path.
        result: The bytes of the tile that were written, by row and number.
        accesses: What was read and written of buffers, to be compared with their sizes.
    """

    kernel: Kernel | None = None
    row_terms: bool = True
    facts: LinearFacts = field(default_factory=LinearFacts)
    tile: AffineNumber = field(default_factory=lambda: number(0))
    has_tile: bool = False
    result: dict[tuple[int, int], Byte] = field(default_factory=dict)
    accesses: dict[tuple[Hashable, AffineNumber, int, int], Access] = field(default_factory=dict)

    def begin(self, facts: LinearFacts) -> None:
        """Forget all that was read and written, at the start of a path."""
        self.facts = facts
        self.written.clear()
        self.result.clear()
        self.accesses.clear()

    def load_affine(self, address: AffineNumber, size: int) -> Content:
        """Return the content of a part of a buffer."""
        array, first = self._based(address)
        if array == "c":
            return self._from_tile(first, size)
        self._note(array, first, size)
        if array == "a":
            return self._pointer(first, size)
        return self.values.memory(*array_part(array, first), size)

    def store_affine(self, address: AffineNumber, content: Content) -> None:
        """Write to the tile."""
        array, first = self._based(address)
        if array != "c":
            raise NotShown(f"{len(content)} bytes of {array} are written")
        row, place = self._tile_place(first, len(content))
        for k, byte in enumerate(content.data):
            self.result[row, place + k] = byte

    def _based(self, address: AffineNumber) -> tuple[Hashable, AffineNumber]:
        """Return the buffer that an address belongs to, and the distance from its start."""
        bases = [key for key, _ in address.terms if _is_base(key)]
        times = dict(address.terms)
        if len(bases) != 1 or times[bases[0]] != 1:
            raise NotShown(f"{address} is no address of a buffer")
        base = bases[0]
        return (base.removeprefix("&") if isinstance(base, str) else base), address - AffineNumber.unknown(base)

    def _note(self, array: Hashable, first: AffineNumber, size: int) -> None:
        kernel, of = self.kernel, AffineNumber.unknown
        assert kernel is not None
        limits = {
            "w": of("every_step") * (kernel.columns * kernel.column_bytes),
            "g": of("tiles") * (4 * kernel.columns),
            "h": number(4 * kernel.rows * self.row_terms),
            "a": of("segments") * (8 * kernel.rows),
        }
        limit = limits[array] if isinstance(array, str) else of("steps") * kernel.row_bytes
        self.accesses.setdefault(
            (array, first.variable, first.number, size), Access(self.at, array, first, size, limit)
        )

    def _pointer(self, first: AffineNumber, size: int) -> Content:
        """Return the address of a row of a segment, which the buffer `a` has."""
        assert self.kernel is not None
        rows = self.kernel.rows
        place, rest = divmod(first.number, _POINTER)
        if size != _POINTER or rest or any(times % (_POINTER * rows) for _, times in first.terms):
            raise NotShown("a part of an address of a row is read")
        segment, row = divmod(place, rows)
        whole = AffineNumber(segment, {key: times // (_POINTER * rows) for key, times in first.terms})
        return self.values.memory(AffineNumber.unknown(("row", row, whole)), 0, _POINTER)

    def _tile_place(self, first: AffineNumber, size: int) -> tuple[int, int]:
        """Return the row of the tile, and the byte of it, that are `first` bytes from the start of the result."""
        assert self.kernel is not None
        width = 4 * self.kernel.columns
        self._access_tile()
        rest = first - self.tile * width
        row, part = divmod(dict(rest.terms).get("ldc", 0), 4)
        place = rest - AffineNumber(0, {"ldc": 4 * row})
        inside = not place.terms and 0 <= place.number and place.number + size <= width
        if part or not 0 <= row < self.kernel.rows or not inside:
            raise NotShown(f"{size} bytes that are none of this tile: {first} bytes from the start of the result")
        return row, place.number

    def _access_tile(self) -> None:
        key = ("c", self.tile, 0, 1)
        self.accesses.setdefault(key, Access(self.at, "c", self.tile, 1, AffineNumber.unknown("tiles")))

    def _from_tile(self, first: AffineNumber, size: int) -> Content:
        row, place = self._tile_place(first, size)
        if all((row, place + k) not in self.result for k in range(size)) and self.has_tile:
            return self.values.memory(("c", row), place, size)
        data = [self.result.get((row, place + k)) for k in range(size)]
        if None in data:
            raise NotShown("bytes of the result are read before they are written")
        return self.values.content([x for x in data if x is not None])

    def check_accesses(self) -> None:
        """Raise NotShown unless all that was read and written lies inside its buffer."""
        spans: dict[tuple[Hashable, AffineNumber], tuple[Access, Access]] = {}
        for access in self.accesses.values():
            key = access.array, access.first.variable
            low, high = spans.get(key, (access, access))
            low = min(low, access, key=lambda x: x.first.number)
            spans[key] = low, max(high, access, key=lambda x: x.first.number + x.size)
        for low, high in spans.values():
            for access, fits in (
                (low, self.facts.at_most(0, low.first)),
                (high, self.facts.at_most(high.first + high.size, high.limit)),
            ):
                if not fits:
                    self.at = access.at
                    raise NotShown(f"{access.size} bytes of {access.array} + {access.first} may lie outside of it")


def _is_base(key: Hashable) -> bool:
    return key in {"&w", "&g", "&h", "&c", "&a"} or (isinstance(key, tuple) and key[0] == "row")
