"""Packs codes: the bytes that a microkernel reads, of rows and of tiles of columns.

The bits of a plane are functions of codes, as truth tables: bit c of one is its value for code c."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.program import Kernel


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


Codes = NDArray[np.uint8]


def pack(planes: Planes, codes: Codes, bits: int, size: int, code_bytes: int = 1) -> Codes:
    """Return (..., size) bytes of the codes (..., k_step) of a step; each code takes `code_bytes`."""
    width, kind = len(planes.tables), np.dtype(f"<u{code_bytes}")
    numbers = np.array([number(planes.tables, code) for code in range(1 << bits)], kind)
    out = np.zeros((*codes.shape[:-1], size // code_bytes), kind)
    for b in range(out.shape[-1]):
        for q, position in enumerate(planes.positions(b)):
            out[..., b] |= numbers[codes[..., position]] << kind.type(q * width)
    return out.view(np.uint8)


def sharing(rows: Sequence[Codes]) -> Codes:
    """Return bytes that rows of a group share: equally many bits for each row, the first row's lowest."""
    share = 8 // len(rows)
    return reduce(or_, (x << np.uint8(share * member) for member, x in enumerate(rows)))


def multiply_neighbours(codes: NDArray[Any]) -> NDArray[np.int64]:
    """Return (...,) sums of products of neighbours among codes (..., K); the first is at an even position."""
    even = codes.shape[-1] // 2 * 2
    summed: NDArray[np.int64] = (codes[..., :even:2].astype(np.int64) * codes[..., 1:even:2]).sum(axis=-1)
    return summed


def tiles(kernel: Kernel, codes: Codes) -> Codes:
    """Return the bytes (tiles, bytes) that the microkernel reads for columns (tiles x columns, steps, k_step).

    Inputs that passes share lie there once: all steps of the first, then of the next. Planes of a
    step lie side by side, or apart if the bit axis is the outer one.
    """
    count, steps = len(codes) // kernel.columns, codes.shape[1]
    blocks = []
    for inputs in dict.fromkeys(p.columns for p in kernel.passes):
        sizes = kernel.column_bits, kernel.slot_bytes, kernel.code_bytes
        stacked = np.stack([pack(x, codes, *sizes) for x in inputs], axis=1)
        stacked = stacked.reshape(count, kernel.columns, len(inputs), steps, kernel.slot_bytes)[:, list(kernel.slots)]
        inputs_and_steps = (2, 3) if kernel.bit_axis == "outer" else (3, 2)
        blocks.append(stacked.transpose(0, *inputs_and_steps, 1, 4).reshape(count, -1))
    return np.ascontiguousarray(np.concatenate(blocks, axis=1))
