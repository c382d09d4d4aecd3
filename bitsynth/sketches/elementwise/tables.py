"""Sketches of programs that look up bytes in tables in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue
from bitsynth.spec.elementwise import ElementwiseSpec

_IN_HALVES = "ite(ult(a[i], 128), lookup(b[i // 16 * 16 : i // 16 * 16 + 16], a[i] & 15), 0)"
_IN_TABLE = "ite(ult(a[i], 16), lookup(b, a[i]), 0)"
_IN_REGISTER = "lookup(b, a[i] & lanes - 1)"
_IN_TWO = "lookup(concat(b, c), a[i] & 2 * lanes - 1)"


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield programs for `spec.elementwise.lookup` and `spec.glue.pairs`, as many as `isa` has instructions for."""
    for make in (_by(_IN_HALVES, 16), _by(_IN_TABLE, 16), _by(_IN_REGISTER, isa.word.lanes), _in_two, _in_four):
        builder = Builder(isa, spec, isa.word.lanes)
        try:
            yield builder.finish(make(builder))
        except NoKernel:
            continue


def _by(meaning: str, most: int) -> Callable[[Builder], UnitValue]:
    """Look up by one instruction in one register of at most that many entries."""

    def make(builder: Builder) -> UnitValue:
        table = _table(builder)
        if len(table) > 1 or builder.spec.inputs[-1].count > most:
            raise NoKernel("more entries than it looks at")
        return builder.map(meaning, _index(builder), table[0])

    return make


def _in_two(builder: Builder) -> UnitValue:
    """Return the value of one instruction that looks up in two registers."""
    table = _table(builder)
    if len(table) != 2:
        raise NoKernel("not two registers of entries")
    return builder.map(_IN_TWO, _index(builder), *table)


def _in_four(builder: Builder) -> UnitValue:
    """Return the value of two lookups in two registers each; the highest bit of a code chooses between them."""
    table, x = _table(builder), _index(builder)
    if len(table) != 4 or 4 * x.type.lanes != 256:
        raise NoKernel("not four registers of entries")
    low, high = (builder.map(_IN_TWO, x, *table[n : n + 2]) for n in (0, 2))
    negative = builder.map(roles.GREATER_MASK, builder.constant(x.type, 0), x, out=VecType("u", x.type.lanes, 1))
    return builder.map(roles.CHOSEN, negative, low, high, out=x.type)


def _index(builder: Builder) -> UnitValue:
    """Return the place in the table: of a code, or of the first of two above the second."""
    if len(builder.spec.inputs) == 2:
        return builder.input("x")
    a, b = builder.input("a"), builder.input("b")
    bits = builder.spec.inputs[-1].count.bit_length() // 2
    try:
        high = builder.map(roles.SHIFT_LEFT.format(bits), a)
    except NoKernel:
        pairs = VecType("u", 16, a.type.lanes // 2)
        both = builder.map(roles.SHIFT_LEFT.format(bits), a.as_type(pairs)).as_type(a.type)
        high = builder.bitwise(roles.AND, both, builder.constant(a.type, 256 - (1 << bits)))
    return builder.bitwise(roles.OR, high, b)


def _table(builder: Builder) -> list[UnitValue]:
    """Return the table's registers, each for itself."""
    given = builder.input("t")
    return [UnitValue(given.type, (name,)) for name in given.registers]
