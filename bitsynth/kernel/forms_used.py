"""Finds the instruction forms that a kernel's C contains, and what they require of compiler and processor."""

from __future__ import annotations

from bitsynth.errors import SpecError
from bitsynth.isa.domains.forms import variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa, Requirements
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Kernel


def constant_load(isa: Isa, kind: VecType) -> Instr:
    """Return the form that loads a constant of type `kind`, or of unsigned lanes as wide, as it lies in memory."""
    domain = LinearDomain(1)
    lanes = [variable(k, 0, 0) for k in range(kind.lanes)]
    for wanted in (kind, VecType("u", kind.bits, kind.lanes)):
        for instr in isa.instrs.values():
            if instr.is_load and instr.out == instr.operands[0].type == wanted and instr(domain, [lanes]) == lanes:
                return instr
    raise SpecError(f"{isa.name} has no instruction that loads a {kind}")


def forms_used(isa: Isa, kernel: Kernel) -> set[str]:
    """Return every instruction form the kernel's C text will contain."""
    memory, build = kernel.memory, kernel.build
    moving = {memory.load, memory.broadcast, memory.load_tile, memory.store_tile}
    row_terms = {memory.add_tile, memory.broadcast_tile} if kernel.has_row_terms else set()
    programs = {s.op for p in kernel.every_pass for program in p.programs for s in program}
    building = {build.load, build.store, *(s.op for s in build.steps)} if build else set()
    constants = (*kernel.constants, *(build.constants if build else ()))
    loads = {constant_load(isa, VecType.parse(c.type)).name for c in constants}
    return moving | row_terms | programs | building | loads


def needs(isa: Isa, *kernels: Kernel) -> Requirements:
    """Return the requirements of the forms of all `kernels` on a processor and a compiler."""
    return isa.requirements(sorted(set().union(*(forms_used(isa, k) for k in kernels))))
