"""How the inputs of rows or columns are packed, as values of the kernel's template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitsynth.kernel.inputs import Input, Planes, Table
from bitsynth.kernel.packing import number
from bitsynth.kernel.program import Kernel


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
    planes, more = [x for x in inputs if isinstance(x, Planes)], spread(kernel)
    tables = [x for x in inputs if isinstance(x, Table)]
    every = [t for x in planes for t in x.tables]
    first_planes = [sum(len(x.tables) for x in planes[:i]) for i in range(len(planes))]
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


def spread(kernel: Kernel) -> bool:
    """Return whether a byte of an input holds positions that are not neighbours, or an input has several slots."""
    inputs = [x for p in kernel.passes for x in (*p.rows, *p.columns) if isinstance(x, Planes)]
    return any((x.apart, x.slots) != (1, 1) for x in inputs)


def side_bytes(kernel: Kernel, inputs: Sequence[Input]) -> int:
    """Return the bytes that the inputs of one row or column take in a step."""
    return sum(kernel.input_bytes(x) for x in inputs)


def _plane_table(planes: Sequence[int], bits: int) -> list[str]:
    """Return for each code the planes that it sets: bit p for plane p."""
    return [f"UINT64_C({number(planes, code)})" for code in range(1 << bits)]
