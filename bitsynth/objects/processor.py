"""Runs machine code: numbers in general registers, values in vector registers and memory.

Control flow depends on numbers alone. Vector instructions are those declared for the instruction set and its
architecture, by mnemonic and operand sizes; an instruction that is declared nowhere is refused by name and address.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from bitsynth.errors import ToolError
from bitsynth.isa.domains.forms import Inexact
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.objects.affine import AffineNumber, GeneralNumber
from bitsynth.objects.arithmetic import affine_result, as_signed, computed
from bitsynth.objects.declared import by_mnemonic, machine_table
from bitsynth.objects.elf import INSTALL, ObjectFile
from bitsynth.objects.memory import CallMemory, NotShown
from bitsynth.objects.operands import CLEARS_ABOVE, WORD, GeneralContent, RegisterFile, affine_of
from bitsynth.objects.values import Contents

Action = Callable[[], int | None]
"""Runs one instruction; returns where it jumps to, None for the next one."""
_STACK_BYTES = 1 << 16
_MAX_INSTRUCTIONS = 20_000_000
"""The most instructions of a call."""
_JUMPS, _ON_STACK = {"jump", "call", "return"}, {"push", "pop"}
_DISTANCE = 4
"""Bytes of a field that is a distance from an instruction."""
_LEAST_VECTOR = 16
"""Bytes of a vector register whose lowest bytes an instruction may read as a narrower operand."""


class CodeProcessor:
    """A processor that runs functions of one object: one with the base of the instruction set and some `features`.

    With `any_place` addresses of the object are unknown, as distances from `ObjectPart.base`: code runs where the file
    has it, and what it computes of its place is the same wherever the object is loaded.

    Attributes:
        decoded: The instructions that were run, by address, and the address behind each.
        taken: Whether conditional jumps were taken, by address.
        returns: What stands for addresses that a function returns to and that are unknown.
        text: Instructions in words, by address.
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
        try:
            import capstone
        except ImportError:
            raise ToolError(INSTALL) from None
        self.file, self.isa, self.values, self.memory = file, isa, values, memory
        self._table = machine_table(isa)
        self._features = {"", *features}
        self._decoder = capstone.Cs(*(getattr(capstone, name) for name in self._table.decoder))
        self._decoder.detail = True
        self.registers = RegisterFile(self._table, capstone, values, memory)
        self._any_place = any_place
        self.returns = dict[GeneralNumber, int]()
        if any_place:
            self.registers.placed = self._placed
        self.decoded: dict[int, tuple[Action, int]] = {}
        self.taken: dict[int, set[bool]] = {}
        self.text: dict[int, str] = {}

    def call(self, address: int, arguments: Iterable[int], *, stack: int, back: int) -> None:
        """Run the function at `address`, which returns to `back`; NotShown names what is wrong.

        The arguments that are not in registers are at `stack`.
        """
        kept = self.enter(arguments, stack=stack, back=back)
        try:
            self._run(address, back)
        except (NotShown, Inexact) as why:
            raise NotShown(f"{self.text_at(self.memory.at)}: {why}") from None
        self.require_kept(kept)

    def enter(
        self, arguments: Iterable[GeneralContent], *, stack: GeneralNumber, back: GeneralNumber
    ) -> dict[str, GeneralContent]:
        """Set registers and stack as a caller does; return what the registers must hold at the end."""
        registers, table = self.registers, self._table
        registers.reset()
        before = dict(registers.general)
        given = list(arguments)
        registers.general |= dict(zip(table.arguments, given, strict=False))
        behind = given[len(table.arguments) :]
        top = stack + WORD * len(behind)
        self.memory.add_stack(top, _STACK_BYTES)
        registers.set_stack(registers.held(top))
        for number in [*reversed(behind), registers.held(back)]:
            registers.push(number)
        pointer = registers.number(registers.general[table.stack])
        return {table.stack: registers.held(pointer + WORD), **{name: before[name] for name in table.saved}}

    def require_kept(self, kept: Mapping[str, GeneralContent]) -> None:
        """Raise NotShown if a register that belongs to the caller has changed."""
        general, stack = self.registers.general, self._table.stack
        if general[stack] != kept[stack]:
            raise NotShown("the stack pointer is not what it was")
        if changed := [name for name in self._table.saved if general[name] is not kept[name]]:
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

    def _disassembled(self, address: int, loaded_at: int) -> Any:
        ins = next(self._decoder.disasm(self.file.instruction_bytes(address), loaded_at), None)
        undefined = self._table.undefined
        if ins is None or any(ins.bytes[0] == x and ins.bytes[at] & mask == bits for x, at, mask, bits in undefined):
            raise NotShown("these bytes are no instruction")
        return ins

    def _note_text(self, address: int) -> None:
        """Write down an instruction with the addresses that it has with base 0."""
        self.text[address] = _words(self._disassembled(address, self.file.in_file(address)))

    def _decode(self, address: int) -> tuple[Action, int]:
        ins = self._disassembled(address, address)
        self._note_text(address)
        self.file.require_known(address, ins.size)
        if self._any_place:
            self._require_fields(ins)
        following = address + ins.size
        parts = self._table.conditional_parts(ins.mnemonic)
        if parts and parts[0] == "jump":
            self.taken[address] = set()
        return self._action(ins, following, parts), following

    def _placed(self, ins: Any, field: int, address: int) -> AffineNumber:
        """Return an address of the object that an instruction has as a distance in its bytes from `field` on."""
        _, part = self.file.distances.get(ins.address + field) or (0, self.file.part_at(ins.address))
        return AffineNumber.unknown(part.base) + (address - part.origin)

    def _require_fields(self, ins: Any) -> None:
        """Raise NotShown if an instruction uses a distance between parts of the object as a number.

        Where it is loaded decides that number. Distances are fields of addresses and of jumps; without one a jump stays
        in its part.
        """
        file, table, registers, encoding, start = self.file, self._table, self.registers, ins.encoding, ins.address
        parts, immediate = table.conditional_parts(ins.mnemonic), [x for x in ins.operands if registers.is_immediate(x)]
        jumps = table.moves.get(ins.mnemonic) in _JUMPS or (parts is not None and parts[0] == "jump")
        distances = {k: file.distances[k][0] for k in range(start, start + ins.size) if k in file.distances}
        if distances:
            bases = [x.mem.base for x in ins.operands if registers.is_memory(x)]
            by_counter = any(base and ins.reg_name(base) == table.counter for base in bases)
            field = encoding.imm_offset if jumps else encoding.disp_offset if by_counter else 0
            if set(distances.values()) != {start + field} or len(distances) != _DISTANCE:
                raise NotShown("it computes with a distance between parts of the object")
        elif jumps and any(file.part_at(int(x.imm)) != file.part_at(start) for x in immediate):
            raise NotShown("it jumps to another part of the object")

    def skipped(self, address: int) -> tuple[bool, int]:
        """Return whether what was not run at an address is more than padding, and the address behind it."""
        try:
            ins = self._disassembled(address, address)
        except NotShown:
            return True, address + 1
        self._note_text(address)
        return not ins.mnemonic.startswith(tuple(self._table.padding)), address + ins.size

    def _action(self, ins: Any, following: int, parts: tuple[str, str] | None) -> Action:
        name, does = ins.mnemonic, self._table.moves.get(ins.mnemonic, "")
        if does in _JUMPS or (parts and parts[0] == "jump"):
            self._require_no_prefix(ins, {ins.opcode[0]})
        if does.startswith(("nothing", "clear")):
            return self._idle(ins, does)
        if any(ins.prefix[:1]):
            raise NotShown("a prefix of this kind is not known")
        if parts:
            return self._conditional(ins, following, *parts)
        if does:
            way = self._jump if does in _JUMPS else self._on_stack if does in _ON_STACK else self._move
            return way(ins, following, does)
        if name in self._table.arithmetic:
            return self._arithmetic(ins, following)
        return self._vector_action(ins, following)

    def _require_no_prefix(self, ins: Any, first: Collection[int]) -> None:
        """Raise NotShown unless an instruction begins with one of these bytes.

        Processors disagree about jumps with prefixes, and refuse vector instructions that have some. Capstone does not
        report all of them.
        """
        if ins.bytes[0] not in first:
            raise NotShown("a prefix of this kind is not known")

    def _idle(self, ins: Any, does: str) -> Action:
        registers, operands = self.registers, ins.operands
        if does.startswith("clear"):
            self._require_no_prefix(ins, self._table.vector_encodings)
            kept, count = (int(word) for word in does.split() if word.isdigit())
            return lambda: registers.clear_vectors(kept, count)
        one = len({operand.reg for operand in operands if registers.is_register(operand)}) == 1
        clears = any(CLEARS_ABOVE <= operand.size < WORD for operand in operands)
        if does.endswith("of one register") and (clears or not (one and all(map(registers.is_register, operands)))):
            raise NotShown("no declaration of this instruction")
        return lambda: None

    def _jump(self, ins: Any, following: int, does: str) -> Action:
        registers = self.registers
        if does == "return":
            if ins.operands:
                raise NotShown("a return that takes arguments from the stack is not known")

            return lambda: self._destination(registers.pop())
        if not registers.is_immediate(ins.operands[0]):
            raise NotShown("a jump to a computed address")
        target = int(ins.operands[0].imm)
        if does == "jump":
            return lambda: target

        back: GeneralNumber = following
        if self._any_place:
            part = self.file.part_at(ins.address)
            back = AffineNumber.unknown(part.base) + (following - part.origin)
            self.returns[back] = following

        def call() -> int:
            registers.push(registers.held(back))
            return target

        return call

    def _destination(self, x: GeneralContent) -> int:
        """Return where the code at an address is here; NotShown if that is not known."""
        to = x if isinstance(x, int) else affine_of(x)
        if isinstance(to, int) and not self._any_place:
            return to
        if to is None or to not in self.returns:
            raise NotShown("it returns to an address that is not known")
        return self.returns[to]

    def _conditional(self, ins: Any, following: int, does: str, condition: str) -> Action:
        registers, operands = self.registers, ins.operands
        reads, holds = self._table.condition(condition)

        def decided() -> bool:
            flags = registers.flags
            if flags.compared is not None:
                return bool(holds(*registers.flag_values(reads).values(), 0))
            if any(getattr(flags, name) is None for name in reads):
                raise NotShown("it depends on flags that have no value")
            return bool(holds(flags.zero, flags.carry, flags.sign, flags.overflow, 0))

        if does == "jump":
            target = int(operands[0].imm)
            return lambda: target if decided() else None
        write = registers.writer(ins, operands[0], following)
        if does == "number":
            return lambda: write(int(decided()))
        old, new = (registers.reader(ins, operand, following) for operand in operands)

        def move() -> None:
            x, y = old(), new()  # The processor reads memory in any case.
            write(y if decided() else x)

        return move

    def _on_stack(self, ins: Any, following: int, does: str) -> Action:
        registers, operand = self.registers, ins.operands[0]
        if operand.size != WORD:
            raise NotShown("a part of a register on the stack")
        if does == "push":
            read = registers.reader(ins, operand, following)
            return lambda: registers.push(read())
        write = registers.writer(ins, operand, following)
        return lambda: write(registers.pop())

    def _move(self, ins: Any, following: int, does: str) -> Action:
        registers, operands = self.registers, ins.operands
        write = registers.writer(ins, operands[0], following)
        if does == "address":
            address = registers.address(ins, operands[1], following)
            write_number = registers.number_writer(ins, operands[0], following)
            return lambda: write_number(address())
        read = registers.reader(ins, operands[1], following)
        if does == "move signed":
            bits = 8 * operands[1].size
            return lambda: write(as_signed(registers.known(read()), bits))
        size = operands[0].size

        def move() -> None:
            x = read()
            if not isinstance(x, int) and len(x) < size:
                x = self.values.content((*x.data, *[0] * (size - len(x))))
            write(x)

        return move

    def _arithmetic(self, ins: Any, following: int) -> Action:
        registers, operands, what = self.registers, ins.operands, self._table.arithmetic[ins.mnemonic]
        bits = 8 * operands[0].size
        given = [operand for k, operand in enumerate(operands) if len(operands) < 3 or k]
        # A shift by 1 may be written without the 1.
        second = 1 if what.does.startswith("shift") and len(given) == 1 else what.second
        if len(given) + (what.first is not None) + (second is not None) != 2:
            raise NotShown("no declaration of this instruction with these operands")
        reads = [registers.reader(ins, operand, following) for operand in given]
        write = registers.number_writer(ins, operands[0], following) if what.result else None
        both = len(operands) == 2 and all(map(registers.is_register, operands)) and operands[0].reg == operands[1].reg
        clears = both and what.does in {"xor", "subtract"} and not what.carry
        every = (1 << bits) - 1

        def run() -> None:
            numbers: list[GeneralNumber] = [0, 0] if clears else [registers.number(read()) for read in reads]
            if what.first is not None:
                numbers.insert(0, what.first)
            if second is not None:
                numbers.append(second)
            a, b = numbers
            result: GeneralNumber
            if isinstance(a, int) and isinstance(b, int):
                result = computed(what, a, b & every, bits, registers.flags)
                registers.flags.compared = None
            elif what.does == "multiply":
                result = registers.product(a, b)
                registers.flags.clear()
            else:
                result = affine_result(what, a, b, bits, registers.flags)
            if write is not None:
                write(result)

        return run

    def _vector_action(self, ins: Any, following: int) -> Action:
        name, operands, registers = ins.mnemonic, list(ins.operands), self.registers
        known = by_mnemonic(self.isa).get(name)
        if not known:
            raise NotShown("no declaration of this instruction")
        self._require_no_prefix(ins, self._table.vector_encodings)
        forms = [form for form in known if form.feature in self._features]
        if not forms:
            raise NotShown(f"the kernel does not need {known[0].feature}, which this instruction is of")
        widest = max(self._table.vectors.values())
        narrow = name not in self._table.any_width and all(operand.size < widest for operand in operands)
        if ins.bytes[0] in self._table.widest and (8 * widest > self.isa.table.vector_bits or narrow):
            raise NotShown("this encoding is of another instruction set")
        imm = operands.pop().imm & 0xFF if registers.is_immediate(operands[-1]) else None
        spread = self._table.spread in ins.op_str
        first, place, mask = self._table.spread_bit
        if ins.bytes[0] == first and (ins.bytes[place] & mask > 0) != spread:
            raise NotShown("this encoding is not known")
        to = operands[0]
        for form in forms:
            given = operands[1:]
            # An operand that the result replaces is written once.
            for k, operand in enumerate(form.operands):
                if operand.name in form.tied:
                    given.insert(k, to)
            order = self._table.order.get(name, list(range(len(given))))
            if self._fits(form, to, given, imm, order, spread=spread):
                break
        else:
            raise NotShown("no declaration of this instruction with these operands")
        declared = [form.operands[k] for k in order]
        reads = [
            registers.vector_reader(ins, x, o.type.total_bits // 8, following)
            for x, o in zip(given, declared, strict=True)
        ]
        in_order = [reads[order.index(k)] for k in range(len(order))]
        write = registers.vector_writer(ins, to, following)
        apply, number = self.values.apply, imm or 0
        return lambda: write(apply(form, [read() for read in in_order], number))

    def _fits(self, form: Instr, to: Any, given: list[Any], imm: int | None, order: list[int], *, spread: bool) -> bool:
        """Return whether operands are those of a form.

        Narrow operands may be the low bytes of a register; with `spread` the operand in memory is one lane.
        """
        registers = self.registers
        if (form.imm is None) != (imm is None) or (imm is not None and imm not in form.imms):
            return False
        if form.store and not registers.is_memory(to):
            return False
        if to.size != form.out.total_bits // 8 or len(given) != len(form.operands):
            return False
        for operand, k in zip(given, order, strict=True):
            size = form.operands[k].type.total_bits // 8
            low = registers.is_register(operand) and size < operand.size == _LEAST_VECTOR
            if spread and registers.is_memory(operand):
                size = form.operands[k].type.bits // 8
            if operand.size != size and not low:
                return False
        return True


def _words(ins: Any) -> str:
    return f"{ins.mnemonic} {ins.op_str}".strip()
