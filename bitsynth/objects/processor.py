"""Runs machine code: numbers in general registers, values in vector registers and memory.

Control flow depends on numbers alone. Vector instructions are those declared for the instruction set and its
architecture, by mnemonic and operand sizes; an instruction that is declared nowhere is refused by name and address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any

from bitsynth.errors import ToolError
from bitsynth.isa.domains.forms import Inexact
from bitsynth.isa.load import Isa
from bitsynth.objects.affine import AffineNumber, GeneralNumber
from bitsynth.objects.arithmetic import Flags
from bitsynth.objects.declared import MachineTable, machine_table
from bitsynth.objects.decoder import InstructionDecoder
from bitsynth.objects.elf import INSTALL, ObjectFile
from bitsynth.objects.external import call_external
from bitsynth.objects.fixed_length_decoder import FixedLengthDecoder
from bitsynth.objects.memory import CallMemory, NotShown
from bitsynth.objects.operands import WORD, Action, GeneralContent, KnownPlaces, RegisterFile, affine_of
from bitsynth.objects.values import Contents
from bitsynth.objects.variable_length_decoder import VariableLengthDecoder

STACK_BYTES = 1 << 16
"""The most stack of a call."""
STACK_ALIGNMENT = 16
"""The alignment of a caller's stack pointer where it calls a function."""
_EVERY = (1 << 8 * WORD) - 1
_MAX_INSTRUCTIONS = 20_000_000
"""The most instructions of a call."""


_DECODERS: dict[str, type[InstructionDecoder]] = {"fixed": FixedLengthDecoder, "variable": VariableLengthDecoder}
"""By `MachineTable.instruction_length`."""


def import_capstone() -> Any:
    """Return the module capstone; ToolError if it is not installed."""
    try:
        import capstone
    except ImportError:
        raise ToolError(INSTALL) from None
    return capstone


class Disassembler:
    """Capstone's disassembler for an architecture, with instructions that it does not know.

    ToolError if capstone is not installed.
    """

    def __init__(self, table: MachineTable) -> None:
        capstone = import_capstone()
        self._capstone = capstone.Cs(*(getattr(capstone, name) for name in table.disassembler))
        self._capstone.detail = True
        self._unknown, self._sizes = table.unknown, table.sizes

    def instruction(self, data: bytes, address: int) -> Any:
        """Return the first instruction of some bytes that are loaded at an address; None if they are none."""
        ins = next(self._capstone.disasm(data, address), None)
        for name, other in self._unknown.items() if ins is None else ():
            if all(place < len(data) and data[place] & mask == bits for place, mask, bits in other.bits):
                alike = data[: other.place] + bytes([other.like]) + data[other.place + 1 :]
                known = next(self._capstone.disasm(alike, address), None)
                return known and _ChangedInstruction(known, mnemonic=name, bytes=data[: known.size])
        if ins is not None and ins.mnemonic in self._sizes:
            return _ChangedInstruction(
                ins, operands=[_SizedOperand(x, self._sizes[ins.mnemonic]) for x in ins.operands]
            )
        return ins


class _ChangedInstruction:
    """An instruction as capstone has it, with some attributes changed."""

    def __init__(self, ins: Any, **changed: Any) -> None:
        self._ins = ins
        self.__dict__ |= changed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ins, name)


class _SizedOperand:
    """An operand as capstone has it, with another number of bytes."""

    def __init__(self, operand: Any, size: int) -> None:
        self._operand, self.size = operand, size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operand, name)


class CodeProcessor:
    """A processor that runs functions of one object: one with the base of the instruction set and some `features`.

    With `any_place` the object may be loaded anywhere: an address that code computes from its own place is a sum, a
    distance from the unknown `ObjectPart.base`. The instructions are those at the addresses that the file has.

    Attributes:
        decoded: By address, the instructions that were run and the address of the next one.
        taken: Whether conditional jumps were taken, by address.
        returns: With `any_place` the address in the file of each unknown address that a function may return to.
        text: Instructions in words, by address.
        stubs: By address, functions that are not run but have a meaning of their own. A stub reads arguments and
            memory, writes memory, and returns the number that the function returns, None for none.
    """

    def __init__(
        self,
        file: ObjectFile,
        isa: Isa,
        values: Contents,
        memory: CallMemory,
        features: Iterable[str] = (),
        *,
        any_place: bool = False,
    ) -> None:
        self.file, self.isa, self.values, self.memory = file, isa, values, memory
        self._table = machine_table(isa)
        self._disassembler = Disassembler(self._table)
        self.registers = RegisterFile(self._table, values, memory)
        self.registers.imports = file.imports
        decoder = _DECODERS[self._table.instruction_length]
        self._decoder = decoder(isa, self.registers, {"", *features}, import_capstone())
        self._any_place = any_place
        self.returns = dict[GeneralNumber, int]()
        self.stubs: dict[int, Callable[[], int | None]] = {
            address: partial(call_external, name, self) for address, name in file.externals.items()
        }
        self._before: dict[int, int] = {}
        self._stub_calls = count()
        if any_place:
            self.registers.places = _AnyPlaces(file, self.returns)
        self.decoded: dict[int, tuple[Action, int]] = {}
        self.taken: dict[int, set[bool]] = {}
        self.text: dict[int, str] = {}

    def call(self, address: int, arguments: Iterable[int], *, stack: int, back: int) -> None:
        """Run the function at `address`, which returns to `back`; NotShown names the fault.

        The arguments that are not in registers are at `stack`.
        """
        kept = self.enter(arguments, stack=stack, back=back)
        try:
            self._run(address, back)
        except (NotShown, Inexact) as why:
            kind = type(why) if isinstance(why, NotShown) else NotShown
            raise kind(f"{self.text_at(self.memory.at)}: {why}") from None
        self.require_kept(kept)

    def call_inside(self, address: int, arguments: Iterable[int], back: int) -> None:
        """Run a function from a stub, with registers of its own, on stack below that of the caller of the stub.

        Registers are as before afterwards, and that stack has no value. Arguments are few enough to be in registers.
        """
        registers, table, unknown = self.registers, self._table, self.values.memory
        general, vector, flags = dict(registers.general), dict(registers.vector), registers.flags
        pointer = registers.number(general[table.stack])
        assert isinstance(pointer, int)
        call, widest = ("inside", next(self._stub_calls)), max(table.vectors.values())
        registers.general |= {name: unknown((*call, name), 0, WORD) for name in table.general}
        registers.vector |= {k: unknown((*call, k), 0, widest) for k in range(table.vector_registers)}
        registers.flags = Flags()
        registers.general |= dict(zip(table.arguments, arguments, strict=False))
        top = pointer & -STACK_ALIGNMENT
        registers.set_stack(top)
        saved = {name: registers.general[name] for name in table.saved} | self._get_saved_vectors()
        if table.link:
            registers.general[table.link] = registers.hold(back)
        else:
            registers.push(registers.hold(back))
        self._run(address, back)
        self.require_kept({table.stack: top, **saved})
        registers.general |= general
        registers.vector |= vector
        registers.flags = flags
        self.memory.keep_stack(pointer)

    def enter(
        self, arguments: Iterable[GeneralContent], *, stack: GeneralNumber, back: GeneralNumber
    ) -> dict[str, GeneralContent]:
        """Set registers and stack as a caller does; return the contents that registers must have at the end."""
        registers, table = self.registers, self._table
        registers.reset()
        before = dict(registers.general)
        given = list(arguments)
        registers.general |= dict(zip(table.arguments, given, strict=False))
        behind = given[len(table.arguments) :]
        top = stack + WORD * len(behind)
        self.memory.add_stack(top, STACK_BYTES)
        registers.set_stack(registers.hold(top))
        for number in reversed(behind):
            registers.push(number)
        if table.link:
            registers.general[table.link] = registers.hold(back)
        else:
            registers.push(registers.hold(back))
        saved = {name: before[name] for name in table.saved} | self._get_saved_vectors()
        return {table.stack: registers.hold(stack), **saved}

    def _get_saved_vectors(self) -> dict[str, GeneralContent]:
        """Return the bytes of vector registers that a function must leave as they were."""
        size = self._table.saved_bytes
        return {f"vector {k}": self.registers.low_bytes(k, size) for k in self._table.saved_vectors}

    def require_kept(self, kept: Mapping[str, GeneralContent]) -> None:
        """Raise NotShown if a register that belongs to the caller has changed."""
        general, stack = self.registers.general, self._table.stack
        if general[stack] != kept[stack]:
            raise NotShown("the stack pointer is not what it was")
        now = {name: general[name] for name in self._table.saved} | self._get_saved_vectors()
        if changed := [name for name, x in now.items() if x is not kept[name]]:
            raise NotShown(f"register {changed[0]} is not what it was")

    def step(self, address: int) -> int:
        """Run one instruction; return the address of the next."""
        self.memory.at = address
        entry = self.decoded.get(address)
        if entry is None:
            entry = self.decoded[address] = self._decode(address)
        target = entry[0]()
        if address in self.taken:
            self.taken[address].add(target is not None)
        return entry[1] if target is None else target

    def _run(self, address: int, back: int) -> None:
        decoded, taken = self.decoded, self.taken
        for _ in range(_MAX_INSTRUCTIONS):
            self.memory.at = address
            if address == back:
                return
            entry = decoded.get(address)
            if entry is None:
                entry = decoded[address] = self._decode(address)
            target = entry[0]()
            if address in taken:
                taken[address].add(target is not None)
            address = entry[1] if target is None else target
        raise NotShown(f"{_MAX_INSTRUCTIONS:,} instructions did not end it")

    def text_at(self, address: int) -> str:
        """Return the function, the address and the instruction in words."""
        function = self.file.function_at(address)
        text, plain = self.text.get(address, "no instruction"), self.file.in_file(address)
        return f"{function[0] if function else ''} at {plain:#x}: {text}"

    def _disassemble(self, address: int, loaded_at: int) -> Any:
        ins = self._disassembler.instruction(self.file.instruction_bytes(address), loaded_at)
        if ins is None or not self._decoder.is_defined(ins):
            raise NotShown("these bytes are no instruction")
        return ins

    def _note_text(self, address: int) -> None:
        """Write down an instruction with the addresses that it has with base 0."""
        self.text[address] = _words(self._disassemble(address, self.file.in_file(address)))

    def argument(self, number: int) -> GeneralContent:
        """Return an argument of the function that is called now, in a stub."""
        registers, table = self.registers, self._table
        if number < len(table.arguments):
            return registers.general[table.arguments[number]]
        place = number - len(table.arguments) + (not table.link)
        return registers.load(registers.number(registers.general[table.stack]) + WORD * place, WORD)

    def _stub_action(self, address: int) -> Action:
        """Return an action that runs a stub, gives registers that a function may change new unknown values, and
        returns."""
        registers, table = self.registers, self._table
        kept = {*table.saved, table.stack}
        changed = [name for name in table.general if name not in kept]

        def run() -> int:
            stack = registers.number(registers.general[table.stack])
            back = registers.general[table.link] if table.link else self.memory.load(stack, WORD).as_int
            assert isinstance(back, int)
            self.memory.at = self._before.get(back, self.memory.at)
            if isinstance(stack, int) and (stack + WORD * (not table.link)) % STACK_ALIGNMENT:
                raise NotShown(f"the stack is not aligned to {STACK_ALIGNMENT} bytes")
            self.memory.keep_stack(stack)
            result = self.stubs[address]()
            call = next(self._stub_calls)
            vectors = {k: self.registers.low_bytes(k, table.saved_bytes) for k in table.saved_vectors}
            unknown = registers.values.memory
            registers.general |= {name: unknown(("after call", call, name), 0, WORD) for name in changed}
            widest = max(table.vectors.values())
            registers.vector |= {k: unknown(("after call", call, k), 0, widest) for k in range(table.vector_registers)}
            registers.vector |= vectors
            registers.flags.clear()
            if result is not None:
                registers.general[table.result] = result & _EVERY
            return back if table.link else registers.places.destination(registers.pop())

        return run

    def _decode(self, address: int) -> tuple[Action, int]:
        if address in self.stubs:
            return self._stub_action(address), address
        ins = self._disassemble(address, address)
        self._note_text(address)
        self.file.require_known(address, ins.size)
        if self._any_place:
            self._decoder.require_fields(ins, self.file)
        following = address + ins.size
        self._before[following] = address
        if self._decoder.may_branch(ins):
            self.taken[address] = set()
        return self._decoder.action(ins, following), following

    def find_padding(self, address: int) -> tuple[bool, int]:
        """Return whether code that was not run at an address is more than padding, and the address after it."""
        try:
            ins = self._disassemble(address, address)
        except NotShown:
            return True, address + 1
        self._note_text(address)
        return not ins.mnemonic.startswith(tuple(self._table.padding)), address + ins.size


class _AnyPlaces(KnownPlaces):
    """Addresses of code as distances from the part of an object that they are in, whose address is unknown.

    `returns` gets the address in the file of each place behind a call, by the unknown address.
    """

    def __init__(self, file: ObjectFile, returns: dict[GeneralNumber, int]) -> None:
        self._file, self._returns = file, returns

    def place(self, ins: Any, field: int, address: int) -> GeneralNumber:
        """Return an address of the object that an instruction has as a distance in its bytes from `field` on."""
        _, part = self._file.distances.get(ins.address + field) or (0, self._file.part_at(ins.address))
        return AffineNumber.of_unknown(part.base) + (address - part.origin)

    def behind(self, ins: Any, following: int) -> GeneralNumber:
        """Return the unknown address behind a call, and note the address in the file."""
        part = self._file.part_at(ins.address)
        back = AffineNumber.of_unknown(part.base) + (following - part.origin)
        self._returns[back] = following
        return back

    def destination(self, x: GeneralContent) -> int:
        """Return the address in the file of an unknown address; NotShown if that is behind no call."""
        to = x if isinstance(x, int) else affine_of(x)
        if to is None or to not in self._returns:
            raise NotShown("it returns to an address that is not known")
        return self._returns[to]


def _words(ins: Any) -> str:
    return f"{ins.mnemonic} {ins.op_str}".strip()
