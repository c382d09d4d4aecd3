"""`bitsynth doctor`: the tools that are here and those that are missing."""

from __future__ import annotations

import dataclasses

from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.options import Json


def doctor(as_json: Json = False) -> None:
    """Say which tools were found, what is missing, and what can be run here."""
    from bitsynth.cli.checks import examine

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
    table = output.table("", "found", "for")
    for f in report.findings:
        found = (
            Text(f.found.replace("; ", "\n"))
            if f.ok
            else Text(f"missing: {f.advice}" if f.advice else "missing", "yellow")
        )
        table.add_row(f.name, found, f.purpose)
    output.write(table, "")
    for v in report.verdicts:
        output.write(Text(str(v), "red" if v.run == "cannot" else "green"))
