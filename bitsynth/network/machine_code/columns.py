"""The codes that packed columns hold: the bytes that a microkernel reads, decoded by the layout of its proof."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.packing import packing
from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.packing import number
from bitsynth.kernel.program import Kernel
from bitsynth.network.machine_code.calls import WrongCall


def codes_of_columns(kernel: Kernel, data: bytes, tiles: int, steps: int) -> NDArray[np.int64]:
    """Return the codes (columns of all tiles, steps x k_step) that packed bytes hold, in the order of a row's codes.

    WrongCall if the bits at a position are no code's bits.
    """
    by_input = _numbers_of_inputs(kernel, np.frombuffer(data, np.uint8), tiles, steps)
    inputs = list(by_input)
    shape = next(iter(by_input.values())).shape
    code_of: dict[tuple[int, ...], int] = {}
    for code in range(1 << kernel.column_bits):
        code_of.setdefault(tuple(number(x.tables, code) for x in inputs), code)
    decoded = np.full(shape, -1, np.int64)
    for numbers, code in code_of.items():
        alike = [(by_input[x] == n) | (by_input[x] < 0) for x, n in zip(inputs, numbers, strict=True)]
        decoded[np.all(alike, axis=0)] = code
    if (decoded < 0).any():
        raise WrongCall("weights hold bits of no code")
    in_order = np.empty_like(decoded)
    in_order[..., list(packing(kernel).order)] = decoded
    return in_order.reshape(len(decoded), -1)


def _numbers_of_inputs(
    kernel: Kernel, data: NDArray[np.uint8], tiles: int, steps: int
) -> dict[Planes, NDArray[np.int64]]:
    """Return for each input of columns its number (columns, steps, k_step) at each position, -1 where it has none."""
    sides = list(dict.fromkeys(p.columns for p in kernel.passes))
    of_tile = data.reshape(tiles, -1)
    out: dict[Planes, NDArray[np.int64]] = {}
    first = 0
    for inputs in sides:
        size = len(inputs) * steps * kernel.columns * kernel.slot_bytes
        block = of_tile[:, first : first + size]
        first += size
        outer = kernel.bit_axis == "outer"
        axes = (len(inputs), steps) if outer else (steps, len(inputs))
        laid = block.reshape(tiles, *axes, kernel.columns, kernel.slot_bytes)
        laid = laid if outer else laid.swapaxes(1, 2)
        for k, planes in enumerate(inputs):
            slots = laid[:, k].transpose(0, 2, 1, 3)
            columns = np.empty_like(slots)
            columns[:, list(kernel.slots)] = slots
            out[planes] = _numbers(kernel, planes, columns.reshape(tiles * kernel.columns, steps, kernel.slot_bytes))
    return out


def _numbers(kernel: Kernel, planes: Planes, stored: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the number at each position (columns, steps, k_step) of stored bytes (columns, steps, slot bytes).

    It is -1 at positions that the input does not have.
    """
    width, size = len(planes.tables), kernel.code_bytes
    kind = np.dtype(f"<u{size}")
    numbers = np.ascontiguousarray(stored).view(kind).astype(np.int64)
    out = np.full((*stored.shape[:2], kernel.k_step), -1, np.int64)
    for b in range(numbers.shape[-1]):
        for q, position in enumerate(planes.positions(b)):
            out[..., position] = numbers[..., b] >> q * width & ((1 << width) - 1)
    return out
