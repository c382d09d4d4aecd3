"""Contents of registers and memory as values: from which bytes of memory, and by which instructions, they were
computed.

Equal values are one object, so comparing two computations of thousands of steps takes no time. A value is a sequence of
bytes; a byte is a number, a byte of memory, or a byte of the result of an operation:

    load 16 bytes at row 0 + 32, broadcast, and with 0x0f   an operation on bytes 32 to 47 of ("row", 0)
    unpack, shuffle, blend, and with 0xff00, move           no operation: the same bytes in other places

What an instruction means is read from its lane expression, which runs on terms (`isa/domains/terms.py`). Instructions
with the same meaning on these operands are one operation, whatever their mnemonics; operands that may be exchanged are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from bitsynth.isa.domains.terms import TermDomain, TermPayload
from bitsynth.isa.instr import Instr
from bitsynth.isa.trace import Register
from bitsynth.isa.types import VecType
from bitsynth.objects.sums import SumNode, Sums

Byte = int | tuple[Hashable, int]
"""A number, or the place of an unknown byte: an array in memory or an operation, and the number of the byte in it."""


class Operation:
    """The result of an instruction that computes; `number` is its place in the order of creation.

    A result that is lane-wise a sum has its addends as `sum`, the same for each order in which they were added.
    """

    __slots__ = ("args", "imm", "instr", "number", "sum")

    def __init__(self, instr: Instr, args: tuple[Content, ...], imm: int, number: int, lanes: LaneSum | None) -> None:
        self.instr, self.args, self.imm, self.number, self.sum = instr, args, imm, number, lanes


@dataclass(frozen=True)
class LaneSum:
    """Lane-wise sum of contents, modulo 2**`bits`, and a known content; `addends` are numbers of contents."""

    bits: int
    known: Content
    addends: SumNode | None


class Content:
    """The content of a register or of some bytes of memory; equal contents are one object.

    Bytes `first` and on of an array or of an operation have that for `source`; their `data` is written out when it is
    asked for.
    """

    __slots__ = ("_data", "_operations", "first", "is_known", "number", "size", "source")

    def __init__(
        self, number: int, size: int, data: tuple[Byte, ...] | None = None, source: Hashable = None, first: int = 0
    ) -> None:
        self.number, self.size, self._data, self.source, self.first = number, size, data, source, first
        self.is_known = data is not None and all(isinstance(x, int) for x in data)
        self._operations: tuple[Operation, ...] | None = None

    def __len__(self) -> int:
        return self.size

    @property
    def data(self) -> tuple[Byte, ...]:
        """The bytes, one by one."""
        if self._data is None:
            self._data = tuple([(self.source, self.first + k) for k in range(self.size)])
        return self._data

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations whose results are among the bytes."""
        if self._operations is None:
            one = self._data is None or self.source is not None
            sources = [self.source] if one else [x[0] for x in self.data if isinstance(x, tuple)]
            self._operations = tuple([x for x in dict.fromkeys(sources) if isinstance(x, Operation)])
        return self._operations

    @property
    def as_int(self) -> int:
        """The number, lowest byte first, of a content that is known."""
        return int.from_bytes(bytes(x for x in self.data if isinstance(x, int)), "little")


@dataclass(frozen=True)
class _Meaning:
    """The effect of an instruction on operands of one pattern: it moves bytes, or computes.

    Attributes:
        moved: Each byte of the result: a number, or (operand, byte); None if it computes.
        key: The meaning, if it computes.
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
        self._sums = Sums()
        self._addends: dict[int, Content] = {}
        self._signs: dict[int, int] = {}

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
        """Return the result of the instruction on its operands."""
        call = (id(instr), imm, *args)
        result = self._applied.get(call)
        if result is None:
            result = self._applied[call] = self._apply(instr, tuple(args), imm)
        return result

    def _apply(self, instr: Instr, args: tuple[Content, ...], imm: int) -> Content:
        sign = self._sign(instr)
        if sign and not all(x.is_known for x in args):
            return self._sum(instr, args, sign)
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
            operation = Operation(instr, args, imm, len(self._operations), None)
            self._operations[of] = self._range(operation, 0, instr.out.total_bits // 8)
        return self._operations[of]

    def _sign(self, instr: Instr) -> int:
        """Return 1 if an instruction adds its two operands lane by lane, -1 if it subtracts the second, else 0."""
        if id(instr) not in self._signs:
            self._signs[id(instr)] = self._sign_of(instr)
        return self._signs[id(instr)]

    def _sign_of(self, instr: Instr) -> int:
        kind, d = instr.out, self.domain
        if instr.imm or len(instr.operands) != 2 or any(o.type.total_bits != kind.total_bits for o in instr.operands):
            return 0
        a, b = ([d.atom(("lane", side, k), kind.bits) for k in range(kind.lanes)] for side in "ab")
        if any(o.type.bits != kind.bits for o in instr.operands):
            return 0
        result = instr(d, [a, b])
        signs = {1: d.add, -1: d.sub}
        return next((s for s, f in signs.items() if result == [f(*ab, kind.bits) for ab in zip(a, b, strict=True)]), 0)

    def _sum(self, instr: Instr, args: tuple[Content, ...], sign: int) -> Content:
        """Return the sum or difference of two contents: one object for all orders of the same addends."""
        bits, size = instr.out.bits, len(args[0])
        a, b = (self._lane_sum(x, bits) for x in args)
        addends = self._sums.plus(a.addends, b.addends, sign, (1 << bits) - 1)
        known = self.apply(instr, [a.known, b.known])
        if addends is None:
            return known
        if addends.size == addends.times == 1 and not known.as_int:
            return self._addends[addends.key]
        key = ("sum", bits, known, addends)
        if key not in self._operations:
            operation = Operation(instr, args, 0, len(self._operations), LaneSum(bits, known, addends))
            self._operations[key] = self._range(operation, 0, size)
        return self._operations[key]

    def _lane_sum(self, x: Content, bits: int) -> LaneSum:
        """Return a content as a sum of lanes of `bits` bits; of one addend, if it is no such sum."""
        if x.is_known:
            return LaneSum(bits, x, None)
        whole = x.source if isinstance(x.source, Operation) and x.size * 8 == x.source.instr.out.total_bits else None
        if whole is not None and whole.sum is not None and whole.sum.bits == bits:
            return whole.sum
        self._addends[x.number] = x
        return LaneSum(bits, self.number(0, len(x)), self._sums.single(x.number, 1))

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
            Register(VecType("u", 8, len(x)), x).view_as(self.domain, o.type).lanes
            for x, o in zip(given, instr.operands, strict=True)
        ]
        result = Register(instr.out, tuple(instr(self.domain, lanes, imm)))
        return result.view_as(self.domain, VecType("u", 8, instr.out.total_bits // 8)).lanes

    def same(self, a: Content, b: Content) -> bool:
        """Return whether two contents are equal for all memory.

        Where they are not the same operations on the same bytes, their terms are compared: first above the operations
        that both have in common, as these may be of thousands of steps, then down to memory.
        """
        if a is b:
            return True
        if len(a) != len(b):
            return False
        return self._equal_terms(a, b, common=True) or self._equal_terms(a, b, common=False)

    def _equal_terms(self, a: Content, b: Content, *, common: bool) -> bool:
        """Compare terms over memory and, with `common`, over results that both contents come from."""
        operations = self.operations_of(a, b, common=common)
        if operations is None:
            return False
        left, right = self.evaluate([a, b], operations, lambda of: self.domain.atom(of, 8))
        return left == right

    def operations_of(self, a: Content, b: Content, *, common: bool = False) -> list[Operation] | None:
        """Return the operations that two contents come from, the first ones first; None if they are too many.

        With `common` those are left out that both come from. Operations are followed from the last one that was
        created: when one is reached, all that use it were.
        """
        sides: dict[Operation, int] = {}
        left: list[tuple[int, Operation]] = []

        def reach(operations: Iterable[Operation], side: int) -> None:
            for operation in operations:
                if operation not in sides:
                    heappush(left, (-operation.number, operation))
                sides[operation] = sides.get(operation, 0) | side

        reach(a.operations, 1)
        reach(b.operations, 2)
        order: list[Operation] = []
        while left:
            _, operation = heappop(left)
            if common and sides[operation] == 3:
                continue
            order.append(operation)
            if len(order) > _MAX_EXPANDED:
                return None
            for arg in operation.args:
                reach(arg.operations, sides[operation])
        return order[::-1]

    def evaluate(
        self, contents: Sequence[Content], operations: Sequence[Operation], unknown: Callable[[Byte], TermPayload]
    ) -> list[tuple[TermPayload, ...]]:
        """Return the bytes of contents, computed by `operations` of the `unknown` bytes of all other sources."""
        results: dict[Hashable, tuple[TermPayload, ...]] = {}

        def byte(of: Byte) -> TermPayload:
            if isinstance(of, int):
                return of
            return results[of[0]][of[1]] if of[0] in results else unknown(of)

        for operation in operations:
            given = [tuple(map(byte, arg.data)) for arg in operation.args]
            results[operation] = self._bytes_of(operation.instr, given, operation.imm)
        return [tuple(map(byte, x.data)) for x in contents]

    def evaluate_further(
        self,
        x: Content,
        results: dict[Operation, tuple[TermPayload, ...]],
        unknown: Callable[[Byte], TermPayload],
    ) -> tuple[TermPayload, ...]:
        """Return the bytes of a content; `results` has the bytes of operations so far, and missing ones are added."""
        left, order = [x], set[Operation]()
        while left:
            for operation in left.pop().operations:
                if operation not in results and operation not in order:
                    order.add(operation)
                    left += operation.args

        def byte(of: Byte) -> TermPayload:
            if isinstance(of, int):
                return of
            return results[of[0]][of[1]] if isinstance(of[0], Operation) else unknown(of)

        for operation in sorted(order, key=lambda each: each.number):
            given = [tuple(map(byte, arg.data)) for arg in operation.args]
            results[operation] = self._bytes_of(operation.instr, given, operation.imm)
        return tuple(map(byte, x.data))

    def unknowns(self, x: Content) -> set[Hashable]:
        """Return the arrays of memory that a content comes from."""
        seen, left, out = set[Operation](), [x], set[Hashable]()
        while left:
            data = left.pop().data
            out |= {b[0] for b in data if isinstance(b, tuple) and not isinstance(b[0], Operation)}
            for operation in {b[0] for b in data if isinstance(b, tuple) and isinstance(b[0], Operation)} - seen:
                seen.add(operation)
                left += operation.args
        return out


_MAX_EXPANDED = 2000
"""The most operations that are compared down to memory."""
