"""Runs x86-64 machine code: numbers in general registers, values in vector registers and memory.

Control flow depends on numbers alone. What was read from a buffer may pass through a general register, and nothing may
be computed of it there. Vector instructions are those declared for the instruction set, by mnemonic and operand sizes;
an instruction that is declared nowhere is refused by name and address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bitsynth.errors import ToolError
from bitsynth.isa.domains.forms import Inexact
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.objects.declared import MACHINE_ORDER, by_mnemonic
from bitsynth.objects.elf import INSTALL, ObjectFile
from bitsynth.objects.memory import CallMemory, NotShown
from bitsynth.objects.values import Content, Contents

GeneralContent = int | Content
"""What a general register holds: a number, or 8 bytes that are not known."""
Action = Callable[[], int | None]
"""Runs one instruction; returns where it jumps to, None for the next one."""

RETURN = 0xDEAD
"""The address that the function returns to."""
_MAX_INSTRUCTIONS = 20_000_000
"""The most instructions of a call."""
_SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")
"""Registers that a function must leave as they were, besides the stack pointer."""
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")


def _names() -> dict[str, tuple[str, int]]:
    """Return the full register and the bytes of each name of a general register."""
    out: dict[str, tuple[str, int]] = {}
    for k, n in enumerate(["ax", "bx", "cx", "dx", "si", "di", "bp", "sp"]):
        out |= {f"r{n}": (f"r{n}", 8), f"e{n}": (f"r{n}", 4), n: (f"r{n}", 2)}
        out[f"{n[0]}l" if k < 4 else f"{n}l"] = f"r{n}", 1
    for k in range(8, 16):
        out |= {f"r{k}": (f"r{k}", 8), f"r{k}d": (f"r{k}", 4), f"r{k}w": (f"r{k}", 2), f"r{k}b": (f"r{k}", 1)}
    return out


_GENERAL = _names()
_VECTOR = {"x": 16, "y": 32, "z": 64}


def _signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> bits - 1 & 1 else x


class Flags:
    """The flags zero, carry, sign and overflow; None where they have no value."""

    __slots__ = ("carry", "overflow", "sign", "zero")

    def __init__(self) -> None:
        self.zero: bool | None = None
        self.carry: bool | None = None
        self.sign: bool | None = None
        self.overflow: bool | None = None


_CONDITIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "e": ("zero", lambda f: f.zero),
    "ne": ("zero", lambda f: not f.zero),
    "b": ("carry", lambda f: f.carry),
    "ae": ("carry", lambda f: not f.carry),
    "be": ("carry zero", lambda f: f.carry or f.zero),
    "a": ("carry zero", lambda f: not (f.carry or f.zero)),
    "s": ("sign", lambda f: f.sign),
    "ns": ("sign", lambda f: not f.sign),
    "l": ("sign overflow", lambda f: f.sign != f.overflow),
    "ge": ("sign overflow", lambda f: f.sign == f.overflow),
    "le": ("sign overflow zero", lambda f: f.zero or f.sign != f.overflow),
    "g": ("sign overflow zero", lambda f: not f.zero and f.sign == f.overflow),
}
"""Conditions by the end of a mnemonic: the flags that they read, and whether they hold."""


class X86Machine:
    """A processor that runs functions of one object."""

    def __init__(self, file: ObjectFile, isa: Isa, values: Contents, memory: CallMemory) -> None:
        try:
            import capstone
        except ImportError:
            raise ToolError(INSTALL) from None
        self._capstone = capstone
        self._decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._decoder.detail = True
        self.file, self.isa, self.values, self.memory = file, isa, values, memory
        self.general: dict[str, GeneralContent] = {}
        self.vector: dict[int, Content] = {}
        self.flags = Flags()
        self.decoded: dict[int, tuple[Action, int]] = {}
        self.at = 0
        self.count = 0
        self.taken: dict[int, set[bool]] = {}
        self.text: dict[int, str] = {}

    def call(self, address: int, arguments: Iterable[int], stack: int) -> None:
        """Run the function at `address`; the stack ends at `stack`. NotShown names what is wrong."""
        unknown = {name: self.values.memory(("register", name), 0, 8) for name, _ in _GENERAL.values()}
        self.general |= unknown
        self.vector |= {k: self.values.memory(("register", f"vector {k}"), 0, 64) for k in range(32)}
        self.flags = Flags()
        given = list(arguments)
        self.general |= dict(zip(_ARGUMENTS, given, strict=False))
        behind = [RETURN, *given[len(_ARGUMENTS) :]]
        pointer = stack - 8 * len(behind)
        for k, number in enumerate(behind):
            self.memory.store(pointer + 8 * k, self.values.number(number, 8))
        self.general["rsp"] = pointer
        try:
            self._run(address)
        except Inexact as why:
            raise NotShown(self._where(f"{why}")) from None
        except NotShown as why:
            raise NotShown(self._where(str(why))) from None
        if self.general["rsp"] != pointer + 8:
            raise NotShown("the stack pointer is not what it was")
        if changed := [name for name in _SAVED if self.general[name] is not unknown[name]]:
            raise NotShown(f"register {changed[0]} is not what it was")

    def _run(self, address: int) -> None:
        decoded, taken = self.decoded, self.taken
        for _ in range(_MAX_INSTRUCTIONS):
            self.at = address
            if address == RETURN:
                return
            entry = decoded.get(address)
            if entry is None:
                entry = decoded[address] = self._decode(address)
            target = entry[0]()
            if address in taken:
                taken[address].add(target is not None)
            address = entry[1] if target is None else target
        raise NotShown(f"{_MAX_INSTRUCTIONS:,} instructions did not end it")

    def _where(self, why: str) -> str:
        return f"{self.file.name_of(self.at)} at {self.at:#x}: {self.text.get(self.at, 'no instruction')}: {why}"

    def _decode(self, address: int) -> tuple[Action, int]:
        instruction = next(self._decoder.disasm(self.file.instruction_bytes(address), address), None)
        if instruction is None:
            raise NotShown("these bytes are no instruction")
        self.text[address] = f"{instruction.mnemonic} {instruction.op_str}".strip()
        following = address + instruction.size
        action = self._action(instruction, following)
        if instruction.mnemonic[0] == "j" and instruction.mnemonic != "jmp":
            self.taken[address] = set()
        return action, following

    # Operands.

    def _is_register(self, operand: Any) -> bool:
        return bool(operand.type == self._capstone.x86.X86_OP_REG)

    def _is_memory(self, operand: Any) -> bool:
        return bool(operand.type == self._capstone.x86.X86_OP_MEM)

    def _is_immediate(self, operand: Any) -> bool:
        return bool(operand.type == self._capstone.x86.X86_OP_IMM)

    def _address(self, ins: Any, operand: Any, following: int) -> Callable[[], int]:
        place = operand.mem
        names = [ins.reg_name(r) if r else "" for r in (place.base, place.index)]
        if place.segment or any(n and n != "rip" and (n not in _GENERAL or _GENERAL[n][1] != 8) for n in names):
            raise NotShown("an address of this kind is not known")
        base, index = names
        scale, fixed, general = place.scale, place.disp, self.general
        if base == "rip":
            fixed, base = fixed + following, ""

        def number(name: str) -> int:
            x = general[name]
            if not isinstance(x, int):
                raise NotShown("an address depends on data")
            return x

        every = (1 << 64) - 1
        if base and index:
            return lambda: number(base) + number(index) * scale + fixed & every
        if base:
            return lambda: number(base) + fixed & every
        if index:
            return lambda: number(index) * scale + fixed & every
        return lambda: fixed & every

    def _reader(self, ins: Any, operand: Any, following: int) -> Callable[[], GeneralContent]:
        """Return a function that reads a general operand: its number, or its bytes where they are not known."""
        size: int = operand.size
        every = (1 << 8 * size) - 1
        if self._is_immediate(operand):
            value = int(operand.imm & ((1 << 8 * ins.operands[0].size) - 1))
            return lambda: value
        if self._is_memory(operand):
            address = self._address(ins, operand, following)

            def load() -> GeneralContent:
                content = self.memory.load(address(), size)
                return content.as_int if content.is_known else content

            return load
        name = ins.reg_name(operand.reg)
        if name not in _GENERAL:
            raise NotShown(f"register {name} is not known here")
        full = _GENERAL[name][0]

        def read() -> GeneralContent:
            x = self.general[full]
            if isinstance(x, int):
                return x & every
            return x if size == 8 else self.values.content(x.data[:size])

        return read

    def _writer(self, ins: Any, operand: Any, following: int) -> Callable[[GeneralContent], None]:
        size: int = operand.size
        every = (1 << 8 * size) - 1
        if self._is_memory(operand):
            address = self._address(ins, operand, following)
            return lambda x: self.memory.store(address(), self.values.number(x, size) if isinstance(x, int) else x)
        name = ins.reg_name(operand.reg)
        if name not in _GENERAL:
            raise NotShown(f"register {name} is not known here")
        full = _GENERAL[name][0]

        def write(x: GeneralContent) -> None:
            if isinstance(x, int) and size >= 4:
                self.general[full] = x & every
                return
            old = self.general[full]
            if isinstance(x, int) and isinstance(old, int):
                self.general[full] = old & ~every | x & every
                return
            new = self.values.number(x, size) if isinstance(x, int) else x
            above = self.values.number(0, 8) if size >= 4 else self._content(old)
            joined = self.values.content((*new.data, *above.data[size:]))
            self.general[full] = joined.as_int if joined.is_known else joined

        return write

    def _content(self, x: GeneralContent) -> Content:
        return self.values.number(x, 8) if isinstance(x, int) else x

    # Instructions.

    def _action(self, ins: Any, following: int) -> Action:
        name, operands = ins.mnemonic, ins.operands
        if name in {"nop", "endbr64", "vzeroupper"}:
            return self._clear_upper if name == "vzeroupper" else lambda: None
        if name == "xchg" and len({operand.reg for operand in operands if self._is_register(operand)}) == 1:
            return lambda: None
        if any(ins.prefix[:1]):
            raise NotShown("a prefix of this kind is not known")
        if name[0] == "v":
            return self._vector_action(ins, following)
        if name in {"ret", "call", "jmp"} or (name[0] == "j" and name[1:] in _CONDITIONS):
            return self._jump(ins, following)
        action = self._on_stack if name in {"push", "pop"} else self._arithmetic if name in _ARITHMETIC else None
        if name in {"mov", "movabs", "movzx", "movsx", "movsxd", "lea"} or name.startswith(("cmov", "set")):
            action = self._move
        if action is None:
            raise NotShown("no declaration of this instruction")
        return action(ins, following)

    def _clear_upper(self) -> None:
        zeros = (0,) * 48
        for k, x in self.vector.items():
            self.vector[k] = self.values.content((*x.data[:16], *zeros))

    def _jump(self, ins: Any, following: int) -> Action:
        name = ins.mnemonic
        if name == "ret":
            return self._pop_number
        if not self._is_immediate(ins.operands[0]):
            raise NotShown("a jump to a computed address")
        target = ins.operands[0].imm
        if name == "jmp":
            return lambda: target
        if name == "call":

            def call() -> int:
                self._push(following)
                return int(target)

            return call
        holds = self._condition(name[1:])
        return lambda: target if holds() else None

    def _condition(self, name: str) -> Callable[[], bool]:
        if name not in _CONDITIONS:
            raise NotShown("a condition of this kind is not known")
        read, holds = _CONDITIONS[name]
        flags = read.split()

        def condition() -> bool:
            if any(getattr(self.flags, flag) is None for flag in flags):
                raise NotShown("it depends on flags that have no value")
            return holds(self.flags)

        return condition

    def _push(self, x: GeneralContent) -> None:
        pointer = self.general["rsp"]
        assert isinstance(pointer, int)
        self.general["rsp"] = pointer - 8
        self.memory.store(pointer - 8, self._content(x))

    def _pop(self) -> GeneralContent:
        pointer = self.general["rsp"]
        assert isinstance(pointer, int)
        content = self.memory.load(pointer, 8)
        self.general["rsp"] = pointer + 8
        return content.as_int if content.is_known else content

    def _pop_number(self) -> int:
        x = self._pop()
        if not isinstance(x, int):
            raise NotShown("it returns to an address that depends on data")
        return x

    def _on_stack(self, ins: Any, following: int) -> Action:
        operand = ins.operands[0]
        if operand.size != 8:
            raise NotShown("a part of a register on the stack")
        if ins.mnemonic == "push":
            read = self._reader(ins, operand, following)
            return lambda: self._push(read())
        write = self._writer(ins, operand, following)
        return lambda: write(self._pop())

    def _move(self, ins: Any, following: int) -> Action:
        name, operands = ins.mnemonic, ins.operands
        write = self._writer(ins, operands[0], following)
        if name.startswith("set"):
            holds = self._condition(name[3:])
            return lambda: write(int(holds()))
        if name == "lea":
            address = self._address(ins, operands[1], following)
            return lambda: write(address())
        read = self._reader(ins, operands[1], following)
        if name.startswith("cmov"):
            holds, old = self._condition(name[4:]), self._reader(ins, operands[0], following)
            return lambda: write(read() if holds() else old())
        if name in {"movsx", "movsxd"}:
            bits = 8 * operands[1].size
            return lambda: write(_signed(self._number(read()), bits))
        size = operands[0].size

        def move() -> None:
            x = read()
            if not isinstance(x, int) and len(x) < size:
                x = self.values.content((*x.data, *[0] * (size - len(x))))
            write(x)

        return move

    def _number(self, x: GeneralContent) -> int:
        if not isinstance(x, int):
            raise NotShown("a general register that holds data is computed with")
        return x

    def _arithmetic(self, ins: Any, following: int) -> Action:
        name, operands = ins.mnemonic, ins.operands
        first = operands[0]
        bits = 8 * first.size
        every, compute = (1 << bits) - 1, _ARITHMETIC[name]
        sources = operands[1:] if name == "imul" and len(operands) == 3 else operands
        same = len(operands) == 2 and all(map(self._is_register, operands)) and operands[0].reg == operands[1].reg
        if name == "imul" and len(operands) == 1:
            raise NotShown("a product of two registers is not known")
        reads = [self._reader(ins, operand, following) for operand in sources]
        write = None if name in {"cmp", "test"} else self._writer(ins, first, following)

        def run() -> None:
            if same and name in {"xor", "sub"}:
                a = b = 0
            else:
                a = self._number(reads[0]())
                b = self._number(reads[1]()) & every if len(reads) > 1 else 1
            flags = self.flags
            result, carry, overflow = compute(a, b, bits, flags)
            result &= every
            if write is not None:
                write(result)
            if name == "not":
                return
            if name in _COUNTED and b & (63 if bits == 64 else 31) == 0:
                return
            flags.carry, flags.overflow = carry, overflow
            known = name != "imul"
            flags.zero, flags.sign = (result == 0, bool(result >> bits - 1)) if known else (None, None)

        return run

    # Vector instructions.

    def _vector_action(self, ins: Any, following: int) -> Action:
        name, operands = ins.mnemonic, list(ins.operands)
        forms = by_mnemonic(self.isa).get(name)
        if not forms:
            raise NotShown("no declaration of this instruction")
        imm = operands.pop().imm & 0xFF if self._is_immediate(operands[-1]) else None
        to, given = operands[0], operands[1:]
        for form in forms:
            if self._fits(form, to, given, imm):
                break
        else:
            raise NotShown("no declaration of this instruction with these operands")
        order = MACHINE_ORDER.get(name, tuple(range(len(given))))
        declared = [form.operands[k] for k in order]
        reads = [
            self._vector_reader(ins, x, o.type.total_bits // 8, following) for x, o in zip(given, declared, strict=True)
        ]
        in_order = [reads[order.index(k)] for k in range(len(order))]
        write = self._vector_writer(ins, to, following)
        apply, number = self.values.apply, imm or 0
        if len(in_order) == 1:
            only = in_order[0]
            return lambda: write(apply(form, (only(),), number))
        if len(in_order) == 2:
            left, right = in_order
            return lambda: write(apply(form, (left(), right()), number))
        return lambda: write(apply(form, [read() for read in in_order], number))

    def _fits(self, form: Instr, to: Any, given: list[Any], imm: int | None) -> bool:
        """Return whether operands are those of a form; narrow operands may be the low bytes of a register."""
        if (form.imm is None) != (imm is None) or (imm is not None and imm not in form.imms):
            return False
        if form.store and not self._is_memory(to):
            return False
        if to.size != form.out.total_bits // 8 or len(given) != len(form.operands):
            return False
        order = MACHINE_ORDER.get(form.mnemonics[0], tuple(range(len(given))))
        for operand, k in zip(given, order, strict=True):
            size = form.operands[k].type.total_bits // 8
            if not (operand.size == size or (self._is_register(operand) and size < operand.size == 16)):
                return False
        return True

    def _vector_reader(self, ins: Any, operand: Any, size: int, following: int) -> Callable[[], Content]:
        if self._is_memory(operand):
            address, load = self._address(ins, operand, following), self.memory.load
            return lambda: load(address(), size)
        name = ins.reg_name(operand.reg)
        if name in _GENERAL:
            read = self._reader(ins, operand, following)

            def content() -> Content:
                x = read()
                return self.values.number(x, size) if isinstance(x, int) else self.values.content(x.data[:size])

            return content
        number, registers = int(name[3:]), self.vector

        def register() -> Content:
            x = registers[number]
            return x if len(x) == size else self.values.content(self._widened(x).data[:size])

        return register

    def _widened(self, x: Content) -> Content:
        """Return the content of a whole register: above what was written there are zeros."""
        return x if len(x) == 64 else self.values.content((*x.data, *[0] * (64 - len(x))))

    def _vector_writer(self, ins: Any, operand: Any, following: int) -> Callable[[Content], None]:
        if self._is_memory(operand):
            address, store = self._address(ins, operand, following), self.memory.store
            return lambda x: store(address(), x)
        name = ins.reg_name(operand.reg)
        if name in _GENERAL:
            write = self._writer(ins, operand, following)
            return lambda x: write(x.as_int if x.is_known else x)
        number, registers = int(name[3:]), self.vector

        def set_register(x: Content) -> None:
            registers[number] = x

        return set_register


Computed = tuple[int, bool | None, bool | None]
"""A result before it is cut to its width, and the flags carry and overflow."""


def _added(a: int, b: int, bits: int, more: int = 0) -> Computed:
    result = a + b + more
    signed = _signed(a, bits) + _signed(b, bits) + more
    return result, result >> bits > 0, not -(1 << bits - 1) <= signed < 1 << bits - 1


def _subtracted(a: int, b: int, bits: int, more: int = 0) -> Computed:
    signed = _signed(a, bits) - _signed(b, bits) - more
    return a - b - more, a < b + more, not -(1 << bits - 1) <= signed < 1 << bits - 1


def _product(a: int, b: int, bits: int, flags: Flags) -> Computed:
    signed = _signed(a, bits) * _signed(b, bits)
    lost = not -(1 << bits - 1) <= signed < 1 << bits - 1
    return signed, lost, lost


def _carry_of(flags: Flags) -> int:
    if flags.carry is None:
        raise NotShown("it depends on flags that have no value")
    return int(flags.carry)


def _shift(a: int, b: int, bits: int, how: str) -> Computed:
    n = b & (63 if bits == 64 else 31)
    if how == "shl":
        return a << n, bool(n <= bits and a >> bits - n & 1), None
    whole = _signed(a, bits) if how == "sar" else a
    return whole >> n, bool(n and whole >> n - 1 & 1), None


_COUNTED = {"shl", "sal", "shr", "sar"}
"""Shifts: those by 0 leave flags as they are."""
_ARITHMETIC: dict[str, Callable[[int, int, int, Flags], Computed]] = {
    "add": lambda a, b, bits, flags: _added(a, b, bits),
    "adc": lambda a, b, bits, flags: _added(a, b, bits, _carry_of(flags)),
    "sub": lambda a, b, bits, flags: _subtracted(a, b, bits),
    "sbb": lambda a, b, bits, flags: _subtracted(a, b, bits, _carry_of(flags)),
    "cmp": lambda a, b, bits, flags: _subtracted(a, b, bits),
    "inc": lambda a, b, bits, flags: (a + 1, flags.carry, _added(a, 1, bits)[2]),
    "dec": lambda a, b, bits, flags: (a - 1, flags.carry, _subtracted(a, 1, bits)[2]),
    "neg": lambda a, b, bits, flags: _subtracted(0, a, bits),
    "not": lambda a, b, bits, flags: (~a, None, None),
    "and": lambda a, b, bits, flags: (a & b, False, False),
    "test": lambda a, b, bits, flags: (a & b, False, False),
    "or": lambda a, b, bits, flags: (a | b, False, False),
    "xor": lambda a, b, bits, flags: (a ^ b, False, False),
    "imul": _product,
    "shl": lambda a, b, bits, flags: _shift(a, b, bits, "shl"),
    "sal": lambda a, b, bits, flags: _shift(a, b, bits, "shl"),
    "shr": lambda a, b, bits, flags: _shift(a, b, bits, "shr"),
    "sar": lambda a, b, bits, flags: _shift(a, b, bits, "sar"),
}
"""Instructions on general registers, by Intel's manual: of operands, their width and the flags before."""
