"""`bitsynth show` of an elementwise program: its meaning, its inputs and its steps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.reports.program_page import constant_text, heading, legend, runs_text, step_facts, steps_page
from bitsynth.emit.elementwise import source
from bitsynth.isa.load import load
from bitsynth.isa.step import Step
from bitsynth.kernel.elementwise.program import ElementLoop, ElementwiseProgram, names
from bitsynth.spec.elementwise import ElementInput
from bitsynth.store.elementwise import ProgramEntry, load_program, read_entry


def show_elementwise(path: Path, *, c: bool, as_json: bool) -> None:
    """Show the program stored in `path`: its page, or its `c`, or the facts."""
    program, entry = load_program(path).program, read_entry(path)
    if c and as_json:
        output.write_json({"name": entry.name, "source": source([program])})
    elif c:
        sys.stdout.write(source([program]))
    elif as_json:
        output.write_json(_facts(entry))
    else:
        output.write(*_page(entry))


def _description(program: ElementwiseProgram) -> str:
    out = program.spec.out
    made = f"words of {output.count(program.spec.planes, 'plane')}" if out == "words" else out
    return f"elementwise, {made}, {program.isa}: {program.unit} channels a unit"


def _page(entry: ProgramEntry) -> list[RenderableType]:
    program, isa = entry.program, load(entry.program.isa)
    cycles = ", ".join(f"{cpu} {x:.2f}" for cpu, x in entry.cycles.items())
    parts: list[RenderableType] = [
        Text(entry.name, "bold"),
        _description(program),
        "",
        f"meaning   {program.spec.meaning}",
        *(f"given     {text}" for text in program.spec.assumes),
        f"cycles    {cycles} a unit" if cycles else "cycles    no processor of the tables has all instructions",
        f"proof     {output.count(len(entry.statements), 'statement')}, of every value of the inputs",
        "",
        heading("inputs"),
        *(_input(program, x, order) for x, order in zip(program.spec.inputs, program.orders, strict=True)),
        *map(constant_text, program.constants),
    ]
    if program.loop:
        parts += _turns(program, program.loop)
    results = f"results are {', '.join(program.results)}"
    parts += steps_page(isa, "last" if program.loop else "program", program.steps, results, "unit")
    return [*parts, "", heading("instructions"), legend(isa, [*program.steps, *_loop_steps(program)])]


def _input(program: ElementwiseProgram, one: ElementInput, order: tuple[int, ...]) -> str:
    registers = names(program, one)
    span = registers[0][0] if registers[0][0] == registers[-1][-1] else f"{registers[0][0]}..{registers[-1][-1]}"
    kind = f"{one.type}[{one.count}]" if one.count else one.type
    channels = f", channels {runs_text(order)}" if order else ""
    return f"  {one.name} {kind} of {'each ' if one.per != 'all' else ''}{one.per}: {span}{channels}"


def _turns(program: ElementwiseProgram, loop: ElementLoop) -> list[RenderableType]:
    over = program.spec.inputs[-1]
    becoming = f"x0 starts as {loop.start} and becomes {', '.join(loop.next)}, of channels {runs_text(loop.order)}"
    return steps_page(load(program.isa), "loop", _loop_steps(program), becoming, f"value of {over.name}")


def _loop_steps(program: ElementwiseProgram) -> list[Step]:
    return [Step.parse(line) for line in program.loop.program] if program.loop else []


def _facts(entry: ProgramEntry) -> dict[str, Any]:
    isa, facts = load(entry.program.isa), msgspec.to_builtins(entry)
    facts["program"]["program"] = [step_facts(isa, s) for s in entry.program.steps]
    if entry.program.loop:
        facts["program"]["loop"]["program"] = [step_facts(isa, s) for s in _loop_steps(entry.program)]
    return {**facts, "description": _description(entry.program)}
