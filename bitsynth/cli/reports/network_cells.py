"""What tables of a network say: of an edge its shape, what it carries and its range; of a step its name and maker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitsynth.graph.float_products import INPUT_OPTION
from bitsynth.printable import one_line, shown

if TYPE_CHECKING:
    from bitsynth.graph.inspect import EdgeFacts
    from bitsynth.network.report import ProductWork, StepReport

_NO_MATTER = 0.001
"""Of all multiply-accumulates the part below which slow ones are not worth a line."""


def called(step: StepReport) -> str:
    """The last node of a step, and how many there are before it; of a conversion the edge."""
    before = len(step.nodes) - 1
    name = shown(step.nodes[-1] if step.nodes else step.edge)
    return f"{name} (+{before})" if before > 0 else name


def by_whom(step: StepReport) -> str:
    """What computes a step: a layer's schedule, glue or plain C."""
    return step.method if step.kind == "layer" else f"{step.kind}: {step.method}"


def shape_of(given: EdgeFacts | StepReport) -> str:
    """The axes of an edge, or of a step's result."""
    return "x".join(map(str, given.shape)) or "one"


def bits_of(edge: EdgeFacts) -> str:
    """Bits and encoding of its integers, or the type of its floats."""
    return edge.dtype if edge.carries == "reals" else f"{edge.bits}-bit {edge.encoding}"


def carries(edge: EdgeFacts) -> str:
    """What it carries, with the scale."""
    return edge.dtype if edge.carries == "reals" else f"{bits_of(edge)} {edge.carries}{_scale(edge)}"


def range_of(edge: EdgeFacts) -> str:
    """The least and the greatest of its integers."""
    return "" if edge.least is None else f"{edge.least:,} to {edge.most:,}"


def share(part: int, whole: int) -> str:
    """A part of a whole in percent, with one digit behind the point."""
    return f"{100 * part / whole if whole else 0:.1f} %"


def slow_products(work: ProductWork) -> list[str]:
    """Return a line that says which part of the products is slow, and what helps; no line below 0.1 % of all."""
    slow = {"in floats": work.float_macs, "in plain C of integers": work.plain_macs}
    if sum(slow.values()) < work.macs * _NO_MATTER:
        return []
    parts = ", ".join(f"{share(macs, work.macs)} {how}" for how, macs in slow.items() if macs)
    line = f"slow, of {work.macs:,} MAC: {parts}"
    if not work.floats:
        return [line]
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
