"""The decoder of instructions that all have four bytes, as AArch64 has them.

Capstone's operands say which registers, lanes and shifts an instruction has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.objects.affine import AffineNumber, GeneralNumber, is_multiple
from bitsynth.objects.arithmetic import as_signed
from bitsynth.objects.declared import GeneralOperation, by_mnemonic
from bitsynth.objects.decoder import UNKNOWN_OPERANDS, InstructionDecoder
from bitsynth.objects.elf import ObjectFile
from bitsynth.objects.memory import NotShown
from bitsynth.objects.operands import WORD, Action, Address, GeneralContent, RegisterFile, wrap
from bitsynth.objects.values import Content

_VECTOR = 16
"""Bytes of a vector register."""
_EVERY = (1 << 8 * WORD) - 1
_LANES = {"B": 8, "H": 16, "S": 32, "D": 64, "Q": 128}
_SHIFTS = {
    "LSL": GeneralOperation("shift left", flags=False),
    "LSR": GeneralOperation("shift right", flags=False),
    "ASR": GeneralOperation("shift right signed", flags=False),
}
_THEN = {"add": GeneralOperation("add", flags=False), "subtract": GeneralOperation("subtract", flags=False)}
_OR = GeneralOperation("or", flags=False)
_AND = GeneralOperation("and", flags=False)
_XOR = GeneralOperation("xor", flags=False)
_EXTENDED_BITS = {"B": 8, "H": 16, "W": 32, "X": 64}
"""The bits that an extension takes, by the end of its name."""
_GROUP = "4B"
"""The arrangement of a lane of four bytes, which is an operand of dot products."""


@cache
def _constant_names(module: str) -> dict[str, dict[int, str]]:
    """Return the names of arrangements, conditions, shifts and extensions in a module of capstone, by number."""
    names: dict[str, dict[int, str]] = {start: {} for start in ("VAS", "CC", "SFT", "EXT")}
    constants = import_module(f"capstone.{module}")
    for name in dir(constants):
        start, _, what = name.removeprefix(f"{module.upper()}_").partition("_")
        if start in names and what != "INVALID":
            names[start][getattr(constants, name)] = what
    return names


class FixedLengthDecoder(InstructionDecoder):
    """Decodes instructions of four bytes."""

    def __init__(self, isa: Isa, registers: RegisterFile, features: Collection[str], capstone: Any) -> None:
        super().__init__(isa, registers, features, capstone)
        names = _constant_names(self._table.constants)
        self._arrangements, self._conditions = names["VAS"], names["CC"]
        self._shifts, self._extensions = names["SFT"], names["EXT"]
        self._ways: dict[str, Callable[[Any, int, str], Action]] = {
            "jump": self._jump, "call": self._jump, "return": self._return, "move": self._move,
            "address": self._address_of, "repeat": self._repeat, "constant": self._constant,
            "inverted": self._constant, "load": self._load, "store": self._store, "compare": self._compare,
            "nothing": lambda ins, following, does: lambda: None,
        }  # fmt: skip

    def may_branch(self, ins: Any) -> bool:
        """Return whether an instruction is a conditional jump."""
        does = self._table.moves.get(ins.mnemonic, "")
        return does.startswith("jump if") or self._table.conditional_parts(ins.mnemonic) is not None

    def require_fields(self, ins: Any, file: ObjectFile) -> None:
        """Raise NotShown if an instruction uses a distance between parts of the object, whole or by pages."""
        start, does = ins.address, self._table.moves.get(ins.mnemonic, "")
        if any(k in file.distances for k in range(start, start + ins.size)):
            raise NotShown("it computes with a distance between parts of the object")
        jumps = (self.may_branch(ins) or does in {"jump", "call"}) and self._is_immediate(ins.operands[-1])
        if jumps and file.part_at(int(ins.operands[-1].imm) & _EVERY) != file.part_at(start):
            raise NotShown("it jumps to another part of the object")

    def action(self, ins: Any, following: int) -> Action:
        """Return a function that runs an instruction; NotShown if it is not known."""
        name, table = ins.mnemonic, self._table
        if (following - ins.address) != len(ins.bytes) or ins.address % len(ins.bytes):
            raise NotShown("it is not at a multiple of 4 bytes")
        if parts := table.conditional_parts(name):
            holds, target = table.condition(parts[1]), int(ins.operands[0].imm) & _EVERY
            return lambda: target if self._registers.check_condition(holds) else None
        if does := table.moves.get(name):
            return self._ways[does.split()[0]](ins, following, does)
        if name in table.choices:
            return self._choice(ins)
        if ins.operands and self._is_general(ins, ins.operands[0]):
            if name in table.arithmetic:
                return self._arithmetic(ins)
            if name in table.expressions:
                return self._expression(ins)
        return self._vector_action(ins)

    def _is_general(self, ins: Any, operand: Any) -> bool:
        """Return whether an operand is a general register, or the one that is always zero."""
        name = ins.reg_name(operand.reg) if self._is_register(operand) else ""
        return name in self._table.zero or self._registers.is_general(name)

    def _register(self, ins: Any, operand: Any) -> str:
        if not self._is_register(operand):
            raise NotShown(UNKNOWN_OPERANDS)
        return str(ins.reg_name(operand.reg))

    def _size(self, ins: Any, operand: Any) -> int:
        """Return the bytes of a register or of its lanes that are an operand."""
        name = self._register(ins, operand)
        if self._is_general(ins, operand):
            return self._registers.size_of(name)
        if operand.vas and operand.vector_index < 0:
            bits, lanes = self._arrangement(operand)
            return bits * lanes // 8
        if operand.vas:
            return self._arrangement(operand)[0] // 8
        self._registers.vector_number(name)
        return self._table.vectors[name.rstrip("0123456789")]

    def _arrangement(self, operand: Any) -> tuple[int, int]:
        """Return the bits of a lane and the number of lanes of an operand that has an arrangement."""
        text = self._arrangements[operand.vas]
        return _LANES[text[-1]], int(text[:-1])

    # General registers.

    def _reader(self, ins: Any, operand: Any, size: int) -> Callable[[], GeneralContent]:
        """Return a function that reads a general operand of `size` bytes, shifted or extended."""
        every, amount = (1 << 8 * size) - 1, int(operand.shift.value)
        shift = self._shifts[operand.shift.type] if operand.shift.type else ""
        if self._is_immediate(operand):
            if shift not in {"", "LSL"}:
                raise NotShown(UNKNOWN_OPERANDS)
            value = int(operand.imm) << amount * (shift != "") & every
            return lambda: value
        name, own = self._register(ins, operand), self._size(ins, operand)
        if operand.vector_index >= 0 or not self._is_general(ins, operand):
            raise NotShown(UNKNOWN_OPERANDS)
        plain = (lambda: 0) if name in self._table.zero else self._registers.general_reader(name, own)
        if not shift and not operand.ext:
            if own != size:
                raise NotShown(UNKNOWN_OPERANDS)
            return plain
        extension = self._extensions[operand.ext] if operand.ext else ""
        if own != size and not extension:
            raise NotShown(UNKNOWN_OPERANDS)
        registers = self._registers

        def read() -> GeneralContent:
            content = plain()
            if registers.is_data(content):
                return self._change_data(content, extension, shift, amount, size)
            x = registers.number(content)
            if extension:
                x = _extend(x, extension, size)
            return registers.hold(_shift(x, shift, amount, 8 * size))

        return read

    def _change_data(self, x: GeneralContent, extension: str, shift: str, amount: int, size: int) -> GeneralContent:
        """Return data that was extended to `size` bytes and shifted."""
        registers, values = self._registers, self._registers.values
        if extension:
            own = min(_EXTENDED_BITS[extension[-1]] // 8, size)
            if extension[0] == "S":
                x = registers.sign_extended(x, own, size)
            else:
                x = registers.of_content(values.content((*registers.lowest(x, own).data, *[0] * (size - own))))
        if shift == "ROR":
            low, high = (
                registers.result(_SHIFTS[k], x, n, 8 * size) for k, n in (("LSR", amount), ("LSL", 8 * size - amount))
            )
            return registers.result(_OR, low, high, 8 * size)
        return registers.result(_SHIFTS[shift], x, amount, 8 * size) if shift else x

    def _numbers(self, ins: Any, operands: Collection[Any], size: int) -> list[Callable[[], GeneralNumber]]:
        """Return functions that read operands as numbers of `size` bytes."""
        reads = [self._reader(ins, operand, size) for operand in operands]
        return [lambda read=read: self._registers.number(read()) for read in reads]  # type: ignore[misc]

    def _writer(self, ins: Any, operand: Any) -> Callable[[GeneralContent], None]:
        """Return a function that writes a general operand."""
        name = self._register(ins, operand)
        if name in self._table.zero:
            return lambda x: None
        return self._registers.general_writer(name, self._size(ins, operand))

    def _number_writer(self, ins: Any, operand: Any) -> Callable[[GeneralNumber], None]:
        write, held = self._writer(ins, operand), self._registers.hold
        return lambda x: write(x if isinstance(x, int) else held(x))

    def _arithmetic(self, ins: Any) -> Action:
        registers, operands, what = self._registers, list(ins.operands), self._table.arithmetic[ins.mnemonic]
        size = self._size(ins, operands[0])
        given = operands[1:] if what.result else operands
        if len(given) + (what.first is not None) != 2 + (what.then != ""):
            raise NotShown(UNKNOWN_OPERANDS)
        reads = [self._reader(ins, operand, size) for operand in given]
        write = self._writer(ins, operands[0]) if what.result else None

        def run() -> None:
            a, b, *more = ([] if what.first is None else [what.first]) + [read() for read in reads]
            result = registers.result(what, a, b, 8 * size)
            for x in more:
                result = registers.result(_THEN[what.then], x, result, 8 * size)
            if write is not None:
                write(result)

        return run

    def _compare(self, ins: Any, following: int, does: str) -> Action:
        """Return a function that compares where a condition holds, and else sets flags to a number."""
        registers, operands, what = self._registers, ins.operands, self._table.arithmetic[ins.mnemonic]
        size, otherwise = self._size(ins, operands[0]), int(operands[2].imm)
        left, right = (self._reader(ins, operand, size) for operand in operands[:2])
        holds = self._condition(ins)

        def run() -> None:
            if registers.check_condition(holds):
                registers.result(what, left(), right(), 8 * size)
                return
            flags = registers.flags
            flags.clear()
            flags.sign, flags.zero, flags.carry, flags.overflow = (otherwise >> k & 1 for k in (3, 2, 1, 0))

        return run

    def _condition(self, ins: Any) -> Any:
        name = self._conditions.get(ins.cc, "").lower()
        if name not in self._table.conditions:
            raise NotShown("a condition of this kind is not known")
        return self._table.condition(name)

    def _choice(self, ins: Any) -> Action:
        registers, operands = self._registers, ins.operands
        size, write, holds = self._size(ins, operands[0]), self._writer(ins, operands[0]), self._condition(ins)
        reads = dict(zip("ab", [self._reader(ins, operand, size) for operand in operands[1:]], strict=False))
        yes, no = (self._value(text, reads, size) for text in self._table.choices[ins.mnemonic])
        return lambda: write(yes() if registers.check_condition(holds) else no())

    def _value(
        self, text: str, reads: dict[str, Callable[[], GeneralContent]], size: int
    ) -> Callable[[], GeneralContent]:
        """Return a function that computes an expression of operands; what is an operand alone may be data."""
        registers, every = self._registers, (1 << 8 * size) - 1
        if text in reads:
            return reads[text]
        names, compute = self._table.expression(text)
        if not set(names) <= set(reads):
            raise NotShown(UNKNOWN_OPERANDS)

        def value() -> GeneralContent:
            x = compute(*(registers.number(reads[name]()) for name in names), 0)
            return x & every if isinstance(x, int) else registers.hold(x)

        return value

    def _expression(self, ins: Any) -> Action:
        registers, operands, text = self._registers, ins.operands, self._table.expressions[ins.mnemonic]
        names, compute = self._table.expression(text)
        if len(names) != len(operands) - 1:
            raise NotShown(UNKNOWN_OPERANDS)
        reads = [self._reader(ins, x, self._size(ins, x) if self._is_register(x) else WORD) for x in operands[1:]]
        write, size = self._writer(ins, operands[0]), self._size(ins, operands[0])
        every = (1 << 8 * size) - 1
        moves_bits = "*" not in text  # A product moves no bits, so `_DataBits` has none.

        def run() -> None:
            given = [read() for read in reads]
            if moves_bits and registers.is_data(given[0]):
                numbers = map(registers.require_known, given[1:])
                result: _DataBits = compute(_DataBits(registers, given[0]), *numbers, 0)
                write(registers.of_content(registers.lowest(result.content, size)))
            else:
                write(compute(*map(registers.require_known, given), 0) & every)

        return run

    def _address_of(self, ins: Any, following: int, does: str) -> Action:
        write, registers = self._writer(ins, ins.operands[0]), self._registers
        value = registers.places.place(ins, 0, int(ins.operands[1].imm))
        if "page" in does and not isinstance(value, int) and not is_multiple(value, self._table.page):
            raise NotShown("where the page of an address begins is not known")
        content = registers.hold(value)
        return lambda: write(content)

    # Jumps.

    def _computed_jump(self, ins: Any) -> Action:
        """Return a function that jumps to the address in a register: to an imported function, or as `places` allow."""
        registers, functions = self._registers, set(self._registers.imports.values())
        read = self._reader(ins, ins.operands[0], WORD)

        def target() -> int:
            x = read()
            return x if isinstance(x, int) and x in functions else registers.places.compute(x)

        return target

    def _jump(self, ins: Any, following: int, does: str) -> Action:
        registers, operands = self._registers, ins.operands
        if not self._is_immediate(operands[-1]):
            return self._computed_jump(ins)
        target = int(operands[-1].imm) & _EVERY
        if does == "jump":
            return lambda: target
        if does == "call":
            back = registers.hold(registers.places.behind(ins, following))

            def call() -> int:
                registers.general[self._table.link] = back
                return target

            return call
        size = self._size(ins, operands[0])
        read, wanted = self._numbers(ins, operands[:1], size)[0], "not" not in does
        if "bit" in does:
            place = int(operands[1].imm)

            def is_zero() -> bool:
                return not registers.require_known(registers.hold(read())) >> place & 1

        else:

            def is_zero() -> bool:
                x = read()
                if isinstance(x, int):
                    return x == 0
                if registers.decide is None:
                    raise NotShown("it depends on a number that is not known")
                return registers.decide("equal", x, 0)

        return lambda: target if is_zero() == wanted else None

    def _return(self, ins: Any, following: int, does: str) -> Action:
        name = self._register(ins, ins.operands[0]) if ins.operands else self._table.link
        read, places = self._registers.general_reader(name, WORD), self._registers.places
        return lambda: places.destination(read())

    # Vector registers: moves of bytes.

    def _source(self, ins: Any, operand: Any, size: int) -> Callable[[], Content]:
        """Return a function that reads `size` bytes of a register, or of the lane that an operand is."""
        registers, name = self._registers, self._register(ins, operand)
        if name in self._table.zero:
            return lambda: registers.values.number(0, size)
        if self._is_general(ins, operand):
            read = registers.general_reader(name, self._size(ins, operand))
            return lambda: registers.lowest(read(), size)
        number, first = registers.vector_number(name), size * max(0, operand.vector_index)
        if not first:
            return lambda: registers.low_bytes(number, size)
        return lambda: registers.values.content(registers.low_bytes(number, _VECTOR).data[first : first + size])

    def _into(self, ins: Any, operand: Any) -> Callable[[Content], None]:
        """Return a function that writes a register, zeros above, or the lane that an operand is."""
        registers = self._registers
        if self._is_general(ins, operand):
            write, whole = self._writer(ins, operand), self._size(ins, operand)

            def to_general(x: Content) -> None:
                x = registers.values.content((*x.data, *[0] * (whole - len(x))))
                write(registers.of_content(x))

            return to_general
        number, index = registers.vector_number(self._register(ins, operand)), operand.vector_index

        def to_vector(x: Content) -> None:
            if index >= 0:
                old, first = registers.low_bytes(number, _VECTOR).data, len(x) * index
                x = registers.values.content((*old[:first], *x.data, *old[first + len(x) :]))
            registers.vector[number] = x

        return to_vector

    def _move(self, ins: Any, following: int, does: str) -> Action:
        operands = ins.operands
        if len(operands) != 2:
            raise NotShown(UNKNOWN_OPERANDS)
        to, of = operands
        size = self._size(ins, to)
        if does == "move part":
            return self._move_part(ins, size)
        if self._is_immediate(of):
            if not self._is_general(ins, to):
                raise NotShown(UNKNOWN_OPERANDS)
            read, write = self._reader(ins, of, size), self._writer(ins, to)
            return lambda: write(read())
        general = [self._is_general(ins, operand) for operand in operands]
        if all(general):
            read, write = self._reader(ins, of, size), self._writer(ins, to)
            return lambda: write(read())
        # Capstone 5 leaves the arrangement of some lanes out: they are as wide as the other operand.
        given = self._size(ins, of)
        if of.vector_index >= 0 and not of.vas:
            given = size
        elif to.vector_index >= 0 and not to.vas:
            size = given
        moved = min(size, given)
        narrower = (of.vector_index >= 0 and general[0]) or (to.vector_index >= 0 and general[1])
        if size != given and not (narrower and moved == (given if general[0] else size)):
            raise NotShown(UNKNOWN_OPERANDS)
        source, into = self._source(ins, of, moved), self._into(ins, to)
        return lambda: into(source())

    def _move_part(self, ins: Any, size: int) -> Action:
        """Return a function that writes two bytes of a general register."""
        registers, (to, of) = self._registers, ins.operands
        read, write = self._numbers(ins, [to], size)[0], self._writer(ins, to)
        place = int(of.shift.value) if of.shift.type else 0
        value = int(of.imm)
        return lambda: write(registers.require_known(registers.hold(read())) & ~(0xFFFF << place) | value << place)

    def _repeat(self, ins: Any, following: int, does: str) -> Action:
        """Return a function that writes a lane, or a part of a general register, to every lane."""
        registers, (to, of) = self._registers, ins.operands
        if to.vector_index >= 0 or not to.vas:
            raise NotShown(UNKNOWN_OPERANDS)
        bits, lanes = self._arrangement(to)
        general = self._is_general(ins, of)
        # Capstone 5 leaves the arrangement of some lanes out; it is the result's arrangement.
        if not general and (of.vector_index < 0 or (of.vas and self._arrangement(of)[0] != bits)):
            raise NotShown(UNKNOWN_OPERANDS)
        if general and self._size(ins, of) * 8 < bits:
            raise NotShown(UNKNOWN_OPERANDS)
        source, into = self._source(ins, of, bits // 8), self._into(ins, to)
        return lambda: into(registers.values.content(source().data * lanes))

    def _constant(self, ins: Any, following: int, does: str) -> Action:
        """Return a function that writes a number to every lane."""
        registers, (to, of) = self._registers, ins.operands
        if not self._is_immediate(of) or to.vector_index >= 0:
            raise NotShown(UNKNOWN_OPERANDS)
        bits, lanes = self._arrangement(to) if to.vas else (8 * self._size(ins, to), 1)
        value, shift = int(of.imm), self._shifts[of.shift.type] if of.shift.type else ""
        if shift not in {"", "LSL", "MSL"}:
            raise NotShown(UNKNOWN_OPERANDS)
        if shift:
            value <<= of.shift.value
        if shift == "MSL":  # Ones move in.
            value |= (1 << of.shift.value) - 1
        value = (~value if does.startswith("inverted") else value) & ((1 << bits) - 1)
        content, into = (
            registers.values.content(registers.values.number(value, bits // 8).data * lanes),
            self._into(ins, to),
        )
        return lambda: into(content)

    # Memory.

    def _address(self, ins: Any, operand: Any) -> Callable[[], Address]:
        """Return a function that computes an address, before anything is added to the register that it is in."""
        registers, place = self._registers, operand.mem
        base = str(ins.reg_name(place.base))
        general, total = registers.general, registers.sum_of_parts
        if not registers.is_general(base) or registers.general_named(base) != base:
            raise NotShown("an address of this kind is not known")

        def of_base() -> GeneralContent:
            x = general[base]
            if base == self._table.stack:
                at, aligned = registers.number(x), self._table.stack_alignment
                if at % aligned if isinstance(at, int) else not is_multiple(at, aligned):
                    raise NotShown(f"the stack pointer is not a multiple of {aligned}")
            return x

        if not place.index:
            fixed = int(place.disp)
            return lambda: total(of_base(), 0, 1, fixed)
        index, amount = str(ins.reg_name(place.index)), int(operand.shift.value) if operand.shift.type else 0
        shift = self._shifts[operand.shift.type] if operand.shift.type else ""
        extension = self._extensions[operand.ext] if operand.ext else ""
        size = registers.size_of(index)
        if shift not in {"", "LSL"} or place.disp or (size < WORD and not extension):
            raise NotShown("an address of this kind is not known")
        read = (lambda: 0) if index in self._table.zero else registers.general_reader(index, size)

        def with_index() -> Address:
            x = read()
            if extension and registers.is_data(x):
                x = self._change_data(x, extension, "", 0, WORD)
            elif extension:
                x = registers.hold(_extend(registers.number(x), extension, WORD))
            return total(of_base(), x, 1 << amount, 0)

        return with_index

    def _access(self, ins: Any, size: int) -> tuple[list[Any], Callable[[Callable[[Address], None]], None]]:
        """Return the registers that are loaded or stored, `size` bytes in all, and how to do it.

        The returned function calls its argument with the address, and changes the address register before or after
        that.
        """
        registers, operands = self._registers, list(ins.operands)
        places = [k for k, operand in enumerate(operands) if self._is_memory(operand)]
        if not places:
            if len(operands) != 2 or not self._is_immediate(operands[1]):
                raise NotShown(UNKNOWN_OPERANDS)
            at = registers.places.place(ins, 0, int(operands[1].imm))
            return operands[:1], lambda do: do(at)
        (k,) = places
        targets, place, behind = operands[:k], operands[k], operands[k + 1 :]
        address = self._address(ins, place)
        if not ins.writeback:
            if behind:
                raise NotShown(UNKNOWN_OPERANDS)
            return targets, lambda do: do(address())
        base = str(ins.reg_name(place.mem.base))
        if any(self._is_general(ins, x) and ins.reg_name(x.reg) in self._table.general[base] for x in targets):
            raise NotShown("it moves a register that holds the address, and changes it")
        write = registers.general_writer(base, WORD)
        more = self._numbers(ins, behind, WORD)[0] if behind else lambda: size

        def number() -> GeneralNumber:
            at = address()
            if isinstance(at, Content):
                raise NotShown("an address that is changed depends on data")
            return at

        def change(x: GeneralNumber) -> None:
            x = wrap(x)
            write(x if isinstance(x, int) else registers.hold(x))

        def after(do: Callable[[Address], None]) -> None:
            at = number()
            do(at)
            change(at + more())

        def before(do: Callable[[Address], None]) -> None:
            at = number()
            change(at)
            do(at)

        return targets, after if ins.post_index else before

    def _pieces(self, ins: Any, does: str) -> tuple[list[tuple[Any, int]], int]:
        """Return the registers that are loaded or stored with the bytes of each, and the bytes of all."""
        targets = [x for x in ins.operands if self._is_register(x)]
        if any(self._is_memory(x) for x in ins.operands):
            targets = targets[: next(k for k, x in enumerate(ins.operands) if self._is_memory(x))]
        number = [int(word) for word in does.split() if word.isdigit()]
        pieces = [(x, number[0] if number else self._size(ins, x)) for x in targets]
        return pieces, sum(size for _, size in pieces)

    def _load(self, ins: Any, following: int, does: str) -> Action:
        registers, load = self._registers, self._registers.memory.load
        repeated, signed = does.endswith("repeated"), "signed" in does
        pieces, size = self._pieces(ins, does)
        if repeated:
            bits, lanes = self._arrangement(pieces[0][0])
            pieces, size = [(pieces[0][0], bits // 8)], bits // 8
        targets, access = self._access(ins, size)
        if len({x.reg for x in targets}) < len(targets) or len(targets) != len(pieces):
            raise NotShown("it loads a register twice")
        writes = [self._into(ins, x) for x, _ in pieces]
        signed_to = self._size(ins, targets[0])

        def value(content: Content) -> Content:
            if repeated:
                return registers.values.content(content.data * lanes)
            if signed:
                x = registers.sign_extended(registers.of_content(content), len(content), signed_to)
                return registers.lowest(x, signed_to)
            return content

        def run(at: Address) -> None:
            imported = registers.imports.get(at) if isinstance(at, int) and size == WORD else None
            if imported is not None:
                writes[0](registers.values.number(imported, WORD))
                return
            for write, place, (_, each) in zip(writes, _following(at, pieces), pieces, strict=True):
                write(value(load(place, each)))

        return lambda: access(run)

    def _store(self, ins: Any, following: int, does: str) -> Action:
        store = self._registers.memory.store
        pieces, size = self._pieces(ins, does)
        _, access = self._access(ins, size)
        sources = [self._source(ins, x, each) for x, each in pieces]

        def run(at: Address) -> None:
            for read, place in zip(sources, _following(at, pieces), strict=True):
                store(place, read())

        return lambda: access(run)

    # Vector instructions that are declared.

    def _vector_action(self, ins: Any) -> Action:
        registers, name, operands = self._registers, ins.mnemonic, list(ins.operands)
        forms = self._find_allowed_forms([x for x in by_mnemonic(self._isa).get(name, ()) if _is_vector(x)])
        imm = operands.pop().imm if self._is_immediate(operands[-1]) else None
        if not all(map(self._is_register, operands)) or any(x.shift.type or x.ext for x in ins.operands):
            raise NotShown(UNKNOWN_OPERANDS)
        if imm is None and operands[-1].vector_index >= 0:
            imm = operands[-1].vector_index
        for form in forms:
            # A register that the result replaces is an operand too.
            given = [operands[0], *operands[1:]] if form.tied else operands[1:]
            order = self._table.order.get(name, list(range(len(given))))
            if self._fits(ins, form, operands[0], given, imm, order):
                break
        else:
            raise NotShown(UNKNOWN_OPERANDS)
        numbers = [registers.vector_number(self._register(ins, x)) for x in given]
        reads = [(numbers[order.index(k)], x.type.total_bits // 8) for k, x in enumerate(form.operands)]
        to, apply, constant = (
            registers.vector_number(self._register(ins, operands[0])),
            registers.values.apply,
            imm or 0,
        )

        def run() -> None:
            registers.vector[to] = apply(form, [registers.low_bytes(k, size) for k, size in reads], constant)

        return run

    def _fits(self, ins: Any, form: Instr, to: Any, given: list[Any], imm: int | None, order: list[int]) -> bool:
        """Return whether operands fit a form; the last may be a lane, whose number is `imm`."""
        if (form.imm is None) != (imm is None) or (imm is not None and imm not in form.imms):
            return False
        if len(given) != len(form.operands) or len(order) != len(given) or not self._has_type(ins, to, form.out):
            return False
        for place, (operand, k) in enumerate(zip(given, order, strict=True)):
            kind = form.operands[k].type
            if operand.vector_index >= 0:
                lane = self._arrangements[operand.vas] if operand.vas else ""
                of_group = lane == _GROUP and form.out.bits == 4 * kind.bits and kind.bits == _LANES["B"]
                if place < len(given) - 1 or kind.total_bits != 8 * _VECTOR:
                    return False
                if not of_group and (lane[:1] != "1" or self._arrangement(operand)[0] != kind.bits):
                    return False
            elif not self._has_type(ins, operand, kind) and not self._is_low_half(operand, kind, form.out):
                return False
        return True

    def _has_type(self, ins: Any, operand: Any, kind: VecType) -> bool:
        if self._is_general(ins, operand) or operand.vector_index >= 0:
            return False
        if operand.vas:
            return self._arrangement(operand) == (kind.bits, kind.lanes) and kind.lanes > 1
        return kind.lanes == 1 and self._size(ins, operand) * 8 == kind.bits

    def _is_low_half(self, operand: Any, kind: VecType, out: VecType) -> bool:
        """Return whether an operand is as many low lanes of a declared one as the result has, as of widening."""
        return (
            bool(operand.vas)
            and self._arrangement(operand) == (kind.bits, kind.lanes // 2)
            and (out.lanes == kind.lanes // 2 and out.bits == 2 * kind.bits)
        )


class _DataBits:
    """Data in an expression of the table that selects, moves or extends bits: a number modulo 2**64."""

    def __init__(self, registers: RegisterFile, content: GeneralContent) -> None:
        data = registers.content(content).data
        self._registers = registers
        self.content = registers.of_content(registers.values.content((*data, *[0] * (WORD - len(data)))))

    def _apply(self, what: GeneralOperation, number: int) -> _DataBits:
        return _DataBits(self._registers, self._registers.result(what, self.content, number & _EVERY, 8 * WORD))

    def __rshift__(self, number: int) -> _DataBits:
        return self._apply(_SHIFTS["LSR"], number)

    def __lshift__(self, number: int) -> _DataBits:
        return self._apply(_SHIFTS["LSL"], number)

    def __and__(self, number: int) -> _DataBits:
        return self._apply(_AND, number)

    def __xor__(self, number: int) -> _DataBits:
        return self._apply(_XOR, number)

    def __sub__(self, number: int) -> _DataBits:
        return self._apply(_THEN["subtract"], number)


def _following(at: Address, pieces: Sequence[tuple[Any, int]]) -> Iterator[Address]:
    """Yield the address of each of several pieces of memory; the first is at `at`."""
    yield at
    for _, size in pieces[:-1]:
        if isinstance(at, Content):
            raise NotShown("an address of several registers depends on data")
        at = wrap(at + size)
        yield at


def _is_vector(form: Instr) -> bool:
    """Return whether a form is one instruction on vector registers alone."""
    kinds = [form.out, *(o.type for o in form.operands)]
    return form.on_registers and form.instructions == 1 and not any(kind.in_general for kind in kinds)


def _extend(x: GeneralNumber, extension: str, size: int) -> GeneralNumber:
    """Return a number whose low byte, half, word or all of it was extended to `size` bytes."""
    bits = _EXTENDED_BITS[extension[-1]]
    if isinstance(x, AffineNumber):
        if bits == 8 * WORD == 8 * size:
            return x
        raise NotShown("a part of a number that depends on sizes is computed with")
    low = x & ((1 << bits) - 1)
    return (as_signed(low, bits) if extension[0] == "S" else low) & ((1 << 8 * size) - 1)


def _shift(x: GeneralNumber, shift: str, amount: int, bits: int) -> GeneralNumber:
    """Return a number of `bits` bits that was shifted."""
    if not shift:
        return x
    if isinstance(x, AffineNumber):
        if shift == "LSL" and bits == 8 * WORD:
            return x * (1 << amount)
        raise NotShown("it is no sum of numbers that depend on sizes")
    every = (1 << bits) - 1
    x &= every
    if shift == "LSL":
        return x << amount & every
    if shift == "LSR":
        return x >> amount
    if shift == "ASR":
        return as_signed(x, bits) >> amount & every
    if shift == "ROR":
        return (x >> amount | x << bits - amount) & every
    raise NotShown(UNKNOWN_OPERANDS)
