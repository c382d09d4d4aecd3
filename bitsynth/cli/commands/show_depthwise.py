"""`bitsynth show` of a depthwise kernel: its step, and its flush to each order of channels."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.reports.program_page import constant_text, heading, legend, runs_text, step_facts, steps_page
from bitsynth.emit.depthwise import DepthwiseSource
from bitsynth.isa.load import load
from bitsynth.kernel.depthwise import DepthwiseProgram
from bitsynth.store.depthwise import DepthwiseEntry, load_proved, named, read_entry


def show_depthwise(name: str, *, c: bool, as_json: bool) -> None:
    """Show the stored kernel `name`: its page, or its `c`, or the facts."""
    proved, entry = load_proved(named(name)), read_entry(named(name))
    if c and as_json:
        output.write_json({"name": name, "source": DepthwiseSource(proved).source})
    elif c:
        sys.stdout.write(DepthwiseSource(proved).source)
    elif as_json:
        output.write_json(_facts(entry))
    else:
        output.write(*_page(entry))


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
        f"operands  activations {_span(program.act)}, weights {_span(program.wgt)}",
        f"pixels    {program.pixels} at once",
        *steps_page(isa, "step", program.steps, becoming, "pixel"),
    ]
    for flush in program.flushes:
        parts += ["", f"sums of channels {runs_text(flush.order)}", *map(constant_text, flush.constants)]
        title = f"flush after at most {output.count(program.flush_every, 'step')}"
        parts += steps_page(isa, title, flush.steps, f"sums become {', '.join(flush.tile)}", "pixel")[1:]
    every = [*program.steps, *(s for flush in program.flushes for s in flush.steps)]
    return [*parts, "", heading("instructions"), legend(isa, every)]


def _span(ends: tuple[int, int]) -> str:
    return f"{ends[0]} to {ends[1]}"


def _facts(entry: DepthwiseEntry) -> dict[str, Any]:
    isa, facts = load(entry.program.isa), msgspec.to_builtins(entry)
    facts["program"]["program"] = [step_facts(isa, s) for s in entry.program.steps]
    for flush, of_flush in zip(entry.program.flushes, facts["program"]["flushes"], strict=True):
        of_flush["program"] = [step_facts(isa, s) for s in flush.steps]
    return {**facts, "description": _description(entry.program)}
