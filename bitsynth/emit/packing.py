"""How inputs are packed, as the template wants it: which bytes of which side, and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitsynth.program import Input, Kernel, Planes, Table, bit_tables, number

WORD_BYTES = 8
"""Codes that are packed at once."""


@dataclass(frozen=True)
class RowText:
    """How rows of codes that lie side by side are packed: a way of their inputs' own, or step by step.

    `words`: C expressions of the planes of a step, over the words b0.. of the codes' bits.
    """

    kind: str
    words: Sequence[str] = ()


def order(kernel: Kernel) -> tuple[int, ...]:
    """The code of a step that lies at each position, so that rows are packed with little work.

    Where bits of consecutive positions share a byte, neighbours in a byte are a word of codes
    apart: eight codes go to their places by one shift. Where a byte is a code, bytes are in
    the order of codes.
    """
    inputs = [x for side in dict.fromkeys(p.rows for p in kernel.passes) for x in side]
    if all(_in_words(kernel, x) for p in kernel.passes for x in (*p.rows, *p.columns)):
        each = kernel.k_step // WORD_BYTES
        return tuple(p % each * WORD_BYTES + p // each for p in range(kernel.k_step))
    if all(_is_bytes(kernel, x) for x in inputs):
        places = [p.start for x in inputs if isinstance(x, Planes) for p in map(x.positions, range(kernel.slot_bytes))]
        if sorted(places) == list(range(kernel.k_step)):
            return tuple(places.index(position) for position in range(kernel.k_step))
    return tuple(range(kernel.k_step))


def _in_words(kernel: Kernel, x: Input) -> bool:
    each = kernel.k_step // WORD_BYTES
    return isinstance(x, Planes) and len(x.tables) == 1 and (x.first, x.stride, x.per_byte) == (0, each, each)


def _is_bytes(kernel: Kernel, x: Input) -> bool:
    """Whether each byte of a row's input is a code."""
    return isinstance(x, Planes) and x.per_byte == 1 and x.tables == bit_tables(kernel.row_bits)


def row_text(kernel: Kernel) -> RowText:
    """The quickest way there is for the rows of `kernel`."""
    inputs = [x for side in dict.fromkeys(p.rows for p in kernel.passes) for x in side]
    if kernel.k_step in (32, 64) and all(_in_words(kernel, x) for x in inputs):
        return RowText("words", [_polynomial(x.tables[0], kernel) for x in inputs if isinstance(x, Planes)])
    tables = [x for x in inputs if isinstance(x, Table)]
    if len(tables) == len(inputs) and kernel.build and kernel.build.in_order and _consecutive(kernel, tables):
        return RowText("tables")
    bytes_of_step = sum(kernel.slot_bytes for _ in inputs)
    if bytes_of_step == kernel.k_step and all(_is_bytes(kernel, x) for x in inputs):
        return RowText("bytes")
    return RowText("steps")


def _consecutive(kernel: Kernel, tables: Sequence[Table]) -> bool:
    """Whether every code goes into one table, as it is."""
    firsts = [t.first for t in tables] == list(range(0, kernel.k_step, tables[0].bits))
    return firsts and all(t.values == tuple(range(1 << kernel.row_bits)) for t in tables)


def _polynomial(table: int, kernel: Kernel) -> str:
    """The boolean function `table` of a code's bits as exclusive ors of products (its algebraic normal form)."""
    size = 1 << kernel.row_bits
    terms = [table >> code & 1 for code in range(size)]
    for bit in range(kernel.row_bits):
        for code in range(size):
            if code >> bit & 1:
                terms[code] ^= terms[code ^ 1 << bit]
    full = f"UINT64_C({sum(((1 << kernel.k_step // WORD_BYTES) - 1) << 8 * b for b in range(WORD_BYTES))})"
    products = [
        " & ".join(f"b{j}" for j in range(kernel.row_bits) if code >> j & 1) or full
        for code in range(size)
        if terms[code]
    ]
    return " ^ ".join(f"({x})" if "&" in x else x for x in products) or "0"


def slope(terms: Sequence[int]) -> int | None:
    """The number each code is multiplied by to give its term, None where there is none."""
    step = terms[1]
    return step if all(term == step * code for code, term in enumerate(terms)) else None


@dataclass(frozen=True)
class SideText:
    """How a block of one side's inputs is packed: bytes of a vector a step, one C initializer an input.

    Passes with the same inputs share a block; `start` is how many bytes a step come before it.
    """

    start: int
    bytes: int
    table: str
    inputs: Sequence[str]
    values: Sequence[str]
    tables: Sequence[Table]


def blocks(kernel: Kernel, sides: Sequence[Sequence[Input]], bits: int) -> dict[Sequence[Input], SideText]:
    """What is packed of one side, in order: inputs that several passes read are packed once."""
    out: dict[Sequence[Input], SideText] = {}
    for inputs in sides:
        if inputs not in out:
            out[inputs] = _side(kernel, inputs, bits, sum(block.bytes for block in out.values()))
    return out


def _side(kernel: Kernel, inputs: Sequence[Input], bits: int, start: int) -> SideText:
    planes = [x for x in inputs if isinstance(x, Planes)]
    tables = [x for x in inputs if isinstance(x, Table)]
    every = [t for x in planes for t in x.tables]
    first_planes = [sum(len(x.tables) for x in planes[:i]) for i in range(len(planes))]
    return SideText(
        start=start,
        bytes=side_bytes(kernel, inputs),
        table=_plane_table(every, bits),
        inputs=[
            f"{{{plane}, {len(x.tables)}, {x.first}, {x.stride}, {x.per_byte}}}"
            for plane, x in zip(first_planes, planes, strict=True)
        ],
        values=[", ".join(map(str, x.values)) for x in tables],
        tables=tables,
    )


def side_bytes(kernel: Kernel, inputs: Sequence[Input]) -> int:
    """Bytes of memory a vector's inputs take in a step."""
    return sum(kernel.input_bytes(x) for x in inputs)


def _plane_table(planes: Sequence[int], bits: int) -> str:
    """For each code, the planes that are set: bit p for plane p."""
    return ", ".join(f"UINT64_C({number(planes, code)})" for code in range(1 << bits))
