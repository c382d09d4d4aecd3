"""Calls a library on an emulated machine, with every array between unmapped pages."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bitsynth.errors import ToolError
from bitsynth.run import arguments
from bitsynth.run.arguments import Array, CallArgument
from bitsynth.run.elf import Image

_BUFFERS = 6
"""The region of the first array; `Image.place` says where it is."""
_PAGE = max(4096, mmap.PAGESIZE)
_CANARY = b"\xa5"


Extent = tuple[int, int]
"""Memory: an address, and how many bytes."""


class Fault(Exception):
    """A fault of the emulated code: it did `what` at `address`."""

    def __init__(self, what: str, address: int) -> None:
        super().__init__(what, address)
        self.what, self.address = what, address


class Machine(Protocol):
    """A processor with memory. Addresses and sizes are multiples of a page."""

    description: str
    instructions: int | None

    def map(self, address: int, data: bytes | bytearray, access: str) -> None:
        """Map memory at `address` that holds `data`; `access` is made of r, w and x."""

    def unmap(self, address: int, size: int) -> None:
        """Unmap `size` bytes at `address`."""

    def call(self, function: int, words: Sequence[int], places: Sequence[Extent] = ()) -> tuple[int, list[bytes]]:
        """Call `function` with `words`; return its result register and the contents of `places`. Fault if it fails."""

    def close(self) -> None:
        """Free the machine."""


@dataclass
class _Buffer:
    """An array in a machine's memory: canaries, the bytes, canaries, an unmapped page."""

    index: int
    array: Array
    first: int
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.array.nbytes

    def memory(self) -> bytes:
        before = _CANARY * (self.start - self.first)
        return (before + self.array.tobytes()).ljust(self.size, _CANARY)

    def take(self, memory: bytes) -> None:
        """Copy the bytes back, if none before or after them changed."""
        low, high = self.start - self.first, self.end - self.first
        for where, text in (("before", memory[:low]), ("after", memory[high:])):
            if text.strip(_CANARY):
                raise ToolError(f"wrote {where} {self}")
        self.array[...] = np.frombuffer(memory[low:high], self.array.dtype).reshape(self.array.shape)

    def __str__(self) -> str:
        return f"argument {self.index}, {arguments.describe(self.array)}, {self.array.nbytes} bytes"


class EmulatedRunner:
    """A runner that calls functions of an image on the machine that `make` gives."""

    def __init__(self, image: Image, make: Callable[[], Machine], align: int) -> None:
        self._image, self._make, self._align = image, make, align
        self._machine: Machine | None = None
        self.description = self._ready().description
        self.instructions: int | None = None
        self.in_process = False

    def call(self, symbol: str, *args: object, bits: int | None = None) -> int:
        """Call `symbol` on the machine, as `Runner.call` does; ToolError for a fault or a write outside of an array."""
        word = self._image.bits
        values = arguments.check(symbol, args, word)
        function = self._image.address(symbol)
        buffers = _place(symbol, values, self._image.place(_BUFFERS), self._align)
        machine = self._ready()
        try:
            result = self._call(machine, function, values, buffers)
        except Fault as fault:
            self.close()
            raise ToolError(f"{symbol} {_explain(fault, buffers)}") from None
        except ToolError as error:
            self.close()
            raise ToolError(f"{symbol}: {error}") from None
        except BaseException:
            self.close()
            raise
        return arguments.to_signed(result, bits or word)

    def bind(self, symbol: str, *args: object) -> Callable[[], int]:
        """Return the call of `symbol` with these arguments, as `Runner.bind` says."""
        return lambda: self.call(symbol, *args, bits=32)

    def close(self) -> None:
        """Free the machine; the next call makes another."""
        if self._machine is not None:
            self._machine.close()
            self._machine = None

    def _ready(self) -> Machine:
        if self._machine is None:
            self._machine = self._make()
            for segment in self._image.segments:
                self._machine.map(segment.address, segment.data, segment.access)
        return self._machine

    def _call(
        self, machine: Machine, function: int, values: Sequence[CallArgument], buffers: dict[int, _Buffer]
    ) -> int:
        given = [b for b in buffers.values() if b.size]
        for b in given:
            machine.map(b.first, b.memory(), "rw" if b.array.flags.writeable else "r")
        words = [buffers[id(v)].start if isinstance(v, np.ndarray) else v for v in values]
        written = [b for b in given if b.array.flags.writeable]
        result, memories = machine.call(function, words, [(b.first, b.size) for b in written])
        self.instructions = machine.instructions
        for b, memory in zip(written, memories, strict=True):
            b.take(memory)
        for b in given:
            machine.unmap(b.first, b.size)
        return result


def _place(symbol: str, values: Sequence[CallArgument], first: int, align: int) -> dict[int, _Buffer]:
    """Return a place for every array, from address `first`; one that is passed twice has one place."""
    buffers: dict[int, _Buffer] = {}
    for index, value in enumerate(values):
        if not isinstance(value, np.ndarray) or id(value) in buffers:
            continue
        for other in buffers.values():
            if np.may_share_memory(value, other.array):
                raise ToolError(f"{symbol}: arguments {other.index} and {index} overlap; emulators copy each")
        size = -(-value.nbytes // _PAGE) * _PAGE
        start = (first + size - value.nbytes) & -align
        buffers[id(value)] = _Buffer(index, value, first, start, size)
        first += size + 16 * _PAGE
    return buffers


def _explain(fault: Fault, buffers: dict[int, _Buffer]) -> str:
    for b in buffers.values():
        if b.first - 8 * _PAGE <= fault.address < b.first + b.size + 8 * _PAGE:
            offset = fault.address - b.start
            return f"{fault.what} at offset {offset} of {b}"
    return f"{fault.what} at address {fault.address:#x}, in none of its arguments"
