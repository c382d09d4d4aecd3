"""The memory that compiled code may touch: arrays of the C interface, constants of the object, and its stack.

Addresses are numbers. Arrays are read only and hold unknown bytes, or pointers; the result and the stack are written,
and only what was written is read. Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from bitsynth.errors import BitsynthError
from bitsynth.objects.affine import AffineNumber, GeneralNumber
from bitsynth.objects.values import Byte, Content, Contents

STACK = "stack"
"""The name of the array that is the stack."""


class NotShown(BitsynthError):
    """Machine code is not shown to be right: it is wrong, or it is not understood."""


class OutOfPlace(NotShown):
    """Memory is read, written or copied as the C interface does not allow, or a result is not written."""


@dataclass(frozen=True)
class MemoryPlace:
    """`size` bytes at an address: unknown bytes called `name`, or `known` ones.

    Bytes that are `writable` have no values before they are written.
    """

    name: Hashable
    start: int
    size: int
    known: bytes | None = None
    writable: bool = False


@dataclass
class CallMemory:
    """Arrays of distinct places, and the bytes that were written.

    Attributes:
        at: The address of the instruction that runs.
        stack_from: Stack below this address has no value: the handler of a signal may write there at any time.
        of_object: Addresses of the object. A read of bytes there that are no constant is not understood: it may be
            right.
    """

    values: Contents
    arrays: list[MemoryPlace] = field(default_factory=list)
    written: dict[int, Byte] = field(default_factory=dict)
    at: int = 0
    stored_at: dict[int, int] = field(default_factory=dict)
    stack_from: int = 0
    of_object: Sequence[range] = ()
    _unwritten: Iterator[int] = field(default_factory=count)

    def begin_call(self, arrays: list[MemoryPlace]) -> None:
        """Take these arrays for a call, in which nothing is written yet."""
        self.arrays = arrays
        self.written.clear()
        self.stored_at.clear()

    def add_stack(self, top: GeneralNumber, size: int) -> None:
        """Add `size` bytes of stack below `top` for a call."""
        assert isinstance(top, int)
        self.arrays.append(MemoryPlace(STACK, top - size, size, writable=True))
        self.stack_from = top - size

    def keep_stack(self, address: GeneralNumber) -> None:
        """Forget the bytes that were written to the stack below `address`."""
        assert isinstance(address, int)
        count = address - self.stack_from
        if 0 < count < len(self.written):
            for gone in range(self.stack_from, address):
                self.written.pop(gone, None)
        elif count > 0:
            for gone in [x for x in self.written if self.stack_from <= x < address]:
                del self.written[gone]
        self.stack_from = address

    def load(self, address: GeneralNumber | Content, size: int) -> Content:
        """Return the content of memory; NotShown if it is no whole part of an array, or has no value."""
        if isinstance(address, Content):
            return self.load_data(address, size)
        if not isinstance(address, int):
            return self.load_affine(address, size)
        array = self._array(address, size, "read")
        first = address - array.start
        if array.writable:
            data = [self.written.get(address + k) for k in range(size)]
            if None in data:
                data = self.unwritten(array, address, size)
            return self.values.content([x for x in data if x is not None])
        if array.known is not None:
            return self.values.content(tuple(array.known[first : first + size]))
        return self.values.memory(array.name, first, size)

    def load_any(self, address: GeneralNumber, size: int) -> Content:
        """Return the content of memory as `load` does; of the stack it is unknown where it was not written."""
        on_stack = isinstance(address, int) and self._array(address, size, "read").name == STACK
        if on_stack and any(address + k not in self.written for k in range(size)):
            return self.values.memory(("no value", next(self._unwritten)), 0, size)
        return self.load(address, size)

    def unwritten(self, array: MemoryPlace, address: int, size: int) -> list[Byte | None]:
        """Return bytes of an array, some of which were not written."""
        kind = NotShown if array.name == STACK else OutOfPlace
        raise kind(f"{size} bytes of {array.name} + {address - array.start} are read before they are written")

    def load_data(self, address: Content, size: int) -> Content:
        """Return the content of memory at an address that depends on data."""
        raise NotShown("an address depends on data")

    def load_affine(self, address: AffineNumber, size: int) -> Content:
        """Return the content of memory at an address that is not known."""
        raise NotShown(f"{size} bytes are read at an address that is not known")

    def store_affine(self, address: AffineNumber, content: Content) -> None:
        """Write to memory at an address that is not known."""
        raise NotShown(f"{len(content)} bytes are written at an address that is not known")

    def store(self, address: GeneralNumber | Content, content: Content) -> None:
        """Write `content` to memory; NotShown if it leaves the arrays that may be written."""
        if isinstance(address, Content):
            raise NotShown("an address that is written to depends on data")
        if not isinstance(address, int):
            self.store_affine(address, content)
            return
        array = self._array(address, len(content), "written")
        if not array.writable:
            raise OutOfPlace(f"{len(content)} bytes of {array.name} + {address - array.start} are written")
        for k, byte in enumerate(content.data):
            self.written[address + k] = byte
            self.stored_at[address + k] = self.at

    def bytes_at(self, address: int, size: int) -> list[Byte | None]:
        """Return bytes of memory, None for those without a value; OutOfPlace if they are in no array."""
        if not size:
            return []
        array = self._array(address, size, "read")
        first = address - array.start
        if array.writable:
            return [self.written.get(at) for at in range(address, address + size)]
        if array.known is not None:
            return list(array.known[first : first + size])
        return [(array.name, first + k) for k in range(size)]

    def set_bytes(self, address: int, data: Sequence[Byte | None]) -> None:
        """Write bytes, with or without a value; OutOfPlace if they leave the arrays that may be written."""
        if not data:
            return
        array = self._array(address, len(data), "written")
        if not array.writable:
            raise OutOfPlace(f"{len(data)} bytes of {array.name} + {address - array.start} are written")
        for at, byte in enumerate(data, address):
            if byte is None:
                self.written.pop(at, None)
            else:
                self.written[at] = byte
            self.stored_at[at] = self.at

    def require_within(self, *counts: int) -> None:
        """Raise OutOfPlace if a count is above the bytes of all arrays: callers make lists of that length next."""
        most = sum(array.size for array in self.arrays)
        if (largest := max(counts, default=0)) > most:
            raise OutOfPlace(f"a call has a count of {largest}, and all arrays together have {most} bytes")

    def _array(self, address: int, size: int, access: str) -> MemoryPlace:
        for k, array in enumerate(self.arrays):
            if array.start <= address and address + size <= array.start + array.size:
                if k > 4:  # The array that is read now is likely to be read next.
                    self.arrays.insert(0, self.arrays.pop(k))
                if array.name == STACK and address < self.stack_from:
                    below = f"{self.stack_from - address} bytes below what a signal leaves of the stack"
                    raise OutOfPlace(f"{size} bytes are {access}, {below}")
                return array
        if access == "read" and any(address in part for part in self.of_object):
            raise NotShown(f"{size} bytes of the object are read that are no constants")
        near = [x for x in self.arrays if x.start - 4096 <= address < x.start + x.size + 4096]
        where = f", {address - near[0].start} bytes from the start of {near[0].name}" if near else ""
        raise OutOfPlace(f"{size} bytes that belong to no buffer are {access}{where}")
