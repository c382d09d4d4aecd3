"""`bitsynth bench`: how fast what was proved is."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bitsynth.cli import bench_report, figures, output
from bitsynth.errors import SpecError
from bitsynth.isa import load
from bitsynth.store import kernels as store

app = typer.Typer(invoke_without_command=True, help="Measure kernels and layers.")

if TYPE_CHECKING:
    from bitsynth.bench.layers import Report
    from bitsynth.bench.setting import Basis

_Widths = tuple[int, int]
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
_Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Samples of every kernel and baseline.")]


_LayerSets = Annotated[
    str,
    typer.Option(
        "--isa",
        metavar="SETS",
        help="Instruction sets, such as avx2.",
        show_default="all that run here; of a board its first",
    ),
]
_LayerActBits = Annotated[str, typer.Option("--act-bits", metavar="BITS", help="Bits of activations, such as 1,2.")]
_LayerWBits = Annotated[str, typer.Option("--w-bits", metavar="BITS", help="Bits of weights, such as 1,2.")]
_Threads = Annotated[int, typer.Option("--threads", min=1, help="Threads of a layer and of every peer.")]
_Baselines = Annotated[str, typer.Option("--baseline", metavar="PACKAGES", help="Packages to measure against.")]
_Layers = Annotated[
    str | None, typer.Option("--layers", metavar="NAMES", help="Only these layers, such as C2,C6.", show_default="all")
]
_Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Samples of every layer.")]
_CsvFile = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write a line a figure to FILE.", show_default=False)
]
_Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="HOST", help="Measure on this host, by ssh, such as pi@board.", show_default=False
    ),
]
_DeviceRunner = Annotated[str, typer.Option("--device-runner", hidden=True, help="What runs programs there.")]
_REPEATS = 5
"""Calls of a burst, of which the fastest counts."""


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
    plot: figures.Plot = None,
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
    bits = _bits("--act-bits", act_bits) if act_bits else [], _bits("--w-bits", w_bits) if w_bits else []
    figures.require(json_file, plot=plot, packages=["scipy"])
    from bitsynth.bench import cached as cached_kernels
    from bitsynth.bench.kernels import measure

    chosen = [cached_kernels.find(name, *bits) for name in sets]
    basis, reports = bench_report.basis(chosen), []
    for some in chosen:
        with output.progress(f"bench {some.isa}", bar=True) as say:
            reports.append(measure(some, repeats, say))
        bench_report.show(reports[-1])
    if json_file:
        figures.write(json_file, bench_report.as_json(reports, basis))
    if plot:
        from bitsynth.bench.plots import kernels as plotting

        plotting.draw(reports, plot)
    problems = [p for r in reports for p in r.problems]
    if problems:
        raise type(problems[0])(f"left out {output.count(len(problems), 'kernel')}: {problems[0]}")


@app.command("resnet18")
def resnet18(
    isa: _LayerSets = "",
    act_bits: _LayerActBits = "1,2",
    w_bits: _LayerWBits = "1",
    threads: _Threads = 1,
    baseline: _Baselines = "torch,onnxruntime",
    layers: _Layers = None,
    rounds: _Rounds = 11,
    json_file: _JsonFile = None,
    csv_file: _CsvFile = None,
    plot: figures.Plot = None,
    device: _Device = None,
    device_runner: _DeviceRunner = "",
) -> None:
    """Measure the convolutions of ResNet-18 beside fp32 and int8 of PyTorch and ONNX Runtime.

    The eleven layers of CGO 2020's Table 1, batch 1, seeded random weights, packing of activations included and
    also shown by itself. All take turns, layer by layer and round by round, on as many threads each; a ratio is the
    median of the rounds' ratios. On avx2 the peers are kept from wider instructions, or left out where they cannot be.

    With --device the layers are compiled here, checked and timed there, beside a float convolution of bitsynth's own
    and ONNX Runtime where it is installed.
    """
    from bitsynth.bench.resnet18 import LAYERS, named

    names = [layer.name for layer in (LAYERS if layers is None else named(layers))]
    widths = list(product(_bits("--act-bits", act_bits), _bits("--w-bits", w_bits)))
    packages = baseline.split(",") if baseline else []
    figures.require(json_file, csv_file, plot=plot)
    from bitsynth.bench.peers.start import require_known
    from bitsynth.cli import layers_report

    require_known(packages)
    if device is not None:
        reports, basis = _on_board(
            device, device_runner, isa, widths, threads, names, rounds, "onnxruntime" in packages
        )
    else:
        reports, basis = _here(isa, widths, threads, names, rounds, packages)
    if json_file:
        figures.write(json_file, layers_report.as_json(reports, basis))
    if csv_file:
        figures.write(csv_file, layers_report.as_csv(reports))
    if plot:
        from bitsynth.bench.plots import layers as layers_plot

        layers_plot.draw(reports, plot)


def _here(
    isa: str, widths: list[_Widths], threads: int, names: list[str], rounds: int, packages: list[str]
) -> tuple[list[Report], Basis]:
    """Measure beside peers on this machine, and show every report once it is there."""
    from bitsynth.bench import low_bit
    from bitsynth.bench.layers import beside_peers
    from bitsynth.cli import layers_report
    from bitsynth.host.placement import require_native

    sets = _sets(isa)
    for name in sets:
        require_native(load.load(name).table)
    basis, reports = layers_report.basis(sets, widths), []
    for name in sets:
        with output.progress(f"bench {name}", bar=True) as say:
            mine = [c for a, w in widths for c in low_bit.contenders(name, a, w, threads, names)]
            reports.append(beside_peers(name, threads, mine, packages, names, rounds, _REPEATS, say))
        layers_report.show(reports[-1])
    return reports, basis


def _on_board(
    host: str,
    runner: str,
    isa: str,
    widths: list[_Widths],
    threads: int,
    names: list[str],
    rounds: int,
    ort: bool,
) -> tuple[list[Report], Basis]:
    """Measure on a board and show what it answers."""
    from bitsynth.bench import on_device
    from bitsynth.cli import layers_report
    from bitsynth.device import Device

    reports = []
    with output.progress(f"bench {host}") as say, Device(host, emulator=runner) as board:
        sets = isa.split(",") if isa else board.isas()[:1]
        basis = layers_report.basis(sets, widths)
        for name in sets:
            say(f"{name}: compiling, copying, running")
            answer, report = on_device.measure(board, load.load(name).name, widths, threads, names, rounds, ort)
            if report is None:
                checked = output.count(len(answer.layers), "layer")
                output.write(f"{name}: {checked} right on {answer.before}; run by {answer.emulator}, so no times")
            else:
                layers_report.show(report)
                reports.append(report)
    return reports, basis


def _sets(text: str) -> list[str]:
    """The instruction sets named, or those with kernels that this processor runs; SpecError for others."""
    if text:
        return [load.load(name).name for name in dict.fromkeys(text.split(","))]
    from bitsynth.host import features

    homes = store.folders()
    cached = [name for name in load.names() if any(any(home.glob(f"{name}/**/bs_mm_*.json")) for home in homes)]
    here = [name for name in cached if features.matches(load.load(name).table)]
    if not here:
        raise SpecError(f"this processor runs none of {', '.join(cached)}; name one to be emulated with --isa")
    return here


def _bits(option: str, text: str) -> list[int]:
    """The numbers in `1,2`, each once; SpecError for anything but 1 to 8."""
    parts = text.split(",")
    if not all(p in "12345678" and len(p) == 1 for p in parts):
        raise SpecError(f"{option}: want bits from 1 to 8, such as 1,2, not {text!r}")
    return sorted(set(map(int, parts)))
