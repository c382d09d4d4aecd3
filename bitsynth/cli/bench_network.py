"""`bitsynth bench network`: a whole network of an ONNX file, step by step, and beside its peers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bitsynth.bench.setting import Basis
from bitsynth.cli import figures, output
from bitsynth.cli.network_cells import by_whom, called, shape_of
from bitsynth.cli.options import (
    Batch,
    InputBits,
    InputEncoding,
    InputScale,
    IsaOrAuto,
    JsonFile,
    ModelArgument,
    Peers,
    Plot,
    Reference,
    Rounds,
    Threads,
)
from bitsynth.cli.parse import input_codes
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.bench.network import NetworkTimes, StepTime

_PARTS = {"pack": "packing", "product": "products", "epilogue": "epilogues", "glue": "glue", "plain": "plain C"}


def network(
    model: ModelArgument,
    isa: IsaOrAuto = "auto",
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
) -> None:
    """Measure a network of an ONNX file, and each of its steps, beside ONNX Runtime.

    ONNX Runtime runs the same file, if it can, its twin in floats, without quantizers, and that quantized to int8 by
    ONNX Runtime itself. All take turns, round by round, on random inputs and as many threads each; a ratio is the
    median of the rounds' ratios. Steps are measured one by one. An emulated set is refused: it tells no time.
    """
    figures.require(json_file, plot=plot)
    from bitsynth.bench.network import measure
    from bitsynth.host.placement import require_native
    from bitsynth.isa.load import load
    from bitsynth.network.compiling import compile

    codes = input_codes(input_bits, input_scale, input_encoding)
    with output.progress(f"bench {model.name}", bar=True) as say:
        net = compile(model, isa=isa, threads=threads, progress=say, batch=batch, reference=reference, codes=codes)
        require_native(load(net.program.isa).table)
        found = measure(model, net, rounds, say, peers=peers)
    _show(model.name, found)
    if json_file:
        figures.write(
            json_file, figures.as_json(Basis(), [found.network.isa], network=asdict(found) | {"shares": found.shares})
        )
    if plot:
        _draw(found, plot)


def _show(name: str, found: NetworkTimes) -> None:
    table = output.fitting(lambda gap: _steps(found, gap), lambda gap: _steps(found, gap, brief=True))
    output.write(_heading(name, found), "", table, "", _peers(found), "", *_ends(found))
    for peer, why in found.left_out.items():
        output.warning(f"no {peer}: {why}")


def _heading(name: str, found: NetworkTimes) -> Text:
    clock = "CPU time" if found.threads == 1 else "wall time"
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
    table = output.table("contender", "us", "IQR", "times faster", right=("us", "IQR", "times faster"))
    for peer in found.peers:
        took = peer.nanoseconds
        table.add_row(peer.name, f"{took.median / 1e3:.2f}", f"{took.spread:.1%}", f"{peer.times.median:.2f}")
    return table


def _ends(found: NetworkTimes) -> list[str]:
    shares, memory = found.shares, found.network
    said = ", ".join(f"{name} {shares[part]:.1%}" for part, name in _PARTS.items())
    return [
        f"of the time: {said}; all but products {1 - shares['product']:.1%}",
        f"weights {memory.weight_bytes:,} bytes, {found.float_bytes:,} in float32; arena {memory.arena_bytes:,} bytes",
    ]


def _draw(found: NetworkTimes, stem: Path) -> None:
    from bitsynth.bench.plots import network as plotting

    plotting.draw(found, stem)
