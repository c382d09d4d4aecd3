"""`bitsynth check`: a compiled network against its reference and other runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.boards import board_of
from bitsynth.cli.options.instruction_sets import ForCpu, IsaOrAuto
from bitsynth.cli.options.measuring import DeviceOption, DeviceRunner, Threads
from bitsynth.cli.options.networks import (
    Batch,
    InputBits,
    InputCount,
    InputEncoding,
    InputFile,
    InputScale,
    ModelArgument,
    Reference,
)
from bitsynth.cli.options.output import Json
from bitsynth.cli.parse import input_codes
from bitsynth.errors import Refuted
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.network.check import EdgeCheck, NetworkCheck


def check(
    model: ModelArgument,
    data: InputFile = None,
    count: InputCount = 4,
    isa: IsaOrAuto = "auto",
    cpu: ForCpu = "",
    threads: Threads = 1,
    batch: Batch = None,
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
    as_json: Json = False,
    device: DeviceOption = None,
    device_runner: DeviceRunner = "",
) -> None:
    """Compile a network, run it, and count per edge the codes that differ: of its C, and of other runtimes.

    All are held against the named reference; its C must be the same, else this ends with exit code 1. The others,
    which are ONNX Runtime without optimization, onnx.reference and qonnx where installed, may sum in another order.

    With --device the network's self-test runs on a board too, for whose instruction set it is compiled.
    """
    from bitsynth.graph.read.file import load
    from bitsynth.network import check as checks
    from bitsynth.network.compiling import compile

    codes = input_codes(input_bits, input_scale, input_encoding)
    with output.progress("check") as say, board_of(device, device_runner) as board:
        isa = board.best_isa() if board and isa == "auto" else isa
        cpu = board.cpu(isa) if board and not cpu else cpu
        options: dict[str, Any] = {"batch": batch, "reference": reference, "codes": codes, "cpu": cpu}
        net = compile(model, isa=isa, threads=threads, progress=say, **options)
        inputs = checks.given(net.graph, data) if data else checks.drawn(net.graph, count)
        found = checks.checked(net, load(model), inputs, say)
        answer = board.run_network(net) if board else None
    _show(found, as_json=as_json)
    if answer and not as_json:
        output.write(f"the self-test is right on {answer.emulator or answer.before.title}")
    if wrong := found.first:
        raise Refuted(
            f"{wrong.edge}: {wrong.differ['C']:,} of {wrong.elements:,} {wrong.carries} are not those of the "
            f"reference {found.reference}; this is a fault of bitsynth: report it with the file"
        )


def _show(found: NetworkCheck, *, as_json: bool) -> None:
    if as_json:
        output.write_json(found.as_json())
        return
    table = output.fitting(lambda gap: _table(found, gap))
    output.write(_heading(found), "", table, "", *_ends(found))


def _heading(found: NetworkCheck) -> Text:
    said = f"   {output.count(found.inputs, 'input')} on {found.isa}, against reference {found.reference}"
    return Text.assemble((found.name, "bold"), said)


def _table(found: NetworkCheck, gap: int) -> Table:
    """A row an edge: how many of its elements differ; nothing where it was not computed, or lies in no memory."""
    columns = ("operator", "by", "elements", *found.peers)
    right = ("elements", *found.peers)
    table = output.table("edge", *columns, right=right, whole=columns, gap=gap)
    for edge in found.edges:
        table.add_row(edge.edge, edge.op, edge.by, f"{edge.elements:,}", *(_count(edge, who) for who in found.peers))
    return table


def _count(edge: EdgeCheck, who: str) -> str:
    return f"{edge.differ[who]:,}" if who in edge.differ else ""


def _ends(found: NetworkCheck) -> list[str]:
    """What the counts say, and who did not run."""
    compared = [e for e in found.edges if "C" in e.differ]
    elements = sum(e.elements for e in compared)
    lines = [] if found.first else [f"C equals the reference: {elements:,} elements of {len(compared)} edges in memory"]
    return [*lines, *(f"{name} did not run: {why}" for name, why in found.left_out.items())]
