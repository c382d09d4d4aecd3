"""Functions of a code as truth tables: bit c of one is its value for code c."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def bit_table(values: Iterable[int], bit: int) -> int:
    """Return truth table of one bit of values[code]."""
    return sum((value >> bit & 1) << code for code, value in enumerate(values))


def bit_tables(bits: int) -> tuple[int, ...]:
    """Return truth tables of the bits of `bits`-bit codes."""
    return tuple(bit_table(range(1 << bits), bit) for bit in range(bits))


def byte_tables(values: Sequence[int], count: int = 1) -> tuple[int, ...]:
    """Return truth tables of the bits of values[code] as `count` bytes, in two's complement."""
    return tuple(bit_table(values, bit) for bit in range(8 * count))


def number(tables: Iterable[int], code: int) -> int:
    """Return the number whose bit j is tables[j] of `code`."""
    return sum((table >> code & 1) << j for j, table in enumerate(tables))
