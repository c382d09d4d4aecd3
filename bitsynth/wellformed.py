"""What must hold of a kernel before its programs mean anything: sizes, names, types.

C is written from kernels that passed these checks, so they also keep foreign text out of
it: every name follows one pattern, is defined once, and clashes with nothing the templates
declare; every instruction works on registers; every constant fits the array it is kept in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bitsynth.errors import SpecError
from bitsynth.isa.domains.forms import variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.program import Kernel, Pass, Step

MAX_FLUSH = 1 << 24
MAX_COLUMNS = 256
_INT32 = range(-(1 << 31), 1 << 31)
_VALUE, _CONSTANT, _ACCUMULATOR = (re.compile(rf"{start}\d{{1,6}}", re.ASCII) for start in ("t", "k", "acc"))


def check_shape(isa: Isa, kernel: Kernel) -> None:
    """SpecError names what is off; nothing here runs an instruction."""
    _require(_sizes(isa, kernel))
    _require(_tables(kernel))
    _check_constants(isa, kernel)
    for number, loop in enumerate(kernel.passes):
        try:
            _check_pass(isa, kernel, loop)
        except SpecError as why:
            raise SpecError(f"malformed kernel: pass {number}: {why}") from None


def check_used(isa: Isa, kernel: Kernel) -> None:
    """SpecError where a value is never used: C compilers warn of it, and no kernel needs it."""
    read = {a for p in kernel.passes for s in (*p.step_program, *p.flush_program) for a in s.args}
    unused = [c.name for c in kernel.constants if c.name not in read]
    for number, loop in enumerate(kernel.passes):
        step = {a for s in loop.step_program for a in s.args} | {acc.next for acc in loop.accs}
        flush = {a for s in loop.flush_program for a in s.args} | set(loop.tile)
        names = [*_planes(isa, kernel, loop), *(s.dst for s in loop.step_program)]
        unused += [f"{name} of pass {number}" for name in names if name not in step]
        names = [*(acc.name for acc in loop.accs), *(s.dst for s in loop.flush_program)]
        unused += [f"{name} of flush {number}" for name in names if name not in flush]
    if unused:
        raise SpecError(f"malformed kernel: never used: {', '.join(unused[:8])}")


def constant_load(isa: Isa, kind: VecType) -> Instr:
    """The form that loads a constant of type `kind` as it lies in memory."""
    domain = LinearDomain(1)
    lanes = [variable(k, 0, 0) for k in range(kind.lanes)]
    for instr in isa.instrs.values():
        if _loads(instr) and instr.out == instr.operands[0].type == kind and instr(domain, [lanes]) == lanes:
            return instr
    raise SpecError(f"{isa.name} has no instruction that loads a {kind}")


def _loads(instr: Instr) -> bool:
    return len(instr.operands) == 1 and instr.operands[0].memory and not instr.imm and not instr.store


Facts = dict[str, bool]


def _require(facts: Iterator[Facts]) -> None:
    """Facts come in groups: a later group is looked at only where the earlier ones hold."""
    for group in facts:
        if wrong := [fact for fact, holds in group.items() if not holds]:
            raise SpecError(f"malformed kernel: it lacks {', '.join(wrong)}")


def _sizes(isa: Isa, kernel: Kernel) -> Iterator[Facts]:
    slots = len(kernel.slots)
    yield {
        "1 to 8 bits on both sides": 1 <= kernel.act_bits <= 8 and 1 <= kernel.w_bits <= 8,
        "1 to 16 rows": 1 <= kernel.rows <= 16,
        f"1 to {MAX_COLUMNS} columns": 1 <= kernel.columns <= MAX_COLUMNS,
        "4 or 8 bits a byte": kernel.bits_per_byte in (4, 8),
        "at least one pass": bool(kernel.passes),
        "accumulators": all(p.accs for p in kernel.passes),
        "a flush period": all(1 <= p.flush_every <= MAX_FLUSH for p in kernel.passes),
    }
    yield {
        "whole tile registers": kernel.columns * 32 % isa.table.vector_bits == 0,
        "whole wgt registers": slots > 0 and slots * 64 % isa.table.vector_bits == 0,
        "one slot a column": sorted(kernel.slots) == list(range(kernel.columns)),
    }


def _tables(kernel: Kernel) -> Iterator[Facts]:
    acts, wgts = 1 << kernel.act_bits, 1 << kernel.w_bits
    sides = [(n, planes) for p in kernel.passes for n, planes in ((acts, p.act_planes), (wgts, p.wgt_planes))]
    yield {
        "one table entry a code": (len(kernel.h_table), len(kernel.g_table)) == (acts, wgts),
        "table entries of 32 bits": all(x in _INT32 for x in (*kernel.h_table, *kernel.g_table)),
        "planes that are 0 on code 0": all(0 < t < 1 << n and not t & 1 for n, planes in sides for t in planes),
        "1 to 64 planes a side": all(1 <= len(planes) <= 64 for _, planes in sides),
    }


def _register(isa: Isa, text: str) -> VecType:
    """The type `text`, which must fill a register and have a name in C."""
    kind = VecType.parse(text)
    if str(kind) not in isa.table.ctype or kind.total_bits != isa.table.vector_bits:
        raise SpecError(f"{text} is no type of a full register of {isa.name}")
    return kind


def _check_constants(isa: Isa, kernel: Kernel) -> None:
    _check_names("constant", _CONSTANT, (c.name for c in kernel.constants))
    for c in kernel.constants:
        kind = _register(isa, c.type)
        low = -(1 << (kind.bits - 1)) if kind.sign == "s" else 0
        if len(c.lanes) != kind.lanes or not all(low <= x < low + (1 << kind.bits) for x in c.lanes):
            raise SpecError(f"malformed kernel: constant {c.name} must hold {kind.lanes} numbers of {kind.short}")
        constant_load(isa, kind)


def _check_names(what: str, pattern: re.Pattern[str], names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not pattern.fullmatch(name):
            raise SpecError(f"{name[:40]!r} is no name of a {what}: want one like {pattern.pattern.split(chr(92))[0]}0")
        if name in seen:
            raise SpecError(f"{what} {name} is defined twice")
        seen.add(name)


def _planes(isa: Isa, kernel: Kernel, loop: Pass) -> list[str]:
    """The names a step finds its inputs under."""
    registers = kernel.columns * 64 // isa.table.vector_bits
    acts = [f"a{i}" for i in range(len(loop.act_planes))]
    return acts + [f"w{g}_{i}" for i in range(len(loop.wgt_planes)) for g in range(registers)]


def _check_pass(isa: Isa, kernel: Kernel, loop: Pass) -> None:
    _check_names("accumulator", _ACCUMULATOR, (acc.name for acc in loop.accs))
    for acc in loop.accs:
        _register(isa, acc.type)
    constants = [c.name for c in kernel.constants]
    accs = [acc.name for acc in loop.accs]
    tile = [f"c{r}" for r in range(kernel.columns * 32 // isa.table.vector_bits)]
    step, flush = loop.step_program, loop.flush_program
    _check_program(isa, step, {*constants, *accs, *_planes(isa, kernel, loop)})
    _check_program(isa, flush, {*constants, *accs, *tile})
    for acc in loop.accs:
        if acc.next not in {s.dst for s in step}:
            raise SpecError(f"accumulator {acc.name} becomes {acc.next[:40]!r}, which no step defines")
    if len(loop.tile) != len(tile):
        raise SpecError(f"a flush must give {len(tile)} tile registers, not {len(loop.tile)}")
    if unknown := set(loop.tile) - {s.dst for s in flush} - set(tile):
        raise SpecError(f"the tile becomes {min(unknown)[:40]!r}, which no step of the flush defines")


def _check_program(isa: Isa, program: Iterable[Step], inputs: set[str]) -> None:
    """Every value has one definition, before its uses, by an instruction on registers."""
    program = list(program)
    _check_names("value", _VALUE, (s.dst for s in program))
    known = set(inputs)
    for s in program:
        instr = isa[s.op]
        if not instr.on_registers:
            raise SpecError(f"{s}: {s.op} moves data from or to memory, which a program may not")
        if len(s.args) != len(instr.operands):
            raise SpecError(f"{s}: {s.op} takes {len(instr.operands)} operands")
        if s.imm not in instr.imms:
            raise SpecError(f"{s}: immediate {s.imm} is outside {instr.imms.start}..{instr.imms.stop - 1}")
        if missing := [a for a in s.args if a not in known]:
            raise SpecError(f"{s}: {missing[0]} has no value yet")
        known.add(s.dst)
