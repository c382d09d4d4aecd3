"""Executes instruction forms on registers of one domain, and records the program that was run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bitsynth.errors import SpecError
from bitsynth.isa.domains.domain import Domain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value


@dataclass(frozen=True)
class Register:
    """Lane payloads of one domain, viewed as `type`."""

    type: VecType
    lanes: tuple[Any, ...]

    def view_as(self, domain: Domain, want: VecType) -> Register:
        """Return the same bits as lanes of type `want`; SpecError if the sizes differ."""
        if want.total_bits != self.type.total_bits:
            raise SpecError(f"a {self.type} register where a {want} is wanted")
        have = self.type.bits
        if have == want.bits:
            return Register(want, self.lanes)
        if have > want.bits:
            return Register(want, tuple(x for v in self.lanes for x in domain.split(v, have, want.bits)))
        n = want.bits // have
        return Register(want, tuple(domain.join(self.lanes[k : k + n], have) for k in range(0, len(self.lanes), n)))


ConstantPool = dict[tuple[VecType, tuple[int, ...]], Constant]
"""Constant registers by type and lanes."""

TraceMemo = dict[tuple[object, ...], tuple[Register, tuple[Register, ...]]]
"""Results of forms, by name, immediate and the `id` of each operand; with the operands, so that ids stay unique."""


@dataclass
class Trace:
    """Named registers; `apply` runs one instruction and records the step.

    Traces with the same `memo` share the results of forms on the same registers.
    """

    isa: Isa
    domain: Domain
    registers: dict[Value, Register] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    constants: ConstantPool = field(default_factory=dict)
    first: int = 0
    memo: TraceMemo | None = None

    def register(self, kind: VecType, lanes: Sequence[Any]) -> Register:
        """Return a register of `lanes`."""
        return Register(kind, tuple(lanes))

    def lanes_of(self, instr: Instr, operands: Sequence[Sequence[Any]], imm: int) -> Sequence[Any]:
        """Return the lanes that an instruction makes of its operands' lanes."""
        return instr(self.domain, operands, imm)

    def constant(self, kind: VecType, lanes: Sequence[int]) -> Value:
        """Return the constant register that holds `lanes`; equal constants share one."""
        key = (kind, tuple(lanes))
        if key not in self.constants:
            self.constants[key] = Constant(Value.of(Role.CONSTANT, len(self.constants)), str(kind), tuple(lanes))
        self.bind_constants([self.constants[key]])
        return self.constants[key].name

    def bind(self, name: Value, register: Register) -> Value:
        """Put a register in the place of an input: a plane, an accumulator, a constant."""
        self.registers[name] = register
        return name

    def bind_constants(self, constants: Iterable[Constant]) -> None:
        """Bind constant registers, lane by lane."""
        for c in constants:
            kind = VecType.parse(c.type)
            self.bind(c.name, self.register(kind, [self.domain.const(v, kind.bits) for v in c.lanes]))

    def fresh(self) -> Value:
        """Return the next value that a step computes."""
        return Value.of(Role.TEMPORARY, self.first + len(self.steps))

    def apply(self, op: str, args: Sequence[Value], imm: int = 0, dst: Value | None = None) -> Value:
        """Run `dst = op(args)` and return `dst`; SpecError for unknown names or operands that do not fit."""
        return self.run(Step(dst or self.fresh(), op, tuple(args), imm))

    def run(self, step: Step) -> Value:
        """Run one step and return its `dst`."""
        instr = self.isa[step.op]
        if len(step.args) != len(instr.operands):
            raise SpecError(f"{step}: {step.op} takes {len(instr.operands)} operands")
        if step.imm not in instr.imms:
            raise SpecError(f"{step}: immediate {step.imm} is outside {instr.imms.start}..{instr.imms.stop - 1}")
        if absent := [name for name in step.args if name not in self.registers]:
            raise SpecError(f"{step}: {absent[0]} has no value yet")
        registers = tuple(self.registers[name] for name in step.args)
        self.registers[step.dst] = self._run_instruction(step, instr, registers)
        self.steps.append(step)
        return step.dst

    def _run_instruction(self, step: Step, instr: Instr, registers: tuple[Register, ...]) -> Register:
        key = (step.op, step.imm, *map(id, registers))
        if self.memo and key in self.memo:
            return self.memo[key][0]
        operands = zip(registers, instr.operands, strict=True)
        lanes = [register.view_as(self.domain, operand.type).lanes for register, operand in operands]
        result = self.register(instr.out, self.lanes_of(instr, lanes, step.imm))
        if self.memo is not None:
            self.memo[key] = result, registers
        return result
