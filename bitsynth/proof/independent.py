"""Check a stored matmul kernel, independently: `python NAME_check.py [NAME.kernel.json]`. It needs numpy alone.

NAME.kernel.json lies next to emitted C: the kernel's file, with the declarations of its instructions, and with the
encodings of its operands. For a kernel file of the store (`kernels_cache/`) a second argument names the folder that
declares its instruction set (`isa_specs/avx2`). Exit code 0: the theorem holds. 1: the kernel is wrong, or cannot be
shown right. 2: a file cannot be read. 3: the kernel is of a kind that this file does not cover.

The theorem. A kernel file describes programs of vector instructions. Let them run as the file says, on rows and columns
of codes that are packed as it says, for any number of steps over K. Then each int32 of the tile, which starts at the
sum of its row's terms and its column's terms, ends at

    sum over k of  act[k] * value(wgt[k])    modulo 2**32,

where value(w) is 2 * w - (2**bits - 1) for bipolar weights, and w - 2**(bits - 1) for signed ones. Up to `k_max`
positions no such sum leaves int32. All codes are covered, not samples of them.

The argument, in the order of `check`:

1. `check_layout`: each slot is one column, and inputs lie inside a step.
2. `check_moves`: loads, broadcasts and stores move bytes as the layout says, and int32 lanes are added.
3. `check_tables` (lookup): the table program makes every entry the sum that its number selects.
4. `run_step`: one run of the innermost loop adds to each accumulator lane a sum of *functions of one position*. For
   example the popcount of (a ^ w) over a byte adds f(act[0], wgt[0]) + ... + f(act[7], wgt[7]).
5. `run_loop`: an outer loop, and a flush, are run once with the lanes of the loop inside as unknowns, whose ranges
   follow from the trip count. They may only add multiples of them. So no loop is unrolled, and no overflow is assumed
   away.
6. `check_products`: put together, a step adds to column c, for each position p, a function of act[p] and wgt[p]. On
   all rows of its truth table it equals the product minus the terms. By induction this holds for all steps.
7. `check_padding`: bytes of 0, with which the last step is filled, add nothing.

What a lane holds. A lane of an instruction is a list of fields, and a field is a `Sum`, modulo 2**width:

    const  +  functions of single positions, as tables over all codes  +  multiples of unknowns

Positions are independent, so the range of a sum is the sum of the ranges of its parts. `+`, `-` and multiplication by a
constant are exact modulo 2**width. Everything else (widening, comparing, bits of a sum) needs the number itself, and is
refused unless the range shows that the lane holds it, or all of it depends on one position, where tables are computed
entry by entry. So every operation here is exact, and the result follows from the declared meanings of instructions.

What is assumed: that instructions do what their declarations say, that the C text is the stored program, and numpy.
"""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from itertools import product as every_choice
from math import gcd, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

CodeNumbers = NDArray[np.int64]
"""A table of a function of codes, (row codes, column codes); an axis on which it does not depend has size 1."""
MAX_NUMBER = 1 << 60
"""Bound on numbers in tables, so that sums of two do not leave int64."""
MAX_CHOICES = 1 << 12
"""Bound on the entries of a table that one lookup may reach."""
STAGED = 8
"""Bytes of codes that a table is built from."""


class Wrong(Exception):
    """The kernel is wrong, or its programs are none that can be shown right."""


class NotCovered(Exception):
    """The kernel is of a kind that this checker does not know."""


def require(holds: Any, why: str) -> None:
    """Raise Wrong, with the reason `why`, unless the condition `holds`."""
    if not holds:
        raise Wrong(why)


# 1. Sums: what a field of a lane holds.


class Position(NamedTuple):
    """A position of K in a step, of the row (column None) or of a column, or of both together."""

    column: int | None
    place: int


class Unknown(NamedTuple):
    """An integer with a known range, such as a loop's sum in an accumulator lane."""

    name: tuple[Any, ...]
    low: int
    high: int


class CodeFunction:
    """A function of the codes of one position, 0 for the codes (0, 0): a table (row codes, column codes).

    An axis on which it does not depend has size 1. Where other positions or columns have the same function they share
    the object, so that what is computed of it is computed once (`apply`).
    """

    __slots__ = ("high", "low", "numbers")

    def __init__(self, numbers: CodeNumbers) -> None:
        self.numbers = numbers
        self.low, self.high = int(numbers.min()), int(numbers.max())
        require(-MAX_NUMBER < self.low and self.high < MAX_NUMBER, "numbers leave int64")


@lru_cache(maxsize=256)
def apply(
    function: Callable[..., Any], operands: tuple[tuple[CodeFunction | None, int], ...]
) -> tuple[CodeFunction | None, int]:
    """Return a function of numbers, entry by entry: of tables, each plus a constant. The result is one too."""
    for table, const in operands:
        require(abs(const) < MAX_NUMBER and (table is None or max(-table.low, table.high) < MAX_NUMBER), "too great")
    numbers = np.asarray(function(*(const if table is None else table.numbers + const for table, const in operands)))
    numbers = numbers.astype(np.int64).reshape(numbers.shape or (1, 1))
    corner = int(numbers[0, 0])
    return (CodeFunction(numbers - corner) if (numbers != corner).any() else None), corner


class Sum:
    """const + functions of positions + multiples of unknowns, a number that is exact.

    Attributes:
        const: The constant.
        tables: The function of the codes at each position, without functions that are 0.
        factors: The factor of each unknown, without factors of 0.
    """

    __slots__ = ("_ends", "const", "factors", "tables")

    def __init__(
        self,
        const: int,
        tables: Mapping[Position, CodeFunction] | None = None,
        factors: Mapping[Unknown, int] | None = None,
    ) -> None:
        self.const, self.tables = const, tables or {}
        self.factors = {x: factor for x, factor in factors.items() if factor} if factors else {}
        self._ends: tuple[int, int] | None = None

    @property
    def is_constant(self) -> bool:
        """Whether it depends on nothing."""
        return not self.tables and not self.factors

    def plus(self, other: "Sum", factor: int = 1) -> "Sum":
        """Return this sum plus `factor` times another one."""
        if factor != 1:
            other = other.scale(factor)
        tables, factors = dict(self.tables), dict(self.factors)
        for at, table in other.tables.items():
            more = apply(np.add, ((tables[at], 0), (table, 0)))[0] if at in tables else table
            if more is None:
                del tables[at]
            else:
                tables[at] = more
        for x, times in other.factors.items():
            factors[x] = factors.get(x, 0) + times
        return Sum(self.const + other.const, tables, factors)

    def scale(self, factor: int) -> "Sum":
        """Return this sum times a constant."""
        tables: dict[Position, CodeFunction] = {}
        for at, table in self.tables.items() if factor else ():
            require(max(-table.low, table.high) * abs(factor) < MAX_NUMBER, "numbers leave int64")
            product, _ = apply(np.multiply, ((table, 0), (None, factor)))
            if product is not None:
                tables[at] = product
        return Sum(self.const * factor, tables, {x: times * factor for x, times in self.factors.items()})

    @property
    def columns(self) -> set[int]:
        """The columns whose codes it depends on."""
        return {at.column for at in self.tables if at.column is not None}

    def by_place(self) -> dict[int, CodeFunction]:
        """Return a table for each position; what a row adds there, and what its column adds, are one table."""
        require(not self.factors, "a lane takes in what is no function of codes")
        require(len(self.columns) < 2, "a lane takes in two columns")
        tables: dict[int, CodeFunction] = {}
        for at, table in self.tables.items():
            own = tables.get(at.place)
            both = table if own is None else apply(np.add, ((own, 0), (table, 0)))[0]
            if both is not None:
                tables[at.place] = both
            else:
                del tables[at.place]
        return tables

    def alone(self) -> tuple[Position | None, CodeFunction | None] | None:
        """Return the one position that it depends on, if any, and the function there; None if there are more."""
        if self.factors:
            return None
        if len(self.tables) == 1:
            ((at, table),) = self.tables.items()
            return at, table
        if len({at.place for at in self.tables}) > 1 or len(self.columns) > 1:
            return None
        for place, table in self.by_place().items():
            return Position(next(iter(self.columns), None), place), table
        return None, None

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest number; exact for codes of one column, which are independent by position."""
        if self._ends is None:
            merged = len(self.tables) > 1 and not self.factors and len(self.columns) < 2
            tables = list((self.by_place() if merged else self.tables).values())
            least = [min(x.low * factor, x.high * factor) for x, factor in self.factors.items()]
            most = [max(x.low * factor, x.high * factor) for x, factor in self.factors.items()]
            low = self.const + sum(table.low for table in tables) + sum(least)
            self._ends = low, self.const + sum(table.high for table in tables) + sum(most)
        return self._ends

    def equals(self, other: "Sum", width: int = 64) -> bool:
        """Return whether two sums are the same for all codes and unknowns, modulo 2**width."""
        rest = self.plus(other, -1)
        return rest.const % (1 << width) == 0 and rest.is_constant


def pointwise(function: Callable[..., Any], *operands: Sum) -> Sum:
    """Return a function of sums that depend on one position, the same for all: it is computed entry by entry."""
    alone = [x.alone() for x in operands]
    known = [x for x in alone if x is not None]
    require(len(known) == len(alone), "bits of sums over several positions are combined")
    positions = {at for at, _ in known if at is not None}
    require(len({at.place for at in positions}) < 2, "bits of different positions are combined")
    columns = {at.column for at in positions} - {None}
    require(len(columns) < 2, "two columns are combined")
    table, const = apply(function, tuple((t, x.const) for (_, t), x in zip(known, operands, strict=True)))
    if table is None:
        return Sum(const)
    return Sum(const, {Position(next(iter(columns), None), next(iter(positions)).place): table})


def multiply(a: Sum, b: Sum) -> Sum:
    """Return a product: of a sum and a constant, or of functions of one position."""
    if a.is_constant or b.is_constant:
        return b.scale(a.const) if a.is_constant else a.scale(b.const)
    require(prod(max(map(abs, x.ends)) for x in (a, b)) < MAX_NUMBER, "numbers leave int64")
    return pointwise(np.multiply, a, b)


def in_range(x: Sum, low: int, width: int) -> Sum:
    """Return the number from `low` to low + 2**width - 1 that equals `x` modulo 2**width; Wrong if that is open.

    For example -1 as 8 bits is 255 from 0 on, and -1 from -128 on.
    """
    size = 1 << width
    if any(factor % size == 0 for factor in x.factors.values()):
        x = Sum(x.const, x.tables, {y: factor for y, factor in x.factors.items() if factor % size})
    if x.is_constant:
        return Sum((x.const - low) % size + low)
    least, most = x.ends
    shift = (low - least) // size * size + (size if (low - least) % size else 0)  # the least to reach `low`
    if most + shift < low + size:
        return x.plus(Sum(shift))
    require(width < 60, "a wide lane may wrap")
    if x.alone() is None:
        raise Wrong(f"a lane of {width} bits is read as a number, but may hold [{least}, {most}]")
    return pointwise(wrap, x, Sum(low), Sum(size))


def wrap(numbers: Any, low: int, size: int) -> Any:
    """Return the numbers from `low` to low + size - 1 that equal `numbers` modulo `size`."""
    return (numbers - low) % size + low


# 2. Lanes: what instructions compute with. An instruction's meaning is an expression of lanes.


class Field(NamedTuple):
    """The bits of a lane from one place on: `width` bits, the bits of a sum modulo 2**width."""

    sum: Sum
    width: int


class LaneValue(NamedTuple):
    """A lane of a register: fields, the lowest first."""

    fields: tuple[Field, ...]

    @property
    def width(self) -> int:
        """The bits of the lane."""
        return sum(field.width for field in self.fields)

    def number(self) -> Sum:
        """Return a number that the lane equals modulo 2**width: all fields but the last must be numbers."""
        return self._total(self.fields[-1].sum)

    def read_unsigned(self) -> Sum:
        """Return the number that the lane holds, without a sign."""
        return self._total(in_range(self.fields[-1].sum, 0, self.fields[-1].width))

    def read_signed(self) -> Sum:
        """Return the number that the lane holds in two's complement."""
        last = self.fields[-1]
        return self._total(in_range(last.sum, -(1 << last.width - 1), last.width))

    def _total(self, last: Sum) -> Sum:
        total, offset = Sum(0), 0
        for field in self.fields[:-1]:
            total, offset = total.plus(read_unsigned(field), 1 << offset), offset + field.width
        return total.plus(last, 1 << offset)

    def cut(self, first: int, last: int) -> "LaneValue":
        """Return bits first .. last - 1."""
        fields, offset = [], 0
        for field in self.fields:
            low, high = max(first - offset, 0), min(last - offset, field.width)
            if low < high:
                fields.append(cut_field(field, low, high))
            offset += field.width
        return LaneValue(tuple(fields))


def cut_field(field: Field, low: int, high: int) -> Field:
    """Return bits low .. high - 1 of a field.

    Its low bits are the low bits of the same sum. High bits are known if the rest of the sum is: of 256 * x + y, with y
    below 256, the bits from 8 on are x. A function of a position adds to x what it has of whole multiples, and to y the
    rest.
    """
    x = field.sum
    if low == 0:
        return Field(x, high)
    if x.alone() is not None:
        whole = in_range(x, 0, field.width)
        return Field(pointwise(np.right_shift, whole, Sum(low)), high - low)
    unit = 1 << low
    divided = {at: apply(np.floor_divide, ((table, 0), (None, unit)))[0] for at, table in x.tables.items()}
    tables = {
        at: y
        for at, y in divided.items()
        if y is not None and (x.tables[at].low >= 0 or (y.numbers * unit == x.tables[at].numbers).all())
    }
    factors = {y: factor // unit for y, factor in x.factors.items() if factor % unit == 0}
    multiples = Sum(x.const // unit, tables, factors)
    least, most = x.plus(multiples, -unit).ends
    require(least >= 0 and most < unit, f"a sum is cut at bit {low}, below which it may hold [{least}, {most}]")
    return Field(multiples, high - low)


def constant(number: int, width: int) -> LaneValue:
    """Return a lane that holds a constant."""
    return LaneValue((Field(Sum(number % (1 << width)), width),))


def of_sum(x: Sum, width: int) -> LaneValue:
    """Return a lane that holds a sum, modulo 2**width."""
    return LaneValue((Field(x, width),))


def read_unsigned(field: Field) -> Sum:
    """Return the number that a field holds, without a sign."""
    return in_range(field.sum, 0, field.width)


def bitwise(function: Callable[..., Any], a: LaneValue, b: LaneValue) -> LaneValue:
    """Return and, or, exclusive or: field by field, where these have common ends and constants are all 0 or all 1."""
    if [field.width for field in a.fields] == [field.width for field in b.fields] and not is_open(a) and not is_open(b):
        pairs = zip(a.fields, b.fields, strict=True)
        return LaneValue(
            tuple(Field(pointwise(function, read_unsigned(x), read_unsigned(y)), x.width) for x, y in pairs)
        )
    ends = {0}
    for lane, other in ((a, b), (b, a)):
        offset = 0
        for field in lane.fields:
            if field.sum.is_constant and is_open(other):
                ends |= {offset + n for n in runs(field.sum.const, field.width)}
            offset += field.width
            ends.add(offset)
    marks = sorted(ends)
    return LaneValue(tuple(_bitwise_field(function, a, b, low, high) for low, high in pairwise(marks)))


def is_open(lane: LaneValue) -> bool:
    """Return whether a lane has a field that depends on several positions or on unknowns."""
    return any(field.sum.alone() is None for field in lane.fields)


def runs(number: int, width: int) -> list[int]:
    """Return the bits at which runs of equal bits begin: 0 and 4 for 15 as 8 bits."""
    bits = number % (1 << width)
    return [0, *(n for n in range(1, width) if (bits >> n ^ bits >> n - 1) & 1)]


def constant_bits(lane: LaneValue, low: int, high: int) -> int | None:
    """Return bits low .. high - 1 of a lane as a number, or None if they are not all constant."""
    number, offset = 0, 0
    for field in lane.fields:
        if offset < high and low < offset + field.width:
            if not field.sum.is_constant:
                return None
            number |= field.sum.const % (1 << field.width) << offset
        offset += field.width
    return number >> low & ((1 << high - low) - 1)


def _bitwise_field(function: Callable[..., Any], a: LaneValue, b: LaneValue, low: int, high: int) -> Field:
    width = high - low
    every = (1 << width) - 1
    # A constant of equal bits may decide alone: then the bits of the other side need not be known.
    for bits in (constant_bits(lane, low, high) for lane in (a, b)):
        if bits in (0, every):
            by_bit = {int(function(bit, bits & 1)) for bit in (0, 1)}
            if len(by_bit) == 1:
                return Field(Sum(by_bit.pop() * every), width)
    x, y = a.cut(low, high), b.cut(low, high)
    if not is_open(x) and not is_open(y):
        return Field(pointwise(function, x.read_unsigned(), y.read_unsigned()), width)
    # One side is a sum that has no bits of its own; the other must be all zeros or all ones.
    open_side, fixed = (x, y) if is_open(x) else (y, x)
    known = fixed.read_unsigned()
    require(known.is_constant and known.const in (0, every), "bits of sums over several positions are combined")
    for_zero, for_one = (int(function(bit, known.const & 1)) for bit in (0, 1))
    if for_zero == for_one:
        return Field(Sum(for_zero * every), width)
    number = open_side.number()
    return Field(number if for_one else Sum(-1).plus(number, -1), width)


def invert(a: LaneValue) -> LaneValue:
    """Return all bits flipped: -1 - x in each field."""
    return LaneValue(tuple(Field(Sum(-1).plus(field.sum, -1), field.width) for field in a.fields))


def shift_left(a: LaneValue, n: int) -> LaneValue:
    """Return the lane shifted left by n bits."""
    if n >= a.width:
        return constant(0, a.width)
    return LaneValue((*constant(0, n).fields, *a.cut(0, a.width - n).fields)) if n else a


def shift_right(a: LaneValue, n: int) -> LaneValue:
    """Return the lane shifted right by n bits, zeros shifted in."""
    if n >= a.width:
        return constant(0, a.width)
    return LaneValue((*a.cut(n, a.width).fields, *constant(0, n).fields)) if n else a


def is_less(a: Sum, b: Sum) -> Sum:
    """Return 1 where a < b, else 0: by ranges, or entry by entry."""
    if a.ends[1] < b.ends[0] or a.ends[0] >= b.ends[1]:
        return Sum(int(a.ends[1] < b.ends[0]))
    return pointwise(np.less, a, b)


def choose(condition: Sum, a: LaneValue, b: LaneValue) -> LaneValue:
    """Return `a` where a condition, 0 or 1, is 1, else `b`."""
    if condition.is_constant:
        return a if condition.const else b
    return of_sum(pointwise(np.where, condition, a.number(), b.number()), a.width)


def clamp(x: LaneValue, low: int, high: int, width: int) -> LaneValue:
    """Return the signed number of a lane, kept between `low` and `high`, as a lane of `width` bits."""
    number = x.read_signed()
    least, most = number.ends
    if low <= least and most <= high:
        return of_sum(number, width)
    require(number.alone() is not None, f"a sum in [{least}, {most}] may saturate")
    return of_sum(pointwise(np.clip, number, Sum(low), Sum(high)), width)


def count_bits(a: LaneValue) -> LaneValue:
    """Return the number of set bits: of each field, as functions of its position."""
    total = Sum(0)
    for field in a.fields:
        bits = read_unsigned(field)
        is_bit = bits.ends[0] >= 0 and bits.ends[1] <= 1
        if bits.is_constant:
            total = total.plus(Sum(bits.const.bit_count()))
        elif is_bit:
            total = total.plus(bits)
        else:
            total = total.plus(pointwise(count_ones, bits))
    return of_sum(total, a.width)


def count_ones(numbers: Any) -> Any:
    """Return the number of set bits of each number, none of them below 0."""
    return sum(numbers >> n & 1 for n in range(64))


def look_up(table: tuple[LaneValue, ...], index: LaneValue) -> LaneValue:
    """Return the entry of a table at an index, const + v1 + v2 + ..., where v1, v2 are functions of positions.

    By `amounts` that is entry[const], plus for each position an amount that its value selects.
    """
    place = index.read_unsigned()
    least, most = place.ends
    require(least >= 0 and most < len(table), f"an index in [{least}, {most}] is beyond a table of {len(table)}")
    if place.is_constant:
        return table[place.const]
    widths = [field.width for field in table[0].fields]
    if len(widths) > 1 and all([field.width for field in x.fields] == widths for x in table):
        # Entries of fields: each field is an entry of a table of its own.
        tables = [tuple(LaneValue((x.fields[n],)) for x in table) for n in range(len(widths))]
        return LaneValue(tuple(field for own in tables for field in look_up(own, index).fields))
    column = next(iter(place.columns), None)
    by_place = place.by_place()
    values = tuple(distinct(of_place) for of_place in by_place.values())
    total = table[place.const].number()
    for (p, of_place), own, added in zip(by_place.items(), values, amounts(table, place.const, values), strict=True):
        for value, amount in zip(own, added, strict=True):
            if not (amount.is_constant and amount.const == 0):
                is_here = pointwise(np.equal, Sum(0, {Position(column, p): of_place}), Sum(value))
                total = total.plus(multiply(is_here, amount))
    return of_sum(total, table[0].width)


@lru_cache(maxsize=256)
def distinct(table: CodeFunction) -> tuple[int, ...]:
    """Return the numbers of a table, each once."""
    return tuple(np.unique(table.numbers).tolist())


@lru_cache(maxsize=256)
def amounts(table: tuple[LaneValue, ...], const: int, values: tuple[tuple[int, ...], ...]) -> list[list[Sum]]:
    """Return what each value of each position adds to entry[const]: entry[const + v] - entry[const].

    Wrong unless it adds that whatever the other positions are, which is compared for all choices of values. For example
    the table 0 1 1 2 counts the bits of its index. A single position may select anything.
    """
    entries = [x.number() for x in table]
    base = entries[const]
    added = [[entries[const + v].plus(base, -1) for v in own] for own in values]
    require(prod(map(len, values)) <= MAX_CHOICES, "an index has too many values")
    for choice in every_choice(*(range(len(own)) for own in values)) if len(values) > 1 else ():
        expected = base
        for of_position, n in zip(added, choice, strict=True):
            expected = expected.plus(of_position[n])
        entry = entries[const + sum(own[n] for own, n in zip(values, choice, strict=True))]
        require(expected.equals(entry), "a table is no sum over the positions of its index")
    return added


# 3. Instructions: their declared meanings, evaluated on lanes.


class LaneType(NamedTuple):
    """A vector type such as u8x16: `lanes` lanes of `bits` bits."""

    bits: int
    lanes: int


def kind_of(text: str) -> LaneType:
    """Return the type that a text such as u8x16 spells."""
    match = re.fullmatch(r"[usx](\d+)x(\d+)", text)
    require(match is not None, f"{text[:20]!r} is no vector type")
    assert match is not None
    return LaneType(int(match[1]), int(match[2]))


LaneValues = tuple[LaneValue, ...]


def view(register: LaneValues, kind: LaneType) -> LaneValues:
    """Return the same bits as lanes of another type."""
    require(sum(x.width for x in register) == kind.bits * kind.lanes, "a register has another size")
    if register[0].width == kind.bits:
        return register
    if register[0].width < kind.bits:
        n = kind.bits // register[0].width
        parts = [register[k : k + n] for k in range(0, len(register), n)]
        return tuple(LaneValue(tuple(field for x in part for field in x.fields)) for part in parts)
    return tuple(x.cut(k, k + kind.bits) for x in register for k in range(0, x.width, kind.bits))


class Instruction(NamedTuple):
    """The declared meaning of one form of an instruction.

    Attributes:
        operands: Name, type, and whether it is memory.
        out: The type of the result.
        lane: The expression of lane i.
        names: The numbers that the expression may use, by name.
        immediate: The name of the immediate, with its least and its greatest value; or None.
        stores: Whether it writes to memory.
    """

    operands: tuple[tuple[str, LaneType, bool], ...]
    out: LaneType
    lane: ast.expr
    names: dict[str, int]
    immediate: tuple[str, int, int] | None
    stores: bool

    def __call__(self, operands: Sequence[LaneValues], immediate: int = 0) -> LaneValues:
        """Return the result for registers, or memory, of its operands."""
        require(len(operands) == len(self.operands), "an instruction has another number of operands")
        low, high = self.immediate[1:] if self.immediate else (0, 0)
        require(low <= immediate <= high, f"an immediate {immediate} is not from {low} to {high}")
        names: dict[str, Any] = dict(self.names)
        for (name, kind, _), register in zip(self.operands, operands, strict=True):
            names[name] = view(register, kind)
        if self.immediate:
            names[self.immediate[0]] = immediate
        values = [evaluate(self.lane, names | {"i": i}) for i in range(self.out.lanes)]
        lanes = [constant(x, self.out.bits) if isinstance(x, int) else x for x in values]
        require(all(isinstance(x, LaneValue) and x.width >= self.out.bits for x in lanes), "a meaning has too few bits")
        return tuple(x.cut(0, self.out.bits) if x.width > self.out.bits else x for x in lanes)

    @property
    def is_load(self) -> bool:
        """Whether it reads memory at one pointer, and nothing else."""
        return len(self.operands) == 1 and self.operands[0][2] and not self.immediate and not self.stores


@lru_cache(maxsize=16)
def read_declared(folder: Path) -> dict[str, Instruction]:
    """Return all instructions that a folder declares, by form, with the instructions of the set that it extends."""
    settings = tomllib.loads((folder / "isa.toml").read_text())["isa"]
    forms = read_declared(folder.parent / settings["extends"]) if "extends" in settings else {}
    return forms | forms_of(tables_of(folder))


def tables_of(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the declaration of each instruction of a folder itself, file by file."""
    for path in sorted(folder.glob("*.toml")):
        yield from tomllib.loads(path.read_text()).get("instr", {}).items()


def forms_of(tables: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Instruction]:
    """Return the forms that tables declare, each with the name of its instruction; a later one replaces an earlier."""
    forms: dict[str, Instruction] = {}
    for name, table in tables:
        rows = [dict(zip(table["forms"], row, strict=True)) for row in zip(*table["forms"].values(), strict=True)]
        forms |= {f"{name}.{next(iter(row.values()))}": _form(table, row) for row in rows}
    return forms


def _form(table: dict[str, Any], row: dict[str, Any]) -> Instruction:
    """Return the form of a table in which its variables have the values of `row`."""
    types = {k: kind_of(v) for k, v in row.items() if isinstance(v, str)}
    names = {k: v for k, v in row.items() if isinstance(v, int)}
    for k, kind in types.items():
        names |= {f"{k}_bits": kind.bits, f"{k}_lanes": kind.lanes}

    def resolve(text: str) -> LaneType:
        return types.get(text) or kind_of(text)

    operands = tuple((k, resolve(v.lstrip("*")), v.startswith("*")) for k, v in table["in"].items())
    immediate = None
    for k, (low, high) in table.get("imm", {}).items():
        immediate = (k, names.get(low, low), names.get(high, high))
    lane = ast.parse(table["lane"], mode="eval").body
    return Instruction(operands, resolve(table["out"]), lane, names, immediate, table.get("store", False))


def evaluate(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return the value of a lane expression: a lane, lanes, a number, or a condition, which is a `Sum` of 0 and 1.

    It is evaluated node by node, and has no other names and functions than these: no text of a file is executed.
    """
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            require(name in known, f"a meaning has an unknown name {name}")
            return known[name]
        case ast.UnaryOp(op=ast.Invert() | ast.USub(), operand=operand):
            value = evaluate(operand, known)
            of_lane = invert(value) if isinstance(value, LaneValue) else ~value
            return of_lane if isinstance(node.op, ast.Invert) else operate("Sub", 0, value)
        case ast.BinOp(left=left, op=operation, right=right):
            return operate(type(operation).__name__, evaluate(left, known), evaluate(right, known))
        case ast.Subscript(value=value, slice=place):
            return select(evaluate(value, known), place, known)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return call(name, arguments, known)
    raise Wrong(f"a meaning has {ast.unparse(node)[:60]!r}, which is not checked here")


def select(lanes: tuple[LaneValue, ...], place: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return a lane of a register, or some lanes: a[4] or a[4:8]."""
    if isinstance(place, ast.Slice) and place.lower and place.upper:
        first, last = evaluate(place.lower, known), evaluate(place.upper, known)
        require(0 <= first <= last <= len(lanes), "a meaning reads lanes that are not there")
        return lanes[first:last]
    n = evaluate(place, known)
    require(isinstance(n, int) and 0 <= n < len(lanes), "a meaning reads a lane that is not there")
    return lanes[n]


def operate(name: str, a: Any, b: Any) -> Any:
    """Return the result of a binary operator on numbers, or on lanes, modulo 2**width."""
    if isinstance(a, int) and isinstance(b, int):
        on_numbers: dict[str, Callable[[int, int], int]] = {
            "Add": lambda x, y: x + y, "Sub": lambda x, y: x - y, "Mult": lambda x, y: x * y,
            "FloorDiv": lambda x, y: x // y, "Mod": lambda x, y: x % y, "LShift": lambda x, y: x << y,
            "RShift": lambda x, y: x >> y, "BitAnd": lambda x, y: x & y, "BitOr": lambda x, y: x | y,
            "BitXor": lambda x, y: x ^ y,
        }  # fmt: skip
        return on_numbers[name](a, b)
    if name in ("LShift", "RShift"):
        require(isinstance(b, int) and b >= 0, "a shift by what is no number")
        return (shift_left if name == "LShift" else shift_right)(a, b)
    a, b = lift(a, b), lift(b, a)
    require(a.width == b.width, "operands differ in width")
    match name:
        case "Add":
            return of_sum(a.number().plus(b.number()), a.width)
        case "Sub":
            return of_sum(a.number().plus(b.number(), -1), a.width)
        case "Mult":
            # A constant of all ones is -1: the factor that is nearest to 0.
            x, y = (in_range(n, -(1 << a.width - 1), a.width) if n.is_constant else n for n in (a.number(), b.number()))
            return of_sum(multiply(x, y), a.width)
        case "BitAnd" | "BitOr" | "BitXor":
            functions = {"BitAnd": np.bitwise_and, "BitOr": np.bitwise_or, "BitXor": np.bitwise_xor}
            return bitwise(functions[name], a, b)
    raise Wrong(f"a meaning has the operator {name}, which is not checked here")


def lift(a: Any, other: Any) -> LaneValue:
    """Return a lane; a number becomes a constant as wide as the other operand."""
    return constant(a, other.width) if isinstance(a, int) else a


def call(name: str, arguments: Sequence[ast.expr], known: Mapping[str, Any]) -> Any:
    """Return the value of a function of the language of meanings."""
    if name == "sum":
        (of,) = arguments
        total, *others = comprehension(of, known)
        for x in others:
            total = operate("Add", total, x)
        return total
    if name == "ite":
        condition = evaluate(arguments[0], known)
        if condition.is_constant:  # the other branch may have no meaning, as an entry beyond a table
            condition, arguments = Sum(1), [arguments[0], *[arguments[1 if condition.const else 2]] * 2]
        a, b = (evaluate(x, known) for x in arguments[1:])
        return a if isinstance(a, int) and a == b else choose(condition, lift(a, b), lift(b, a))
    require(name in FUNCTIONS, f"a meaning calls {name}, which is not checked here")
    return FUNCTIONS[name](*(evaluate(x, known) for x in arguments))


def widen(x: LaneValue, to: int) -> LaneValue:
    """Return a lane widened with zeros: it must hold the number itself."""
    last = Field(read_unsigned(x.fields[-1]), x.fields[-1].width)
    return LaneValue((*x.fields[:-1], last, *(constant(0, to - x.width).fields if to > x.width else ())))


def less_unsigned(a: Any, b: Any) -> Sum:
    """Return 1 where a < b, without signs."""
    return is_less(lift(a, b).read_unsigned(), lift(b, a).read_unsigned())


def less_signed(a: Any, b: Any) -> Sum:
    """Return 1 where a < b, as signed numbers."""
    return is_less(lift(a, b).read_signed(), lift(b, a).read_signed())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "zext": widen,
    "sext": lambda x, to: of_sum(x.read_signed(), to),
    "trunc": lambda x, to: x.cut(0, to),
    "ult": less_unsigned,
    "slt": less_signed,
    "absdiff": lambda a, b: choose(less_unsigned(a, b), operate("Sub", b, a), operate("Sub", a, b)),
    "popcount": count_bits,
    "sclamp": lambda x, bits: clamp(x, -(1 << bits - 1), (1 << bits - 1) - 1, bits),
    "uclamp": lambda x, bits: clamp(x, 0, (1 << bits) - 1, bits),
    "lookup": look_up,
    "concat": lambda a, b: a + b,
}
"""The functions of the language of meanings that matmul kernels use; `sum` and `ite` are in `call`."""


def comprehension(node: ast.expr, known: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values of `... for k in range(...)`."""
    match node:
        case ast.GeneratorExp(
            elt=body, generators=[ast.comprehension(ast.Name(id=name), ast.Call(ast.Name(id="range"), ends), [])]
        ):
            for k in range(*(evaluate(x, known) for x in ends)):
                yield evaluate(body, {**known, name: k})
        case _:
            raise Wrong("a meaning sums something else than `for k in range(...)`")


# 4. The kernel: its inputs, and the runs of its programs.


class CheckedKernel(NamedTuple):
    """What is checked: the kernel of the file, and the instructions that it may use.

    Attributes:
        fields: The object `kernel` of the file.
        signed: Whether weights are signed; else they are bipolar.
        instructions: Declared meanings by form.
        vector_bits: Bits of a register.
    """

    fields: dict[str, Any]
    signed: bool
    instructions: dict[str, Instruction]
    vector_bits: int

    @property
    def rows(self) -> int:
        """The number of codes of a row of the tile."""
        return 1 << int(self.fields["w_bits" if self.fields["swapped"] else "act_bits"])

    @property
    def columns(self) -> int:
        """The number of codes of a column of the tile."""
        return 1 << int(self.fields["act_bits" if self.fields["swapped"] else "w_bits"])

    @property
    def together(self) -> int:
        """Rows that one program computes: their entries lie side by side in a table's bytes.

        The codes of rows together, at one position, form one number, whose lowest digit is the first row's code.
        """
        return int(self.fields.get("together", 1))

    @property
    def word(self) -> LaneType:
        """A register as bytes."""
        return LaneType(8, self.vector_bits // 8)

    @property
    def tile(self) -> LaneType:
        """A register as int32."""
        return LaneType(32, self.vector_bits // 32)


def unknown_lanes(name: Any, kind: LaneType) -> LaneValues:
    """Return an unknown register: any number in each lane."""
    every = (1 << kind.bits) - 1
    return tuple(of_sum(of_unknown(Unknown((name, i), 0, every)), kind.bits) for i in range(kind.lanes))


def of_unknown(x: Unknown) -> Sum:
    """Return an unknown as a sum."""
    return Sum(0, factors={x: 1})


def same(a: LaneValues, b: LaneValues) -> bool:
    """Return whether two registers of one type hold the same bits."""
    return len(a) == len(b) and all(
        x.width == y.width and x.number().equals(y.number(), x.width) for x, y in zip(a, b, strict=True)
    )


def run_program(
    kernel: CheckedKernel, program: Sequence[str], registers: dict[str, LaneValues]
) -> dict[str, LaneValues]:
    """Return the registers after a program: lines such as `t1 = add.u8x32 acc0 t0`, or with an immediate `#8`."""
    registers = dict(registers)
    for line in program:
        match = re.fullmatch(r"(\w+) = ([\w.]+)((?: \w+)*)(?: #(\d+))?", line)
        require(match is not None, f"{line[:60]!r} is no instruction")
        assert match is not None
        name, form, operands, immediate = match[1], match[2], match[3].split(), int(match[4] or 0)
        require(form in kernel.instructions, f"{line}: there is no instruction {form}")
        instruction = kernel.instructions[form]
        on_registers = not instruction.stores and not any(memory for *_, memory in instruction.operands)
        require(on_registers, f"{line}: {form} works on memory")
        require(name not in registers, f"{line}: {name} has a value already")
        require(all(x in registers for x in operands), f"{line}: an operand has no value")
        try:
            registers[name] = instruction([registers[x] for x in operands], immediate)
        except Wrong as why:
            raise Wrong(f"{line}: {why}") from None
    return registers


def constants(listed: Sequence[dict[str, Any]]) -> dict[str, LaneValues]:
    """Return the constant registers of a list."""
    out = {}
    for given in listed:
        kind = kind_of(given["type"])
        require(len(given["lanes"]) == kind.lanes, f"{given['name']} has another number of lanes")
        require(all(0 <= x < 1 << kind.bits for x in given["lanes"]), f"{given['name']} has lanes beyond its type")
        out[given["name"]] = tuple(constant(x, kind.bits) for x in given["lanes"])
    return out


def step_inputs(kernel: CheckedKernel, given: dict[str, Any]) -> dict[str, LaneValues]:
    """Return the registers at the start of a step: a0, a1 .. of the row, w<register>_<input> of the columns.

    A row's bytes are repeated over the register. The bytes of column slots[s] are in slot s.
    """
    k = kernel.fields
    code_bytes, slot_bytes, slots = k.get("code_bytes", 1), k["slot_bytes"], k["slots"]
    codes, width = kernel.word.lanes // code_bytes, 8 * code_bytes
    out = constants(k["constants"])
    for n, of_row in enumerate(given["rows"]):
        if of_row["type"] == "table":
            entries = [entry_of(kernel, of_row, e) for e in range(1 << of_row["bits"])]
            out[f"a{n}"] = tuple(entries[b % len(entries)] for b in range(kernel.word.lanes))
        else:
            require(kernel.together == 1, "rows share bytes that are no tables")
            repeated = slot_bytes * of_row.get("slots", 1) // code_bytes
            distinct = [code_lane(kernel, of_row, b, None, width) for b in range(repeated)]
            out[f"a{n}"] = tuple(distinct[b % repeated] for b in range(codes))
    in_slot = slot_bytes // code_bytes
    each = codes // in_slot
    for n, of_column in enumerate(given["columns"]):
        for register in range(len(slots) // each):
            columns = slots[register * each : (register + 1) * each]
            out[f"w{register}_{n}"] = tuple(
                code_lane(kernel, of_column, b % in_slot, columns[b // in_slot], width) for b in range(codes)
            )
    return out


def code_lane(kernel: CheckedKernel, planes: dict[str, Any], byte: int, column: int | None, width: int) -> LaneValue:
    """Return byte number `byte` of planes: of each position bits that are functions of the code there.

    Bit q * len(tables) + j of it is bit c of tables[j], where c is the code at position first + byte * stride + q *
    apart. A `signed` byte is one number in two's complement, which modulo 256 is the same bits.
    """
    tables, fields, used = planes["tables"], [], 0
    codes = range(kernel.rows if column is None else kernel.columns)
    numbers = [sum((table >> code & 1) << j for j, table in enumerate(tables)) for code in codes]
    for q in range(planes["per_byte"]):
        place = planes["first"] + byte * planes["stride"] + q * planes.get("apart", 1)
        require(0 <= place < kernel.fields["k_step"], f"an input has position {place}, which is not in the step")
        fields.append(Field(function_of_code(numbers, column, place), len(tables)))
        used += len(tables)
    require(used <= width, "an input has more bits than its bytes")
    return LaneValue((*fields, *(constant(0, width - used).fields if used < width else ())))


def function_of_code(numbers: Sequence[int], column: int | None, place: int, member: int = 0, together: int = 1) -> Sum:
    """Return a function of the code of a row, which is `member` of some that are `together`, or of a column."""
    if together > 1:
        each = len(numbers)
        numbers = [numbers[codes // each**member % each] for codes in range(each**together)]
    table, const = function_table(tuple(numbers), column is None)
    return Sum(const, {} if table is None else {Position(column, place): table})


@lru_cache(maxsize=256)
def function_table(numbers: tuple[int, ...], of_row: bool) -> tuple[CodeFunction | None, int]:
    """Return the function that has these numbers for the codes of a row, or of a column, and its value for code 0."""
    table = np.array(numbers, np.int64) - numbers[0]
    return CodeFunction(table[:, None] if of_row else table[None]) if table.any() else None, numbers[0]


def entry_of(kernel: CheckedKernel, table: dict[str, Any], entry: int) -> LaneValue:
    """Return entry number `entry` of a table: the sum of the values of the codes that its set bits select.

    Rows that are together have a field each.
    """
    require(len(table["values"]) == kernel.rows, "a table has another number of values than there are codes")
    places = [table["first"] + n for n in range(table["bits"])]
    for place in places:
        require(0 <= place < kernel.fields["k_step"], f"a table has position {place}, which is not in the step")
    fields = []
    for member in range(kernel.together):
        total = Sum(0)
        for n, place in enumerate(places):
            if entry >> n & 1:
                total = total.plus(function_of_code(table["values"], None, place, member, kernel.together))
        fields.append(Field(total, kernel.word.bits // kernel.together))
    return LaneValue(tuple(fields))


LaneKey = tuple[Any, ...]
"""(pass, accumulator, lane) of an innermost loop: the name of what that lane is given in all steps together."""


def accumulators(loop: dict[str, Any], held: Mapping[tuple[str, int], Sum]) -> dict[str, LaneValues]:
    """Return the accumulators of a loop as registers; `held` has the sum in each lane, by (accumulator, lane)."""
    out = {}
    for acc in loop["accs"]:
        kind = kind_of(acc["type"])
        out[acc["name"]] = tuple(of_sum(held[acc["name"], i], kind.bits) for i in range(kind.lanes))
    return out


def lanes_of(loop: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Return the lanes of a loop's accumulators, (accumulator, lane), with their bits."""
    kinds = [(acc["name"], kind_of(acc["type"])) for acc in loop["accs"]]
    return {(name, i): kind.bits for name, kind in kinds for i in range(kind.lanes)}


def sum_run(
    kernel: CheckedKernel,
    loop: dict[str, Any],
    before: dict[str, LaneValues],
    bounds: Mapping[tuple[str, int], tuple[int, int]],
) -> dict[tuple[str, int], Sum]:
    """Return what one run of a loop's program adds to each accumulator lane, whatever it holds within `bounds`."""
    old = {key: Unknown(("before", *key), *bounds[key]) for key in lanes_of(loop)}
    start = {key: of_unknown(x) for key, x in old.items()}
    after = run_program(kernel, loop["program"], before | accumulators(loop, start))
    added = {}
    for acc in loop["accs"]:
        require(acc["next"] in after, f"{acc['name']} becomes {acc['next']}, which has no value")
        for i, lane in enumerate(view(after[acc["next"]], kind_of(acc["type"]))):
            rest = lane.number().plus(start[acc["name"], i], -1)
            require(
                all(x.name[0] != "before" for x in rest.factors),
                f"{acc['name']} lane {i} is not its old value plus what a run adds",
            )
            added[acc["name"], i] = rest
    return added


def sum_any_run(
    kernel: CheckedKernel, loop: dict[str, Any], before: dict[str, LaneValues]
) -> dict[tuple[str, int], Sum]:
    """Return what every run of a loop adds to each lane.

    Most programs add the same to all numbers. A program that saturates adds the same only to numbers that earlier runs
    can leave: what it adds to 0 is multiplied by the runs before the last, and must be what it adds to all numbers up
    to there.
    """
    bits = lanes_of(loop)
    try:
        return sum_run(kernel, loop, before, {key: (0, (1 << n) - 1) for key, n in bits.items()})
    except Wrong:
        added = sum_run(kernel, loop, before, dict.fromkeys(bits, (0, 0)))
        runs_before = loop["times"] - 1
        bounds = {key: (min(0, x.ends[0] * runs_before), max(0, x.ends[1] * runs_before)) for key, x in added.items()}
        again = sum_run(kernel, loop, before, bounds)
        require(all(again[key].equals(x) for key, x in added.items()), "what a run adds depends on the runs before")
        return added


def run_step(kernel: CheckedKernel, given: dict[str, Any]) -> dict[tuple[str, int], Sum]:
    """Return what a step, one run of the innermost loop of a pass, adds to each accumulator lane: functions of codes.

    The program of the first run, if it has one, leaves in the accumulators what any run adds.
    """
    innermost, inputs = given["loops"][0], step_inputs(kernel, given)
    added = sum_any_run(kernel, innermost, inputs)
    if innermost["first"]:
        first = run_program(kernel, innermost["first"], inputs)
        for acc in innermost["accs"]:
            require(acc["start"] in first, f"{acc['name']} starts as {acc['start']}, which has no value")
            for i, lane in enumerate(view(first[acc["start"]], kind_of(acc["type"]))):
                alike = lane.number().equals(added[acc["name"], i], lane.width)
                require(alike, f"the first run leaves in {acc['name']} another sum than a run adds")
    return added


Held = dict[tuple[str, int], Sum]
"""What the lanes of a loop's accumulators hold: multiples of what innermost lanes are given in all runs so far."""


def scale_ranges(held: Held, times: int) -> Held:
    """Return what is held after 0 to `times` runs that each add at most what is `held`: the same sums of unknowns.

    The unknowns stand for what innermost lanes are given in all these runs, so that their ranges grow.
    """

    def longer(x: Unknown) -> Unknown:
        return Unknown(x.name, min(0, x.low * times), max(0, x.high * times))

    return {lane: Sum(0, factors={longer(x): factor for x, factor in s.factors.items()}) for lane, s in held.items()}


def run_loop(kernel: CheckedKernel, loop: dict[str, Any], inner: dict[str, Any], held: Held) -> Held:
    """Return what a run of an outer loop adds to its lanes, when the accumulators of the loop inside hold `held`."""
    before = constants(kernel.fields["constants"]) | accumulators(inner, held)
    added = sum_any_run(kernel, loop, before)
    require(all(not x.const for x in added.values()), "an outer loop adds a constant, however many steps it ends")
    return added


def run_pass(
    kernel: CheckedKernel, number: int, carried: Held | None
) -> tuple[dict[tuple[str, int], Sum], Held | None, list[Sum]]:
    """Return what a step of a pass adds to each innermost lane, and where the sums of these lanes go.

    They go to the next pass, which starts from them, if the pass carries; else to each column of the tile.
    """
    given = kernel.fields["passes"][number]
    loops = given["loops"]
    added = run_step(kernel, given)
    # What an innermost lane is given in one step is an unknown in the range of `added`.
    held: Held = {key: of_unknown(Unknown(("lane", number, *key), *x.ends)) for key, x in added.items()}
    if kernel.together > 1:
        held, added = separate(kernel, number, added)
    for n, loop in enumerate(loops):
        require(0 < loop["times"] < 1 << 30, "a loop has no bound")
        if n:
            held = run_loop(kernel, loop, loops[n - 1], held)
        held = scale_ranges(held, loop["times"])
    if carried is not None:
        require(held.keys() == carried.keys(), "a pass carries other accumulators than the next one has")
        held = {key: x.plus(carried[key]) for key, x in held.items()}
    before = constants(kernel.fields["constants"]) | accumulators(loops[-1], held)
    if given.get("carries", False):
        return added, carry(kernel, given, before), []
    return added, None, flush(kernel, given, before)


def separate(kernel: CheckedKernel, number: int, added: Held) -> tuple[Held, dict[tuple[str, int], Sum]]:
    """Return what each innermost lane is given as multiples of unknowns, and what a step adds to each of these.

    Rows that are together share lanes: one is given x + 16 * y where another one is given y. So the sums of a row and
    of a column are one unknown, whichever lanes they are in, up to a factor.
    """
    held: Held = {}
    parts: dict[Any, tuple[str, int]] = {}
    shares: dict[tuple[str, int], Sum] = {}
    for lane, x in added.items():
        require(not x.const and not x.factors, "a step adds a constant to rows that are together")
        held[lane] = Sum(0)
        for column, member in every_choice({at.column for at in x.tables}, range(kernel.together)):
            of_member: dict[Position, CodeFunction] = {}
            for at, table in x.tables.items():
                own = apply(codes_of_member, ((table, 0), (None, member), (None, kernel.rows)))[0]
                if own is not None and at.column == column:
                    of_member[at] = own
            if not of_member:
                continue
            factor = gcd(*(int(np.gcd.reduce(table.numbers, axis=None)) for table in of_member.values()))
            tables = {at: apply(np.floor_divide, ((t, 0), (None, factor)))[0] for at, t in of_member.items()}
            part = Sum(0, {at: table for at, table in tables.items() if table is not None})
            place = tuple(sorted((at.place, t.numbers.shape, t.numbers.tobytes()) for at, t in part.tables.items()))
            name = parts.setdefault((column, member, place), ("part", len(parts)))
            shares[name] = part
            held[lane] = held[lane].plus(of_unknown(Unknown(("lane", number, *name), *part.ends)), factor)
    for lane, x in added.items():
        whole = Sum(0)
        for unknown, factor in held[lane].factors.items():
            whole = whole.plus(shares[unknown.name[2:]], factor)
        require(x.equals(whole), "what a step adds is no sum of functions of one row each")
    return held, shares


def codes_of_member(numbers: Any, member: int, rows: int) -> Any:
    """Return a function (codes of the rows that are together, column codes) where all but one row have the code 0."""
    every = np.arange(len(numbers))
    return numbers[every // rows**member % rows * rows**member] if len(numbers) > 1 else numbers * (member == 0)


def carry(kernel: CheckedKernel, given: dict[str, Any], before: dict[str, LaneValues]) -> Held:
    """Return what the next pass starts from: the values that `tile` names, in the same accumulators."""
    after = run_program(kernel, given["flush"], before)
    accs = given["loops"][-1]["accs"]
    require(len(accs) == len(given["tile"]), "a pass carries another number of accumulators")
    out: Held = {}
    for acc, name in zip(accs, given["tile"], strict=True):
        require(name in after, f"{name} is carried, and has no value")
        for i, lane in enumerate(view(after[name], kind_of(acc["type"]))):
            x = lane.number()
            require(not x.const and not x.tables, "more than sums is carried")
            out[acc["name"], i] = x
    return out


def flush(kernel: CheckedKernel, given: dict[str, Any], before: dict[str, LaneValues]) -> list[Sum]:
    """Return what a flush adds to each column of the tile, as multiples of what innermost lanes were given."""
    kind = kernel.tile
    count = kernel.fields["columns"] // kind.lanes * kernel.together
    tile = {f"c{r}": unknown_lanes(("tile", r), kind) for r in range(count)}
    after = run_program(kernel, given["flush"], before | tile)
    require(len(given["tile"]) == count, f"a flush gives {len(given['tile'])} registers, want {count}")
    out = []
    for r, name in enumerate(given["tile"]):
        require(name in after, f"the tile becomes {name}, which has no value")
        for i, lane in enumerate(view(after[name], kind)):
            rest = lane.number().plus(tile[f"c{r}"][i].number(), -1)
            is_of_lanes = not rest.tables and all(x.name[0] == "lane" for x in rest.factors)
            require(is_of_lanes, f"column {r * kind.lanes + i} of the tile is not its old value plus sums")
            require(rest.const % (1 << 32) == 0, "a flush adds a constant, however many steps it ends")
            out.append(Sum(0, factors=rest.factors))
    return out


# 5. The claims.


def check_layout(kernel: CheckedKernel) -> str:
    """Raise Wrong unless slots are the columns, registers are whole, and terms are one a code."""
    k = kernel.fields
    require(sorted(k["slots"]) == list(range(k["columns"])), "slots are not one for each column")
    require(k["columns"] * 32 % kernel.vector_bits == 0, "the tile has no whole registers")
    require(len(k["slots"]) * k["slot_bytes"] * 8 % kernel.vector_bits == 0, "columns fill no whole registers")
    require(k["slot_bytes"] % k.get("code_bytes", 1) == 0, "a slot holds no whole codes")
    terms = len(k["row_terms"]), len(k["column_terms"])
    require(terms == (kernel.rows, kernel.columns), "there is not one term for each code")
    require(bool(k["passes"]) and not k["passes"][-1].get("carries", False), "the last pass does not flush")
    for given in k["passes"]:
        for inputs, codes in ((given["rows"], kernel.rows), (given["columns"], kernel.columns)):
            planes = [x for x in inputs if x["type"] == "planes"]
            require(all(0 <= t < 1 << codes for x in planes for t in x["tables"]), "a function of more codes")
    sizes = {x.get("slots", 1) for given in k["passes"] for x in given["rows"]}
    require(len(sizes) == 1, "inputs of rows differ in size, and one broadcast loads them")
    return f"layout: {k['columns']} columns, one slot each"


def check_moves(kernel: CheckedKernel) -> str:
    """Raise Wrong unless the instructions that move data do it lane by lane, as the layout says."""
    memory, word, tile = kernel.fields["memory"], kernel.word, kernel.tile
    first = kernel.fields["passes"][0]["rows"][0]
    row_bytes = 1 << first["bits"] if first["type"] == "table" else kernel.fields["slot_bytes"] * first.get("slots", 1)
    check_load(kernel, memory["load"], word, range(word.lanes))
    check_load(kernel, memory["broadcast"], word, [b % row_bytes for b in range(word.lanes)])
    check_load(kernel, memory["load_tile"], tile, range(tile.lanes))
    check_load(kernel, memory["broadcast_tile"], tile, [0] * tile.lanes)
    check_store(kernel, memory["store_tile"], tile)
    x, y = unknown_lanes("x", tile), unknown_lanes("y", tile)
    added = tuple(of_sum(a.number().plus(b.number()), 32) for a, b in zip(x, y, strict=True))
    require(memory["add_tile"] in kernel.instructions, f"there is no instruction {memory['add_tile']}")
    add = kernel.instructions[memory["add_tile"]]
    require(not add.stores and same(view(add([x, y]), tile), added), f"{memory['add_tile']} does not add int32 lanes")
    return "moves: inputs and tiles are moved lane by lane, and int32 lanes are added"


def check_load(kernel: CheckedKernel, form: str, kind: LaneType, source: Sequence[int]) -> None:
    """Raise Wrong unless a form loads lanes of a type, lane k of the result from lane source[k] of memory."""
    require(form in kernel.instructions, f"there is no instruction {form}")
    load = kernel.instructions[form]
    require(load.is_load, f"{form} is no plain load")
    given = unknown_lanes("memory", LaneType(kind.bits, max(source) + 1))
    require(
        load.operands[0][1].bits * load.operands[0][1].lanes == kind.bits * len(given), f"{form} reads more or less"
    )
    loaded = view(load([given]), kind)
    require(same(loaded, tuple(given[n] for n in source)), f"{form} does not load lanes {list(source)[:8]} ...")


def check_store(kernel: CheckedKernel, form: str, kind: LaneType) -> None:
    """Raise Wrong unless a form stores the lanes of a register in order."""
    require(form in kernel.instructions, f"there is no instruction {form}")
    x, store = unknown_lanes("x", kind), kernel.instructions[form]
    require(store.stores and same(view(store([x]), kind), x), f"{form} does not store lanes in order")


def check_tables(kernel: CheckedKernel) -> str:
    """Raise Wrong unless the table program makes each entry of each table the sum that its number selects."""
    tables = [x for given in kernel.fields["passes"] for x in given["rows"] if x["type"] == "table"]
    build = kernel.fields["build"]
    require(bool(tables) == (build is not None), "tables are made that no pass reads, or read that nothing makes")
    if build is None:
        return "tables: none"
    require(all(x["type"] == "table" for g in kernel.fields["passes"] for x in g["rows"]), "inputs are of two kinds")
    require(len({x["bits"] for x in tables}) == 1, "tables differ in size")
    bits, most = tables[0]["bits"], max(max(x["values"]) for x in tables)
    fits = min(min(x["values"]) for x in tables) >= 0 and bits * most < 1 << kernel.word.bits // kernel.together
    require(fits, "entries do not fit a byte, or a row's share of it")
    check_load(kernel, build["load"], kernel.word, [b % STAGED for b in range(kernel.word.lanes)])
    check_store(kernel, build["store"], kernel.word)
    # Code number n is an unknown up to the greatest value; a staged byte is one of them, or 0.
    codes = [of_unknown(Unknown(("code", n), 0, most)) for n in range(STAGED)]
    require(
        len(build["stage"]) == STAGED and build["tables"] * bits <= STAGED, "tables have more codes than are staged"
    )
    require(build["tables"] << bits <= kernel.word.lanes, "tables do not fit a register")
    require(all(-1 <= n < STAGED for n in build["stage"]), "a staged byte is of no code")
    staged = [Sum(0) if n < 0 else codes[n] for n in build["stage"]]
    start = {"x0": tuple(of_sum(staged[b % STAGED], 8) for b in range(kernel.word.lanes))}
    after = run_program(kernel, build["program"], constants(build["constants"]) | start)
    require(build["table"] in after, "the table has no value")
    entries = view(after[build["table"]], kernel.word)
    for table in range(build["tables"]):
        for entry in range(1 << bits):
            selected = Sum(0)
            for n in range(bits):
                if entry >> n & 1:
                    selected = selected.plus(codes[table * bits + n])
            have = entries[(table << bits) + entry].number()
            require(have.equals(selected, 8), f"entry {entry} of table {table} is not the sum that its number selects")
    return f"tables: each of {1 << bits} entries is the sum of the values that its number selects"


def check_products(kernel: CheckedKernel) -> str:
    """Raise Wrong unless a step adds to each column act * value(wgt) minus the terms, at every position."""
    tile = [Sum(0)] * (kernel.fields["columns"] * kernel.together)
    added: dict[LaneKey, Sum] = {}
    carried: Held | None = None
    for number in range(len(kernel.fields["passes"])):
        of_step, carried, flushed = run_pass(kernel, number, carried)
        added |= {("lane", number, *key): x for key, x in of_step.items()}
        tile = [have.plus(more) for have, more in zip(tile, flushed, strict=True)] if flushed else tile
    wanted = multiply_codes(kernel)
    for n, taken in enumerate(tile):
        member, column = divmod(n, kernel.fields["columns"])
        # A step adds to the column: each multiple of an innermost lane, of what the step adds to that lane.
        step = Sum(0)
        for x, factor in taken.factors.items():
            step = step.plus(added[x.name], factor)
        check_column(kernel, column, step, wanted, member)
    columns, positions = kernel.fields["columns"], kernel.fields["k_step"]
    return f"products: in {columns} columns and {positions} positions, on all {wanted.size} pairs of codes"


def multiply_codes(kernel: CheckedKernel) -> CodeNumbers:
    """Return (row codes, column codes): the product of each pair, without the terms that start the tile."""
    k = kernel.fields
    acts, weights = np.arange(1 << k["act_bits"]), np.arange(1 << k["w_bits"])
    values = weights - (1 << k["w_bits"] - 1) if kernel.signed else 2 * weights - ((1 << k["w_bits"]) - 1)
    products = np.outer(values, acts) if k["swapped"] else np.outer(acts, values)
    return products - np.array(k["row_terms"], np.int64)[:, None] - np.array(k["column_terms"], np.int64)[None]


def check_column(kernel: CheckedKernel, column: int, step: Sum, wanted: CodeNumbers, member: int) -> None:
    """Raise Wrong, with codes at which it is wrong, unless a step adds what is wanted at each position of a column.

    The wanted value depends on the code of row `member` of the rows that are together.
    """
    require(step.columns <= {column}, f"column {column} takes in others")
    of_row = np.arange(kernel.rows**kernel.together) // kernel.rows**member % kernel.rows
    wanted = wanted[of_row]
    positions, tables = kernel.fields["k_step"], step.by_place()
    for place in range(positions):
        have = np.zeros_like(wanted) + wanted[0, 0] + (tables[place].numbers if place in tables else 0)
        if (wrong := np.argwhere(have != wanted)).size:
            row, col = int(of_row[wrong[0][0]]), int(wrong[0][1])
            act, weight = (col, row) if kernel.fields["swapped"] else (row, col)
            raise Wrong(f"column {column}, position {place}: act code {act} times wgt code {weight} is wrong")
    off = step.const - positions * int(wanted[0, 0])
    require(off == 0, f"column {column} is off by {off} in every step")


def check_padding(kernel: CheckedKernel) -> str:
    """Raise Wrong unless bytes of 0 on both sides add nothing.

    They stand for one code of each side, all of whose bits are 0 in every input. The activation's must be 0, so that
    the product is 0; the terms of both must be 0, since the terms of padding are not added. By `check_products` the
    step then adds 0.
    """
    k = kernel.fields
    for side, codes, terms, is_act in (
        ("rows", kernel.rows, k["row_terms"], not k["swapped"]),
        ("columns", kernel.columns, k["column_terms"], k["swapped"]),
    ):
        inputs = [given for of_pass in k["passes"] for given in of_pass[side]]
        tables = [table for given in inputs for table in given.get("tables", ())]
        is_table = any(given["type"] == "table" for given in inputs)
        pads = [c for c in ([0] if is_table else range(codes)) if not any(table >> c & 1 for table in tables)]
        require(bool(pads) and (pads[0] == 0 or not is_act), "padding is no activation of 0")
        require(all(x["type"] == "planes" or x["values"][0] == 0 for x in inputs), "padding has a value")
        require(terms[pads[0]] == 0, "padding has a term")
    return "padding: bytes of 0 add nothing"


def check_bound(kernel: CheckedKernel, k_max: int) -> str:
    """Raise Wrong unless no sum of up to `k_max` products leaves int32."""
    products = multiply_codes(kernel)
    k = kernel.fields
    products = products + np.array(k["row_terms"])[:, None] + np.array(k["column_terms"])[None]
    most = int(abs(products).max())
    require(0 < k_max * most < 1 << 31, f"a sum of {k_max} products up to {most} leaves int32")
    return f"bound: {k_max} products up to {most} stay in int32"


class EncodedCodes(NamedTuple):
    """Codes of an operand, as a caller has them: unsigned less a zero point, signed, bipolar, ternary or narrow."""

    bits: int
    encoding: str
    zero: int = 0

    @property
    def values(self) -> list[int]:
        """The value of each code in use; ternary and narrow have no use for the last one."""
        half = 1 << self.bits - 1
        by_encoding = {
            "unsigned": [code - self.zero for code in range(2 * half)],
            "signed": [code - half for code in range(2 * half)],
            "bipolar": [2 * code - (2 * half - 1) for code in range(2 * half)],
            "ternary": [code - (half - 1) for code in range(2 * half - 1)],
            "narrow": [code - (half - 1) for code in range(2 * half - 1)],
        }
        return by_encoding[self.encoding]


def check_encoding(act: EncodedCodes, wgt: EncodedCodes, signed: bool, correction: Mapping[str, Any]) -> str:
    """Raise Wrong unless a correction gives the product of values from the kernel's product, on all pairs of codes.

    The kernel multiplies act codes with bipolar or `signed` weights. With `shift`, `factor` and two lists of terms of a
    correction must hold

        value(a) * value(w) << shift  ==  factor * a * core(w) + act_terms[a] + wgt_terms[w]
    """
    terms = len(correction["act_terms"]), len(correction["wgt_terms"])
    require(terms == (1 << act.bits, 1 << wgt.bits), "a correction does not have one term for each code")
    acts, weights = np.array(act.values), np.array(wgt.values)
    a, w = np.arange(len(acts)), np.arange(len(weights))
    core = np.array(EncodedCodes(wgt.bits, "signed" if signed else "bipolar").values)[w]
    have = correction["factor"] * np.outer(a, core)
    have = have + np.array(correction["act_terms"])[a, None] + np.array(correction["wgt_terms"])[None, w]
    wrong = np.argwhere(have != np.outer(acts, weights) << correction["shift"])
    require(
        not wrong.size, f"the correction to {act.encoding} by {wgt.encoding} is wrong, first at {wrong[:1].tolist()}"
    )
    return f"encoding: the correction to {act.encoding} by {wgt.encoding} is exact on all {have.size} pairs of codes"


def not_covered(kernel: dict[str, Any]) -> str:
    """Return why a kernel is of a kind that is not covered here; empty if it is covered."""
    if kernel.get("cross_terms", 0):
        return "fast inner products multiply codes of two positions"
    return "the last row has a program of its own" if kernel.get("beside") else ""


def has_fraction(value: Any) -> bool:
    """Return whether JSON has a number that is not written as a whole one, or NaN."""
    if isinstance(value, dict | list):
        return any(has_fraction(x) for x in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def read_kernel(record: dict[str, Any], folder: Path | None) -> CheckedKernel:
    """Return what is checked of a kernel file; NotCovered if this file does not know its kind."""
    fields = record["kernel"]
    if why := not_covered(fields):
        raise NotCovered(f"not covered by the second checker: {why}")
    require(not has_fraction(fields), "a number of the kernel is not whole")
    require(1 <= fields["act_bits"] <= 8 and 1 <= fields["w_bits"] <= 8, "codes are not of 1 to 8 bits")
    name = re.match(r"bs_mm_a(\d)u_w(\d)([bs])_s32_([a-z0-9_]+)_\d+x\d+x\d+", record["name"])
    require(name is not None, "the name does not say what is multiplied")
    assert name is not None
    same_kernel = (int(name[1]), int(name[2]), name[4]) == (fields["act_bits"], fields["w_bits"], fields["isa"])
    same_set = folder is None or folder.name == fields["isa"]
    require(same_kernel and same_set, "the name, the kernel and the instruction set differ")
    require(fields.get("together", 1) in (1, 2), "rows that are together are not 1 or 2")
    instructions = read_declared(folder) if folder else forms_of(record["instructions"])
    word = kind_of(fields["memory"]["load"].rpartition(".")[2])
    return CheckedKernel(fields, name[3] == "s", instructions, word.bits * word.lanes)


def check(record: dict[str, Any], folder: Path | None = None) -> list[str]:
    """Return the claims that hold of a kernel file, in order; Wrong if one does not, NotCovered for other kinds.

    Args:
        record: The kernel file, as JSON gives it.
        folder: The folder that declares its instruction set; None if the record has the declarations, and encodings.
    """
    try:
        kernel = read_kernel(record, folder)
        claims = [
            check_layout(kernel),
            check_moves(kernel),
            check_tables(kernel),
            check_products(kernel),
            check_padding(kernel),
            check_bound(kernel, record["certificate"]["k_max"]),
        ]
        require(folder is not None or "encodings" in record, "a record with declarations has no encodings")
        if "encodings" in record:
            given, fields = record["encodings"], kernel.fields
            act, wgt = EncodedCodes(**given["act"]), EncodedCodes(**given["wgt"])
            same_widths = (act.bits, wgt.bits) == (fields["act_bits"], fields["w_bits"])
            require(same_widths, "encodings are of other widths than the kernel")
            claims.append(check_encoding(act, wgt, kernel.signed, given["correction"]))
        return claims
    except tomllib.TOMLDecodeError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise Wrong(f"a field is missing or of another type ({type(error).__name__}: {error})") from error


def main(arguments: list[str]) -> int:
    """Check a kernel file, by default the one of this script's kernel, and print what holds; return an exit code."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(f"usage: {Path(sys.argv[0]).name} [KERNEL.json [FOLDER]]: check a kernel; FOLDER has its instruction set")
        return 0
    own = Path(__file__)
    path = Path(arguments[0]) if arguments else own.with_name(own.name.replace("_check.py", ".kernel.json"))
    try:
        record = json.loads(path.read_bytes())
        claims = check(record, Path(arguments[1]) if len(arguments) > 1 else None)
    except NotCovered as why:
        sys.stderr.write(f"{why}\n")
        return 3
    except Wrong as why:
        sys.stderr.write(f"wrong: {why}\n")
        return 1
    except (OSError, ValueError, RecursionError) as error:
        sys.stderr.write(f"cannot be read: {error}\n")
        return 2
    most = record["certificate"]["k_max"]
    print("\n".join([*claims, f"products are right for all codes, and sums of up to {most:,} of them stay in int32"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
