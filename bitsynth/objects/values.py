"""Contents of registers and memory as values: what was computed, from which bytes of memory, by which instructions.

Equal values are one object, so comparing two computations of thousands of steps takes no time. A value is a sequence of
bytes; a byte is a number, a byte of memory, or a byte of the result of an operation:

    load 16 bytes at row 0 + 32, broadcast, and with 0x0f   an operation on bytes 32 to 47 of ("row", 0)
    unpack, shuffle, blend, and with 0xff00, move           no operation: the same bytes in other places

What an instruction means is read from its lane expression, which runs on terms (`isa/domains/terms.py`). Instructions
with the same meaning on these operands are one operation, whatever their mnemonics; operands that may be exchanged are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from bitsynth.isa.domains.terms import TermDomain, TermPayload
from bitsynth.isa.instr import Instr
from bitsynth.isa.trace import Register
from bitsynth.isa.types import VecType

Byte = int | tuple[Hashable, int]
"""A number, or the place of an unknown byte: an array in memory or an operation, and the number of the byte in it."""


class Operation:
    """The result of an instruction that computes; `number` is its place in the order of creation."""

    __slots__ = ("args", "imm", "instr", "number")

    def __init__(self, instr: Instr, args: tuple[Content, ...], imm: int, number: int) -> None:
        self.instr, self.args, self.imm, self.number = instr, args, imm, number


class Content:
    """The content of a register or of some bytes of memory; equal contents are one object.

    Bytes `first` and on of an array or of an operation have that for `source`; their `data` is written out when it is
    asked for.
    """

    __slots__ = ("_data", "first", "is_known", "number", "size", "source")

    def __init__(
        self, number: int, size: int, data: tuple[Byte, ...] | None = None, source: Hashable = None, first: int = 0
    ) -> None:
        self.number, self.size, self._data, self.source, self.first = number, size, data, source, first
        self.is_known = data is not None and all(isinstance(x, int) for x in data)

    def __len__(self) -> int:
        return self.size

    @property
    def data(self) -> tuple[Byte, ...]:
        """The bytes, one by one."""
        if self._data is None:
            self._data = tuple([(self.source, self.first + k) for k in range(self.size)])
        return self._data

    @property
    def as_int(self) -> int:
        """The number, lowest byte first, of a content that is known."""
        return int.from_bytes(bytes(x for x in self.data if isinstance(x, int)), "little")


@dataclass(frozen=True)
class _Meaning:
    """What an instruction does to operands of one pattern: a byte is a number, or of (operand, byte); or an operation.

    Attributes:
        moved: The bytes, if they are only moved.
        key: The meaning, if they are not.
        commutes: Whether the two operands may be exchanged.
    """

    moved: tuple[int | tuple[int, int], ...] | None
    key: tuple[TermPayload, ...] = ()
    commutes: bool = False


class Contents:
    """The contents of one comparison, and the operations that compute them."""

    def __init__(self) -> None:
        self.domain = TermDomain()
        self._contents: dict[tuple[Byte, ...], Content] = {}
        self._ranges: dict[tuple[Hashable, int, int], Content] = {}
        self._meanings: dict[tuple[Hashable, ...], _Meaning] = {}
        self._operations: dict[tuple[Hashable, ...], Content] = {}
        self._applied: dict[tuple[Hashable, ...], Content] = {}
        self._terms: dict[Operation, tuple[TermPayload, ...]] = {}

    def content(self, data: Sequence[Byte]) -> Content:
        """Return the content of these bytes."""
        key = tuple(data)
        first, last = key[0], key[-1]
        if not isinstance(first, int) and not isinstance(last, int) and first[0] == last[0]:
            whole = self._range(first[0], first[1], len(key))
            if last[1] - first[1] == len(key) - 1 and whole.data == key:
                return whole
        if key not in self._contents:
            self._contents[key] = Content(self._next(), len(key), key)
        return self._contents[key]

    def _next(self) -> int:
        return len(self._contents) + len(self._ranges)

    def _range(self, source: Hashable, first: int, size: int) -> Content:
        """Return the content that is successive bytes of one source."""
        key = (source, first, size)
        if key not in self._ranges:
            self._ranges[key] = Content(self._next(), size, None, source, first)
        return self._ranges[key]

    def number(self, value: int, size: int) -> Content:
        """Return the content that is a number of `size` bytes."""
        return self.content(tuple((value & ((1 << 8 * size) - 1)).to_bytes(size, "little")))

    def memory(self, array: Hashable, first: int, size: int) -> Content:
        """Return the content of bytes of an array in memory."""
        return self._range(array, first, size)

    def apply(self, instr: Instr, args: Sequence[Content], imm: int = 0) -> Content:
        """Return what the instruction makes of its operands."""
        call = (id(instr), imm, *(x.number for x in args))
        result = self._applied.get(call)
        if result is None:
            result = self._applied[call] = self._apply(instr, tuple(args), imm)
        return result

    def _apply(self, instr: Instr, args: tuple[Content, ...], imm: int) -> Content:
        pattern = tuple(x if x.is_known else args.index(x) for x in args)
        key = (id(instr), imm, pattern)
        if key not in self._meanings:
            self._meanings[key] = self._meaning(instr, args, imm)
        meaning = self._meanings[key]
        if meaning.moved is not None:
            return self.content([x if isinstance(x, int) else args[x[0]].data[x[1]] for x in meaning.moved])
        unknown = tuple(dict.fromkeys(x for x in args if not x.is_known))
        if meaning.commutes:
            unknown = tuple(sorted(unknown, key=lambda x: x.number))
        of = (meaning.key, *unknown)
        if of not in self._operations:
            operation = Operation(instr, args, imm, len(self._operations))
            self._operations[of] = self._range(operation, 0, instr.out.total_bits // 8)
        return self._operations[of]

    def _meaning(self, instr: Instr, args: tuple[Content, ...], imm: int) -> _Meaning:
        unknown = list(dict.fromkeys(x for x in args if not x.is_known))
        operands = {
            (k, b): self.domain.atom(("operand", k, b), 8) for k, x in enumerate(unknown) for b in range(len(x))
        }

        def run(order: Sequence[int]) -> tuple[TermPayload, ...]:
            given = [
                tuple(x.data) if x.is_known else tuple(operands[order[unknown.index(x)], b] for b in range(len(x)))
                for x in args
            ]
            return self._bytes_of(instr, given, imm)  # type: ignore[arg-type]

        plain = list(range(len(unknown)))
        result = run(plain)
        places = {term: (args.index(unknown[k]), b) for (k, b), term in operands.items()}
        moved = [x if isinstance(x, int) else places.get(x) for x in result]
        if None not in moved:
            return _Meaning(tuple(x for x in moved if x is not None))
        both = len(unknown) == 2 and len(unknown[0]) == len(unknown[1])
        return _Meaning(None, result, both and run([1, 0]) == result)

    def _bytes_of(self, instr: Instr, given: Sequence[tuple[TermPayload, ...]], imm: int) -> tuple[TermPayload, ...]:
        """Return the bytes of the instruction's result, as terms of the bytes of its operands."""
        lanes = [
            Register(VecType("u", 8, len(x)), x).viewed_as(self.domain, o.type).lanes
            for x, o in zip(given, instr.operands, strict=True)
        ]
        result = Register(instr.out, tuple(instr(self.domain, lanes, imm)))
        return result.viewed_as(self.domain, VecType("u", 8, instr.out.total_bits // 8)).lanes

    def same(self, a: Content, b: Content) -> bool:
        """Return whether two contents are equal for all memory.

        Where they are not the same operations on the same bytes, their terms are compared: first above the operations
        that both have in common, as these may be of thousands of steps, then down to memory.
        """
        if a is b:
            return True
        if len(a) != len(b):
            return False
        common = self._under(a) & self._under(b)
        return self._expand(a, common) == self._expand(b, common) or (
            len(self._under(a) | self._under(b)) < _MAX_EXPANDED and self._expand(a, set()) == self._expand(b, set())
        )

    def _under(self, x: Content) -> set[Operation]:
        """Return the operations that a content comes from."""
        out: set[Operation] = set()
        left = [x]
        while left:
            for byte in left.pop().data:
                if isinstance(byte, tuple) and isinstance(byte[0], Operation) and byte[0] not in out:
                    out.add(byte[0])
                    left += byte[0].args
        return out

    def _expand(self, x: Content, opaque: set[Operation]) -> tuple[TermPayload, ...]:
        """Return the terms of a content's bytes over memory and over the results of the operations `opaque`."""
        terms: dict[Operation, tuple[TermPayload, ...]] = {}

        def byte(of: Byte) -> TermPayload:
            if isinstance(of, int):
                return of
            source, k = of
            if isinstance(source, Operation) and source not in opaque:
                return terms[source][k]
            return self.domain.atom(of, 8)

        for operation in sorted(self._under(x) - opaque, key=lambda o: o.number):
            given = [tuple(map(byte, arg.data)) for arg in operation.args]
            terms[operation] = self._bytes_of(operation.instr, given, operation.imm)
        return tuple(map(byte, x.data))

    def unknowns(self, x: Content) -> set[Hashable]:
        """Return the arrays of memory that a content comes from."""
        data = [x.data, *(arg.data for o in self._under(x) for arg in o.args)]
        return {b[0] for each in data for b in each if isinstance(b, tuple) and not isinstance(b[0], Operation)}


_MAX_EXPANDED = 2000
"""The most operations that are compared down to memory."""
