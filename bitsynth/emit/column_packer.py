"""C that packs columns of codes for a kernel at run time, for weights that are computed in the network.

It writes the bytes that `kernel/packing.tiles` has of constant weights. A byte holds one code or several. Where codes
lie side by side and a byte is an affine function of one code, C copies them; else it looks each up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bitsynth.emit.packing import packing
from bitsynth.emit.render import render
from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.packing import number
from bitsynth.kernel.program import Kernel
from bitsynth.spec.matmul import MatmulSpec


@dataclass(frozen=True)
class ColumnInput:
    """An input of a column in a step, as the template takes it.

    Attributes:
        number: Its number.
        to: C of the place of its first byte, of `step` and `slot`.
        count: Its elements: bytes, or wider numbers.
        places: The positions of the codes of each element, the lowest bits first.
        bits: The bits of an element that each code has.
        values: The number of each code.
        line: The factor and the summand of a code, modulo the size of an element, if values are an affine function.
    """

    number: int
    to: str
    count: int
    places: Sequence[Sequence[int]]
    bits: int
    values: Sequence[int]
    line: tuple[int, int] | None

    @property
    def is_looked_up(self) -> bool:
        """Whether the bits of a code are looked up: elements have several codes, or are no affine function of one."""
        return self.first is None or self.line is None

    @property
    def first(self) -> int | None:
        """The first position if each element has one code, and these lie side by side; else None."""
        firsts = [places[0] for places in self.places]
        is_run = firsts == list(range(firsts[0], firsts[0] + self.count))
        return firsts[0] if is_run and all(len(places) == 1 for places in self.places) else None


def column_files(kernel: Kernel, spec: MatmulSpec) -> dict[str, str]:
    """Return the header and the source of the function `NAME_pack_columns`, which packs a tile of columns."""
    name = str(KernelName.of(kernel, spec))
    values: dict[str, Any] = {"name": name, "kernel": kernel, "inputs": list(column_inputs(kernel))}
    return {
        f"{name}_columns.h": render("kernel_columns.h.j2", values),
        f"{name}_columns.c": render("kernel_columns.c.j2", values),
    }


def column_inputs(kernel: Kernel) -> Iterator[ColumnInput]:
    """Yield the inputs of columns in the order of memory: inputs that passes share lie there once."""
    order, size = packing(kernel).order, kernel.slot_bytes
    before = 0
    for inputs in dict.fromkeys(p.columns for p in kernel.passes):
        for k, planes in enumerate(inputs):
            assert isinstance(planes, Planes), "columns are no tables"
            at = f"step * {len(inputs)} + {k}" if kernel.bit_axis == "inner" else f"{k} * steps + step"
            place = f"{before} * steps + {at}" if before else at
            to = f"(({place}) * COLUMNS + slot) * SLOT_BYTES"
            elements = [[order[p] for p in planes.positions(b)] for b in range(size // kernel.code_bytes)]
            numbers = [number(planes.tables, code) for code in range(1 << kernel.column_bits)]
            line = _line(numbers, 256**kernel.code_bytes)
            yield ColumnInput(before + k, to, len(elements), elements, len(planes.tables), numbers, line)
        before += len(inputs)


def _line(numbers: Sequence[int], modulus: int) -> tuple[int, int] | None:
    """Return the factor and the summand of codes, modulo the size of an element, that give all numbers; or None."""
    factor, summand = (numbers[1] - numbers[0]) % modulus, numbers[0]
    fits = all((factor * code + summand - x) % modulus == 0 for code, x in enumerate(numbers))
    return (factor, summand) if fits else None
