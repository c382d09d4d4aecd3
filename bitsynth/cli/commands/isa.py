"""`bitsynth isa`: the instruction sets as declared, and whether they are the machine's."""

from __future__ import annotations

from typing import Any

import typer
from rich.text import Text

from bitsynth import paths
from bitsynth.cli import output
from bitsynth.cli.commands import isa_show
from bitsynth.cli.commands.isa_show import set_facts
from bitsynth.cli.files import require_writable
from bitsynth.cli.options.instruction_sets import Bless, SetArgument
from bitsynth.cli.options.output import Json
from bitsynth.cli.register import command
from bitsynth.conformance import check as isa_check
from bitsynth.errors import Refuted
from bitsynth.isa import load, tested

app = typer.Typer(invoke_without_command=True, help="List, show and check instruction sets.")


@app.callback()
def start(ctx: typer.Context) -> None:
    """List, show and check instruction sets."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@command(app, "list")
def list_sets(as_json: Json = False) -> None:
    """List the instruction sets."""
    found = [set_facts(load.load(name)) for name in load.names()]
    if as_json:
        output.write_json(found)
        return
    table = output.table("name", "forms", "tested", "bits", "cpus", "what it is", right=("forms", "tested", "bits"))
    for f in found:
        table.add_row(
            f["name"], str(f["forms"]), str(f["tested"]), str(f["vector_bits"]), ", ".join(f["cpus"]), f["doc"]
        )
    output.write(table)


command(app, "show")(isa_show.show)


@command(app, "check")
def check(name: SetArgument, bless: Bless = False, as_json: Json = False) -> None:
    """Compare every form with the instruction itself, natively or under emulation."""
    isa = load.load(name)
    if bless:
        require_writable(paths.isa_folder(name), tested.ADVICE)
    with output.progress(f"check {name}") as say:
        say("compiling")
        report = isa_check.check_isa(isa, say)
    record = isa_check.bless(isa, report) if bless and report.passed else None
    if as_json:
        output.write_json(_report_facts(report, str(record) if record else None))
    else:
        _print_report(report)
        if record:
            output.write(Text(f"wrote       {record}"))
    if not report.passed:
        raise Refuted(
            f"{name}: {len(report.failures)} of {len(report.results)} forms are not as declared"
            f"{'; nothing was recorded' if bless else ''}"
        )


def _print_report(report: isa_check.CheckReport) -> None:
    for failure in report.failures:
        output.write(Text(str(failure), "red"))
    cases, inputs = (sum(getattr(r, what) for r in report.results) for what in ("cases", "inputs"))
    passed = len(report.results) - len(report.failures)
    for covered, forms in _by_coverage(report).items():
        output.write(f"{covered}: {output.count(len(forms), 'form')}", f"  {', '.join(forms)}", "")
    output.write(
        "landmarks   powers of two, their neighbours, and the negations of all these; "
        "a wrong value outside of what is sampled is not found",
        f"checked     {passed} of {output.count(len(report.results), 'form')} as declared, "
        f"{cases:,} immediates, {inputs:,} inputs",
        f"by          {report.by}",
    )


def _by_coverage(report: isa_check.CheckReport) -> dict[str, list[str]]:
    """The forms of each coverage, in words; the exhaustive ones first."""
    found: dict[str, list[str]] = {}
    for coverage, form in sorted((r.coverage, r.form) for r in report.results if r.coverage):
        found.setdefault(str(coverage), []).append(form)
    return found


def _report_facts(report: isa_check.CheckReport, record: str | None) -> dict[str, Any]:
    return {
        "isa": report.isa,
        "passed": report.passed,
        "by": report.by,
        "forms": len(report.results),
        "inputs": sum(r.inputs for r in report.results),
        "coverage": _by_coverage(report),
        "failures": [
            {"form": f.form, "immediate": f.imm, "input": f.args, "got": f.got, "want": f.want} for f in report.failures
        ],
        "record": record,
    }
