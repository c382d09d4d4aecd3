"""Memory of a call whose sizes are not known: buffers, constants of the object and the stack, at unknown addresses."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

from bitsynth.kernel.program import Kernel
from bitsynth.objects.affine import FRAME, STACK_BASE, AffineNumber, BaseAddress, GeneralNumber, array_part, number
from bitsynth.objects.elf import ObjectFile, ObjectPart
from bitsynth.objects.facts import LinearFacts, is_at_most
from bitsynth.objects.memory import STACK, CallMemory, MemoryPlace, NotShown
from bitsynth.objects.values import Byte, Content

_POINTER = 8
"""Bytes of an address in memory."""
_STACK, _FRAME = -(1 << 40), -(1 << 41)
"""Numbers that stand for the base of the stack, and for the base of an aligned frame, in `AffineMemory.written`.

Sections have addresses of 0 and above.
"""


@dataclass(frozen=True)
class Access:
    """Bytes of a buffer that an instruction reads or writes: they must end at `limit`, and not begin below 0."""

    at: int
    array: Hashable
    first: AffineNumber
    size: int
    limit: AffineNumber


AccessedBytes = dict[tuple[Hashable, AffineNumber, int, int], Access]
"""Accesses to buffers, by buffer, first byte without and with its known part, and size."""


@dataclass
class AffineMemory(CallMemory):
    """Memory on one path.

    Constants, the stack and an aligned frame of it lie at distances from their bases; numbers stand for these bases.
    Stack that lies before a frame is not used while there is one, nor is what lies behind the frame's base. So no byte
    that is written has a distance from both bases.

        stack - 8: return,  stack - 16: rbp,  frame = (stack - 16) & -32,  frame - 32: an accumulator

    Attributes:
        file: The object whose constants these are.
        frame: The base of the frame that the stack pointer is in; None if it is at a distance from the stack's base.
        names: The name of the first part of an array that begins where a part does, by the part's own name.
        parts_of: Where parts of an array begin that have names, by array.
        stack_bytes: Where the stack begins and ends, as distances from its base.
        kernel: The kernel whose buffers these are.
        row_terms: Whether the kernel reads `h`; if not, a caller may pass any address.
        facts: The facts that hold on the path.
        tile: The tile that may be written.
        has_tile: Whether the result holds that tile from the start of the path.
        result: The bytes of the tile that were written, by row and number.
        accesses: Accesses to buffers, to be compared with the buffers' sizes.
    """

    file: ObjectFile | None = None
    kernel: Kernel | None = None
    row_terms: bool = True
    facts: LinearFacts = field(default_factory=LinearFacts)
    tile: AffineNumber = field(default_factory=lambda: number(0))
    has_tile: bool = False
    result: dict[tuple[int, int], Byte] = field(default_factory=dict)
    accesses: AccessedBytes = field(default_factory=dict)
    names: dict[Hashable, Hashable] = field(default_factory=dict)
    parts_of: dict[Hashable, list[AffineNumber]] = field(default_factory=dict)
    frame: BaseAddress | None = None
    stack_bytes: tuple[int, int] = (0, 0)

    def begin(self, facts: LinearFacts) -> None:
        """Forget all that was read and written, at the start of a path."""
        self.facts = facts
        self.written.clear()
        self.result.clear()
        self.accesses = {}
        self.names.clear()
        self.parts_of.clear()

    @cached_property
    def _parts(self) -> dict[BaseAddress, ObjectPart]:
        return {part.base: part for part in self.file.parts} if self.file else {}

    def add_stack(self, top: GeneralNumber, size: int) -> None:
        """Add `size` bytes of stack below `top` for a call."""
        end = (number(top) - AffineNumber.of_unknown(STACK_BASE)).number
        self.stack_bytes = end - size, end
        self.arrays.append(MemoryPlace(STACK, _FRAME - size, _STACK + end - _FRAME + size, writable=True))
        self.stack_from = _FRAME - size
        self.frame = None

    def keep_stack(self, address: GeneralNumber) -> None:
        """Forget what was written to the stack below `address`, which is in a frame or at a distance from the base."""
        base, first = _place_of(number(address)) or (None, 0)
        if base == STACK_BASE:
            self.frame = None
            super().keep_stack(_STACK + first)
        elif base is not None and base.name == FRAME and self.frame in {None, base}:
            if self.frame is None:
                super().keep_stack(_STACK + base.offset)
                self.stack_from = _FRAME + first
            self.frame = base
            super().keep_stack(_FRAME + first)
        else:
            raise NotShown("the stack pointer is no distance from where the stack was")

    def _find_known_place(self, address: AffineNumber, size: int) -> int | None:
        """Return what stands for an address of the stack or of a constant; None if it is none."""
        base, first = _place_of(address) or (None, 0)
        if base is None:
            return None
        begin, end = self.stack_bytes
        if base == STACK_BASE:
            low, high, origin = self.frame.offset if self.frame else begin, end, _STACK
        elif base == self.frame:
            # The frame's base is up to `alignment` - 1 bytes before its offset, and the whole stack may be used.
            low, high, origin = begin - base.offset + base.alignment - 1, 0, _FRAME
        elif base in self._parts:
            part = self._parts[base]
            low, high, origin = part.start - part.origin, part.end - part.origin, part.origin
        else:
            raise NotShown(f"{size} bytes at {address}, which is no place of the stack or the object")
        if not low <= first <= high - size:
            raise NotShown(f"{size} bytes at {address} that belong to no buffer")
        place = origin + first
        if self.file and self.file.distances and any(place + k in self.file.distances for k in range(size)):
            raise NotShown("constants hold a distance between parts of the object")
        return place

    def load(self, address: GeneralNumber | Content, size: int) -> Content:
        """Return the content of memory; NotShown if it is no whole part of a buffer, or has no value."""
        if isinstance(address, Content):
            return self.load_data(address, size)
        if isinstance(address, int):
            raise NotShown(f"{size} bytes are read at {address:#x}, a number in the code")
        place = self._find_known_place(address, size)
        if place is not None and place < 0 and any(place + k not in self.written for k in range(size)):
            raise NotShown(f"{size} bytes at {address} are read before they are written")
        return super().load(address if place is None else place, size)

    def store(self, address: GeneralNumber | Content, content: Content) -> None:
        """Write to the stack or to the tile; NotShown if it is another place."""
        if isinstance(address, Content):
            raise NotShown("an address that is written to depends on data")
        if isinstance(address, int):
            raise NotShown(f"{len(content)} bytes are written at {address:#x}, a number in the code")
        place = self._find_known_place(address, len(content))
        super().store(address if place is None else place, content)

    def load_affine(self, address: AffineNumber, size: int) -> Content:
        """Return the content of a part of a buffer."""
        array, first = self._find_base(address)
        if array == "c":
            return self._from_tile(first, size)
        self._note(array, first, size)
        if array == "a":
            return self._pointer(first, size)
        return self.values.memory(*self.part(array, first), size)

    def part(self, array: Hashable, first: GeneralNumber) -> tuple[Hashable, int]:
        """Return the name of a part of an array and the number of a byte in it, for byte `first` of the array.

        Parts whose beginnings are equal by the facts have one name, the name of the first of them.
        """
        name, place = array_part(array, first)
        if isinstance(first, int) or not first.terms:
            return name, place
        if name not in self.names:
            same = (x for x in self.parts_of.get(array, ()) if self.facts.equal(x, first.variable))
            start = next(same, None)
            if start is None:
                start = first.variable
                self.parts_of.setdefault(array, []).append(start)
            self.names[name] = array, start
        return self.names[name], place

    def store_affine(self, address: AffineNumber, content: Content) -> None:
        """Write to the tile."""
        array, first = self._find_base(address)
        if array != "c":
            raise NotShown(f"{len(content)} bytes of {array} are written")
        row, place = self._tile_place(first, len(content))
        for k, byte in enumerate(content.data):
            self.result[row, place + k] = byte

    def _find_base(self, address: AffineNumber) -> tuple[Hashable, AffineNumber]:
        """Return the buffer that an address belongs to, and the distance from its start."""
        bases = [key for key, _ in address.terms if _is_base(key)]
        times = dict(address.terms)
        if len(bases) != 1 or times[bases[0]] != 1:
            raise NotShown(f"{address} is no address of a buffer")
        base = bases[0]
        return (base.removeprefix("&") if isinstance(base, str) else base), address - AffineNumber.of_unknown(base)

    def _note(self, array: Hashable, first: AffineNumber, size: int) -> None:
        kernel, of = self.kernel, AffineNumber.of_unknown
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
        return self.values.memory(AffineNumber.of_unknown(("row", row, whole)), 0, _POINTER)

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
        self.accesses.setdefault(key, Access(self.at, "c", self.tile, 1, AffineNumber.of_unknown("tiles")))

    def _from_tile(self, first: AffineNumber, size: int) -> Content:
        row, place = self._tile_place(first, size)
        if all((row, place + k) not in self.result for k in range(size)) and self.has_tile:
            return self.values.memory(("c", row), place, size)
        data = [self.result.get((row, place + k)) for k in range(size)]
        if None in data:
            raise NotShown("bytes of the result are read before they are written")
        return self.values.content([x for x in data if x is not None])

    def check_accesses(self, accesses: AccessedBytes, facts: LinearFacts) -> None:
        """Raise NotShown unless all that was read and written on a path lies inside its buffer."""
        spans: dict[tuple[Hashable, AffineNumber], tuple[Access, Access]] = {}
        for access in accesses.values():
            key = access.array, access.first.variable
            low, high = spans.get(key, (access, access))
            low = min(low, access, key=lambda x: x.first.number)
            spans[key] = low, max(high, access, key=lambda x: x.first.number + x.size)
        fits = {is_at_most(0, low.first): low for low, _ in spans.values()}
        fits |= {is_at_most(high.first, high.limit, less=high.size): high for _, high in spans.values()}
        implied = facts.find_implied(fits)
        if wrong := [access for fact, access in fits.items() if fact not in implied]:
            access = wrong[0]
            self.at = access.at
            raise NotShown(f"{access.size} bytes of {access.array} + {access.first} may lie outside of it")


def _place_of(address: AffineNumber) -> tuple[BaseAddress, int] | None:
    """Return the base of a place of the stack or the object, and the distance from it; None if it is none."""
    if len(address.terms) == 1:
        ((key, times),) = address.terms
        if isinstance(key, BaseAddress) and times == 1:
            return key, address.number
    return None


def _is_base(key: Hashable) -> bool:
    return key in {"&w", "&g", "&h", "&c", "&a"} or (isinstance(key, tuple) and key[0] == "row")
