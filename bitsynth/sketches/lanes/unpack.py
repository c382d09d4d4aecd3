"""Unpacking of codes that lie side by side in bytes, each to a byte of its own: a shift, then a mask.

Both are found by their effect on unknowns in the linear domain, never by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.errors import NoKernel, SpecError
from bitsynth.isa.domains.forms import Inexact, LinearForm, Payload, side_by_side, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr, Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.value import Value


@dataclass(frozen=True)
class Unpack:
    """The extraction of one code of each byte: `shift` by `by` bits, `keep` its `bits` lowest; "" for neither."""

    bits: int
    shift: str
    by: int
    keep: str

    def apply(self, trace: Trace, name: Value) -> Value:
        """Run it on register `name`; the name of the register that holds the codes."""
        if self.shift:
            name = trace.apply(self.shift, [name], self.by)
        if self.keep:
            word = trace.isa.word
            name = trace.apply(self.keep, [name, trace.constant(word, ((1 << self.bits) - 1,) * word.lanes)])
        return name


@lru_cache
def find(isa: Isa, bits: int, per_byte: int, metric: Metric) -> tuple[Unpack, ...]:
    """Return the cheapest unpacking of each of `per_byte` codes of `bits` bits, lowest first.

    NoKernel if one has none.
    """
    lowest = _cheapest(isa, [Unpack(bits, "", 0, keep) for keep in ("", *_masks(isa))], per_byte, 0, metric)
    out = [lowest]
    for number in range(1, per_byte):
        by = number * bits
        unpacks = [Unpack(bits, shift, by, keep) for shift in _shifts(isa, by) for keep in ("", lowest.keep)]
        out.append(_cheapest(isa, unpacks, per_byte, number, metric))
    return tuple(out)


def _cheapest(isa: Isa, unpacks: Sequence[Unpack], per_byte: int, number: int, metric: Metric) -> Unpack:
    """Return the cheapest program that unpacks code `number` of every byte."""
    right = [unpack for unpack in unpacks if _gives(isa, unpack, per_byte, number)]
    if not right:
        raise NoKernel(f"{isa.name} has no instructions that take code {number} of {per_byte} from a byte")
    return min(right, key=lambda unpack: sum(metric(isa[op]) for op in (unpack.shift, unpack.keep) if op))


def _masks(isa: Isa) -> list[str]:
    """Return the forms that may keep some bits of every byte."""
    word = isa.word
    return [i.name for i in _full(isa) if not i.imm and i.out == word and [o.type for o in i.operands] == [word] * 2]


def _shifts(isa: Isa, by: int) -> list[str]:
    """Yield the forms that can shift by that many bits."""
    return [i.name for i in _full(isa) if len(i.operands) == 1 and i.imm and by in i.imms]


def _full(isa: Isa) -> list[Instr]:
    return [i for i in isa.instrs.values() if i.on_registers and i.out.total_bits == isa.table.vector_bits]


def _gives(isa: Isa, unpack: Unpack, per_byte: int, number: int) -> bool:
    """Return whether the program leaves code `number` of each byte in the byte, and nothing else."""
    codes = [[_code(unpack.bits, b, q) for q in range(per_byte)] for b in range(isa.word.lanes)]
    trace = Trace(isa, LinearDomain(1))
    x = trace.bind(Value("x"), Register(isa.word, tuple(_pack_byte(of_byte, unpack.bits) for of_byte in codes)))
    try:
        got = trace.registers[unpack.apply(trace, x)].view_as(trace.domain, isa.word).lanes
    except (Inexact, SpecError):
        return False
    return list(got) == [of_byte[number] for of_byte in codes]


def _code(bits: int, byte: int, number: int) -> LinearForm:
    return variable((byte, number), 0, (1 << bits) - 1)


def _pack_byte(codes: list[LinearForm], bits: int) -> Payload:
    """Return codes side by side in a byte, zeros above."""
    rest = 8 - bits * len(codes)
    return side_by_side([*((code, bits) for code in codes), *([(0, rest)] if rest else [])])
