"""A step of a network as machine code runs it: moves and addresses by instructions, products by their proved meaning.

The code of a layer and of the runtime is run with numbers for sizes and pointers, and unknown bytes for activations.
Where it calls a microkernel, what packs rows for one, or an epilogue's program, that function is not run: it reads and
writes what the C interface says, and what it computes is an unknown with a name. So after the call each byte of memory
has a name that says where it comes from:

    NamedBytes("in", 0), 17         byte 17 of the activations
    NamedBytes("row", 3), 40        byte 40 of the row that packing number 3 made of some codes
    NamedBytes("pair", 1), 40       byte 40 of two rows that share bytes, merged by call number 1 of NAME_pair_rows
    NamedBytes("term", 3), 0        byte 0 of the term of that row
    NamedBytes("sums", 5), 260      byte 260 of the accumulators that call number 5 of a microkernel computed
    NamedBytes("results", 2), 9     byte 9 of the results that call number 2 of a program made of accumulators
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bitsynth.network.machine_code.accesses import TaskAccesses
from bitsynth.network.machine_code.linear import INT32_BYTES, Bytes, LinearValues, NamedBytes, parse_name
from bitsynth.objects.external import call_external
from bitsynth.objects.linked import LinkedCode
from bitsynth.objects.memory import CallMemory, MemoryPlace, NotShown
from bitsynth.objects.operands import WORD
from bitsynth.objects.processor import STACK_BYTES, CodeProcessor
from bitsynth.objects.values import Byte


class WrongCall(NotShown):
    """The code is wrong: it breaks the C interface of a function that it calls, or a result is not the layer's."""


ACTIVATIONS = NamedBytes("in", 0)
SCRATCH = "scratch memory"
PAD = -1
"""The number of codes that fill a packed row to whole steps."""
FIRST_KNOWN = -2
"""A known code c has the number FIRST_KNOWN - c; a code of the activations has the number of its byte."""
CodeArray = NDArray[np.int64]


@dataclass(frozen=True)
class KernelShape:
    """The sizes of a microkernel, and what its rows are packed from.

    Attributes:
        of_codes: Whether a packed row is its codes, `code_bytes` bytes each.
        has_terms: Whether tiles start from a number of each row too.
        slack: Bytes that may be written behind a packed row.
        together: Rows that share bytes, two or one; only the address of the first of them is read.
    """

    rows: int
    columns: int
    k_step: int
    row_bytes: int
    column_bytes: int
    of_codes: bool
    code_bytes: int
    has_terms: bool
    slack: int
    together: int


@dataclass(frozen=True)
class ProgramShape:
    """The sizes of an epilogue's program.

    Attributes:
        unit: Columns that are computed at once.
        constant_bytes: Bytes of a unit's constants.
        shared_bytes: Bytes of constants that all units read.
        other_bytes: Bytes of an element of the residual, 0 without one.
        reads_row: Whether it adds a number of each row.
    """

    unit: int
    constant_bytes: int
    shared_bytes: int
    result_bits: int
    other_bytes: int
    reads_row: bool


class SumsCall(Protocol):
    """A call of a kernel that computes accumulators, `width` in a row, at the address `where`."""

    @property
    def width(self) -> int:
        """Accumulators of a row."""

    @property
    def where(self) -> int:
        """The address of the instruction that called it."""


@dataclass(frozen=True)
class KernelCall:
    """A call of the microkernel.

    Attributes:
        weights: The packed columns of its tiles.
        start: The numbers from which columns start.
        rows: The bytes of each segment of each row.
        terms: The bytes of the number from which each row starts; none if rows have no terms.
        where: The address of the instruction that called it.
    """

    kernel: KernelShape
    tiles: int
    segments: int
    steps: int
    weights: bytes
    start: NDArray[np.int64]
    rows: list[list[Bytes]]
    terms: list[Bytes]
    where: int

    @property
    def width(self) -> int:
        """Accumulators of a row."""
        return self.tiles * self.kernel.columns


@dataclass(frozen=True)
class ProgramCall:
    """A call of an epilogue's program.

    Attributes:
        constants: The constants of all units of columns.
        sums: The bytes of each row of accumulators.
        of_rows: The bytes of the number that is added to each row; none if the program reads none.
        others: The bytes of each row of the residual.
        where: The address of the instruction that called it.
    """

    name: str
    program: ProgramShape
    rows: int
    columns: int
    constants: bytes
    shared: bytes
    sums: list[Bytes]
    of_rows: list[Bytes]
    others: list[Bytes]
    where: int


class StepMemory(CallMemory):
    """The memory of a step. Scratch memory may be read before it is written: then the bytes are unknown.

    Code that moves eight bytes at a time does so behind a line, and uses none of these. Each read has bytes of its own,
    and no result may depend on them.

    Attributes:
        accesses: What is read and written, if it is written down: whether it is written, the address and the bytes.
    """

    accesses: list[tuple[bool, int, int]] | None = None

    def _array(self, address: int, size: int, access: str) -> MemoryPlace:
        if self.accesses is not None:
            self.accesses.append((access == "written", address, size))
        return super()._array(address, size, access)

    def unwritten(self, array: MemoryPlace, address: int, size: int) -> list[Byte | None]:
        """Return bytes of an array, some of which were not written; OutOfPlace if it is not scratch memory."""
        if array.name != SCRATCH:
            return super().unwritten(array, address, size)
        unknown = ("no value", next(self._unwritten))
        return [self.written.get(address + k, (unknown, k)) for k in range(size)]


@dataclass
class StepCall:
    """One run of a step of a network.

    Attributes:
        packed: The codes of each packing, by its number.
        pairs: The bytes of both rows of each pair, by its number.
        kernel_calls: The calls of kernels, by number.
        program_calls: The calls of programs, by number.
    """

    processor: CodeProcessor
    code: LinkedCode
    packed: list[CodeArray] = field(default_factory=list)
    pairs: list[tuple[Bytes, Bytes]] = field(default_factory=list)
    kernel_calls: list[SumsCall] = field(default_factory=list)
    program_calls: list[ProgramCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = LinearValues(self.processor.values)
        for name, address in self.code.outside.items():
            self.processor.stubs[address] = partial(call_external, name, self.processor)

    def add_kernel(self, name: str, shape: KernelShape) -> None:
        """Give a microkernel, and what packs its rows, their meanings."""
        stubs: dict[str, Callable[[], None]] = {
            name: lambda: self._multiply(shape),
            f"{name}_pack_rows": lambda: self._pack_rows(shape),
        }
        if shape.together > 1:
            stubs[f"{name}_pair_rows"] = self._pair_rows
        for function, stub in stubs.items():
            self.processor.stubs[self.code.function(function)] = stub

    def add_program(self, name: str, shape: ProgramShape) -> None:
        """Give an epilogue's program its meaning."""
        self.processor.stubs[self.code.function(f"{name}_finish")] = lambda: self._finish(name, shape)

    def add_pool(self, run: int, back: int) -> None:
        """Give the function of a caller's pool that runs tasks its meaning; it is at `run`, tasks return to `back`."""
        self.processor.stubs[run] = lambda: self._run_tasks(back)

    def _run_tasks(self, back: int) -> None:
        """Run the tasks of a pool one after the other, which may run at the same time.

        WrongCall if one writes to memory that another reads or writes: else their order does not count.
        """
        _, task, argument, count = map(self.number, range(4))
        memory, stack = self.processor.memory, self.processor.registers.general[self.processor.registers.table.stack]
        assert isinstance(memory, StepMemory)
        assert isinstance(stack, int)
        if memory.accesses is not None:
            raise NotShown("a task of the pool runs tasks")
        tasks = list[TaskAccesses]()
        for index in range(count):
            memory.accesses = []
            self.processor.call_inside(task, [argument, index], back)
            tasks.append(TaskAccesses.of(memory.accesses, range(stack - STACK_BYTES, stack)))
            memory.accesses = None
        for number, each in enumerate(tasks):
            for other in range(count):
                if other != number and each.written.overlaps(tasks[other].every):
                    raise WrongCall(f"task {number} of {count} writes to memory that task {other} reads or writes")

    def run(self, function: str, arguments: Sequence[int], arrays: list[MemoryPlace], *, stack: int, back: int) -> int:
        """Return what a function returns, called with numbers and with these arrays in memory."""
        processor, file = self.processor, self.code.file
        processor.memory.arrays = [*arrays, *file.constants]
        self.processor.call(self.code.function(function), arguments, stack=stack, back=back)
        returned = processor.registers.general[processor.registers.table.result]
        if not isinstance(returned, int):
            raise NotShown(f"what {function} returns depends on data")
        return returned

    def number(self, argument: int) -> int:
        """Return an argument that must be a number."""
        x = self.processor.argument(argument)
        if not isinstance(x, int):
            raise NotShown("an argument of a call depends on data")
        return x

    # Functions of the C interface of a kernel.

    def require_multiple(self, address: int, of: int, what: str) -> None:
        """Raise WrongCall unless an address is a multiple of a number."""
        if address % of:
            raise WrongCall(f"the address of {what} is no multiple of {of}")

    def read_known(self, address: int, size: int, what: str) -> bytes:
        """Return bytes of constants."""
        data = self.processor.memory.bytes_at(address, size)
        known = [x for x in data if isinstance(x, int)]
        if len(known) < size:
            raise WrongCall(f"{what} are not constants")
        return bytes(known)

    def _pack_rows(self, shape: KernelShape) -> None:
        """Pack rows: read their codes, and write packed bytes and terms, each with a name."""
        memory = self.processor.memory
        count, k, codes, apart, readable, packed, packed_apart, terms = map(self.number, range(8))
        memory.require_within(count, k)
        size = -(-k // shape.k_step) * shape.row_bytes
        memory.bytes_at(codes, readable)
        written = [(packed + row * packed_apart, size + shape.slack) for row in range(count)]
        written += [(terms, INT32_BYTES * count)] * shape.has_terms
        require_apart(written, [(codes, readable)])
        for row in range(count):
            if row * apart + k > readable:
                raise WrongCall(
                    f"row {row} of {count} is packed from codes beyond the {readable} bytes that can be read"
                )
            data = self.values.restore_names(memory.bytes_at(codes + row * apart, k))
            if None in data:
                raise WrongCall(f"code {data.index(None)} of a row is packed before it is written")
            at = packed + row * packed_apart
            if shape.of_codes:
                wide = [byte for x in data for byte in (x, *[0] * (shape.code_bytes - 1))]
                memory.set_bytes(at, [*wide, *[0] * (size - len(wide)), *[None] * shape.slack])
            else:
                memory.set_bytes(at, [*NamedBytes("row", len(self.packed)).bytes(0, size), *[None] * shape.slack])
            if shape.has_terms:
                term = NamedBytes("term", len(self.packed))
                memory.set_bytes(terms + INT32_BYTES * row, term.bytes(0, INT32_BYTES))
            self.packed.append(number_codes(data))

    def _pair_rows(self) -> None:
        """Merge each row's partner into its bytes, and give these a name."""
        memory = self.processor.memory
        count, ahead, size, packed, apart = map(self.number, range(5))
        if count > 1 and apart < size:
            raise WrongCall(f"rows of {size} bytes that are merged are {apart} from each other")
        for row in range(count - ahead):
            own, partner = (memory.bytes_at(packed + k * apart, size) for k in (row, row + ahead))
            if any(parse_name(byte, "pair") for byte in own):
                raise WrongCall("a row that has a partner is merged with another")
            memory.set_bytes(packed + row * apart, NamedBytes("pair", len(self.pairs)).bytes(0, size))
            self.pairs.append((own, self._row_of(partner, 0)))

    def _row_of(self, data: Bytes, member: int) -> Bytes:
        """Return the bytes of the first (0) or second (1) row that bytes hold; None for a second that there is not."""
        row = Bytes()
        for byte in data:
            of_pair = parse_name(byte, "pair")
            if of_pair is not None:
                number, place = of_pair
                row.append(self.pairs[number][member][place])
            else:
                row.append(None if member else byte)
        return row

    def _multiply(self, shape: KernelShape) -> None:
        """Compute tiles: read weights, rows and their terms; write accumulators, each with a name."""
        memory = self.processor.memory
        tiles, segments, steps, pointers, weights, start, terms, sums, apart = map(self.number, range(9))
        memory.require_within(tiles, segments, steps)
        width = tiles * shape.columns
        self.require_multiple(pointers, WORD, "the rows' addresses")
        self.require_multiple(weights, WORD, "weights")
        self.require_multiple(start, INT32_BYTES, "numbers of columns")
        self.require_multiple(sums, INT32_BYTES, "accumulators")
        addresses = [
            int.from_bytes(self.read_known(pointers + WORD * k, WORD, "addresses of rows"), "little")
            for k in range(shape.rows * segments)
        ]
        # Rows that share bytes are read where the first of them is.
        addresses = [addresses[k - k % shape.rows % shape.together] for k in range(len(addresses))]
        size = steps * shape.row_bytes
        read = [(pointers, WORD * len(addresses)), *((address, size) for address in addresses)]
        if shape.has_terms:
            self.require_multiple(terms, INT32_BYTES, "terms")
            read.append((terms, INT32_BYTES * shape.rows))
        if shape.rows > 1 and apart < width:
            raise WrongCall(f"rows of {width} accumulators are {apart} from each other")
        require_apart([(sums + INT32_BYTES * row * apart, INT32_BYTES * width) for row in range(shape.rows)], read)
        rows = [
            [memory.bytes_at(addresses[s * shape.rows + row], size) for s in range(segments)]
            for row in range(shape.rows)
        ]
        if shape.together > 1:
            rows = [[self._row_of(x, row % shape.together) for x in each] for row, each in enumerate(rows)]
        call = KernelCall(
            kernel=shape,
            tiles=tiles,
            segments=segments,
            steps=steps,
            weights=self.read_known(weights, width * segments * steps * shape.column_bytes, "weights"),
            start=np.frombuffer(self.read_known(start, INT32_BYTES * width, "numbers of columns"), "<i4").astype(
                np.int64
            ),
            rows=rows,
            terms=[
                memory.bytes_at(terms + INT32_BYTES * row, INT32_BYTES) for row in range(shape.rows) if shape.has_terms
            ],
            where=memory.at,
        )
        for row in range(shape.rows):
            of_call, size = NamedBytes("sums", len(self.kernel_calls)), INT32_BYTES * width
            memory.set_bytes(sums + INT32_BYTES * row * apart, of_call.bytes(row * size, size))
        self.kernel_calls.append(call)

    def _finish(self, name: str, shape: ProgramShape) -> None:
        """Compute results of accumulators: read these and constants; write results, each with a name."""
        memory = self.processor.memory
        constants, shared, rows, columns, sums, apart, of_row, other, other_apart, to, to_apart = map(
            self.number, range(11)
        )
        memory.require_within(rows, columns)
        if columns % shape.unit:
            raise WrongCall(f"a program for {shape.unit} columns at a time is called for {columns}")
        self.require_multiple(sums, INT32_BYTES, "accumulators")
        size = columns * shape.result_bits // 8
        in_place = to == sums and to_apart == apart and size == INT32_BYTES * columns
        read = [(sums + row * apart, INT32_BYTES * columns) for row in range(rows)] * (not in_place)
        read += [(other + row * other_apart, shape.other_bytes * columns) for row in range(rows)]
        read += [(of_row, INT32_BYTES * rows)] * shape.reads_row
        require_apart([(to + row * to_apart, size) for row in range(rows)], read)
        call = ProgramCall(
            name=name,
            program=shape,
            rows=rows,
            columns=columns,
            constants=self.read_known(constants, columns // shape.unit * shape.constant_bytes, "constants"),
            shared=self.read_known(shared, shape.shared_bytes, "constants"),
            sums=[memory.bytes_at(sums + row * apart, INT32_BYTES * columns) for row in range(rows)],
            of_rows=[
                memory.bytes_at(of_row + INT32_BYTES * row, INT32_BYTES) for row in range(rows) if shape.reads_row
            ],
            others=[memory.bytes_at(other + row * other_apart, shape.other_bytes * columns) for row in range(rows)],
            where=memory.at,
        )
        for row in range(rows):
            of_call = NamedBytes("results", len(self.program_calls))
            memory.set_bytes(to + row * to_apart, of_call.bytes(row * size, size))
        self.program_calls.append(call)


def require_apart(written: Sequence[tuple[int, int]], read: Sequence[tuple[int, int]]) -> None:
    """Raise WrongCall if a function writes to memory that it reads: pairs are addresses and bytes."""
    for start, size in written:
        if any(start < other + count and other < start + size for other, count in read if count):
            raise WrongCall("a function writes to memory that it reads")


def number_codes(data: Bytes) -> CodeArray:
    """Return the numbers of codes: numbers of bytes of the activations, or FIRST_KNOWN less a known code."""
    out = np.empty(len(data), np.int64)
    for k, byte in enumerate(data):
        if isinstance(byte, int):
            out[k] = FIRST_KNOWN - byte
        elif byte is not None and byte[0] == ACTIVATIONS:
            out[k] = byte[1]
        else:
            raise WrongCall("a row holds what are no codes of the activations")
    return out
