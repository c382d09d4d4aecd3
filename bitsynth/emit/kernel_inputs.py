"""The inputs of rows or columns in C: how they are packed, as values of the kernel's template, and their addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from bitsynth.isa.load import Isa
from bitsynth.isa.value import Part, Role, Value
from bitsynth.kernel.in_order import loop_control
from bitsynth.kernel.inputs import Input, Planes, Table
from bitsynth.kernel.packing import number
from bitsynth.kernel.program import Kernel, Pass

_MAX_PLANES = 64
"""Planes that a number of the table of planes has room for; where there are more, equal inputs share theirs."""


@dataclass(frozen=True)
class SideText:
    """The packing of a block of inputs of rows or columns: bytes of one vector in a step, and C initializers.

    Passes with the same inputs share a block; `start` is the number of bytes of a step before it.
    """

    start: int
    bytes: int
    table: Sequence[str]
    inputs: Sequence[str]
    values: Sequence[Sequence[str]]
    tables: Sequence[Table]


def blocks(kernel: Kernel, sides: Sequence[Sequence[Input]], bits: int) -> dict[Sequence[Input], SideText]:
    """Return the blocks of rows or columns, in order: inputs that several passes read are packed once."""
    out: dict[Sequence[Input], SideText] = {}
    for inputs in sides:
        if inputs not in out:
            out[inputs] = _side(kernel, inputs, bits, sum(block.bytes for block in out.values()))
    return out


def _side(kernel: Kernel, inputs: Sequence[Input], bits: int, start: int) -> SideText:
    planes, more = [x for x in inputs if isinstance(x, Planes)], has_spread_codes(kernel)
    tables = [x for x in inputs if isinstance(x, Table)]
    listed = [x.tables for x in planes]
    if sum(map(len, listed)) > _MAX_PLANES:
        listed = list(dict.fromkeys(listed))
    every = [t for tables in listed for t in tables]
    starts = [sum(map(len, listed[:i])) for i in range(len(listed))]
    shared = dict(zip(listed, starts, strict=True))
    first_planes = starts if len(listed) == len(planes) else [shared[x.tables] for x in planes]
    return SideText(
        start=start,
        bytes=side_bytes(kernel, inputs),
        table=_plane_table(every, bits),
        inputs=[
            f"{{{plane}, {len(x.tables)}, {x.first}, {x.stride}, {x.per_byte}"
            + (f", {x.apart}, {kernel.input_bytes(x)}}}" if more else "}")
            for plane, x in zip(first_planes, planes, strict=True)
        ],
        values=[list(map(str, x.values)) for x in tables],
        tables=tables,
    )


def has_spread_codes(kernel: Kernel) -> bool:
    """Return whether a byte of an input holds positions that are not neighbours, or an input has several slots."""
    inputs = [x for p in kernel.passes for x in (*p.rows, *p.columns) if isinstance(x, Planes)]
    return any((x.apart, x.slots) != (1, 1) for x in inputs)


def side_bytes(kernel: Kernel, inputs: Sequence[Input]) -> int:
    """Return the bytes that the inputs of one row or column take in a step."""
    return sum(kernel.input_bytes(x) for x in inputs)


def _plane_table(planes: Sequence[int], bits: int) -> list[str]:
    """Return for each code the planes that it sets: bit p for plane p."""
    return [f"UINT64_C({number(planes, code)})" for code in range(1 << bits)]


@dataclass(frozen=True)
class InputPlaces:
    """Addresses of the inputs of a pass. `column`, `row0 + offset`, `row1 + offset` ... are the addresses of the step.

    `high` is `offset` plus half a register, `ahead` is `offset` plus the prefetch distance of rows.
    """

    isa: Isa
    kernel: Kernel
    loop: Pass

    def columns(self) -> Iterator[tuple[Value, str]]:
        """Yield the inputs of columns and their addresses."""
        registers, size = self.kernel.column_registers(self.isa.table.vector_bits), self.isa.word.lanes
        for i, g in product(range(len(self.loop.columns)), range(registers)):
            yield (
                Value.of(Role.COLUMN, i, register=g),
                self._behind("column", "all_steps", i * registers * size, g * size),
            )

    def group(self, group: int, offset: str = "offset") -> Iterator[tuple[Value, str]]:
        """Yield the inputs of a group of rows and their addresses."""
        for i in range(len(self.loop.rows)):
            yield (
                Value.of(Role.ROW, i),
                self._behind(f"row{group} + {offset}", "steps", side_bytes(self.kernel, self.loop.rows[:i])),
            )

    def all(self, offset: str = "offset") -> dict[Value, str]:
        """Return the addresses of all inputs of a step, in a program of all rows."""
        rows = {value.of_row(group): p for group in range(self.kernel.groups) for value, p in self.group(group, offset)}
        return dict(self.columns()) | rows

    def of_copies(self, copies: int, iteration: int = 0) -> dict[Value, str]:
        """Return the addresses of inputs of `copies` successive steps, `iteration` iterations of the loop later."""
        out, half = dict[Value, str](), self.isa.word.lanes // 2
        highs = self.all("high") | {name: _plus(place, half) for name, place in self.columns()}
        for copy in range(copies):
            steps = copy + iteration * copies
            for value, place in self.all().items():
                here, high = (_plus(x, self._size(value.role) * steps) for x in (place, highs[value]))
                out |= {value.of_part(part).of_copy(copy): high if part.is_high else here for part in Part}
        return out

    def list_prefetches(self, copies: int) -> list[str]:
        """Return an address in each cache line that an iteration of `copies` steps prefetches."""
        rows = (f"row{group} + ahead" for group in range(self.kernel.groups))
        bases = (
            (_plus("column", self.get_prefetch_distance(Role.COLUMN, copies)), Role.COLUMN),
            *((row, Role.ROW) for row in rows),
        )
        return [
            _plus(base, line)
            for base, role in bases
            if self.get_prefetch_distance(role, copies)
            for line in range(0, copies * self._size(role), loop_control.LINE_BYTES)
        ]

    def get_prefetch_distance(self, role: Role, copies: int) -> int:
        """Return the prefetch distance of inputs, in bytes, for iterations of `copies` steps; 0 without prefetch."""
        return loop_control.prefetch_distance(
            self.isa.table.cpu[self.kernel.order], self.kernel, copies * self._size(role)
        )

    def _size(self, role: Role) -> int:
        """Return the bytes from an input of a step to the same input of the next."""
        if self.kernel.bit_axis == "outer":
            return self.kernel.slot_bytes * (self.kernel.columns if role is Role.COLUMN else 1)
        whole = self.kernel.columns * side_bytes(self.kernel, self.loop.columns)
        return whole if role is Role.COLUMN else self.kernel.row_bytes

    def advance(self, steps: int) -> dict[str, str]:
        """Return the statements that advance by `steps`, by the names of pointers."""
        row, column = (steps * self._size(role) for role in (Role.ROW, Role.COLUMN))
        return {"offset": f"offset += {row};", "high": f"high += {row};", "column": f"column += {column};"}

    def _behind(self, base: str, steps: str, others: int, own: int = 0) -> str:
        """Return the address `own` bytes into the input behind `others` bytes of a step, or of all `steps`."""
        if self.kernel.bit_axis == "outer" and others:
            return _plus(f"{base} + {others} * {steps}", own)
        return _plus(base, others + own)


def _plus(place: str, distance: int) -> str:
    return f"{place} + {distance}" if distance else place
