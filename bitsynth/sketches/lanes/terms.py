"""Instructions that multiply in lanes: table lookups, products and dot products.

Each column has a slot of `slot_bytes` bytes in a register. A row's input is repeated in all slots; or it fills the
register once, and an immediate selects the slot that an instruction takes. A term is an instruction, or one instruction
for each half of the columns, that adds the products of some positions of K to every column. Terms are found by what
instructions compute on unknowns in the linear domain, never by name. For example:

    tbl.u8x16     slot 1 byte, 1 position: looks up the product of a row's code and a column's code
    udot          slot 4 bytes, 4 positions: adds four products of bytes to a 32-bit lane
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import (
    BitField,
    Inexact,
    LinearForm,
    Payload,
    TableEntry,
    add_forms,
    as_form,
    have_same_terms,
    total,
    variable,
)
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.sums import gate, product
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.sketches.lanes import pairs
from bitsynth.sketches.lanes.pairs import Pairing
from bitsynth.spec.options import DOT_POSITIONS, INDEX_BITS

_SLOT_BYTES = (1, 2, 4)
_SUM_LANES = 2
"""Lanes of sums that a column may have instead of one."""
WIDE = 2
"""Bytes of a code that is widened to 16 bits before it is multiplied."""


@dataclass(frozen=True)
class ProductTerm:
    """An instruction that adds products to every column.

    Attributes:
        op: The instruction; `high` is the instruction for the upper half of the columns.
        row: Its operand with the row's codes; `column` and `acc` are its operands with the column's codes and the
            accumulator.
        acc: None if the instruction does not accumulate: then `add` adds its result.
        positions: Positions of K that it covers, of `code_bytes` bytes each.
        slots: Slots of the row's operand; the immediate selects one.
        sum_lanes: Lanes of the accumulator in which a column has its sums; a flush adds them up.
        add_codes: The instruction that adds a row's code and a column's code before they are multiplied, if there is
            one: each product is then for two neighbours (`kernel.program`: `cross_terms`).
    """

    method: str
    op: str
    high: str | None
    row: int
    column: int
    acc: int | None
    slot_bytes: int
    positions: int
    acc_type: VecType
    add: str | None
    slots: int = 1
    code_bytes: int = 1
    add_codes: str = ""
    sum_lanes: int = 1

    @property
    def crosses(self) -> bool:
        """Whether it multiplies sums of a row's code and a column's code, each product for two neighbours."""
        return bool(self.add_codes)

    @property
    def looks_up(self) -> bool:
        """Whether it looks up sums in tables."""
        return self.method in ("lookup", "pairs")

    @property
    def in_matrices(self) -> bool:
        """Whether instructions on matrix registers repeat it."""
        return self.method == "matrix"

    @property
    def rows(self) -> int:
        """Rows that it serves at once."""
        return pairs.ROWS if self.method == "pairs" else 1

    @property
    def halves(self) -> tuple[str, ...]:
        """The instructions one column register takes."""
        return (self.op, self.high) if self.high else (self.op,)

    def arguments(self, row: Value, column: Value, acc: Value | None) -> tuple[Value, ...]:
        """Return the operands in the instruction's order."""
        places = {self.row: row, self.column: column} | ({self.acc: acc} if acc and self.acc is not None else {})
        return tuple(places[k] for k in range(len(places)))

    def __str__(self) -> str:
        return " + ".join((*([self.add_codes] * self.crosses), *self.halves, *([self.add] if self.add else [])))


@lru_cache
def find(isa: Isa, method: str, wide: bool = False, slots: bool = False) -> tuple[ProductTerm, ...]:
    """Return the terms of a method, in the order of the instruction tables; NoKernel says what `isa` lacks.

    With `wide` there are also terms that sum products of 16-bit lanes, for bytes whose sum of two products does not fit
    16 bits. With `slots` there are also terms of 16-bit lanes that read one slot of a row's register: nothing is
    widened or repeated, but codes take two bytes.
    """
    if method == "pairs":
        wrapping = [t for t in find(isa, "lookup") if pairs.wraps(isa, t.add or "")]
        pairing_of(isa, wrapping[0])
        return tuple(replace(t, method=method) for t in wrapping)
    if method == "fip":
        return _fast_products(isa)
    if method == "matrix":
        return _matrix_products(isa)
    every = [t for instr in _candidates(isa) for t in _terms(isa, instr)]
    every += [t for instr in _candidates(isa) if slots and instr.imm for t in _slot_products(isa, instr, WIDE)]
    every += [t for instr in _candidates(isa) if wide and not instr.imm for t in _products(isa, instr, WIDE)]
    if any(t.method == "dot" for t in every):  # Its one instruction replaces two lanes of sums and their addition.
        every = [t for t in every if t.sum_lanes == 1]
    terms = tuple(t for t in every if t.method == method)
    if not terms:
        raise NoKernel(f"{isa.name} has no instruction for the {method} method")
    return terms


def _fast_products(isa: Isa) -> tuple[ProductTerm, ...]:
    """Return the terms of the fast inner product: each product of unsigned bytes may be one of two sums."""
    whole = (t for t in find(isa, "multiply") if t.slot_bytes == t.slots == 1)
    terms = [t for t in whole if {isa[t.op].operands[k].type for k in (t.row, t.column)} == {isa.word}]
    if not terms:
        raise NoKernel(f"{isa.name} has no instruction for the fip method")
    add = adder(isa, isa.word)
    return tuple(replace(t, method="fip", add_codes=add) for t in terms)


def _matrix_products(isa: Isa) -> tuple[ProductTerm, ...]:
    """Return the terms of the dot product that an instruction on matrix registers repeats."""
    repeated = isa.table.matrices.repeats if isa.table.matrices else ""
    terms = [t for t in find(isa, "dot") if t.op == repeated] if repeated else []
    if not terms:
        raise NoKernel(f"{isa.name} has no instruction for the matrix method")
    return tuple(replace(t, method="matrix") for t in terms)


def _terms(isa: Isa, instr: Instr) -> Iterator[ProductTerm]:
    if instr.imm:
        yield from _slot_products(isa, instr)
    else:
        yield from _lookups(isa, instr)
        yield from _products(isa, instr)


def _candidates(isa: Isa) -> Iterator[Instr]:
    return (i for i in isa.full_forms if len(i.operands) in (2, 3))


def _lookups(isa: Isa, instr: Instr) -> Iterator[ProductTerm]:
    if instr.out != isa.word or [o.type for o in instr.operands] != [isa.word] * 2:
        return
    for bits in INDEX_BITS:
        for table in (0, 1):
            if 1 << bits <= isa.word.lanes and _selects(isa, instr, bits, table):
                for add in adders(isa, isa.word):
                    yield ProductTerm("lookup", instr.name, None, table, 1 - table, None, 1, bits, isa.word, add)


def _selects(isa: Isa, instr: Instr, bits: int, table: int) -> bool:
    """Return whether an instruction gives each lane the sum of the parts that the bits of its index select."""
    parts = tuple(variable(("part", n), 0, 1) for n in range(bits))
    lanes = range(isa.word.lanes)
    index = [BitField(0b10, b, 0, (1 << bits) - 1) for b in lanes]
    args: list[Sequence[Payload]] = [index, index]
    args[table] = [TableEntry(parts, b % (1 << bits)) for b in lanes]
    want = [total(gate(part, index[b], n) for n, part in enumerate(parts)) for b in lanes]
    return _gives(instr, 2, args, want)


def pairing_of(isa: Isa, term: ProductTerm) -> Pairing:
    """Return how a term of pairs adds the high halves of bytes; NoKernel says what `isa` lacks."""
    assert term.add
    return pairs.find(isa, term.add)


def _gives(
    instr: Instr, rows: int, args: Sequence[Sequence[Payload]], want: Sequence[LinearForm], imm: int = 0
) -> bool:
    try:
        return have_same_terms([as_form(x) for x in instr(LinearDomain(rows), args, imm)], want)
    except Inexact:
        return False


def _products(isa: Isa, instr: Instr, code_bytes: int = 1) -> Iterator[ProductTerm]:
    """Yield the terms that multiply lanes of `code_bytes`; for several bytes only terms that sum products."""
    types, lanes = [o.type for o in instr.operands], isa.word.lanes // code_bytes
    given = [k for k, t in enumerate(types) if (t.bits, t.lanes) == (8 * code_bytes, lanes)]
    high = isa.high_half(instr)
    for row, column in permutations(given, 2):
        rest = [k for k in range(len(types)) if k not in (row, column)]
        mirrored = row > column and types[row] == types[column]
        if mirrored or any(types[k] != instr.out for k in rest):
            continue
        for size in _SLOT_BYTES[code_bytes - 1 :]:
            slots = lanes // size
            halves = [instr.name, *([high] if high else [])] if slots == 2 * instr.out.lanes else [instr.name]
            sum_lanes = _SUM_LANES if _has_sum_lanes(isa, instr, slots, size) else 1
            if slots * sum_lanes != len(halves) * instr.out.lanes:
                continue
            acc = rest[0] if rest else None
            given_places = (row, column, acc)
            if all(
                _multiplies(isa, isa[op], given_places, size, h, sum_lanes=sum_lanes) for h, op in enumerate(halves)
            ):
                method = "dot" if size == DOT_POSITIONS and sum_lanes == 1 else "multiply"
                add = None if rest else adder(isa, instr.out)
                upper = halves[1] if len(halves) == 2 else None
                slot = size * code_bytes
                places = (row, column, acc, slot, size)
                yield ProductTerm(
                    method, instr.name, upper, *places, instr.out, add, code_bytes=code_bytes, sum_lanes=sum_lanes
                )


def _slot_products(isa: Isa, instr: Instr, code_bytes: int = 1) -> Iterator[ProductTerm]:
    """Yield the terms that add to an accumulator, each immediate with another slot of the row's register."""
    types, slots, lanes = [o.type for o in instr.operands], len(instr.imms), isa.word.lanes // code_bytes
    size, given = lanes // slots, [k for k, t in enumerate(types) if (t.bits, t.lanes) == (8 * code_bytes, lanes)]
    for row, column in permutations(given, 2):
        rest = [k for k in range(len(types)) if k not in (row, column)]
        if len(rest) != 1 or types[rest[0]] != instr.out or instr.out.lanes != slots or size not in _SLOT_BYTES:
            continue
        if all(_multiplies(isa, instr, (row, column, rest[0]), size, slot=slot) for slot in instr.imms):
            method = "dot" if size == DOT_POSITIONS else "multiply"
            places = row, column, rest[0], size * code_bytes, size
            yield ProductTerm(method, instr.name, None, *places, instr.out, None, slots, code_bytes)


def _has_sum_lanes(isa: Isa, instr: Instr, slots: int, size: int) -> bool:
    """Return whether a slot may have two lanes of sums, each of several products and narrower than the tile's lanes."""
    return slots * _SUM_LANES == instr.out.lanes and size > _SUM_LANES and instr.out.bits < isa.tile.bits


def _multiplies(
    isa: Isa,
    instr: Instr,
    places: tuple[int, int, int | None],
    size: int,
    half: int = 0,
    slot: int | None = None,
    sum_lanes: int = 1,
) -> bool:
    """Return whether lane i is the sum of the products of slot i's codes and the row's, plus the accumulator.

    `places` are the operands of row, column and accumulator. The row's codes are in every slot, or in the slot that the
    immediate selects. If a slot has several `sum_lanes`, each is the sum of its part of the products.
    """
    row, column, acc = places
    lanes = instr.operands[row].type.lanes
    rows = [variable(("r", b if slot is not None else b % size), 0, 1) for b in range(lanes)]
    columns = [variable(("c", b), 0, 1) for b in range(lanes)]
    before = [variable(("acc", i), 0, 0) for i in range(instr.out.lanes)]
    args: list[Sequence[Payload]] = [[]] * len(instr.operands)
    args[row], args[column] = rows, columns
    if acc is not None:
        args[acc] = before
    given = rows if slot is None else rows[slot * size : (slot + 1) * size] * (lanes // size)
    left, right = (given, columns) if row < column else (columns, given)
    each = size // sum_lanes
    first = half * instr.out.lanes * each
    want = []
    for i in range(instr.out.lanes):
        bytes_ = range(first + i * each, first + (i + 1) * each)
        summed = total(product(left[b], right[b]) for b in bytes_)
        want.append(summed if acc is None else add_forms(before[i], summed))
    return _gives(instr, 1, args, want, slot or 0)


def adder(isa: Isa, kind: VecType) -> str:
    """Return the first form that adds lanes of `kind`; NoKernel if there is none."""
    return adders(isa, kind)[0]


@lru_cache
def adders(isa: Isa, kind: VecType) -> tuple[str, ...]:
    """Return the forms that add lanes of `kind`, some only if the sum fits; NoKernel if there is none."""
    x = [variable(("x", i), 0, 1) for i in range(kind.lanes)]
    y = [variable(("y", i), 0, 1) for i in range(kind.lanes)]
    want = [add_forms(a, b) for a, b in zip(x, y, strict=True)]
    fit = (i for i in _candidates(isa) if not i.imm and i.out == kind and [o.type for o in i.operands] == [kind] * 2)
    instructions = tuple(i.name for i in fit if _gives(i, 1, [x, y], want))
    if not instructions:
        raise NoKernel(f"{isa.name} has no instruction that adds lanes of {kind}")
    return instructions
