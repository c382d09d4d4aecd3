"""`bitsynth isa`: list, show and check the declared instruction sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bitsynth import paths
from bitsynth.cli import output
from bitsynth.cli.options.instruction_sets import Bless, InstructionArgument, SetArgument, SetOrMnemonic
from bitsynth.cli.options.output import Json
from bitsynth.cli.output import require_writable
from bitsynth.conformance import check as isa_check
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa import load, tested
from bitsynth.isa.instr import Instr, Operand
from bitsynth.isa.load import Isa
from bitsynth.isa.tested import is_tested


def list_sets(as_json: Json = False) -> None:
    """List the instruction sets."""
    sets = [set_facts(load.load(name)) for name in load.names()]
    if as_json:
        output.write_json(sets)
        return
    table = output.table("name", "forms", "tested", "bits", "cpus", "what it is", right=("forms", "tested", "bits"))
    for f in sets:
        table.add_row(
            f["name"], str(f["forms"]), str(f["tested"]), str(f["vector_bits"]), ", ".join(f["cpus"]), f["doc"]
        )
    output.write(table)


def show(name: SetOrMnemonic, instruction: InstructionArgument = None, as_json: Json = False) -> None:
    """Show the instructions of a set, or where a mnemonic is declared.

    Each form of an instruction has its types, the meaning of a lane, its cost and whether it was tested. With the NAME
    of an instruction also its C text and mnemonics. For a mnemonic such as vpshufb the forms of all sets that compile
    to it.
    """
    if name not in load.names() and instruction is None:
        _show_mnemonic(name, as_json)
        return
    isa = load.load(name)
    chosen = _find_forms(isa, instruction) if instruction else list(isa.instrs.values())
    if as_json:
        output.write_json({**set_facts(isa), "instructions": [form_facts(i) for i in chosen]})
        return
    output.write(f"{isa.name}: {isa.table.doc}", *_cpus(isa), "cpu columns below: cycles of throughput (latency)")
    for _, forms in groupby(chosen, lambda i: (_instruction_name(i), i.feature)):
        output.write("", *_page(isa, list(forms), whole=bool(instruction)))


def _instruction_name(instr: Instr) -> str:
    """Return the name of the instruction, which its forms share."""
    return instr.name.rpartition(".")[0]


def _find_forms(isa: Isa, name: str) -> list[Instr]:
    """Return the form, or all forms of the instruction; SpecError if there is none."""
    return [i for i in isa.instrs.values() if name in (i.name, _instruction_name(i))] or [isa[name]]


def _show_mnemonic(mnemonic: str, as_json: bool) -> None:
    """Show the forms of all sets that compile to it; SpecError if there is none."""
    forms = [i for name in load.names() for i in load.load(name).instrs.values() if mnemonic.lower() in i.mnemonics]
    if not forms:
        known = ", ".join(load.names())
        raise SpecError(
            f"unknown instruction set or mnemonic {mnemonic!r}; known: {known}; `bitsynth isa show SET` lists "
            "instructions, with NAME of one their mnemonics"
        )
    if as_json:
        output.write_json([{"isa": i.isa, **form_facts(i)} for i in forms])
        return
    table = output.table("set", "form", "types", "C", "compiles to", whole=["set", "form"])
    for i in forms:
        table.add_row(i.isa, i.name, signature(i), i.text, " | ".join(i.mnemonics))
    output.write(table)


def set_facts(isa: Isa) -> dict[str, Any]:
    """Return facts of an instruction set, for JSON."""
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


def form_facts(instr: Instr) -> dict[str, Any]:
    """Return facts of an instruction form, for JSON."""
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
        "mnemonics": list(instr.mnemonics),
        "cost": {c: {"latency": x.latency, "per_cycle": x.per_cycle, "port": x.port} for c, x in instr.cost.items()},
        "tested": is_tested(instr),
    }


def _cpus(isa: Isa) -> list[str]:
    return [
        *(f"  {name}: {cpu.doc}" for name, cpu in isa.table.cpu.items()),
        *(f"  [{name}]: {feature.doc}" for name, feature in isa.table.features.items()),
        *(
            [f"  [matrices]: {isa.matrices.doc} A product repeats {isa.matrices.repeats}."]
            if isa.table.matrices
            else []
        ),
    ]


def _page(isa: Isa, forms: Sequence[Instr], whole: bool) -> Iterator[RenderableType]:
    """Yield an instruction and its forms, in columns as wide as the whole set needs; if `whole`, C text too."""
    every, cpus = list(isa.instrs.values()), list(isa.table.cpu)
    table = output.table("  form", "types", *cpus, "tested", right=cpus, whole=["  form", "tested"])
    table.columns[0].min_width = 2 + max(len(i.name) for i in every)
    for column, cpu in zip(table.columns[2:], cpus, strict=False):
        column.min_width = max(len(_price(i, cpu)) for i in every)
    for i in forms:
        tested = Text("yes", "green") if is_tested(i) else Text("no", "red")
        table.add_row(f"  {i.name}", signature(i), *(_price(i, cpu) for cpu in cpus), tested)
    feature = f" [{forms[0].feature}]" if forms[0].feature else ""
    yield Text.assemble((_instruction_name(forms[0]), "bold"), f"{feature}  {forms[0].doc}")
    yield f"  lane i is {forms[0].lane}"
    yield table
    if whole:
        yield from _c_texts(forms)


def _c_texts(forms: Sequence[Instr]) -> Iterator[RenderableType]:
    """Yield the C text of the forms and the mnemonics that they compile to."""
    table = output.table("  form", "C", "compiles to", whole=["  form"])
    for i in forms:
        table.add_row(f"  {i.name}", i.text, " | ".join(i.mnemonics))
    yield from ("", table)


def _price(instr: Instr, cpu: str) -> str:
    cost = instr.cost.get(cpu)
    return f"{1 / cost.per_cycle:.3g} ({cost.latency:g})" if cost else "none"


def _operand(operand: Operand) -> str:
    return f"*{operand.type!s}" if operand.memory else str(operand.type)


def signature(instr: Instr) -> str:
    """Return operand types and result, as in `acc u16x8, a u8x16 -> u16x8`."""
    operands = [f"{o.name} {_operand(o)}" for o in instr.operands]
    immediate = [f"#{instr.imm[0]} {instr.imm[1]}..{instr.imm[2]}"] if instr.imm else []
    return f"{', '.join(operands + immediate)} -> {'memory' if instr.store else instr.out!s}"


def check(name: SetArgument, bless: Bless = False, as_json: Json = False) -> None:
    """Compare every declared instruction with the processor's own.

    Every form of an instruction runs on sampled inputs, on this processor or under emulation.
    """
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
        "a wrong value at other inputs is not found",
        f"checked     {passed} of {output.count(len(report.results), 'form')} as declared, "
        f"{cases:,} immediates, {inputs:,} inputs",
        f"by          {report.by}",
    )


def _by_coverage(report: isa_check.CheckReport) -> dict[str, list[str]]:
    """Return the forms by how their inputs were covered, in words; exhaustive coverage comes first."""
    by_coverage: dict[str, list[str]] = {}
    for coverage, form in sorted((r.coverage, r.form) for r in report.results if r.coverage):
        by_coverage.setdefault(str(coverage), []).append(form)
    return by_coverage


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
