"""C statements from programs: one declaration a step, casts where a register is viewed anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bitsynth.errors import SpecError
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType

Rename = Callable[[str], str]


@dataclass
class Scope:
    """C variables in sight and their vector types."""

    isa: Isa
    types: dict[str, VecType] = field(default_factory=dict)

    def ctype(self, kind: VecType) -> str:
        """The C type of a register."""
        try:
            return self.isa.table.ctype[str(kind)]
        except KeyError:
            raise SpecError(f"{self.isa.name} names no C type for {kind}") from None

    def declare(self, name: str, kind: VecType, value: str) -> str:
        """`type name = value;`"""
        self.types[name] = kind
        return f"{self.ctype(kind)} {name} = {value};"

    def viewed(self, name: str, want: VecType) -> str:
        """The register `name` as a `want`."""
        have = self.types[name]
        if have == want:
            return name
        return self.isa.table.cast.format(q=want.q, to=f"{want}", frm=f"{have}", x=name)

    def value(self, step: Step, rename: Rename) -> str:
        """The expression of one step; `rename` maps program names to C names."""
        instr = self.isa[step.op]
        args = [self.viewed(rename(a), o.type) for a, o in zip(step.args, instr.operands, strict=True)]
        return instr.render(args, step.imm)

    def step(self, step: Step, rename: Rename) -> str:
        """The statement of one step."""
        return self.declare(rename(step.dst), self.isa[step.op].out, self.value(step, rename))

    def steps(self, program: Iterable[Step], rename: Rename = str) -> list[str]:
        """The statements of a program."""
        return [self.step(s, rename) for s in program]

    def load(self, op: str, name: str, pointer: str, view: VecType | None = None) -> str:
        """A register from memory, declared as the type it is used at."""
        instr = self.isa[op]
        self.types[name] = instr.out
        kind = view or instr.out
        value = instr.render([pointer])
        if kind != instr.out:
            value = self.isa.table.cast.format(q=kind.q, to=f"{kind}", frm=f"{instr.out}", x=value)
        return self.declare(name, kind, value)

    def store(self, op: str, name: str, pointer: str) -> str:
        """A register to memory."""
        instr = self.isa[op]
        return instr.render([self.viewed(name, instr.operands[0].type)], to=pointer) + ";"
