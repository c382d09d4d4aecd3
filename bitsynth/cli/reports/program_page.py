"""Programs on a page of `bitsynth show`: instruction by instruction, lanes and costs beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Constant, Step
from bitsynth.kernel.describe import lane_text


def heading(text: str) -> Text:
    """The heading of a part of the page."""
    return Text(text, "bold")


def constant_text(k: Constant) -> str:
    """The lanes of a constant, or those that come over and over."""
    size = len(k.lanes)
    part = next(n for n in range(1, size + 1) if size % n == 0 and k.lanes == k.lanes[:n] * (size // n))
    lanes = " ".join(map(str, k.lanes[:part]))
    again = {1: " in every lane", size: ""}.get(part, " over and over")
    return f"constant  {k.name} {k.type}: {lanes}{again}"


def steps_page(isa: Isa, title: str, steps: Sequence[Step], result: str, per: str = "row") -> list[RenderableType]:
    """A program under its heading, and its result; it runs once `per` row or pixel."""
    above = heading(f"{title}, {output.count(len(steps), 'instruction')} a {per}")
    return ["", above, *([program(isa, steps)] if steps else []), f"  {result}"]


def program(isa: Isa, steps: Sequence[Step]) -> Table:
    """The table of a program: a line a step."""
    cpus = list(isa.table.cpu)
    table = output.table("  instruction", "lane i", *cpus, right=cpus, whole=["  instruction"])
    for step in steps:
        instr = isa[step.op]
        costs = (f"{1 / instr.cost[cpu].per_cycle:.3g}" if cpu in instr.cost else "-" for cpu in cpus)
        table.add_row(f"  {step}", lane_text(instr, step), *costs)
    return table


def legend(isa: Isa, programs: Iterable[Step]) -> Table:
    """Each form the programs use, once: its effect and its cost."""
    used = {s.op for s in programs}
    cpus = list(isa.table.cpu)
    table = output.table("  form", "result", "does", *cpus, right=cpus)
    for name in sorted(used):
        instr = isa[name]
        known = (instr.cost.get(cpu) for cpu in cpus)
        costs = (f"{1 / c.per_cycle:.3g} ({c.latency:g})" if c else "-" for c in known)
        table.add_row(f"  {name}", str(instr.out), instr.doc, *costs)
    table.caption = "  cpu columns: cycles of throughput (latency), - if the processor lacks it"
    table.caption_justify = "left"
    return table


def runs_text(numbers: Iterable[int]) -> str:
    """Numbers such as channels, runs of them by their ends."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def step_facts(isa: Isa, step: Step) -> dict[str, Any]:
    """The facts of a step: its text, its lane, what it does and costs."""
    instr = isa[step.op]
    cycles = {cpu: round(1 / cost.per_cycle, 4) for cpu, cost in instr.cost.items()}
    return {"text": str(step), "lane": lane_text(instr, step), "does": instr.doc, "cycles": cycles}
