"""Depthwise kernels on the command line."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.artifacts.artifact import (
    KERNELS,
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
from bitsynth.isa.step import to_builtins
from bitsynth.kernel.depthwise import DepthwiseProgram
from bitsynth.progress import Progress
from bitsynth.proof.proved import Proved
from bitsynth.store.depthwise import DEPTHWISE, DepthwiseEntry


class DepthwiseArtifact(NamedArtifact[DepthwiseEntry, Proved[DepthwiseProgram]]):
    """A depthwise kernel, whose composition is checked as it is loaded."""

    kind = DEPTHWISE
    table = KERNELS
    note = "bs_dw: depthwise, up to the widths in the name; figures are for a 3 x 3 window"

    def __init__(self, name: str, proved: Proved[DepthwiseProgram]) -> None:
        super().__init__(name, proved)
        self.statement_count = output.count(len(proved.obligations), "instruction lemma")

    @classmethod
    def row(cls, record: DepthwiseEntry) -> ListRow:
        """Return the row of a kernel, which claims neither a bound nor a largest K."""
        program, cost, method = record.program, record.cost, DEPTHWISE.name
        facts = {
            "isa": program.isa,
            "act_bits": program.act_bits,
            "w_bits": program.w_bits,
            "method": method,
            "ops_per_128_mac": cost.ops_per_128_mac,
            "lower_bound": None,
            "minimal": record.minimality,
            "cycles": dict(cost.cycles),
            "k_max": None,
        }
        before = (method, f"{cost.ops_per_128_mac:.2f}", "-", "yes" if record.minimality else "no")
        return ListRow(method, before, cost.cycles, ("-",), facts)

    @property
    def source(self) -> str:
        """The C source."""
        from bitsynth.emit.depthwise import DepthwiseSource

        return DepthwiseSource(self.proved).source

    def page(self) -> list[RenderableType]:
        """Return operands, step and flushes with the meaning of each instruction, cost and claim."""
        return _page(DEPTHWISE.record_of(self.proved))

    def facts(self) -> dict[str, Any]:
        """Return the entry, with programs step by step."""
        return _facts(DEPTHWISE.record_of(self.proved))

    def check(self) -> list[tuple[str, str, str]]:
        """Return the lemmas, which were checked as the kernel was loaded."""
        return [(lemma.partition(":")[0], "1 lemma", "checked") for lemma in self.proved.lemmas]

    @property
    def proof(self) -> Proved[Any]:
        """The proof of the kernel."""
        return self.proved

    def solve(self, rlimit: int | None, say: Progress) -> tuple[str, str]:
        """Enumerate the sketch again."""
        from bitsynth.schedule.depthwise import cheapest, method_of, ops

        program, isa = self.proved.artifact, load(self.proved.artifact.isa)
        best = cheapest(isa, program.act_bits, program.w_bits, method_of(program))
        if ops(isa, best) < ops(isa, program):
            raise Refuted(f"{program.name} is not the cheapest: one takes {ops(isa, best):g} instructions per 128 MAC")
        return self.claims, "solved again"

    def statements(self) -> dict[str, Any]:
        """Return lemmas, instruction lemmas and claims."""
        return {
            "lemmas": list(self.proved.lemmas),
            "instructions": list(self.proved.statements),
            "minimality": [DEPTHWISE.record_of(self.proved).minimality],
        }


def _description(program: DepthwiseProgram) -> str:
    return (
        f"depthwise, activations up to {program.act_bits} and weights up to {program.w_bits} bits to int32 sums, "
        f"{program.isa}: {program.unit} channels, {output.count(program.taps, 'tap')} a step"
    )


def _page(entry: DepthwiseEntry) -> list[RenderableType]:
    program, isa = entry.program, load(entry.program.isa)
    cycles = ", ".join(f"{cpu} {x:.2f}" for cpu, x in entry.cost.cycles.items())
    becoming = ", ".join(f"{a.name} {a.type} becomes {a.next}" for a in program.accs)
    parts: list[RenderableType] = [
        Text(entry.name, "bold"),
        _description(program),
        "",
        f"cost      {entry.cost.ops_per_128_mac:.2f} ops per 128 MAC of a 3 x 3 window",
        f"cycles    {cycles} per 128 MAC",
        f"claims    {entry.minimality}",
        f"proof     {len(entry.lemmas) + len(entry.instructions)} lemmas, any number of steps",
        f"operands  activations {_range_text(program.act)}, weights {_range_text(program.wgt)}",
        f"pixels    {program.pixels} at once",
        *steps_page(isa, "step", program.steps, becoming, "pixel"),
    ]
    for flush in program.flushes:
        parts += ["", f"sums of channels {runs_text(flush.order)}", *map(constant_text, flush.constants)]
        title = f"flush after at most {output.count(program.flush_every, 'step')}"
        parts += steps_page(isa, title, flush.steps, f"sums become {', '.join(flush.tile)}", "pixel")[1:]
    every = [*program.steps, *(s for flush in program.flushes for s in flush.steps)]
    return [*parts, "", heading("instructions"), legend(isa, every)]


def _range_text(ends: tuple[int, int]) -> str:
    return f"{ends[0]} to {ends[1]}"


def _facts(entry: DepthwiseEntry) -> dict[str, Any]:
    isa, facts = load(entry.program.isa), to_builtins(entry)
    facts["program"]["program"] = [step_facts(isa, s) for s in entry.program.steps]
    for flush, of_flush in zip(entry.program.flushes, facts["program"]["flushes"], strict=True):
        of_flush["program"] = [step_facts(isa, s) for s in flush.steps]
    return {**facts, "description": _description(entry.program)}
