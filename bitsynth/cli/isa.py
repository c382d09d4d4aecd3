"""`bitsynth isa`: the instruction sets as declared, and whether they are the machine's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bitsynth import paths
from bitsynth.cli import output
from bitsynth.cli.files import require_writable
from bitsynth.cli.options import IsaName, Json
from bitsynth.conformance import check as isa_check
from bitsynth.errors import Refuted
from bitsynth.isa import load
from bitsynth.isa.instr import Instr, Operand
from bitsynth.isa.load import Isa
from bitsynth.isa.tested import is_tested

app = typer.Typer(invoke_without_command=True, help="List, show and check instruction sets.")
Bless = Annotated[bool, typer.Option("--bless", help="Record that every form passed, so that synthesis may use it.")]


@app.callback()
def start(ctx: typer.Context) -> None:
    """List, show and check instruction sets."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@app.command("list")
def list_sets(as_json: Json = False) -> None:
    """List the instruction sets."""
    found = [_facts(load.load(name)) for name in load.names()]
    if as_json:
        output.write_json(found)
        return
    table = output.table("name", "forms", "tested", "bits", "cpus", "what it is", right=("forms", "tested", "bits"))
    for f in found:
        table.add_row(
            f["name"], str(f["forms"]), str(f["tested"]), str(f["vector_bits"]), ", ".join(f["cpus"]), f["doc"]
        )
    output.write(table)


def _facts(isa: Isa) -> dict[str, Any]:
    return {
        "name": isa.name,
        "doc": isa.table.doc,
        "vector_bits": isa.table.vector_bits,
        "registers": isa.table.registers,
        "cpus": list(isa.table.cpu),
        "features": list(isa.table.features),
        "forms": len(isa.instrs),
        "tested": sum(map(is_tested, isa.instrs.values())),
    }


@app.command("show")
def show(name: IsaName, as_json: Json = False) -> None:
    """Show every instruction form: types, what a lane becomes, cost, and whether it is tested."""
    isa = load.load(name)
    if as_json:
        output.write_json({**_facts(isa), "instructions": [form_facts(i) for i in isa.instrs.values()]})
        return
    output.write(f"{isa.name}: {isa.table.doc}", *_cpus(isa), "cpu columns below: cycles of throughput (latency)")
    for _, forms in groupby(isa.instrs.values(), lambda i: i.name.rpartition(".")[0]):
        output.write("", *_instruction(isa, list(forms)))


def _cpus(isa: Isa) -> list[str]:
    return [
        *(f"  {name}: {cpu.doc}" for name, cpu in isa.table.cpu.items()),
        *(f"  [{name}]: {feature.doc}" for name, feature in isa.table.features.items()),
    ]


def form_facts(instr: Instr) -> dict[str, Any]:
    """One form, for JSON."""
    return {
        "name": instr.name,
        "doc": instr.doc,
        "feature": instr.feature or None,
        "instructions": instr.instructions,
        "in": {o.name: _operand(o) for o in instr.operands},
        "out": str(instr.out),
        "immediate": list(instr.imm) if instr.imm else None,
        "lane": instr.lane,
        "c": instr.text,
        "cost": {c: {"latency": x.latency, "per_cycle": x.per_cycle, "port": x.port} for c, x in instr.cost.items()},
        "tested": is_tested(instr),
    }


def _instruction(isa: Isa, forms: Sequence[Instr]) -> list[RenderableType]:
    """An instruction and its forms, in columns that are the same for all of the set."""
    every, cpus = list(isa.instrs.values()), list(isa.table.cpu)
    table = output.table("  form", "types", *cpus, "tested", right=cpus, whole=["  form", "tested"])
    table.columns[0].min_width = 2 + max(len(i.name) for i in every)
    for column, cpu in zip(table.columns[2:], cpus, strict=False):
        column.min_width = max(len(_price(i, cpu)) for i in every)
    for i in forms:
        tested = Text("yes", "green") if is_tested(i) else Text("no", "red")
        table.add_row(f"  {i.name}", signature(i), *(_price(i, cpu) for cpu in cpus), tested)
    name = forms[0].name.rpartition(".")[0]
    feature = f" [{forms[0].feature}]" if forms[0].feature else ""
    return [Text.assemble((name, "bold"), f"{feature}  {forms[0].doc}"), f"  lane i is {forms[0].lane}", table]


def _price(instr: Instr, cpu: str) -> str:
    cost = instr.cost.get(cpu)
    return f"{1 / cost.per_cycle:.3g} ({cost.latency:g})" if cost else "none"


def _operand(operand: Operand) -> str:
    return f"*{operand.type!s}" if operand.memory else str(operand.type)


def signature(instr: Instr) -> str:
    """Operand types and result, `acc u16x8, a u8x16 -> u16x8`."""
    operands = [f"{o.name} {_operand(o)}" for o in instr.operands]
    immediate = [f"#{instr.imm[0]} {instr.imm[1]}..{instr.imm[2]}"] if instr.imm else []
    return f"{', '.join(operands + immediate)} -> {'memory' if instr.store else instr.out!s}"


@app.command("check")
def check(name: IsaName, bless: Bless = False, as_json: Json = False) -> None:
    """Compare every form with the instruction itself, natively or under emulation."""
    isa = load.load(name)
    if bless:
        require_writable(paths.isa_specs() / name)
    with output.progress(f"check {name}") as say:
        say("compiling")
        report = isa_check.check_isa(isa, lambda done, total: say(f"{done:,} of {total:,} cases"))
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
