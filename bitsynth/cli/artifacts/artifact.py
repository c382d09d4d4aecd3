"""A stored artifact on the command line, of any kind.

`bitsynth show` writes its page, its facts or its C, `bitsynth verify` checks its certificate, `bitsynth list` writes a
row for it. The commands ask for these by the methods below, whatever the kind; `table.py` has the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from rich.console import RenderableType

from bitsynth.progress import Progress
from bitsynth.proof.proved import Proved
from bitsynth.store.artifacts import ArtifactKind, P, R


@dataclass(frozen=True)
class ListTable:
    """A table of `bitsynth list`, shared by the kinds of the same columns.

    Attributes:
        title: The heading of names.
        before: Columns before those of processors; `right` are the ones with numbers.
        after: Columns behind those of processors.
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
        "figures are those in the files; --check computes them again",
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
