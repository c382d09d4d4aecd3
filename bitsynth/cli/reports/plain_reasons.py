"""Why steps of a network became plain C, a line a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from bitsynth.cli import output
from bitsynth.printable import one_line

if TYPE_CHECKING:
    from bitsynth.network.report import NetworkReport

_MAX_STEPS = 5
_WIDTH = 80


def plain_reasons(report: NetworkReport) -> list[str]:
    """Return a line of at most 80 columns for each of the first steps of plain C that a fusion pattern declined."""
    steps = [step for step in report.steps if step.reason]
    lines = [_line(step.edge, f"plain C: {step.reason}") for step in steps[:_MAX_STEPS]]
    more = len(steps) - len(lines)
    return [*lines, *([f"{more} more in plain C; --json has their reasons"] if more else [])]


def _line(name: str, text: str) -> str:
    """Return `name: text`; on a terminal within the width: the name is cut first, at its beginning, then the text."""
    name, text = one_line(name), one_line(text)
    if not output.on_terminal():
        return f"{name}: {text}"
    room = max(_WIDTH - cell_len(text) - 2, 16)
    name = name if cell_len(name) <= room else f"..{output.keep_end(name, room - 2)}"
    line = f"{name}: {text}"
    return line if cell_len(line) <= _WIDTH else f"{output.keep_start(line, _WIDTH - 2)}.."
