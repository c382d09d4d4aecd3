"""Elementwise programs on the command line."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.artifacts.artifact import (
    PROGRAMS,
    ListRow,
    NamedArtifact,
    constant_text,
    heading,
    legend,
    runs_text,
    step_facts,
    steps_page,
)
from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.isa.step import Step, to_builtins
from bitsynth.kernel.elementwise.program import ElementLoop, ElementwiseProgram, names
from bitsynth.progress import Progress
from bitsynth.proof.elementwise import checker
from bitsynth.proof.proved import Proved
from bitsynth.spec.elementwise import ElementInput
from bitsynth.store.elementwise import ELEMENTWISE, ProgramEntry


class ElementwiseArtifact(NamedArtifact[ProgramEntry, Proved[ElementwiseProgram]]):
    """An elementwise program, which is run on concrete elements and proved as a whole."""

    kind = ELEMENTWISE
    table = PROGRAMS
    discharged = "proved"
    left_out = "the results were not proved again"

    def __init__(self, name: str, proved: Proved[ElementwiseProgram]) -> None:
        super().__init__(name, proved)
        self.statement_count = output.count(proved.artifact.unit, "result")

    @classmethod
    def row(cls, record: ProgramEntry) -> ListRow:
        """Return the row of a program. Instructions are counted for a unit, with all iterations of its loop."""
        program, loop = record.program, record.program.loop
        instructions = len(program.steps) + (len(loop.steps) * program.spec.inputs[-1].count if loop else 0)
        facts = {
            "isa": program.isa,
            "method": ELEMENTWISE.name,
            "unit": program.unit,
            "instructions": instructions,
            "cycles": record.cycles,
        }
        return ListRow(ELEMENTWISE.name, (str(program.unit), str(instructions)), record.cycles, (), facts)

    @property
    def source(self) -> str:
        """The C source."""
        from bitsynth.emit.elementwise import source

        return source([self.proved.artifact])

    def page(self) -> list[RenderableType]:
        """Return inputs, and the program with the meaning of each instruction, its meaning and cost."""
        return _page(ELEMENTWISE.record_of(self.proved))

    def facts(self) -> dict[str, Any]:
        """Return the entry, with programs step by step."""
        return _facts(ELEMENTWISE.record_of(self.proved))

    def check(self) -> list[tuple[str, str, str]]:
        """Run the program on many elements."""
        elements = checker.check(self.proved.artifact, checker.VERIFIED)
        return [("concrete", f"{elements:,} elements", "checked")]

    @property
    def proof(self) -> Proved[Any]:
        """The proof of the program."""
        return self.proved

    def solve(self, rlimit: int | None, say: Progress) -> tuple[str, str]:
        """Price the alternatives of the sketch again."""
        from bitsynth.schedule.price import rank
        from bitsynth.synth.elementwise import alternatives

        program = self.proved.artifact
        programs = list(alternatives(program.isa, program.spec))
        if any(rank(other) < rank(program) for other in programs):
            raise Refuted(f"{program.name} is not the cheapest of its sketch; delete its file, and that one is found")
        return output.count(len(programs), "alternative"), "none is cheaper"

    def statements(self) -> dict[str, Any]:
        """Return the statement on results, and the statements on instructions."""
        return {"lemmas": [self.proved.statements[0]], "instructions": list(self.proved.statements[1:])}


def _description(program: ElementwiseProgram) -> str:
    out = program.spec.out
    results = f"words of {output.count(program.spec.planes, 'plane')}" if out == "words" else out
    return f"elementwise, {results}, {program.isa}: {program.unit} channels a unit"


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
        parts += _loop_page(program, program.loop)
    results = f"results are {', '.join(program.results)}"
    parts += steps_page(isa, "last" if program.loop else "program", program.steps, results, "unit")
    return [*parts, "", heading("instructions"), legend(isa, [*program.steps, *_loop_steps(program)])]


def _input(program: ElementwiseProgram, input_: ElementInput, order: tuple[int, ...]) -> str:
    registers = names(program, input_)
    span = registers[0][0] if registers[0][0] == registers[-1][-1] else f"{registers[0][0]}..{registers[-1][-1]}"
    kind = f"{input_.type}[{input_.count}]" if input_.count else input_.type
    channels = f", channels {runs_text(order)}" if order else ""
    return f"  {input_.name} {kind} of {'each ' if input_.per != 'all' else ''}{input_.per}: {span}{channels}"


def _loop_page(program: ElementwiseProgram, loop: ElementLoop) -> list[RenderableType]:
    over = program.spec.inputs[-1]
    becoming = f"x0 starts as {loop.start} and becomes {', '.join(loop.next)}, of channels {runs_text(loop.order)}"
    return steps_page(load(program.isa), "loop", _loop_steps(program), becoming, f"value of {over.name}")


def _loop_steps(program: ElementwiseProgram) -> list[Step]:
    return [*program.loop.steps] if program.loop else []


def _facts(entry: ProgramEntry) -> dict[str, Any]:
    isa, facts = load(entry.program.isa), to_builtins(entry)
    facts["program"]["program"] = [step_facts(isa, s) for s in entry.program.steps]
    if entry.program.loop:
        facts["program"]["loop"]["program"] = [step_facts(isa, s) for s in _loop_steps(entry.program)]
    return {**facts, "description": _description(entry.program)}
