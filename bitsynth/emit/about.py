"""The comment above a kernel's C: what it computes and how its operands lie in memory, in words."""

from __future__ import annotations

from collections.abc import Sequence

from bitsynth.kernel.describe import input_text
from bitsynth.kernel.inputs import Input
from bitsynth.kernel.program import Kernel
from bitsynth.spec.matmul import MatmulOperand, MatmulSpec

_SHOWN = 16
"""Most columns whose order is spelled out."""
_METHODS = {
    "popcount": "by counting bits",
    "lookup": "by looking sums up in tables",
    "pairs": "by looking sums of two rows up at once",
    "multiply": "by multiplying 8-bit lanes",
    "fip": "by multiplying sums of two 8-bit lanes",
    "dot": "by dot products of 8-bit lanes",
}


def about(name: str, kernel: Kernel, spec: MatmulSpec, command: str = "") -> str:
    """Return the text of the comment; `command` is the one that finds the kernel's program, "" to leave it out."""
    of_rows, of_columns = ("weights", "activations") if kernel.swapped else ("activations", "weights")
    rows, columns = (
        f"{kernel.rows} row{'s' * (kernel.rows > 1)} of {of_rows}",
        f"{kernel.columns} columns of {of_columns}",
    )
    lines = [
        f"{name}: exact int32 products of {spec.act} activations and {spec.wgt} weights, {_METHODS[kernel.method]}.",
        "",
        f"  computes  c (m x n) = activations (m x k) times weights (k x n), for k up to {spec.k_max:,}",
        f"  tile      {rows} x {columns}; a step is {kernel.k_step} positions of k",
        f"  row       {_bytes(kernel.row_bytes)} a step: {_inputs(kernel, 'a')}",
        f"  column    {_bytes(kernel.column_bytes)} a step: {_inputs(kernel, 'w')}",
        f"  columns   lie next to each other, {_order(kernel.slots)}, {_bytes(kernel.slot_bytes)} each",
    ]
    if kernel.bit_axis == "outer":
        lines.append("  planes    all steps of a plane lie before those of the next")
    if command:
        lines.append(f"  command   {command}")
    return "\n".join([*lines, "", "From a kernel whose proof was checked."])


def _order(slots: Sequence[int]) -> str:
    if list(slots) == sorted(slots):
        return "in order"
    return (
        f"in the order {' '.join(map(str, slots))}" if len(slots) <= _SHOWN else "in the order of `slots` in the source"
    )


def value_text(operand: MatmulOperand) -> str:
    """The value of a code, in C."""
    scaled = "code" if operand.scale == 1 else f"{operand.scale} * code"
    return f"{scaled} {'+' if operand.offset > 0 else '-'} {abs(operand.offset)}" if operand.offset else scaled


def _bytes(count: int) -> str:
    return f"{count} byte{'s' * (count > 1)}"


def _inputs(kernel: Kernel, letter: str) -> str:
    """The content of a side's inputs; those that passes share are named once."""
    of_rows = letter == "a"
    bits = kernel.row_bits if of_rows else kernel.column_bits
    sides: list[Sequence[Input]] = [p.rows if of_rows else p.columns for p in kernel.passes]
    shared = [x for side in dict.fromkeys(map(tuple, sides)) for x in side]
    return "; ".join(input_text(x, bits, kernel.input_bytes(x), kernel.code_bytes) for x in shared)
