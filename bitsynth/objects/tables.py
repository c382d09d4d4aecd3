"""Memory in which an address may depend on data: tables of constants that are read at codes.

An address that depends on data is a polynomial of its bits (`polynomials.py`). All its values are tried: each must lie
in constants of the object. The value that is read is then a function of these bits, given by a table.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from bitsynth.isa.domains.terms import TermPayload
from bitsynth.isa.instr import Operand
from bitsynth.isa.types import VecType
from bitsynth.objects.memory import STACK, CallMemory, MemoryPlace, NotShown
from bitsynth.objects.polynomials import BitPolynomial, BitPolynomials, all_values, bits_of
from bitsynth.objects.values import Byte, Content, Operation

_BYTE = VecType("u", 8, 1)


@dataclass(frozen=True)
class TableRead:
    """A form that reads tables[k][n] for each byte k of its result.

    The lowest bits of n are `bits`: the number of an operand, each of one byte, and of a bit in it.
    """

    bits: tuple[tuple[int, int], ...]
    tables: tuple[tuple[int, ...], ...]
    operands: tuple[Operand, ...]
    imm: None = None

    @property
    def out(self) -> VecType:
        """The type of the result: bytes."""
        return VecType("u", 8, len(self.tables))

    def __call__(self, domain: Any, args: Sequence[Sequence[TermPayload]], imm: int = 0) -> list[TermPayload]:
        """Return the bytes that are read."""
        chosen = [domain.cut(args[operand][0], 8, bit, bit + 1) for operand, bit in self.bits]
        index = domain.join(chosen, 1)
        return [domain.lookup(table, index, 8) for table in self.tables]


@dataclass
class TableMemory(CallMemory):
    """Memory of calls, of whose arrays some hold codes: bytes of `code_bits` bits by array, others of 8 bits.

    Terms and polynomials are kept, so an array of one name has codes of as many bits in all calls.
    """

    code_bits: dict[Hashable, int] = field(default_factory=dict)
    polynomials: BitPolynomials = field(default_factory=BitPolynomials)
    reads: dict[Hashable, TableRead] = field(default_factory=dict)
    stale: int = 0
    found: dict[Content, BitPolynomial] = field(default_factory=dict)
    payloads: dict[Operation, tuple[TermPayload, ...]] = field(default_factory=dict)

    def unknown_byte(self, of: Byte) -> TermPayload:
        """Return a byte of memory as a term: of a code the bits above it are 0."""
        assert not isinstance(of, int)
        domain, bits = self.values.domain, self.code_bits.get(of[0], 8)
        return domain.zext(domain.atom(of, bits), bits, 8)

    def payload_of(self, x: Content) -> TermPayload:
        """Return a content as a term of bytes of memory; terms of operations are kept."""
        data = self.values.evaluate_further(x, self.payloads, self.unknown_byte)
        return self.values.domain.join(data, 8)

    def polynomial_of(self, x: Content) -> BitPolynomial:
        """Return the polynomial of a content; it is kept."""
        if x not in self.found:
            self.found[x] = self.polynomials.of(self.payload_of(x), 8 * len(x))
        return self.found[x]

    def unwritten(self, array: MemoryPlace, address: int, size: int) -> list[Byte | None]:
        """Return bytes of the stack, some of them not written: these are unknown from then on."""
        if array.name != STACK:
            return super().unwritten(array, address, size)
        for at in range(address, address + size):
            if at not in self.written:
                self.stale += 1
                self.written[at] = "unwritten stack", self.stale
        return [self.written[at] for at in range(address, address + size)]

    def load_data(self, address: Content, size: int) -> Content:
        """Return the content at an address that depends on data; NotShown if it may lie outside of constants."""
        polynomial = self.polynomials.exact(self.payload_of(address), 8 * len(address))
        bits = bits_of(polynomial)
        read = [self._constants(at, size) for at in all_values(polynomial, bits)]
        if len(read) == 1:  # Bits that codes do not have are 0.
            return self.values.content(tuple(read[0]))
        tables = list(zip(*read, strict=True))
        arrays = list(dict.fromkeys(key for key, _ in bits))
        places = tuple((arrays.index(key), bit) for key, bit in bits)
        key = places, tuple(tables)
        if key not in self.reads:
            operands = tuple(Operand(f"a{k}", _BYTE) for k in range(len(arrays)))
            self.reads[key] = TableRead(places, tuple(tables), operands)
        args = [self.values.memory(array, byte, 1) for array, byte in cast("list[tuple[Hashable, int]]", arrays)]
        return self.values.apply(self.reads[key], args)  # type: ignore[arg-type]

    def _constants(self, address: int, size: int) -> bytes:
        """Return bytes of the object's constants."""
        array = next((x for x in self.arrays if _holds(x, address, size)), None)
        if array is None or array.known is None:
            raise NotShown(f"{size} bytes are read where data decides, outside of a table of constants")
        return array.known[address - array.start : address - array.start + size]


def _holds(array: MemoryPlace, address: int, size: int) -> bool:
    return array.start <= address and address + size <= array.start + array.size
