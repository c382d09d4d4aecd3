"""`bitsynth explore`: which method wins at which widths, and where int8 does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from bitsynth.cli import figures, output
from bitsynth.errors import SpecError
from bitsynth.isa.load import load

_Isa = Annotated[str, typer.Option("--isa", help="Instruction set; `bitsynth isa list` shows them.")]
_Cpu = Annotated[str, typer.Option("--cpu", help="Processor of the set.", show_default="the set's first")]
_ActBits = Annotated[str, typer.Option("--act-bits", metavar="BITS", help="Bits of activations, such as 1-4 or 1,2.")]
_WBits = Annotated[str, typer.Option("--w-bits", metavar="BITS", help="Bits of weights, up to 8.")]
_JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write every plan to FILE.", show_default=False)
]
_Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes to plan in.", show_default="one a core")]


def explore(
    isa: _Isa,
    cpu: _Cpu = "",
    act_bits: _ActBits = "1-8",
    w_bits: _WBits = "1-4",
    json_file: _JsonFile = None,
    plot: figures.Plot = None,
    jobs: _Jobs = None,
) -> None:
    """Map which method wins at which widths, and where int8 is faster.

    For every pair of widths the cheapest kernel of every method, in the processor's cycles as the cost model has
    them: planned, not proved, and not kept. It is compared with int8 and fp32 loops at the processor's peak.
    """
    load(isa)
    bits = _bits("--act-bits", act_bits), _bits("--w-bits", w_bits)
    figures.require(json_file, plot=plot)
    with output.progress(f"explore {isa}", bar=True) as say:
        say("starting the solver")
        from bitsynth.cli import explore_report
        from bitsynth.synth.survey import survey

        def progress(done: int, total: int) -> None:
            say(f"{done} of {total} plans", done, total)

        basis = explore_report.basis([isa])
        found = survey(isa, cpu, *bits, workers=jobs, progress=progress)
    explore_report.show(found)
    if json_file:
        figures.write(json_file, explore_report.as_json([found], basis))
    if plot:
        from bitsynth.bench.plots.survey import draw

        draw([found], plot)


def _bits(option: str, text: str) -> list[int]:
    """The numbers in `1-4` or `1,2`; SpecError for anything but 1 to 8."""
    out: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([1-8])(?:-([1-8]))?", part, re.ASCII)
        if not match or int(match[1]) > int(match[2] or 8):
            raise SpecError(f"{option}: want bits from 1 to 8, such as 1-4 or 1,2, not {text!r}")
        out |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(out)
