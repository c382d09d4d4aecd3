"""Instructions for two rows in one lookup: a byte of the table has an entry of each row's, side by side.

What is looked up is two sums, the low one in the low half of the byte. Bytes are added up as they are, modulo 256,
and the high halves apart: the low sums are what is left when the high ones are taken away.

Where no instruction shifts bytes, high halves are brought down by a shift in wider lanes. The low half of the byte
above then comes in, and is added up with them. That is undone before sums are widened, when low sums are known:

    byte b of `low`    low[b] + 16 * high[b]          minus 16 times the next: low[b]
    byte b of `high`   high[b] + 16 * low[b + 1]      minus 16 times low[b + 1]: high[b]

Instructions are found by their effect on unknowns in the linear domain, never by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.errors import NoKernel, SpecError
from bitsynth.isa.domains.forms import Concat, Inexact, LinearForm, add_forms, as_form, have_same_terms, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.value import Role, Value

ROWS = 2
"""Rows that share a byte."""

_SPANS = (1, 2, 4, 8)
"""Bytes of a lane that is shifted, the fewest first: then the fewest bytes take in what is above them."""

AppendStep = Callable[[str, tuple[Value, ...], int], Value]
"""Appends an instruction with operands and an immediate to a program, and returns the name of its result."""


@dataclass(frozen=True)
class Pairing:
    """How the high halves of bytes are added up.

    Attributes:
        add: Adds bytes; without a `shift` the high halves of its second operand alone.
        bits: Bits of half a byte.
        shift: The instruction that brings high halves down first, if there is one.
        span: Bytes of a lane that it shifts. Every byte of it but the last takes in the low half of the byte above.
    """

    add: str
    bits: int
    shift: str = ""
    span: int = 1

    @property
    def most(self) -> int:
        """The greatest sum that half a byte holds."""
        return (1 << self.bits) - 1

    @property
    def ops(self) -> tuple[str, ...]:
        """The instructions that add the high halves of a register."""
        return (self.shift, self.add) if self.shift else (self.add,)

    def add_high(self, run: AppendStep, acc: Value, both: Value) -> Value:
        """Append the instructions that add the high halves of `both` to `acc`, and return the name of the sum."""
        if not self.shift:
            return run(self.add, (acc, both), self.bits)
        return run(self.add, (acc, run(self.shift, (both,), self.bits)), 0)


@lru_cache
def find(isa: Isa, add: str) -> Pairing:
    """Return the first way that `isa` has: one instruction, else a shift and `add`, which adds bytes.

    NoKernel says what `isa` lacks.
    """
    bits = isa.word.bits // 2
    for instr in _takers(isa, bits, 2):
        if _adds_high(isa, instr, bits):
            return Pairing(instr.name, bits)
    shifts = list(_takers(isa, bits, 1))
    for span in _SPANS:
        for instr in shifts:
            if _brings_down(isa, instr, bits, span):
                return Pairing(add, bits, instr.name, span)
    raise NoKernel(f"{isa.name} has no instructions that add the high halves of bytes")


def wraps(isa: Isa, add: str) -> bool:
    """Return whether an instruction adds bytes modulo 256, whatever they are."""
    most = (1 << isa.word.bits) - 1
    x, y = ([variable((name, b), 0, most) for b in range(isa.word.lanes)] for name in ("x", "y"))
    return _gives(isa, isa[add], 0, [x, y], [add_forms(a, b) for a, b in zip(x, y, strict=True)])


def _takers(isa: Isa, imm: int, operands: int) -> Iterator[Instr]:
    """Yield the instructions from that many whole registers to one which take the immediate `imm`."""
    size = isa.table.vector_bits
    for i in isa.full_forms:
        whole = i.out.total_bits == size and all(o.type.total_bits == size for o in i.operands)
        if whole and i.imm and imm in i.imms and len(i.operands) == operands:
            yield i


def _adds_high(isa: Isa, instr: Instr, bits: int) -> bool:
    """Return whether an instruction adds the high halves of its second operand's bytes to the first operand's bytes."""
    acc = [variable(("acc", b), 0, (1 << bits) - 1) for b in range(isa.word.lanes)]
    _, high, both = _halves(isa, bits)
    if [instr.out, *(o.type for o in instr.operands)] != [isa.word] * 3:
        return False
    want = [add_forms(x, y) for x, y in zip(acc, high, strict=True)]
    return _gives(isa, instr, bits, [acc, both], want)


def _brings_down(isa: Isa, instr: Instr, bits: int, span: int) -> bool:
    """Return whether an instruction shifts lanes of `span` bytes down by half a byte."""
    low, high, both = _halves(isa, bits)
    want = [add_forms(x, low[b + 1].scale(1 << bits)) if (b + 1) % span else x for b, x in enumerate(high)]
    return _gives(isa, instr, bits, [both], want)


def _halves(isa: Isa, bits: int) -> tuple[list[LinearForm], list[LinearForm], list[Concat]]:
    """Return unknowns for the low and the high halves of bytes, and bytes that have both."""
    lanes, most = range(isa.word.lanes), (1 << bits) - 1
    low, high = ([variable((name, b), 0, most) for b in lanes] for name in ("low", "high"))
    return low, high, [Concat(((x, bits), (y, bits))) for x, y in zip(low, high, strict=True)]


def _gives(
    isa: Isa, instr: Instr, imm: int, args: list[list[LinearForm] | list[Concat]], want: list[LinearForm]
) -> bool:
    """Return whether an instruction makes bytes `want` of registers of bytes `args`."""
    trace = Trace(isa, LinearDomain(1))
    names = [trace.bind(Value.of(Role.ROW, k), Register(isa.word, tuple(x))) for k, x in enumerate(args)]
    try:
        result = trace.registers[trace.apply(instr.name, names, imm)].view_as(trace.domain, isa.word)
        got = [as_form(x) for x in result.lanes]
    except (Inexact, SpecError):
        return False
    return have_same_terms(got, want)
