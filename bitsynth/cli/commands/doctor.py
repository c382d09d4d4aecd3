"""`bitsynth doctor`: list the tools that were found and the tools that are missing."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.options.output import Json

if TYPE_CHECKING:
    from bitsynth.cli.checks import Finding


def doctor(as_json: Json = False) -> None:
    """Show which tools are found or missing, and what runs here."""
    with _without_blas_threads():
        from bitsynth.cli.checks import OTHER_PROCESSORS, concerns, examine

    with output.progress("doctor") as say:
        say("compiling and running a probe")
        report = examine()
    if as_json:
        output.write_json(
            {
                "ok": report.ok,
                "findings": [{**dataclasses.asdict(f), "ok": f.ok} for f in report.findings],
                "verdicts": [dataclasses.asdict(v) for v in report.verdicts],
            }
        )
        return
    for group, findings in groupby((f for f in report.findings if f.group != OTHER_PROCESSORS), lambda f: f.group):
        output.write(Text(group, "bold"), _table(list(findings)), "")
    for v in filter(concerns, report.verdicts):
        output.write(Text(str(v), "red" if v.run == "cannot" else "green"))


@contextmanager
def _without_blas_threads() -> Iterator[None]:
    """Have numpy start no threads if this block imports it: they take longer than the import, and none is needed."""
    variable = "OPENBLAS_NUM_THREADS"
    if variable in os.environ:
        yield
        return
    os.environ[variable] = "1"
    try:
        yield
    finally:
        del os.environ[variable]


def _table(findings: list[Finding]) -> Table:
    """Return a table with a row for each finding, and a line for each of several versions."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for f in findings:
        missing = Text(f"missing: {f.advice} ({f.purpose})" if f.advice else "missing", "yellow")
        table.add_row(f"  {f.name}", Text("\n".join(f.found.split("; "))) if f.ok else missing)
    return table
