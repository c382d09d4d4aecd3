"""How machine code of an architecture is run, as data: `isa_specs/ARCHITECTURE.toml`, and instructions by mnemonic."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from bitsynth import paths
from bitsynth.errors import SpecError
from bitsynth.isa import lane, toml
from bitsynth.isa.expand import vector_type
from bitsynth.isa.instr import Instr, Operand
from bitsynth.isa.load import Isa

FLAGS = ("zero", "carry", "sign", "overflow")
"""The flags that conditions are expressions of."""
OPERANDS = ("a", "b", "c")
"""The operands, the first ones first, that expressions are of."""
Condition = tuple[tuple[str, ...], Callable[..., int]]
"""The flags that a condition reads, and whether it holds, as a function of all flags."""


class GeneralOperation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An instruction on general registers: what it `does` with its operands.

    `first` and `second` are operands that it has by itself. With `carry` it adds or subtracts the carry too, with
    `complement` the second operand is inverted, and `then` the result is added to one more operand, or subtracted from
    it. Without `result` only flags are written, without `flags` none; flags that it `keeps` stay as they were. With
    `replaces` the register of the result is no operand.
    """

    does: Literal[
        "add", "subtract", "multiply", "and", "or", "xor", "shift left", "shift right", "shift right signed",
        "rotate right", "count ones", "divide",
    ]  # fmt: skip
    first: int | None = None
    second: int | None = None
    carry: bool = False
    complement: bool = False
    then: Literal["", "add", "subtract"] = ""
    result: bool = True
    flags: bool = True
    keeps: list[str] = []
    replaces: bool = False


class InstructionField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A relocation of type `type` that fills `parts` (bit, bits) of a word with bits `first` and up of a number.

    The number is the `distance` from the word, the distance of their `pages`, or the place in a page, `low`.
    """

    type: int
    of: Literal["distance", "pages", "low"]
    first: int
    parts: list[tuple[int, int]]

    def fill(self, word: int, address: int, at: int, page: int) -> int | None:
        """Return the word at `at` with its number for `address`; None if the field cannot have it.

        A `page` has this many bytes, a power of two.
        """
        pages = (address & -page) - (at & -page)
        values = {"distance": address - at, "pages": pages, "low": address & (page - 1)}
        value, width = values[self.of], sum(bits for _, bits in self.parts)
        number, signed = value >> self.first, self.of != "low"
        if number << self.first != value or not -(1 << width - 1) * signed <= number < 1 << width - signed:
            return None
        for bit, bits in self.parts:
            every = (1 << bits) - 1
            word, number = word & ~(every << bit) | (number & every) << bit, number >> bits
        return word


class PrefixEncodings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Encodings with prefixes whose operands capstone does not fully report.

    Attributes:
        vector: First bytes of vector instructions; processors refuse some prefixes before these.
        aligned: Mnemonics that refuse addresses in memory which are no multiple of their operand's size.
        widest: First bytes of encodings that sets with the widest vectors alone have, and for operands as wide; there
            an offset of one byte counts operands, not bytes.
        any_width: Mnemonics that such sets have in these encodings though no operand is as wide.
        undefined: First byte, place, mask and value of bits in encodings that capstone decodes and the machine refuses.
        spread_bit: First byte, place and mask of the bit that means `spread`, and nothing else that is understood.
        spread: How capstone writes that one lane in memory is read into every lane.
        wide_registers: Prefixes that name further registers alone.
        repeat: The prefix of instructions on memory that are repeated.
        repeated: Registers that these read and change: where they write, where they read, how often they are repeated,
            and what they write.
    """

    vector: list[int]
    aligned: list[str]
    widest: list[int]
    any_width: list[str]
    undefined: list[tuple[int, int, int, int]]
    spread_bit: tuple[int, int, int]
    spread: str
    wide_registers: list[int]
    repeat: int
    repeated: tuple[str, str, str, str]


class UnknownInstruction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An instruction that is, but for one byte, one that capstone knows, with the same operands.

    Attributes:
        bits: What its bytes are: the place of a byte, a mask, and what the byte is under it.
        place: The place of the byte by which the two differ.
        like: That byte of the one that capstone knows.
    """

    bits: list[tuple[int, int, int]]
    place: int
    like: int


class MachineTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Registers, calling convention and general instructions of an architecture, and how its files are read.

    Attributes:
        elf: The machine in an ELF header.
        disassembler: The names of capstone's constants of the architecture and its mode.
        instruction_length: "fixed" if instructions are words of four bytes, "variable" if they have one byte or more.
        unknown: By mnemonic, instructions that capstone may not know.
        constants: The module of capstone with the names of kinds of operands.
        absolute: Relocations that are an address: bytes of the field.
        relative: Relocations that are a distance from the field.
            slots: Relocations that are a distance from the field to an address in memory, which a linker writes there.
            imports: Relocations of data that the loader of a library makes the address of a function.
    fields: Relocations of fields of instructions.
        arguments: The registers of the first arguments of a call; the others are on the stack.
        saved: Registers that a function must leave as they were, besides the stack pointer.
        saved_vectors: Vector registers whose lowest `saved_bytes` a function must leave as they were.
        counter: The register that holds the address of the next instruction.
        link: The register that holds the address to return to; "" if it is on the stack.
        carry_is_no_borrow: Whether the flag carry of a difference means that nothing was borrowed.
        frame: The register from which an instruction takes the stack pointer when a function ends, and then itself.
        masks: Moves to and from registers of masks, and the bytes that they move; what is above is cleared.
        result: The register with what a function returns.
        wide: The registers of the low and the high half of a product, and of a number that is divided; the quotient and
            the rest are written there.
        padding: Beginnings of mnemonics with which compilers fill gaps.
        general: The names of the parts of a general register: 8, 4, 2 and 1 bytes.
        second_bytes: Names of the second bytes of general registers.
        vectors: The bytes of a vector register by the beginning of its name; its number follows.
        sizes: Bytes of operands, for instructions whose operand sizes capstone does not report.
        order: Place in the declaration of each operand, of mnemonics where the machine has another order.
        red_zone: Bytes below the stack pointer that the handler of a signal leaves as they are.
        conditions: Whether a condition holds, by the end of a mnemonic: an expression of flags, which are 0 or 1.
        conditional: What a mnemonic does that begins so and ends with a condition.
        moves: What other instructions do that compute nothing.
        arithmetic: The operations of instructions that compute.
            choices: What is written where a condition holds, and where it does not: expressions of operands.
        expressions: What other instructions compute of numbers that are known: expressions of their operands.
        zero: The names of the register that is always zero.
        page: The bytes of a page; some instructions compute the address of a page.
        stack_alignment: What an address in the stack pointer must be a multiple of.
        encodings: Encodings with prefixes whose operands capstone does not fully report; for a variable length.
    """

    elf: str
    disassembler: tuple[str, str]
    instruction_length: Literal["fixed", "variable"]
    absolute: dict[str, int]
    relative: dict[str, int]
    arguments: list[str]
    saved: list[str]
    stack: str
    counter: str
    padding: list[str]
    general: dict[str, list[str]]
    vectors: dict[str, int]
    vector_registers: int
    order: dict[str, list[int]]
    red_zone: int
    conditions: dict[str, str]
    conditional: dict[str, Literal["jump", "move", "number"]]
    moves: dict[str, str]
    arithmetic: dict[str, GeneralOperation]
    slots: dict[str, int] = {}
    fields: dict[str, InstructionField] = {}
    imports: list[str] = []
    sizes: dict[str, int] = {}
    second_bytes: dict[str, str] = {}
    choices: dict[str, tuple[str, str]] = {}
    expressions: dict[str, str] = {}
    zero: list[str] = []
    stack_alignment: int = 1
    page: int = 1
    masks: dict[str, int] = {}
    frame: str = ""
    result: str = ""
    wide: list[str] = []
    saved_vectors: list[int] = []
    saved_bytes: int = 0
    link: str = ""
    carry_is_no_borrow: bool = False
    constants: str = ""
    unknown: dict[str, UnknownInstruction] = {}
    encodings: PrefixEncodings | None = None

    def condition(self, name: str) -> Condition:
        """Return the condition that is written `name` at the end of a mnemonic."""
        tree = lane.parse(name, self.conditions[name], FLAGS)
        return tuple(f for f in FLAGS if f in self.conditions[name]), lane.compile_lane(tree, list(FLAGS))

    def expression(self, text: str) -> tuple[tuple[str, ...], Callable[..., Any]]:
        """Return the operands that an expression reads, and it as a function of them and of 0."""
        tree = lane.parse("an expression", text, OPERANDS)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names = [name for name in OPERANDS if name in used]
        return tuple(names), lane.compile_lane(tree, names)

    def conditional_parts(self, mnemonic: str) -> tuple[str, str] | None:
        """Return what a conditional instruction does, and the name of its condition; None if it is none."""
        for start, does in self.conditional.items():
            if mnemonic.startswith(start) and mnemonic.removeprefix(start) in self.conditions:
                return does, mnemonic.removeprefix(start)
        return None


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[instr.NAME]` table of an architecture, with the keys of an instruction set's tables."""

    doc: str
    mnemonic: str | list[str]
    in_: dict[str, str] = msgspec.field(name="in")
    out: str
    lane: str
    forms: dict[str, list[str | int]]
    imm: dict[str, tuple[int | str, int | str]] = {}
    tied: list[str] = []


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    machine: MachineTable
    instr: dict[str, _Entry]


def machine_table(isa: Isa) -> MachineTable:
    """Return the table of the architecture of an instruction set; SpecError if there is none."""
    path = _path(isa)
    if not path.is_file():
        raise SpecError(f"objects of {isa.table.arch} cannot be proved: there is no {path}")
    return _file(path).machine


@lru_cache
def by_mnemonic(isa: Isa) -> Mapping[str, tuple[Instr, ...]]:
    """Return the forms that a mnemonic may stand for, the instruction set's forms first."""
    path = _path(isa)
    moves = [form for name, entry in _file(path).instr.items() for form in _forms(str(path), name, entry)]
    out: dict[str, list[Instr]] = {}
    for instr in (*isa.instrs.values(), *moves):
        if not instr.floats:
            for mnemonic in instr.mnemonics:
                out.setdefault(mnemonic, []).append(instr)
    return {mnemonic: tuple(instrs) for mnemonic, instrs in out.items()}


def _path(isa: Isa) -> Path:
    return paths.architectures().parent / f"{isa.table.arch}.toml"


@lru_cache
def _file(path: Path) -> _File:
    return toml.decode(path, _File)


def _forms(where: str, name: str, entry: _Entry) -> list[Instr]:
    out = []
    rows = [dict(zip(entry.forms, row, strict=True)) for row in zip(*entry.forms.values(), strict=True)]
    spelled = [entry.mnemonic] * len(rows) if isinstance(entry.mnemonic, str) else entry.mnemonic
    for row, mnemonic in zip(rows, spelled, strict=True):
        types = {k: vector_type(where, v) for k, v in row.items() if isinstance(v, str)}
        numbers = {k: v for k, v in row.items() if isinstance(v, int)}
        sizes = {f"{k}_{what}": getattr(t, what) for k, t in types.items() for what in ("bits", "lanes")}
        imm: tuple[str, int, int] | None = None
        for of, ends in entry.imm.items():
            low, high = (numbers[end] if isinstance(end, str) else end for end in ends)
            imm = of, low, high
        instr = Instr(
            isa="", name=f"{name}.{row[next(iter(row))]}", doc=entry.doc,
            operands=tuple(Operand(k, types[v]) for k, v in entry.in_.items()),
            imm=imm, try_imm=(), out=types[entry.out], lane=entry.lane, text="",
            mnemonics=tuple(mnemonic.split(" | ")), cost={}, tied=tuple(entry.tied), high=None, store=False,
            names={**numbers, **sizes}, setting="",
        )  # fmt: skip
        out.append(instr)
    return out
