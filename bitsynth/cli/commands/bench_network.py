"""`bitsynth bench network`: times of an ONNX network, of its steps, and of other runtimes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bitsynth.bench.network_peers import INSTALL, INT8_INSTRUCTIONS, ONEDNN_LIMIT
from bitsynth.bench.setting import Basis
from bitsynth.cli import figures, output
from bitsynth.cli.options.instruction_sets import ForCpu, IsaOrAuto
from bitsynth.cli.options.measuring import DeviceOption, DeviceRunner, Peers, Rounds, Threads
from bitsynth.cli.options.networks import (
    Batch,
    FixedInputs,
    InputBits,
    InputEncoding,
    InputScale,
    InputShapes,
    ModelArgument,
    Reference,
    warn_of_fixed_batch,
)
from bitsynth.cli.options.output import JsonFile, Plot
from bitsynth.cli.parse import input_codes, read_options
from bitsynth.cli.reports.network_cells import by_whom, shape_of, slow_products, step_name
from bitsynth.cli.reports.weight_names import weight_names
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.bench.network import NetworkTimes, StepTime
    from bitsynth.network.compiling import CompileOptions

_WIDE = ("by", "shape", "as", "us", "share", "pack", "product", "epilogue", "GMAC/s")
_BRIEF = ("by", "shape", "us", "share")
"""Columns behind a step's name."""
_PARTS = {
    "layer": "layers",
    "pack": "packing",
    "product": "products",
    "epilogue": "epilogues",
    "glue": "glue",
    "plain": "plain C",
}


def network(
    model: ModelArgument,
    isa: IsaOrAuto = "auto",
    cpu: ForCpu = "",
    threads: Threads = 1,
    rounds: Rounds = 11,
    peers: Peers = True,
    batch: Batch = None,
    shape: InputShapes = None,
    fix: FixedInputs = None,
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
    json_file: JsonFile = None,
    plot: Plot = None,
    device: DeviceOption = None,
    device_runner: DeviceRunner = "",
) -> None:
    """Measure a network, each of its steps, and other runtimes.

    ONNX Runtime and OpenVINO run the same file, if they can; its twin in floats, without quantizers; and that twin
    quantized to int8 by ONNX Runtime. With ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI in the environment OpenVINO leaves AMX
    out, with AVX2 also AVX-512. On one thread, C that emx-onnx-cgen makes of these files is measured too. A .tflite
    file is run by LiteRT instead, with its default kernels (XNNPACK) and with its own. All are measured alternately,
    round by round, on random inputs and with the same number of threads. A ratio is the median of the rounds' ratios. A
    contender that takes more than a second a call is measured once. Steps are measured one by one.
    An emulated instruction set is refused, because an emulator's times mean nothing.

    With --device the network is compiled here, and its self-test and times are a board's, as are the times of ONNX
    Runtime if it is installed there.
    """
    figures.require(json_file, plot=plot)
    codes = input_codes(input_bits, input_scale, input_encoding)
    options: CompileOptions = {
        **read_options(batch, reference, codes, shape, fix),
        "isa": isa,
        "cpu": cpu,
        "threads": threads,
    }
    with figures.tables(json_file):
        if device:
            result = _measure_on_board(model, rounds, options, (device, device_runner), peers=peers)
        else:
            result = _measure_here(model, rounds, options, peers=peers)
    if result and json_file:
        facts = asdict(result) | {"shares": result.shares}
        figures.write(json_file, figures.as_json(Basis(), [result.network.isa], network=facts))
    if result and plot:
        _draw(result, plot)


def _measure_here(model: Path, rounds: int, options: CompileOptions, *, peers: bool) -> NetworkTimes:
    """Measure on this machine, and show it."""
    from bitsynth.bench import network_peers
    from bitsynth.bench.network import measure
    from bitsynth.host.placement import require_native
    from bitsynth.isa.load import load
    from bitsynth.network.compiling import compile

    with output.progress(f"bench {model.name}", bar=True) as say:
        net = compile(model, progress=say, **options)
        require_native(load(net.program.isa).table)
        warn_of_fixed_batch(net.graph, options["batch"])
        missing = network_peers.missing(net.program.threads, model) if peers else {}
        _warn_of_missing(missing)
        result = measure(model, net, rounds, say, peers=peers)
    _show(
        model.name,
        result,
        weight_names(model, net.graph),
        warned={name for names in missing.values() for name in names},
    )
    return result


def _warn_of_missing(packages: Collection[str]) -> None:
    """Say once, before measuring, which peers are not installed."""
    if packages:
        are, them = ("is", "it") if len(packages) == 1 else ("are", "them")
        *first, last = packages
        named = f"{', '.join(first)} and {last}" if first else last
        output.warning(f"{named} {are} not installed, so the network is not compared with {them}: {INSTALL}")


def _measure_on_board(
    model: Path, rounds: int, options: CompileOptions, device: tuple[str, str], *, peers: bool
) -> NetworkTimes | None:
    """Measure on a board, and show its times; None if an emulator ran it."""
    from bitsynth.bench.network import measure_on_board
    from bitsynth.device import Device
    from bitsynth.network.compiling import compile

    host, emulator = device
    with output.progress(f"bench {model.name}") as say, Device(host, emulator=emulator) as board:
        isa = board.best_isa() if options["isa"] == "auto" else options["isa"]
        options = {**options, "isa": isa, "cpu": options["cpu"] or board.cpu(isa)}
        net = compile(model, progress=say, **options)
        warn_of_fixed_batch(net.graph, options["batch"])
        say("compiling, copying, running")
        answer, result = measure_on_board(board, model, net, rounds, peers=peers)
    if result is None:
        output.write(f"{model.name}: right on {answer.before}; run by {answer.emulator}, so no times")
    else:
        name = f"{model.name} on {answer.before.title}"
        _show(name, result, weight_names(model, net.graph), clock="wall time")
    return result


def _show(
    name: str, result: NetworkTimes, weights: Mapping[str, str], clock: str = "", warned: Collection[str] = ()
) -> None:
    """Print the times, and why peers did not run, but for peers that were `warned` of before."""
    forms = (_WIDE, False), (_BRIEF, False), (_BRIEF, True)
    table = output.fit_named_table(*(partial(_steps, result, weights, *form) for form in forms))
    output.write(_heading(name, result, clock), "", table, "", _peers(result), "", *_ends(result))
    for peer, why in result.left_out.items():
        if peer not in warned:
            output.warning(f"no {peer}: {why}")


def _heading(name: str, result: NetworkTimes, clock: str) -> Text:
    clock = clock or ("CPU time" if result.threads == 1 else "wall time")
    summary = f"   {result.network.isa}, {output.count(result.threads, 'thread')}, {clock}"
    return Text.assemble((name, "bold"), summary)


def _steps(
    result: NetworkTimes, weights: Mapping[str, str], columns: Sequence[str], brief: bool, gap: int, room: int
) -> Table:
    """Return a table with these columns behind names of at most `room` columns; if `brief`, `by` is short."""
    right = [column for column in columns if column not in ("by", "shape", "as")]
    table = output.table("step", *columns, right=right, whole=columns[1:], gap=gap)
    for timed in result.steps:
        step = timed.step
        pack, product, epilogue = _parts(timed)
        cells = {
            "by": by_whom(step, brief=brief),
            "shape": shape_of(step),
            "as": step.memory,
            "us": f"{timed.nanoseconds / 1e3:.2f}",
            "share": f"{timed.share:.1%}",
            "pack": pack,
            "product": product,
            "epilogue": epilogue,
            "GMAC/s": f"{step.macs / timed.nanoseconds:.0f}" if step.macs else "",
        }
        table.add_row(step_name(step, weights, room), *(cells[column] for column in columns))
    return table


def _parts(timed: StepTime) -> list[str]:
    parts = timed.parts
    return [f"{x:.0%}" for x in (parts.pack, parts.product, parts.epilogue)] if parts else [""] * 3


def _peers(result: NetworkTimes) -> Table:
    right = ("us", "IQR", "times faster", "rounds")
    table = output.table("contender", *right, right=right)
    for peer in result.peers:
        took, times = peer.nanoseconds, peer.times.median
        table.add_row(peer.name, f"{took.median / 1e3:.2f}", f"{took.spread:.1%}", f"{times:.2f}", str(peer.rounds))
    return table


def _ends(result: NetworkTimes) -> list[str]:
    shares, memory = result.shares, result.network
    shown = {"glue", "plain", *(["layer"] if shares["layer"] else ["pack", "product", "epilogue"])}
    parts = ", ".join(f"{name} {shares[part]:.1%}" for part, name in _PARTS.items() if part in shown or shares[part])
    around = "" if shares["layer"] else f"; all but products {1 - shares['product']:.1%}"
    return [
        *_others(result.others),
        f"of the time: {parts}{around}",
        *slow_products(memory.products),
        f"weights {memory.weight_bytes:,} bytes, {result.float_bytes:,} in float32; arena {memory.arena_bytes:,} bytes",
    ]


def _others(settings: Mapping[str, str]) -> list[str]:
    """Return a line on the versions of other runtimes and their instructions; none if there are no others."""
    facts = dict(settings)
    instructions, limit = facts.pop(INT8_INSTRUCTIONS, ""), facts.pop(ONEDNN_LIMIT, "")
    if not facts:
        return []
    versions = ", ".join(f"{package} {version}" for package, version in facts.items())
    limited = f"; OpenVINO limited by {ONEDNN_LIMIT}={limit}" if limit else ""
    return [f"{versions}; int8 of others can use {instructions}{limited}"]


def _draw(result: NetworkTimes, stem: Path) -> None:
    from bitsynth.bench.plots import network as plotting

    plotting.draw(result, stem)
