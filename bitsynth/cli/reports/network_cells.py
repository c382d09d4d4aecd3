"""Cells in tables of networks: shape, type and range of an edge; name, method and reason of a step; slow products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.cells import cell_len

from bitsynth.cli import output
from bitsynth.cli.output import cut_name
from bitsynth.cli.reports.weight_names import is_number
from bitsynth.printable import one_line, show

if TYPE_CHECKING:
    from bitsynth.graph.inspect import EdgeFacts
    from bitsynth.network.report import NetworkReport, ProductWork, StepReport

MIN_SLOW_SHARE = 0.001
"""Share of all multiply-accumulates below which slow ones are not reported."""


def step_name(step: StepReport, weights: Mapping[str, str], room: int) -> str:
    """Return the last node of a step and how many there are before it, in at most `room` columns.

    If that node has a number from the exporter, the name of the step's weight stands for it: `weights` has it for
    products. A conversion has the name of its edge.
    """
    before = len(step.nodes) - 1
    count = f" (+{before})" if before > 0 else ""
    name = step.nodes[-1] if step.nodes else step.edge
    if is_number(name):
        name = next((weights[node] for node in step.nodes if node in weights), name)
    return f"{cut_name(show(name), room - len(count))}{count}"


def by_whom(step: StepReport, *, brief: bool = False) -> str:
    """Return what computes a step: a layer's schedule, glue or plain C with its operators.

    If `brief`, the method of a schedule alone, or the first of several operators.
    """
    first, *others = step.method.split(", ") if brief else [step.method]
    return first if step.kind == "layer" else f"{step.kind}: {first}{', ..' if others else ''}"


def shape_of(given: EdgeFacts | StepReport) -> str:
    """Return the axes of an edge, or of a step's result, such as 1x64x14x14."""
    return "x".join(map(str, given.shape)) or "one"


def bits_of(edge: EdgeFacts) -> str:
    """Return bits and encoding of an edge's integers, or the type of its floats."""
    return edge.dtype if edge.carries == "reals" else f"{edge.bits}-bit {edge.encoding}"


def carries(edge: EdgeFacts) -> str:
    """Return what an edge carries: bits and encoding with the scale, or the type of its floats."""
    return edge.dtype if edge.carries == "reals" else f"{bits_of(edge)} {edge.carries}{_scale(edge)}"


def range_of(edge: EdgeFacts) -> str:
    """Return the least and the greatest of an edge's integers; "" if it carries floats."""
    return "" if edge.least is None else f"{edge.least:,} to {edge.most:,}"


def share(part: int, whole: int) -> str:
    """Return a part of a whole in percent, with one decimal."""
    return f"{100 * part / whole if whole else 0:.1f} %"


def slow_products(work: ProductWork) -> list[str]:
    """Return a line that says which part of the products is slow, and what helps; no line below 0.1 % of all."""
    slow = {"in floats": work.float_macs, "in plain C of integers": work.plain_macs}
    if sum(slow.values()) < max(1, work.macs * MIN_SLOW_SHARE):
        return []
    parts = ", ".join(f"{share(macs, work.macs)} {how}" for how, macs in slow.items() if macs)
    line = f"slow, of {work.macs:,} MAC: {parts}"
    if not work.floats:
        return [line]
    from bitsynth.graph.float_products import INPUT_OPTION

    most, helped = work.floats[0], [product for product in work.floats if product.input]
    line += f"; most in {most.source}, {share(most.macs, work.macs)}: {most.why}; {most.change}"
    if helped and not most.input:
        macs = sum(product.macs for product in helped)
        line += f"; {INPUT_OPTION}, if input {helped[0].input} holds codes, spares {share(macs, work.macs)}"
    others = len(work.floats) - 1
    return [one_line(f"{line}; `bitsynth inspect` says this of {others:,} more" if others else line)]


def _scale(edge: EdgeFacts) -> str:
    zero = f", zero {edge.zero[0]:g}" if edge.zero != (0.0,) and len(edge.zero) == 1 else ""
    if edge.scale == (1.0,):
        return zero
    return f" x {edge.scale[0]:.4g}{f' to {edge.scale[-1]:.4g}' if len(edge.scale) > 1 else ''}{zero}"


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
