"""The registers of a processor that runs machine code, and functions that read and write operands of instructions.

General registers hold numbers; what was read from a buffer may pass through them, and nothing may be computed of it
there. Vector registers hold contents, as wide as what was written last; above that are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bitsynth.objects.affine import AffineNumber, GeneralNumber, is_multiple, reduced
from bitsynth.objects.arithmetic import Flags, as_signed
from bitsynth.objects.declared import MachineTable
from bitsynth.objects.memory import CallMemory, NotShown
from bitsynth.objects.values import Content, Contents

GeneralContent = int | Content
"""What a general register holds: a number, or 8 bytes that are not known; those of an `AffineNumber` are one too."""
WORD = 8
"""Bytes of a general register, and of an address."""
_WIDEST = 64
"""Bytes of the widest vector register."""
CLEARS_ABOVE = 4
"""Writing this many bytes of a general register, or more, clears the bytes above them."""
_EVERY = (1 << 8 * WORD) - 1


def affine_of(x: GeneralContent) -> AffineNumber | None:
    """Return the number that is not known and whose 8 bytes `x` is; None if it is no such number."""
    whole = not isinstance(x, int) and x.first == 0 and len(x) == WORD
    return x.source if whole and isinstance(x, Content) and isinstance(x.source, AffineNumber) else None


class RegisterFile:
    """The state of a processor, and the operands that capstone decoded as functions of it.

    Methods that take `ins`, an instruction that capstone decoded, take one of its operands and the address of the next
    instruction too.
    """

    def __init__(self, table: MachineTable, capstone: Any, values: Contents, memory: CallMemory) -> None:
        self.table, self.values, self.memory = table, values, memory
        self.general: dict[str, GeneralContent] = {}
        self.vector: dict[int, Content] = {}
        self.flags = Flags()
        self.decide: Callable[[str, GeneralNumber, GeneralNumber], bool] | None = None
        self.placed: Callable[[Any, int, int], GeneralNumber] = lambda ins, field, address: address
        self.products: dict[tuple[AffineNumber, AffineNumber], GeneralNumber] = {}
        self._kinds = capstone.CS_OP_REG, capstone.CS_OP_MEM, capstone.CS_OP_IMM
        self._full = {part: full for full, parts in table.general.items() for part in parts}

    def reset(self) -> None:
        """Give every register unknown bytes, and flags no value."""
        self.general |= {name: self.values.memory(("register", name), 0, WORD) for name in self.table.general}
        count = range(self.table.vector_registers)
        self.vector |= {k: self.values.memory(("register", f"vector {k}"), 0, _WIDEST) for k in count}
        self.flags = Flags()

    def is_register(self, operand: Any) -> bool:
        """Return whether an operand is a register."""
        return bool(operand.type == self._kinds[0])

    def is_memory(self, operand: Any) -> bool:
        """Return whether an operand is in memory."""
        return bool(operand.type == self._kinds[1])

    def is_immediate(self, operand: Any) -> bool:
        """Return whether an operand is a number in the instruction."""
        return bool(operand.type == self._kinds[2])

    def content(self, x: GeneralContent) -> Content:
        """Return what a general register holds as bytes."""
        return self.values.number(x, WORD) if isinstance(x, int) else x

    def held(self, x: GeneralContent | AffineNumber) -> GeneralContent:
        """Return a number as what a general register holds."""
        x = reduced(x) if isinstance(x, AffineNumber) else x
        return self.values.memory(x, 0, WORD) if isinstance(x, AffineNumber) else x

    def known(self, x: GeneralContent) -> int:
        """Return what a general register holds as a number that is known; NotShown if it is none."""
        if not isinstance(x, int):
            raise NotShown("a general register that holds data is computed with")
        return x

    def number(self, x: GeneralContent) -> GeneralNumber:
        """Return what a general register holds as a number; NotShown if it is data."""
        affine = affine_of(x)
        return self.known(x) if affine is None else affine

    def product(self, a: GeneralNumber, b: GeneralNumber) -> GeneralNumber:
        """Return the product of two numbers; NotShown if it is no sum of what is known of a call."""
        x, y = (a, b) if isinstance(b, int) else (b, a)
        if isinstance(y, int):
            return x * y
        product = self.products.get((x.variable, y.variable)) if isinstance(x, AffineNumber) else None
        if product is None or not isinstance(x, AffineNumber) or x.number or y.number:
            raise NotShown("it multiplies numbers that depend on sizes")
        return product

    def flag_values(self, reads: Sequence[str]) -> dict[str, int]:
        """Return the flags that a condition reads, of numbers that are not known."""
        flags = self.flags
        if flags.compared is None or self.decide is None or (flags.zero_only and set(reads) != {"zero"}):
            raise NotShown("it depends on flags that have no value")
        a, b = flags.compared
        out = dict.fromkeys(("zero", "carry", "sign", "overflow"), 0)
        if "sign" in reads:  # With overflow 0 the sign is the order of the two.
            if "overflow" not in reads and b != 0:
                raise NotShown("it depends on flags that have no value")
            out["sign"] = int(self.decide("below signed", a, b))
        elif "overflow" in reads:
            raise NotShown("it depends on flags that have no value")
        if "carry" in reads:
            out["carry"] = int(self.decide("below", a, b))
        if "zero" in reads:
            out["zero"] = int(self.decide("equal", a, b))
        return out

    def push(self, x: GeneralContent) -> None:
        """Write 8 bytes to the stack."""
        pointer = self.number(self.general[self.table.stack]) - WORD
        self.set_stack(self.held(pointer))
        self.memory.store(pointer, self.content(x))

    def pop(self) -> GeneralContent:
        """Take 8 bytes from the stack."""
        pointer = self.number(self.general[self.table.stack])
        content = self.memory.load(pointer, WORD)
        self.set_stack(self.held(pointer + WORD))
        return content.as_int if content.is_known else content

    def set_stack(self, x: GeneralContent) -> None:
        """Write the stack pointer: stack too far below it loses its values."""
        self.general[self.table.stack] = x
        self.memory.keep_stack(self.number(x) - self.table.red_zone)

    def clear_vectors(self, kept: int, count: int) -> None:
        """Clear all but the lowest `kept` bytes of the first `count` vector registers."""
        for k in range(count):
            self.vector[k] = self.values.content(self._widened(self.vector[k]).data[:kept])

    def address(self, ins: Any, operand: Any, following: int) -> Callable[[], GeneralNumber]:
        """Return a function that computes the address of an operand in memory."""
        place = operand.mem
        if ins.addr_size != WORD:
            raise NotShown("an address of this kind is not known")
        base, index = (ins.reg_name(r) if r else "" for r in (place.base, place.index))
        scale, general, counter = place.scale, self.general, self.table.counter
        fixed: GeneralNumber = self._offset(ins, operand)
        if base == counter:
            fixed, base = self.placed(ins, ins.encoding.disp_offset, self._offset(ins, operand) + following), ""
        if place.segment or any(n and n not in general for n in (base, index)):
            raise NotShown("an address of this kind is not known")

        def number(name: str) -> GeneralNumber:
            x = general[name]
            if not isinstance(x, int):
                affine = affine_of(x)
                if affine is None:
                    raise NotShown("an address depends on data")
                return affine
            return x

        def wrapped(x: GeneralNumber) -> GeneralNumber:
            return x & _EVERY if isinstance(x, int) else reduced(x)

        if base and index:
            return lambda: wrapped(number(base) + number(index) * scale + fixed)
        if base:
            return lambda: wrapped(number(base) + fixed)
        if index:
            return lambda: wrapped(number(index) * scale + fixed)
        return lambda: wrapped(fixed)

    def _offset(self, ins: Any, operand: Any) -> int:
        """Return the offset of an address; capstone 5 scales some that count operands by another size."""
        encoding = ins.encoding
        if ins.bytes[0] in self.table.widest and encoding.disp_size == 1:
            return as_signed(ins.bytes[encoding.disp_offset], 8) * int(operand.size)
        return int(operand.mem.disp)

    def _general(self, ins: Any, operand: Any) -> str:
        """Return the full register that an operand is, or a part of."""
        name = ins.reg_name(operand.reg)
        full = self._full.get(name)
        if full is None:
            raise NotShown(f"register {name} is not known here")
        return full

    def reader(self, ins: Any, operand: Any, following: int) -> Callable[[], GeneralContent]:
        """Return a function that reads a general operand: its number, or its bytes where they are not known."""
        size: int = operand.size
        every = (1 << 8 * size) - 1
        if self.is_immediate(operand):
            value = int(operand.imm & ((1 << 8 * ins.operands[0].size) - 1))
            return lambda: value
        if self.is_memory(operand):
            address = self.address(ins, operand, following)

            def load() -> GeneralContent:
                content = self.memory.load(address(), size)
                return content.as_int if content.is_known else content

            return load
        full = self._general(ins, operand)

        def read() -> GeneralContent:
            x = self.general[full]
            if isinstance(x, int):
                return x & every
            return x if size == WORD else self.values.content(x.data[:size])

        return read

    def number_writer(self, ins: Any, operand: Any, following: int) -> Callable[[GeneralNumber], None]:
        """Return a function that writes a number to a general operand."""
        write = self.writer(ins, operand, following)
        return lambda x: write(x if isinstance(x, int) else self.held(x))

    def writer(self, ins: Any, operand: Any, following: int) -> Callable[[GeneralContent], None]:
        """Return a function that writes a general operand."""
        size: int = operand.size
        every = (1 << 8 * size) - 1

        def lowest(x: GeneralContent) -> Content:
            """Return the lowest `size` bytes."""
            if isinstance(x, int):
                return self.values.number(x, size)
            assert len(x) >= size
            return x if len(x) == size else self.values.content(x.data[:size])

        if self.is_memory(operand):
            address = self.address(ins, operand, following)
            return lambda x: self.memory.store(address(), lowest(x))
        full = self._general(ins, operand)

        def written(x: GeneralContent) -> GeneralContent:
            if isinstance(x, int) and size >= CLEARS_ABOVE:
                return x & every
            old = self.general[full]
            if isinstance(x, int) and isinstance(old, int):
                return old & ~every | x & every
            above = self.values.number(0, WORD) if size >= CLEARS_ABOVE else self.content(old)
            joined = self.values.content((*lowest(x).data, *above.data[size:]))
            return joined.as_int if joined.is_known else joined

        if full == self.table.stack:
            return lambda x: self.set_stack(written(x))

        def write(x: GeneralContent) -> None:
            self.general[full] = written(x)

        return write

    def _vector(self, name: str) -> int:
        """Return the number of the vector register called `name`."""
        for start in self.table.vectors:
            if name.startswith(start):
                return int(name.removeprefix(start))
        raise NotShown(f"register {name} is not known here")

    def _vector_address(self, ins: Any, operand: Any, size: int, following: int) -> Callable[[], GeneralNumber]:
        """Return a function that computes an address, and refuses it where the instruction wants it aligned."""
        address = self.address(ins, operand, following)
        if ins.mnemonic not in self.table.aligned:
            return address

        def aligned() -> GeneralNumber:
            at = address()
            if isinstance(at, int) and at % size:
                raise NotShown(f"{at:#x} is not aligned to {size} bytes")
            if not isinstance(at, int) and not is_multiple(at, size):
                raise NotShown(f"{at} may not be aligned to {size} bytes")
            return at

        return aligned

    def vector_reader(self, ins: Any, operand: Any, size: int, following: int) -> Callable[[], Content]:
        """Return a function that reads the lowest `size` bytes of an operand of a vector instruction.

        An operand in memory that has fewer is read into every lane.
        """
        if self.is_memory(operand):
            load, read_size = self.memory.load, min(size, operand.size)
            address, times = self._vector_address(ins, operand, read_size, following), size // read_size
            if times == 1:
                return lambda: load(address(), size)
            return lambda: self.values.content(load(address(), read_size).data * times)
        name = ins.reg_name(operand.reg)
        if name in self._full:
            read = self.reader(ins, operand, following)

            def content() -> Content:
                x = read()
                return self.values.number(x, size) if isinstance(x, int) else self.values.content(x.data[:size])

            return content
        number, registers = self._vector(name), self.vector

        def register() -> Content:
            x = registers[number]
            return x if len(x) == size else self.values.content(self._widened(x).data[:size])

        return register

    def _widened(self, x: Content) -> Content:
        """Return the content of a whole register: above what was written there are zeros."""
        return x if len(x) == _WIDEST else self.values.content((*x.data, *[0] * (_WIDEST - len(x))))

    def vector_writer(self, ins: Any, operand: Any, following: int) -> Callable[[Content], None]:
        """Return a function that writes an operand of a vector instruction."""
        if self.is_memory(operand):
            address, store = self._vector_address(ins, operand, operand.size, following), self.memory.store
            return lambda x: store(address(), x)
        name = ins.reg_name(operand.reg)
        if name in self._full:
            write = self.writer(ins, operand, following)
            return lambda x: write(x.as_int if x.is_known else x)
        number, registers = self._vector(name), self.vector

        def set_register(x: Content) -> None:
            registers[number] = x

        return set_register
