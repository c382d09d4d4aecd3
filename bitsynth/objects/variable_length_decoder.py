"""The decoder of instructions of one byte or more, which may have prefixes, as x86-64 has them.

Prefixes and encodings that other sets have, or about which processors disagree, are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.objects.affine import GeneralNumber, is_multiple
from bitsynth.objects.arithmetic import as_signed
from bitsynth.objects.declared import by_mnemonic
from bitsynth.objects.decoder import UNKNOWN_OPERANDS, InstructionDecoder
from bitsynth.objects.elf import ObjectFile
from bitsynth.objects.memory import NotShown
from bitsynth.objects.operands import CLEARS_ABOVE, WORD, Action, Address, GeneralContent, RegisterFile, wrap
from bitsynth.objects.values import Content

_JUMPS, _ON_STACK, _WIDE = {"jump", "call", "return"}, {"push", "pop", "leave"}, {"multiply", "divide"}
_REPEATED = {"fill", "copy"}
_DISTANCE = 4
"""Bytes of a field that is a distance from an instruction."""
_LONGEST_REPEATED = 3
"""Bytes of an instruction that is repeated: the prefix, one for 8 bytes, and the instruction."""
_EVERY = (1 << 8 * WORD) - 1
_LEAST_WIDE = 2
"""Bytes from which on a product has its halves in two registers."""
_LEAST_VECTOR = 16
"""Bytes of a vector register whose lowest bytes an instruction may read as a narrower operand."""


class VariableLengthDecoder(InstructionDecoder):
    """Decodes instructions of one byte or more; `MachineTable.encodings` has what capstone's operands do not say."""

    def __init__(self, isa: Isa, registers: RegisterFile, features: Collection[str], capstone: Any) -> None:
        super().__init__(isa, registers, features, capstone)
        assert registers.table.encodings is not None
        self._encodings = registers.table.encodings

    def is_defined(self, ins: Any) -> bool:
        """Return whether the machine has an instruction: capstone disassembles some that processors refuse."""
        undefined = self._encodings.undefined
        return not any(ins.bytes[0] == x and ins.bytes[at] & mask == bits for x, at, mask, bits in undefined)

    def may_branch(self, ins: Any) -> bool:
        """Return whether an instruction is a conditional jump."""
        parts = self._table.conditional_parts(ins.mnemonic)
        return parts is not None and parts[0] == "jump"

    def require_fields(self, ins: Any, file: ObjectFile) -> None:
        """Raise NotShown if an instruction uses a distance between parts of the object as a number."""
        encoding, start, jumps = ins.encoding, ins.address, self.may_branch(ins)
        jumps = jumps or self._table.moves.get(ins.mnemonic) in _JUMPS
        distances = {k: file.distances[k][0] for k in range(start, start + ins.size) if k in file.distances}
        if distances:
            bases = [x.mem.base for x in ins.operands if self._is_memory(x)]
            by_counter = any(base and ins.reg_name(base) == self._table.counter for base in bases)
            field = encoding.imm_offset if jumps else encoding.disp_offset if by_counter else 0
            if set(distances.values()) != {start + field} or len(distances) != _DISTANCE:
                raise NotShown("it computes with a distance between parts of the object")
        elif jumps:
            immediate = [x for x in ins.operands if self._is_immediate(x)]
            if any(file.part_at(int(x.imm)) != file.part_at(start) for x in immediate):
                raise NotShown("it jumps to another part of the object")

    def action(self, ins: Any, following: int) -> Action:
        """Return a function that runs an instruction; NotShown if it is not known."""
        name, does = ins.mnemonic, self._table.moves.get(ins.mnemonic, "")
        parts = self._table.conditional_parts(ins.mnemonic)
        if does in _JUMPS or (parts and parts[0] == "jump"):
            computed = does in _JUMPS and any(not self._is_immediate(operand) for operand in ins.operands)
            self._require_no_prefix(ins, {ins.opcode[0], *(self._encodings.wide_registers if computed else ())})
        if does.startswith(("nothing", "clear")):
            return self._idle(ins, does)
        if does in _REPEATED:
            return self._repeat(ins, does)
        if any(ins.prefix[:1]):
            raise NotShown("a prefix of this kind is not known")
        if parts:
            return self._conditional(ins, following, *parts)
        if does:
            ways = ((_JUMPS, self._jump), (_ON_STACK, self._on_stack), (_WIDE, self._wide))
            way = next((way for words, way in ways if does in words), self._move)
            return way(ins, following, does)
        if name in self._table.arithmetic or name in self._table.masks:
            return (self._arithmetic if name in self._table.arithmetic else self._mask_move)(ins, following)
        return self._vector_action(ins, following)

    def _require_no_prefix(self, ins: Any, first: Collection[int]) -> None:
        """Raise NotShown unless an instruction begins with one of these bytes.

        Processors disagree about jumps with prefixes, and refuse vector instructions that have some. Capstone does not
        report all of them.
        """
        if ins.bytes[0] not in first:
            raise NotShown("a prefix of this kind is not known")

    def _address(self, ins: Any, operand: Any, following: int) -> Callable[[], Address]:
        """Return a function that computes the address of an operand in memory."""
        place = operand.mem
        if ins.addr_size != WORD:
            raise NotShown("an address of this kind is not known")
        base, index = (ins.reg_name(r) if r else "" for r in (place.base, place.index))
        registers, scale = self._registers, place.scale
        general, total = registers.general, registers.sum_of_parts
        fixed: GeneralNumber = self._offset(ins, operand)
        if base == self._table.counter:
            at = self._offset(ins, operand) + following
            fixed, base = registers.places.place(ins, ins.encoding.disp_offset, at), ""
        if place.segment or any(n and n not in general for n in (base, index)):
            raise NotShown("an address of this kind is not known")
        if not isinstance(fixed, int):
            if base or index:
                raise NotShown("an address of this kind is not known")
            return lambda: wrap(fixed)
        return lambda: total(general[base] if base else 0, general[index] if index else 0, scale, fixed)

    def _offset(self, ins: Any, operand: Any) -> int:
        """Return the offset of an address; capstone 5 scales some that count operands by another size."""
        encoding = ins.encoding
        if ins.bytes[0] in self._encodings.widest and encoding.disp_size == 1:
            return as_signed(ins.bytes[encoding.disp_offset], 8) * int(operand.size)
        return int(operand.mem.disp)

    def _reader(self, ins: Any, operand: Any, following: int) -> Callable[[], GeneralContent]:
        """Return a function that reads a general operand: its number, or its bytes where they are not known."""
        size: int = operand.size
        if self._is_immediate(operand):
            value = int(operand.imm & ((1 << 8 * ins.operands[0].size) - 1))
            return lambda: value
        if self._is_memory(operand):
            address = self._address(ins, operand, following)
            return lambda: self._registers.load(address(), size)
        name, registers = ins.reg_name(operand.reg), self._registers
        if name in self._table.second_bytes:
            read = registers.general_reader(self._table.second_bytes[name], WORD)
            return lambda: registers.second_byte(read())
        return registers.general_reader(name, size)

    def _number_writer(self, ins: Any, operand: Any, following: int) -> Callable[[Address], None]:
        """Return a function that writes an address to a general operand."""
        write = self._writer(ins, operand, following)
        return lambda x: write(x if isinstance(x, Content) else self._registers.hold(x))

    def _writer(self, ins: Any, operand: Any, following: int) -> Callable[[GeneralContent], None]:
        """Return a function that writes a general operand."""
        registers, size = self._registers, int(operand.size)
        if self._is_memory(operand):
            address = self._address(ins, operand, following)
            return lambda x: registers.memory.store(address(), registers.lowest(x, size))
        name = ins.reg_name(operand.reg)
        if name in self._table.second_bytes:
            return registers.second_byte_writer(self._table.second_bytes[name])
        return registers.general_writer(name, size)

    def _vector_address(self, ins: Any, operand: Any, size: int, following: int) -> Callable[[], Address]:
        """Return a function that computes an address, and refuses it where the instruction wants it aligned."""
        address = self._address(ins, operand, following)
        if ins.mnemonic not in self._encodings.aligned:
            return address

        def align() -> Address:
            at = address()
            if isinstance(at, Content):
                raise NotShown("an address depends on data")
            if isinstance(at, int) and at % size:
                raise NotShown(f"{at:#x} is not aligned to {size} bytes")
            if not isinstance(at, int) and not is_multiple(at, size):
                raise NotShown(f"{at} may not be aligned to {size} bytes")
            return at

        return align

    def _vector_reader(self, ins: Any, operand: Any, size: int, following: int) -> Callable[[], Content]:
        """Return a function that reads the lowest `size` bytes of an operand of a vector instruction.

        An operand in memory that has fewer is read into every lane.
        """
        if self._is_memory(operand):
            load, read_size = self._registers.memory.load, min(size, operand.size)
            address, times = self._vector_address(ins, operand, read_size, following), size // read_size
            if times == 1:
                return lambda: load(address(), size)
            return lambda: self._registers.values.content(load(address(), read_size).data * times)
        name, registers = ins.reg_name(operand.reg), self._registers
        if registers.is_general(name):
            read = registers.general_reader(name, operand.size)
            return lambda: registers.lowest(read(), size)
        number = registers.vector_number(name)
        return lambda: registers.low_bytes(number, size)

    def _vector_writer(self, ins: Any, operand: Any, following: int) -> Callable[[Content], None]:
        """Return a function that writes an operand of a vector instruction."""
        if self._is_memory(operand):
            address, store = self._vector_address(ins, operand, operand.size, following), self._registers.memory.store
            return lambda x: store(address(), x)
        name, registers = ins.reg_name(operand.reg), self._registers
        if registers.is_general(name):
            write = registers.general_writer(name, operand.size)
            return lambda x: write(registers.of_content(x))
        number = registers.vector_number(name)

        def set_register(x: Content) -> None:
            registers.vector[number] = x

        return set_register

    def _mask_move(self, ins: Any, following: int) -> Action:
        """Return a function that moves some bytes of a register, and clears those above."""
        self._require_no_prefix(ins, self._encodings.vector)
        registers, (to, given), size = self._registers, ins.operands, self._table.masks[ins.mnemonic]
        if self._is_memory(given):
            address = self._address(ins, given, following)

            def read() -> GeneralContent:
                return registers.load(address(), size)

        else:
            read = registers.general_reader(ins.reg_name(given.reg), size)
        if self._is_memory(to):
            place = self._address(ins, to, following)
            return lambda: registers.memory.store(place(), registers.lowest(read(), size))
        write = registers.general_writer(registers.general_named(ins.reg_name(to.reg)), WORD)
        zeros = [0] * (WORD - size)
        return lambda: write(registers.values.content((*registers.lowest(read(), size).data, *zeros)))

    def _repeat(self, ins: Any, does: str) -> Action:
        """Return a function that fills memory with a register, or copies memory, upwards: a caller clears the flag."""
        if ins.addr_size != WORD or ins.bytes[0] != self._encodings.repeat or len(ins.bytes) > _LONGEST_REPEATED:
            raise NotShown("a prefix of this kind is not known")
        registers, size = self._registers, int(ins.operands[0].size)
        memory, general = registers.memory, registers.general
        to, start, times, value = self._encodings.repeated

        def run() -> None:
            count, at = registers.require_known(general[times]), registers.require_known(general[to])
            if does == "fill":
                data = registers.lowest(general[value], size).data * count
                memory.set_bytes(at, data)
            else:
                source = registers.require_known(general[start])
                if source < at < source + size * count:
                    raise NotShown("it copies bytes over bytes that it copies next")
                memory.set_bytes(at, memory.bytes_at(source, size * count))
                general[start] = source + size * count & _EVERY
            general[to], general[times] = at + size * count & _EVERY, 0

        return run

    def _idle(self, ins: Any, does: str) -> Action:
        registers, operands = self._registers, ins.operands
        if does.startswith("clear"):
            self._require_no_prefix(ins, self._encodings.vector)
            kept, count = (int(word) for word in does.split() if word.isdigit())
            return lambda: registers.clear_vectors(kept, count)
        one = len({operand.reg for operand in operands if self._is_register(operand)}) == 1
        clears = any(CLEARS_ABOVE <= operand.size < WORD for operand in operands)
        if does.endswith("of one register") and (clears or not (one and all(map(self._is_register, operands)))):
            raise NotShown("no declaration of this instruction")
        return lambda: None

    def _jump(self, ins: Any, following: int, does: str) -> Action:
        registers = self._registers
        if does == "return":
            if ins.operands:
                raise NotShown("a return that takes arguments from the stack is not known")

            return lambda: registers.places.destination(registers.pop())
        target = self._target(ins, following)
        if does == "jump":
            return target

        back = registers.places.behind(ins, following)

        def call() -> int:
            to = target()
            registers.push(registers.hold(back))
            return to

        return call

    def _target(self, ins: Any, following: int) -> Callable[[], int]:
        """Return a function that returns where an instruction jumps to."""
        operand, places = ins.operands[0], self._registers.places
        if self._is_immediate(operand):
            fixed = int(operand.imm)
            return lambda: fixed
        if operand.size != WORD:
            raise NotShown("an address of this kind is not known")
        by_counter = self._is_memory(operand) and operand.mem.base and not operand.mem.index
        if by_counter and ins.reg_name(operand.mem.base) == self._table.counter:
            imported = self._registers.imports.get(following + int(operand.mem.disp))
            if imported is not None:
                return lambda: imported
        read = self._reader(ins, operand, following)
        return lambda: places.compute(read())

    def _wide(self, ins: Any, following: int, does: str) -> Action:
        """Return a function that multiplies or divides numbers of twice as many bits, in two registers."""
        registers, operand = self._registers, ins.operands[0]
        size = int(operand.size)
        if len(ins.operands) != 1 or size < _LEAST_WIDE:
            raise NotShown(UNKNOWN_OPERANDS)
        bits, every = 8 * size, (1 << 8 * size) - 1
        low, high = (registers.general_reader(name, size) for name in self._table.wide)
        write_low, write_high = (registers.general_writer(name, size) for name in self._table.wide)
        read = self._reader(ins, operand, following)

        def multiply() -> None:
            product = registers.require_known(low()) * registers.require_known(read())
            registers.flags.clear()
            registers.flags.carry = registers.flags.overflow = int(product > every)
            write_low(product & every)
            write_high(product >> bits)

        def divide() -> None:
            number, by = (
                registers.require_known(high()) << bits | registers.require_known(low()),
                registers.require_known(read()),
            )
            if by == 0 or number // by > every:
                raise NotShown("it divides by 0, or the quotient is too large")
            registers.flags.clear()
            write_low(number // by)
            write_high(number % by)

        return multiply if does == "multiply" else divide

    def _leave(self) -> None:
        """Take the stack pointer from the register of the frame, and that from the stack."""
        registers, frame = self._registers, self._table.frame
        registers.set_stack(registers.general[frame])
        registers.general[frame] = registers.pop()

    def _conditional(self, ins: Any, following: int, does: str, condition: str) -> Action:
        registers, operands = self._registers, ins.operands
        holds = self._table.condition(condition)
        if does == "jump":
            target = int(operands[0].imm)
            return lambda: target if registers.check_condition(holds) else None
        write = self._writer(ins, operands[0], following)
        if does == "number":
            return lambda: write(int(registers.check_condition(holds)))
        old, new = (self._reader(ins, operand, following) for operand in operands)

        def move() -> None:
            x, y = old(), new()  # The processor reads memory in any case.
            write(y if registers.check_condition(holds) else x)

        return move

    def _on_stack(self, ins: Any, following: int, does: str) -> Action:
        if does == "leave":
            self._require_no_prefix(ins, {ins.opcode[0]})
            return self._leave
        registers, operand = self._registers, ins.operands[0]
        if operand.size != WORD:
            raise NotShown("a part of a register on the stack")
        if does == "push":
            read = self._reader(ins, operand, following)
            return lambda: registers.push(read())
        write = self._writer(ins, operand, following)
        return lambda: write(registers.pop())

    def _move(self, ins: Any, following: int, does: str) -> Action:
        registers, operands = self._registers, ins.operands
        write = self._writer(ins, operands[0], following)
        if does == "address":
            address = self._address(ins, operands[1], following)
            write_number = self._number_writer(ins, operands[0], following)
            return lambda: write_number(address())
        read = self._reader(ins, operands[1], following)
        if does == "move signed":
            given, to = operands[1].size, operands[0].size
            return lambda: write(registers.sign_extended(read(), given, to))
        size = operands[0].size

        def move() -> None:
            x = read()
            if not isinstance(x, int) and len(x) < size:
                x = registers.values.content((*x.data, *[0] * (size - len(x))))
            write(x)

        return move

    def _arithmetic(self, ins: Any, following: int) -> Action:
        registers, operands, what = self._registers, ins.operands, self._table.arithmetic[ins.mnemonic]
        bits = 8 * operands[0].size
        given = [operand for k, operand in enumerate(operands) if k or (len(operands) < 3 and not what.replaces)]
        # A shift by 1 may be written without the 1.
        shifts = what.does.startswith(("shift", "rotate"))
        second = 1 if shifts and len(given) == 1 else what.second
        if len(given) + (what.first is not None) + (second is not None) != 2:
            raise NotShown(UNKNOWN_OPERANDS)
        if shifts and any(self._is_immediate(x) and x.imm & 0xFF >= bits for x in given):
            raise NotShown("it shifts by more bits than there are")
        order = self._table.order.get(ins.mnemonic, range(len(given)))
        reads = [self._reader(ins, given[k], following) for k in order]
        write = self._writer(ins, operands[0], following) if what.result else None
        both = len(operands) == 2 and all(map(self._is_register, operands)) and operands[0].reg == operands[1].reg
        clears = both and what.does in {"xor", "subtract"} and not what.carry

        def run() -> None:
            numbers: list[GeneralContent] = [0, 0] if clears else [read() for read in reads]
            if what.first is not None:
                numbers.insert(0, what.first)
            if second is not None:
                numbers.append(second)
            a, b = numbers
            result = registers.result(what, a, b, bits)
            if write is not None:
                write(result)

        return run

    def _vector_action(self, ins: Any, following: int) -> Action:
        name, operands, registers = ins.mnemonic, list(ins.operands), self._registers
        declared = by_mnemonic(self._isa).get(name, ())
        if declared:
            self._require_no_prefix(ins, self._encodings.vector)
        forms = self._find_allowed_forms(declared)
        widest = max(self._table.vectors.values())
        narrow = name not in self._encodings.any_width and all(operand.size < widest for operand in operands)
        if ins.bytes[0] in self._encodings.widest and (8 * widest > self._isa.table.vector_bits or narrow):
            raise NotShown("this encoding is of another instruction set")
        imm = operands.pop().imm & 0xFF if self._is_immediate(operands[-1]) else None
        spread = self._encodings.spread in ins.op_str
        first, place, mask = self._encodings.spread_bit
        if ins.bytes[0] == first and (ins.bytes[place] & mask > 0) != spread:
            raise NotShown("this encoding is not known")
        to = operands[0]
        for form in forms:
            given = operands[1:]
            # An operand that the result replaces is written once; of several that it may replace it is the first.
            if tied := [k for k, operand in enumerate(form.operands) if operand.name in form.tied]:
                given.insert(tied[0], to)
            order = self._table.order.get(name, list(range(len(given))))
            if self._fits(form, to, given, imm, order, spread=spread):
                break
        else:
            raise NotShown(UNKNOWN_OPERANDS)
        sizes = [form.operands[k].type.total_bits // 8 for k in order]
        reads = [self._vector_reader(ins, x, size, following) for x, size in zip(given, sizes, strict=True)]
        in_order = [reads[order.index(k)] for k in range(len(order))]
        write = self._vector_writer(ins, to, following)
        apply, number = registers.values.apply, imm or 0
        return lambda: write(apply(form, [read() for read in in_order], number))

    def _fits(self, form: Instr, to: Any, given: list[Any], imm: int | None, order: list[int], *, spread: bool) -> bool:
        """Return whether operands fit a form.

        Narrow operands may be the low bytes of a register; with `spread` the operand in memory is one lane.
        """
        if (form.imm is None) != (imm is None) or (imm is not None and imm not in form.imms):
            return False
        if form.store and not self._is_memory(to):
            return False
        if to.size != form.out.total_bits // 8 or len(given) != len(form.operands):
            return False
        for operand, k in zip(given, order, strict=True):
            size = form.operands[k].type.total_bits // 8
            low = self._is_register(operand) and size < operand.size == _LEAST_VECTOR
            if spread and self._is_memory(operand):
                size = form.operands[k].type.bits // 8
            if operand.size != size and not low:
                return False
        return True
