"""Reports as labelled lines: what was done, its result, the time it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from bitsynth.cli import output
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.schedule.cost import KernelCost
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.store.entry import Entry

_LABEL = 9


@dataclass(frozen=True)
class ReportLine:
    """A label and cells. The cells are aligned with the cells of other lines, unless the line is `free`."""

    label: str
    cells: tuple[str, ...]
    seconds: float | None = None
    free: bool = False


def kernel_line(entry: Entry, spec: MatmulSpec) -> ReportLine:
    """Return a line with the kernel's name and cost."""
    price = entry.cost
    cycles = ", ".join(f"{cpu} {x:.2f}" for cpu, x in price.cycles.items())
    return ReportLine(
        "kernel", (str(KernelName.of(entry.kernel, spec)), price_text(entry), f"{cycles} cycles"), free=True
    )


def price_text(entry: Entry) -> str:
    """Return the operations, with the paper's figure if the paper has such a kernel."""
    kernel = entry.kernel
    paper = load(kernel.isa).table.paper
    operations = paper.operations.get(f"a{kernel.act_bits}w{kernel.w_bits}") if paper else None
    return f"{entry.cost.ops_per_128_mac:.2f} ops per 128 MAC" + (f" (paper {operations})" if operations else "")


ON_RECORD = "claims are on record; `bitsynth verify` solves them again"


def claim_line(price: KernelCost) -> ReportLine:
    """Return a line with the claims on the steady loop: in which sketch it is minimal, and a lower bound for all."""
    claim = price.minimal or "best found"
    return ReportLine("claims", (claim, f"no steady loop takes less than {price.lower_bound:g} ops"), free=True)


def verdict_facts(name: str, lines: Sequence[ReportLine], *, discharged: bool, solved_again: bool) -> dict[str, Any]:
    """Return the facts of a verification, for JSON: which parts were done, and each check's verdict and time."""
    return {
        "name": name,
        "proved": discharged,
        "composition_checked": True,
        "instructions_discharged": discharged,
        "minimality_solved_again": solved_again,
        "checks": [
            {"name": x.label, "what": x.cells[0], "verdict": x.cells[1], "seconds": round(x.seconds or 0.0, 4)}
            for x in lines
        ],
    }


def print_lines(*lines: ReportLine) -> None:
    """Print report lines; lines that are not free are aligned in columns."""
    inner = [line for line in lines if not line.free]
    first = max((len(line.cells[0]) for line in inner), default=0)
    second = max((len(line.cells[1]) for line in inner), default=0)
    gap = 2 if _LABEL + first + 2 + second + 2 + 8 <= output.width() else 1
    for line in lines:
        output.write(*(_free_lines(line) if line.free else [_columns(line, first + gap, second + gap)]))


def _columns(line: ReportLine, first: int, second: int) -> Text:
    spent = "" if line.seconds is None else f"{line.seconds:5.1f} s"
    return Text.assemble(
        (f"{line.label:{_LABEL}}", "bold"),
        f"{line.cells[0]:{first}}",
        (f"{line.cells[1]:{second}}", "green"),
        (spent, "dim"),
    )


def _free_lines(line: ReportLine) -> Sequence[Text]:
    """Return the cells on one line, or one below the other if they do not fit."""
    if _LABEL + len("   ".join(line.cells)) <= output.width():
        cells: Sequence[str] = ("   ".join(line.cells),)
    else:
        cells = line.cells
    labels = [line.label] + [""] * (len(cells) - 1)
    return [Text.assemble((f"{label:{_LABEL}}", "bold"), cell) for label, cell in zip(labels, cells, strict=True)]
