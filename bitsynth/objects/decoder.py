"""The interface of decoders, which turn instructions into functions on a processor's registers and memory.

Capstone disassembles an instruction and lists its operands. A decoder returns the function that the instruction
computes from them. Architectures whose instructions have a fixed length share one decoder, architectures with prefixes
and a variable length another: `MachineTable.instruction_length` chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.objects.elf import ObjectFile
from bitsynth.objects.memory import NotShown
from bitsynth.objects.operands import Action, RegisterFile

UNKNOWN_OPERANDS = "no declaration of this instruction with these operands"
"""The message for a mnemonic that is declared, but for other operands."""


class InstructionDecoder(ABC):
    """Makes functions of a `RegisterFile` from instructions; it refuses instructions of sets other than `features`.

    Arguments of methods: `ins` is an instruction as capstone disassembled it, `operand` one of its operands,
    `following` the address of the next instruction, and `does` what the architecture's table says of the mnemonic.
    """

    def __init__(self, isa: Isa, registers: RegisterFile, features: Collection[str], capstone: Any) -> None:
        self._isa, self._registers, self._features, self._table = isa, registers, features, registers.table
        self._kinds = capstone.CS_OP_REG, capstone.CS_OP_MEM, capstone.CS_OP_IMM

    def is_defined(self, ins: Any) -> bool:
        """Return whether the machine has an instruction: capstone disassembles some that processors refuse."""
        return True

    @abstractmethod
    def may_branch(self, ins: Any) -> bool:
        """Return whether an instruction is a conditional jump."""

    @abstractmethod
    def require_fields(self, ins: Any, file: ObjectFile) -> None:
        """Raise NotShown if an instruction uses a distance between parts of the object as a number.

        Where the object is loaded decides that number. Distances are fields of addresses and of jumps; without one a
        jump stays in its part.
        """

    @abstractmethod
    def action(self, ins: Any, following: int) -> Action:
        """Return a function that runs an instruction; NotShown if it is not known."""

    def _is_register(self, operand: Any) -> bool:
        return bool(operand.type == self._kinds[0])

    def _is_memory(self, operand: Any) -> bool:
        return bool(operand.type == self._kinds[1])

    def _is_immediate(self, operand: Any) -> bool:
        """Return whether an operand is a number in the instruction."""
        return bool(operand.type == self._kinds[2])

    def _find_allowed_forms(self, declared: Sequence[Instr]) -> list[Instr]:
        """Return the declared forms of a mnemonic that `features` have; NotShown if there are none."""
        if not declared:
            raise NotShown("no declaration of this instruction")
        forms = [form for form in declared if form.feature in self._features]
        if not forms:
            raise NotShown(f"the kernel does not need {declared[0].feature}, which this instruction is of")
        return forms
