"""`bitsynth bench network`: a whole network of an ONNX file, step by step, and beside its peers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from bitsynth.bench.setting import Basis
from bitsynth.cli import figures, output
from bitsynth.cli.options.instruction_sets import ForCpu, IsaOrAuto
from bitsynth.cli.options.measuring import DeviceOption, DeviceRunner, Peers, Rounds, Threads
from bitsynth.cli.options.networks import Batch, InputBits, InputEncoding, InputScale, ModelArgument, Reference
from bitsynth.cli.options.output import JsonFile, Plot
from bitsynth.cli.parse import input_codes
from bitsynth.cli.reports.network_cells import by_whom, called, shape_of, slow_products
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.bench.network import NetworkTimes, StepTime

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
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
    json_file: JsonFile = None,
    plot: Plot = None,
    device: DeviceOption = None,
    device_runner: DeviceRunner = "",
) -> None:
    """Measure a network, and each of its steps, beside ONNX Runtime.

    ONNX Runtime runs the same file, if it can; its twin in floats, without quantizers; and that twin quantized to int8
    by ONNX Runtime itself. On one thread, C that emx-onnx-cgen makes of these files is measured too. All are measured
    by turns, round by round, on random inputs and with the same number of threads. A ratio is the median of the
    rounds' ratios. A contender that takes more than a second a call is measured once. Steps are measured one by one.
    An emulated instruction set is refused, because an emulator tells no time.

    With --device the network is compiled here, and its self-test and times are a board's, as are those of ONNX Runtime
    if it is installed there.
    """
    figures.require(json_file, plot=plot)
    codes = input_codes(input_bits, input_scale, input_encoding)
    options = {"cpu": cpu, "threads": threads, "batch": batch, "reference": reference, "codes": codes}
    if device:
        found = _on_board(model, isa, rounds, options, (device, device_runner), peers=peers)
    else:
        found = _here(model, isa, rounds, options, peers=peers)
    if found and json_file:
        told = asdict(found) | {"shares": found.shares}
        figures.write(json_file, figures.as_json(Basis(), [found.network.isa], network=told))
    if found and plot:
        _draw(found, plot)


def _here(model: Path, isa: str, rounds: int, options: dict[str, Any], *, peers: bool) -> NetworkTimes:
    """Measure on this machine, and show it."""
    from bitsynth.bench.network import measure
    from bitsynth.host.placement import require_native
    from bitsynth.isa.load import load
    from bitsynth.network.compiling import compile

    with output.progress(f"bench {model.name}", bar=True) as say:
        net = compile(model, isa=isa, progress=say, **options)
        require_native(load(net.program.isa).table)
        found = measure(model, net, rounds, say, peers=peers)
    _show(model.name, found)
    return found


def _on_board(
    model: Path, isa: str, rounds: int, options: dict[str, Any], device: tuple[str, str], *, peers: bool
) -> NetworkTimes | None:
    """Measure on a board, and show what it answers; None if an emulator ran it."""
    from bitsynth.bench.network_on_device import measure
    from bitsynth.device import Device
    from bitsynth.network.compiling import compile

    host, emulator = device
    with output.progress(f"bench {model.name}") as say, Device(host, emulator=emulator) as board:
        isa = board.best_isa() if isa == "auto" else isa
        net = compile(model, isa=isa, progress=say, **{**options, "cpu": options["cpu"] or board.cpu(isa)})
        say("compiling, copying, running")
        answer, found = measure(board, model, net, rounds, peers=peers)
    if found is None:
        output.write(f"{model.name}: right on {answer.before}; run by {answer.emulator}, so no times")
    else:
        _show(f"{model.name} on {answer.before.title}", found, clock="wall time")
    return found


def _show(name: str, found: NetworkTimes, clock: str = "") -> None:
    table = output.fitting(lambda gap: _steps(found, gap), lambda gap: _steps(found, gap, brief=True))
    output.write(_heading(name, found, clock), "", table, "", _peers(found), "", *_ends(found))
    for peer, why in found.left_out.items():
        output.warning(f"no {peer}: {why}")


def _heading(name: str, found: NetworkTimes, clock: str) -> Text:
    clock = clock or ("CPU time" if found.threads == 1 else "wall time")
    said = f"   {found.network.isa}, {output.count(found.threads, 'thread')}, {clock}"
    return Text.assemble((name, "bold"), said)


def _steps(found: NetworkTimes, gap: int, *, brief: bool = False) -> Table:
    right = ("us", "share") if brief else ("us", "share", "pack", "product", "epilogue", "GMAC/s")
    columns = ("by", "shape") if brief else ("by", "shape", "as")
    table = output.table("step", *columns, *right, right=right, whole=columns[1:], gap=gap)
    for timed in found.steps:
        step = timed.step
        lies = [] if brief else [step.memory]
        rate = [] if brief else [*_parts(timed), f"{step.macs / timed.nanoseconds:.0f}" if step.macs else ""]
        took = f"{timed.nanoseconds / 1e3:.2f}", f"{timed.share:.1%}"
        table.add_row(called(step), by_whom(step), shape_of(step), *lies, *took, *rate)
    return table


def _parts(timed: StepTime) -> list[str]:
    parts = timed.parts
    return [f"{x:.0%}" for x in (parts.pack, parts.product, parts.epilogue)] if parts else [""] * 3


def _peers(found: NetworkTimes) -> Table:
    right = ("us", "IQR", "times faster", "rounds")
    table = output.table("contender", *right, right=right)
    for peer in found.peers:
        took, times = peer.nanoseconds, peer.times.median
        table.add_row(peer.name, f"{took.median / 1e3:.2f}", f"{took.spread:.1%}", f"{times:.2f}", str(peer.rounds))
    return table


def _ends(found: NetworkTimes) -> list[str]:
    shares, memory = found.shares, found.network
    told = {"glue", "plain", *(["layer"] if shares["layer"] else ["pack", "product", "epilogue"])}
    said = ", ".join(f"{name} {shares[part]:.1%}" for part, name in _PARTS.items() if part in told or shares[part])
    around = "" if shares["layer"] else f"; all but products {1 - shares['product']:.1%}"
    return [
        f"of the time: {said}{around}",
        *slow_products(memory.products),
        f"weights {memory.weight_bytes:,} bytes, {found.float_bytes:,} in float32; arena {memory.arena_bytes:,} bytes",
    ]


def _draw(found: NetworkTimes, stem: Path) -> None:
    from bitsynth.bench.plots import network as plotting

    plotting.draw(found, stem)
