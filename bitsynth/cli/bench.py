"""`bitsynth bench`: how fast what was proved is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from bitsynth import cache
from bitsynth.cli import bench_report, output
from bitsynth.cli.files import require_writable
from bitsynth.errors import SpecError, ToolError
from bitsynth.files import replace_file
from bitsynth.isa import load

app = typer.Typer(invoke_without_command=True, help="Measure kernels.")
_ADVICE = "name another file"

_Sets = Annotated[
    str,
    typer.Option(
        "--isa", metavar="SETS", help="Instruction sets, such as avx2,neon.", show_default="all that run here"
    ),
]
_ActBits = Annotated[
    str, typer.Option("--act-bits", metavar="BITS", help="Only these bits, such as 1,2.", show_default="all")
]
_WBits = Annotated[
    str, typer.Option("--w-bits", metavar="BITS", help="Only these bits, such as 1,2.", show_default="all")
]
_JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write every figure to FILE.", show_default=False)
]
_Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="PREFIX", help="Write PREFIX.png and PREFIX.svg.", show_default=False)
]
_Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Samples of every kernel and baseline.")]


@app.callback()
def start(ctx: typer.Context) -> None:
    """Measure kernels."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@app.command("kernels")
def kernels(
    isa: _Sets = "",
    act_bits: _ActBits = "",
    w_bits: _WBits = "",
    json_file: _JsonFile = None,
    plot: _Plot = None,
    repeats: _Repeats = 31,
) -> None:
    """Measure every cached kernel beside hand-written fp32 and int8 loops.

    One tile whose operands stay in L1, on one core, packing excluded, K = 576 where it fits. All are measured in
    turn in one process: medians of CPU time; IQR is the distance of the quartiles. Where this processor cannot run
    a set it is emulated and its instructions are counted, which tells no time. Cycles and instructions are per 128
    multiply-accumulates, beside what the cost model says.

    Exit code 2 where a cached file is broken, 4 where a kernel cannot be compiled or run; the others are measured.
    """
    sets = _sets(isa)
    bits = _bits("--act-bits", act_bits), _bits("--w-bits", w_bits)
    _require(json_file, plot)
    from bitsynth.bench import found
    from bitsynth.bench.kernels import measure

    chosen = [found.find(name, *bits) for name in sets]
    reports = []
    for some in chosen:
        with output.progress(f"bench {some.isa}", bar=True) as say:
            reports.append(measure(some, repeats, say))
        bench_report.show(reports[-1])
    if json_file:
        replace_file(json_file, bench_report.as_json(reports), _ADVICE)
    if plot:
        from bitsynth.bench import plot as plotting

        plotting.draw(reports, plot)
    problems = [p for r in reports for p in r.problems]
    if problems:
        raise type(problems[0])(f"left out {output.count(len(problems), 'kernel')}: {problems[0]}")


def _sets(text: str) -> list[str]:
    """The instruction sets named, or those with kernels that this processor runs; SpecError for others."""
    if text:
        return [load.load(name).name for name in dict.fromkeys(text.split(","))]
    from bitsynth.build import host

    homes = cache.folders()
    cached = [name for name in load.names() if any(any(home.glob(f"{name}/**/bs_mm_*.json")) for home in homes)]
    here = [name for name in cached if host.matches(load.load(name).table)]
    if not here:
        raise SpecError(f"this processor runs none of {', '.join(cached)}; name one to be emulated with --isa")
    return here


def _bits(option: str, text: str) -> set[int]:
    """The numbers in `1,2`; SpecError for anything but 1 to 8."""
    parts = text.split(",") if text else []
    if not all(p in "12345678" and len(p) == 1 for p in parts):
        raise SpecError(f"{option}: want bits from 1 to 8, such as 1,2, not {text!r}")
    return set(map(int, parts))


def _require(json_file: Path | None, plot: Path | None) -> None:
    """ToolError now for what would be missing after the measuring."""
    for package in ("scipy", *(["matplotlib"] if plot else [])):
        if importlib.util.find_spec(package) is None:
            raise ToolError(f"the package {package} is not installed: pip install 'bitsynth[bench]'")
    for path in filter(None, (json_file, plot)):
        require_writable(path.parent, _ADVICE)
    if json_file and json_file.is_dir():
        raise ToolError(f"{json_file} is a folder; {_ADVICE}")
