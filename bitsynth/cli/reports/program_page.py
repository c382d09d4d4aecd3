"""Programs on the page of `bitsynth show`: instructions with the meaning of a lane and costs."""

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
    """Return the heading of a part of the page."""
    return Text(text, "bold")


def constant_text(k: Constant) -> str:
    """Return the lanes of a constant; a repeating pattern of lanes is written once."""
    size = len(k.lanes)
    part = next(n for n in range(1, size + 1) if size % n == 0 and k.lanes == k.lanes[:n] * (size // n))
    lanes = " ".join(map(str, k.lanes[:part]))
    again = {1: " in every lane", size: ""}.get(part, " over and over")
    return f"constant  {k.name} {k.type}: {lanes}{again}"


def steps_page(isa: Isa, title: str, steps: Sequence[Step], result: str, per: str = "row") -> list[RenderableType]:
    """Return a program under its heading, and its result; it runs once `per` row or pixel."""
    above = heading(f"{title}, {output.count(len(steps), 'instruction')} a {per}")
    return ["", above, *([program(isa, steps)] if steps else []), f"  {result}"]


def program(isa: Isa, steps: Sequence[Step]) -> Table:
    """Return the table of a program with a row for each instruction."""
    cpus = list(isa.table.cpu)
    table = output.table("  instruction", "lane i", *cpus, right=cpus, whole=["  instruction"])
    for step in steps:
        instr = isa[step.op]
        costs = (f"{1 / instr.cost[cpu].per_cycle:.3g}" if cpu in instr.cost else "-" for cpu in cpus)
        table.add_row(f"  {step}", lane_text(instr, step), *costs)
    return table


def legend(isa: Isa, programs: Iterable[Step]) -> Table:
    """Return a table with each instruction form of the programs once: its effect and its cost."""
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
    """Return numbers such as channels as ranges: 0-3 16-19."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def step_facts(isa: Isa, step: Step) -> dict[str, Any]:
    """Return the facts of an instruction, for JSON: its text, the meaning of a lane, its effect and cost."""
    instr = isa[step.op]
    cycles = {cpu: round(1 / cost.per_cycle, 4) for cpu, cost in instr.cost.items()}
    return {"text": str(step), "lane": lane_text(instr, step), "does": instr.doc, "cycles": cycles}
