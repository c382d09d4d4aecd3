"""A stored artifact on the command line, of any kind.

`bitsynth show` writes its page, its facts or its C, `bitsynth verify` checks its certificate, `bitsynth list` writes a
row for it. The commands ask for these by the methods below, whatever the kind; `__init__.py` has the kinds.

On the page, programs are instructions with the meaning of a lane and costs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Constant, Step
from bitsynth.kernel.describe import lane_text
from bitsynth.progress import Progress
from bitsynth.proof.proved import Proved
from bitsynth.store.artifacts import ArtifactKind, P, R


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


@dataclass(frozen=True)
class ListTable:
    """A table of `bitsynth list`, shared by the kinds of the same columns.

    Attributes:
        title: The heading of names.
        before: Columns before the processors' columns; `right` are the ones with numbers.
        after: Columns behind the processors' columns.
        has_widths: Whether its artifacts have two widths and variants. Others are listed where all or their variant are
            asked for.
        notes: Lines below the table.
    """

    title: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    right: tuple[str, ...]
    has_widths: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ListRow:
    """A row of a table, and the same facts for JSON."""

    method: str
    before: tuple[str, ...]
    cycles: Mapping[str, float]
    after: tuple[str, ...]
    facts: dict[str, Any]


KERNELS = ListTable(
    "kernel",
    ("method", "ops", "bound", "min"),
    ("K max",),
    right=("ops", "bound", "K max"),
    has_widths=True,
    notes=(
        "ops, bound and cycles are per 128 multiply-accumulates; loads are not in ops",
        "figures are as the files have them; --check computes them again",
        "bound and min are claims; `bitsynth verify` solves them again",
    ),
)
PROGRAMS = ListTable(
    "program",
    ("unit", "instructions"),
    (),
    right=("unit", "instructions"),
    has_widths=False,
    notes=("cycles of a program are for one unit of channels, with data in L1",),
)


class NamedArtifact(ABC, Generic[R, P]):
    """A stored artifact, accepted, under the name that the user gave.

    Attributes:
        kind: Where artifacts of this kind are stored.
        table: Where `bitsynth list` lists them.
        note: A further line below that table.
        statement_count: How many statements Z3 proves, in words.
        claims: The count of claims of cost.
        scope: What follows "for every input" in the verdict.
        discharged: What was done to the statements that Z3 proved again.
        undischarged: The verdict on statements that were not proved again.
        left_out: The part of the verdict on those.
    """

    kind: ClassVar[ArtifactKind[Any, Any]]
    table: ClassVar[ListTable]
    note: ClassVar[str] = ""
    statement_count: str
    claims = "1 claim"
    scope = ""
    discharged = "discharged"
    undischarged = "on record"
    left_out = "the instruction lemmas were not discharged again"

    def __init__(self, name: str, proved: P) -> None:
        self.name, self.proved = name, proved

    @classmethod
    @abstractmethod
    def row(cls, record: R) -> ListRow:
        """Return the row of a record."""

    @property
    @abstractmethod
    def source(self) -> str:
        """The C source."""

    @abstractmethod
    def page(self) -> list[RenderableType]:
        """Return the page of `bitsynth show`."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the facts of the page, for JSON."""

    @abstractmethod
    def check(self) -> list[tuple[str, str, str]]:
        """Check the program without Z3; return label, subject and verdict of each line of the report."""

    @property
    @abstractmethod
    def proof(self) -> Proved[Any]:
        """The proof, whose statements Z3 proves again."""

    @abstractmethod
    def solve(self, rlimit: int | None, say: Progress) -> tuple[str, str]:
        """Search again for a cheaper artifact; return what was compared, and the verdict. Refuted if one is cheaper."""

    @abstractmethod
    def statements(self) -> dict[str, Any]:
        """Return the statements and claims of the certificate, for JSON."""
