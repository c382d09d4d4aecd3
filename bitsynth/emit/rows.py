"""The rows of a kernel in C, one written out behind the other."""

from __future__ import annotations

from collections.abc import Sequence

from bitsynth.emit.lines import block
from bitsynth.emit.statements import Rename
from bitsynth.kernel.program import Kernel


def names_of_row(group: int) -> Rename:
    """C names of one row, or of a group of rows: its accumulators carry its number."""
    return lambda name: f"{name}_{group}" if name.startswith("acc") else name


def braced(kernel: Kernel, group: int, lines: Sequence[str]) -> list[str]:
    """The statements of a row, or of rows together, which are named if there are others."""
    first, *rest = block("", lines)
    rows = " and ".join(map(str, kernel.rows_of(group)))
    return [f"{first} /* row{'s' * (kernel.together > 1)} {rows} */" if kernel.rows > 1 else first, *rest]
