"""The registers of a processor that runs machine code, and functions that read and write them.

General registers hold numbers, or data: bytes that were read from a buffer or computed from such bytes. Vector
registers hold contents, as wide as the last write; above that are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from bitsynth.objects.affine import AffineNumber, GeneralNumber, reduce
from bitsynth.objects.arithmetic import Flags, affine_result, as_signed, compute
from bitsynth.objects.data_operations import compute_of_data, sign_extended
from bitsynth.objects.declared import FLAGS, Condition, GeneralOperation, MachineTable
from bitsynth.objects.memory import CallMemory, NotShown
from bitsynth.objects.values import Content, Contents

Action = Callable[[], int | None]
"""Runs one instruction; returns where it jumps to, None for the next one."""
GeneralContent = int | Content
"""The content of a general register: a number, or 8 unknown bytes; the bytes of an `AffineNumber` are a number too."""
Address = GeneralNumber | Content
"""An address as a number, or as data."""
WORD = 8
"""Bytes of a general register, and of an address."""
CLEARS_ABOVE = 4
"""Writing this many bytes of a general register, or more, clears the bytes above them."""
_EVERY = (1 << 8 * WORD) - 1
_ADD, _SHIFT = GeneralOperation("add", flags=False), GeneralOperation("shift left", flags=False)


def affine_of(x: GeneralContent) -> AffineNumber | None:
    """Return the number that is not known and whose 8 bytes `x` is; None if it is no such number."""
    whole = not isinstance(x, int) and x.first == 0 and len(x) == WORD
    return x.source if whole and isinstance(x, Content) and isinstance(x.source, AffineNumber) else None


def wrap(x: GeneralNumber) -> GeneralNumber:
    """Return the address that a sum is, modulo 2**64."""
    return x & _EVERY if isinstance(x, int) else reduce(x)


class CodePlaces(Protocol):
    """How registers represent addresses of the code: as numbers, or as distances from unknown bases.

    `ins` is an instruction as capstone disassembled it.
    """

    def place(self, ins: Any, field: int, address: int) -> GeneralNumber:
        """Return an address of the object that an instruction has as a distance in its bytes from `field` on."""

    def behind(self, ins: Any, following: int) -> GeneralNumber:
        """Return the address behind a call, which is `following` in the file."""

    def destination(self, x: GeneralContent) -> int:
        """Return the address in the file for a register's content; NotShown if it is not known."""

    def compute(self, x: GeneralContent) -> int:
        """Return where code jumps to, or what it calls, that computes the address; NotShown if that is not known."""


class KnownPlaces:
    """Addresses of code as numbers, as in the file."""

    def place(self, ins: Any, field: int, address: int) -> GeneralNumber:
        """Return the address."""
        return address

    def behind(self, ins: Any, following: int) -> GeneralNumber:
        """Return the address."""
        return following

    def destination(self, x: GeneralContent) -> int:
        """Return the address; NotShown if it is no number."""
        if not isinstance(x, int):
            raise NotShown("it returns to an address that is not known")
        return x

    def compute(self, x: GeneralContent) -> int:
        """Raise NotShown: the code of one function has no pointers to functions."""
        raise NotShown("a jump to a computed address")


class LinkedPlaces(KnownPlaces):
    """Addresses of code that calls functions by pointers."""

    def compute(self, x: GeneralContent) -> int:
        """Return the address; NotShown if it is no number."""
        if not isinstance(x, int):
            raise NotShown("it jumps to an address that depends on data")
        return x


class RegisterFile:
    """The state of a processor: registers, flags and memory.

    Attributes:
        imports: Addresses of functions, by the address in memory where the loader of a library puts them.
    """

    def __init__(self, table: MachineTable, values: Contents, memory: CallMemory) -> None:
        self.table, self.values, self.memory = table, values, memory
        self.general: dict[str, GeneralContent] = {}
        self.vector: dict[int, Content] = {}
        self.flags = Flags()
        self.decide: Callable[[str, GeneralNumber, GeneralNumber], bool] | None = None
        self.places: CodePlaces = KnownPlaces()
        self.products: dict[tuple[AffineNumber, AffineNumber], GeneralNumber] = {}
        self.imports: Mapping[int, int] = {}
        self._full = {part: full for full, parts in table.general.items() for part in parts}
        self._widest = max(table.vectors.values())

    def reset(self) -> None:
        """Give every register unknown bytes, and flags no value."""
        self.general |= {name: self.values.memory(("register", name), 0, WORD) for name in self.table.general}
        count = range(self.table.vector_registers)
        self.vector |= {k: self.values.memory(("register", f"vector {k}"), 0, self._widest) for k in count}
        self.flags = Flags()

    def content(self, x: GeneralContent) -> Content:
        """Return what a general register holds as bytes."""
        return self.values.number(x, WORD) if isinstance(x, int) else x

    def hold(self, x: GeneralContent | AffineNumber) -> GeneralContent:
        """Return a number as what a general register holds."""
        x = reduce(x) if isinstance(x, AffineNumber) else x
        return self.values.memory(x, 0, WORD) if isinstance(x, AffineNumber) else x

    def of_content(self, x: Content) -> GeneralContent:
        """Return bytes as what a general register holds."""
        return x.as_int if x.is_known else x

    def require_known(self, x: GeneralContent) -> int:
        """Return what a general register holds as a number that is known; NotShown if it is none."""
        if not isinstance(x, int):
            raise NotShown("a general register that holds data is computed with in a way that is not known")
        return x

    def number(self, x: GeneralContent) -> GeneralNumber:
        """Return what a general register holds as a number; NotShown if it is data."""
        affine = affine_of(x)
        return self.require_known(x) if affine is None else affine

    def address_part(self, x: GeneralContent) -> GeneralNumber:
        """Return what a general register holds as a part of an address; NotShown if it is data."""
        if isinstance(x, int):
            return x
        affine = affine_of(x)
        if affine is None:
            raise NotShown("an address depends on data")
        return affine

    def sum_of_parts(self, base: GeneralContent, index: GeneralContent, scale: int, offset: int) -> Address:
        """Return an address, which is data if a part of it is."""
        if not self.is_data(base) and not self.is_data(index):
            return wrap(self.address_part(base) + self.address_part(index) * scale + offset)
        scaled = self.result(_SHIFT, index, scale.bit_length() - 1, 8 * WORD)
        address = self.result(_ADD, self.result(_ADD, base, scaled, 8 * WORD), offset & _EVERY, 8 * WORD)
        return address if isinstance(address, int) else affine_of(address) or address

    def product(self, a: GeneralNumber, b: GeneralNumber) -> GeneralNumber:
        """Return the product of two numbers; NotShown if it is no sum of what is known of a call."""
        x, y = (a, b) if isinstance(b, int) else (b, a)
        if isinstance(y, int):
            return x * y
        product = self.products.get((x.variable, y.variable)) if isinstance(x, AffineNumber) else None
        if product is None or not isinstance(x, AffineNumber) or x.number or y.number:
            raise NotShown("it multiplies numbers that depend on sizes")
        return product

    def check_condition(self, condition: Condition) -> bool:
        """Return whether a condition of flags holds; NotShown if it is not known."""
        reads, holds = condition
        flags = self.flags
        if flags.compared is not None:
            return bool(holds(*self._flag_values(reads).values(), 0))
        if any(getattr(flags, name) is None for name in reads):
            raise NotShown("it depends on data" if flags.of_data else "it depends on flags that have no value")
        return bool(holds(flags.zero, flags.carry, flags.sign, flags.overflow, 0))

    def _flag_values(self, reads: Sequence[str]) -> dict[str, int]:
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
            out["carry"] = int(self.decide("below", a, b)) ^ self.table.carry_is_no_borrow
        if "zero" in reads:
            out["zero"] = int(self.decide("equal", a, b))
        return out

    def push(self, x: GeneralContent) -> None:
        """Write 8 bytes to the stack."""
        pointer = self.number(self.general[self.table.stack]) - WORD
        self.set_stack(self.hold(pointer))
        self.memory.store(pointer, self.content(x))

    def pop(self) -> GeneralContent:
        """Take 8 bytes from the stack, of any content: compilers do so to move the stack pointer."""
        pointer = self.number(self.general[self.table.stack])
        content = self.memory.load_any(pointer, WORD)
        self.set_stack(self.hold(pointer + WORD))
        return self.of_content(content)

    def set_stack(self, x: GeneralContent) -> None:
        """Write the stack pointer: stack too far below it loses its values."""
        self.general[self.table.stack] = x
        self.memory.keep_stack(self.number(x) - self.table.red_zone)

    def clear_vectors(self, kept: int, count: int) -> None:
        """Clear all but the lowest `kept` bytes of the first `count` vector registers."""
        for k in range(count):
            self.vector[k] = self.low_bytes(k, kept)

    def is_general(self, name: str) -> bool:
        """Return whether a register, or a part of one, is general."""
        return name in self._full

    def general_named(self, name: str) -> str:
        """Return the full register that `name` is, or is a part of; NotShown if it is not known."""
        full = self._full.get(name)
        if full is None:
            raise NotShown(f"register {name} is not known here")
        return full

    def size_of(self, name: str) -> int:
        """Return the bytes of a general register, of a part of one, or of the one that is always zero."""
        parts = self.table.general[self.general_named(name)] if name in self._full else self.table.zero
        return WORD >> parts.index(name)

    def general_reader(self, name: str, size: int) -> Callable[[], GeneralContent]:
        """Return a function that reads the lowest `size` bytes of a general register."""
        full, every = self.general_named(name), (1 << 8 * size) - 1

        def read() -> GeneralContent:
            x = self.general[full]
            if isinstance(x, int):
                return x & every
            return x if size == WORD else self.of_content(self.values.content(x.data[:size]))

        return read

    def lowest(self, x: GeneralContent, size: int) -> Content:
        """Return the lowest `size` bytes of what a general register holds."""
        if isinstance(x, int):
            return self.values.number(x, size)
        assert len(x) >= size
        return x if len(x) == size else self.values.content(x.data[:size])

    def second_byte(self, x: GeneralContent) -> GeneralContent:
        """Return the second byte of what a general register holds."""
        return x >> 8 & 0xFF if isinstance(x, int) else self.of_content(self.values.content(x.data[1:2]))

    def second_byte_writer(self, full: str) -> Callable[[GeneralContent], None]:
        """Return a function that writes the second byte of a general register."""

        def write(x: GeneralContent) -> None:
            low, _, *above = self.content(self.general[full]).data
            self.general[full] = self.of_content(self.values.content((low, *self.lowest(x, 1).data, *above)))

        return write

    def general_writer(self, name: str, size: int) -> Callable[[GeneralContent], None]:
        """Return a function that writes the lowest `size` bytes of a general register."""
        full, every = self.general_named(name), (1 << 8 * size) - 1

        def store(x: GeneralContent) -> GeneralContent:
            if isinstance(x, int) and size >= CLEARS_ABOVE:
                return x & every
            old = self.general[full]
            if isinstance(x, int) and isinstance(old, int):
                return old & ~every | x & every
            above = self.values.number(0, WORD) if size >= CLEARS_ABOVE else self.content(old)
            joined = self.values.content((*self.lowest(x, size).data, *above.data[size:]))
            return self.of_content(joined)

        if full == self.table.stack:
            return lambda x: self.set_stack(store(x))

        def write(x: GeneralContent) -> None:
            self.general[full] = store(x)

        return write

    def load(self, address: GeneralNumber | Content, size: int) -> GeneralContent:
        """Return what a general register holds after `size` bytes of memory were read to it."""
        content = self.memory.load(address, size)
        return self.of_content(content)

    def vector_number(self, name: str) -> int:
        """Return the number of the vector register called `name`; NotShown if it is not known."""
        for start in self.table.vectors:
            if name.startswith(start) and name.removeprefix(start).isdigit():
                return int(name.removeprefix(start))
        raise NotShown(f"register {name} is not known here")

    def low_bytes(self, register: int, size: int) -> Content:
        """Return the lowest `size` bytes of a vector register."""
        x = self.vector[register]
        return x if len(x) == size else self.values.content(self._widen(x).data[:size])

    def _widen(self, x: Content) -> Content:
        """Return the content of a whole register: above what was written there are zeros."""
        return x if len(x) == self._widest else self.values.content((*x.data, *[0] * (self._widest - len(x))))

    def result(self, what: GeneralOperation, a: GeneralContent, b: GeneralContent, bits: int) -> GeneralContent:
        """Return the result of an operation on `bits` bits, and set the flags that it sets."""
        if self.is_data(a) or self.is_data(b):
            return self._result_of_data(what, a, b, bits)
        return self.hold(self._result_of_numbers(what, self.number(a), self.number(b), bits))

    def is_data(self, x: GeneralContent) -> bool:
        """Return whether a general register that holds `x` holds data: no number, known or not."""
        return not isinstance(x, int) and affine_of(x) is None

    def _result_of_data(
        self, what: GeneralOperation, a: GeneralContent, b: GeneralContent, bits: int
    ) -> GeneralContent:
        flags, size = self.flags, bits // 8
        if what.does.startswith(("shift", "rotate")) and not isinstance(b, int):
            raise NotShown("it shifts by a number that depends on data")
        result = compute_of_data(self.values, what, self.lowest(a, size), self.lowest(b, size), bits, flags.carry)
        if what.flags and not set(FLAGS) <= set(what.keeps):
            carry = flags.carry
            flags.clear()
            flags.of_data, flags.carry = True, carry if "carry" in what.keeps else None
        return self.of_content(result)

    def _result_of_numbers(
        self, what: GeneralOperation, a: GeneralNumber, b: GeneralNumber, bits: int
    ) -> GeneralNumber:
        flags = self.flags if what.flags else Flags()
        if what.complement:
            b = -b - 1
        if isinstance(a, int) and isinstance(b, int):
            b &= (1 << bits) - 1
            result = compute(what, a, b, bits, flags, no_borrow=self.table.carry_is_no_borrow)
            flags.compared = None
            return result
        if what.does == "multiply":
            flags.clear()
            if bits != 8 * WORD:
                raise NotShown("a part of a number that depends on sizes is computed with")
            return self.product(a, b)
        out = affine_result(what, a, b, bits, flags)
        if self.table.carry_is_no_borrow and what.does != "subtract":
            flags.zero_only = True  # The others would be the flags of a difference.
        return out

    def sign_extended(self, x: GeneralContent, size: int, to: int) -> GeneralContent:
        """Return the lowest `size` bytes of what a general register holds, with their sign as `to` bytes."""
        if isinstance(x, int):
            return as_signed(x & (1 << 8 * size) - 1, 8 * size) & (1 << 8 * to) - 1
        return self.of_content(sign_extended(self.values, self.lowest(x, size), to))
