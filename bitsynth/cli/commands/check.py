"""`bitsynth check`: compare a compiled network with its reference and other runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.machines import open_board
from bitsynth.cli.options.instruction_sets import ForCpu, IsaOrAuto
from bitsynth.cli.options.measuring import DeviceOption, DeviceRunner, Threads
from bitsynth.cli.options.networks import (
    Batch,
    FixedInputs,
    InputBits,
    InputCount,
    InputEncoding,
    InputFile,
    InputScale,
    InputShapes,
    ModelArgument,
    Reference,
    warn_of_fixed_batch,
)
from bitsynth.cli.options.output import Json
from bitsynth.cli.parse import input_codes, read_options
from bitsynth.errors import Refuted
from bitsynth.printable import show
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.network.check import NetworkCheck

_OURS = "C"
"""The compiled C in tables of what is compared."""


def check(
    model: ModelArgument,
    data: InputFile = None,
    count: InputCount = 4,
    isa: IsaOrAuto = "auto",
    cpu: ForCpu = "",
    threads: Threads = 1,
    batch: Batch = None,
    shape: InputShapes = None,
    fix: FixedInputs = None,
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
    as_json: Json = False,
    device: DeviceOption = None,
    device_runner: DeviceRunner = "",
) -> None:
    """Compare a compiled network with its reference and other runtimes.

    The network is compiled and run, and the codes that differ are counted at every edge. The compiled C must equal the
    named reference, else the exit code is 1. Other runtimes (ONNX Runtime without optimization, onnx.reference and
    qonnx; of a .tflite file the reference kernels of LiteRT) may sum in another order and differ, where they are
    installed. Inputs with numbers halfway between two codes of the first quantizer, which others may round to the other
    code, are counted apart.

    With --device the network is compiled for the instruction set of a board, and its self-test runs there too.
    """
    from bitsynth.graph.read.file import load_for_peers
    from bitsynth.graph.read.inputs import fix_inputs
    from bitsynth.network import check as checks
    from bitsynth.network.compiling import compile

    codes = input_codes(input_bits, input_scale, input_encoding)
    options = read_options(batch, reference, codes, shape, fix)
    with output.progress("check") as say, open_board(device, device_runner) as board:
        isa = board.best_isa() if board and isa == "auto" else isa
        cpu = board.cpu(isa) if board and not cpu else cpu
        net = compile(model, isa=isa, cpu=cpu, threads=threads, progress=say, **options)
        warn_of_fixed_batch(net.graph, batch)
        inputs = checks.read_inputs(net.graph, data) if data else checks.draw(net.graph, count)
        peers_model = load_for_peers(model)
        if not isinstance(peers_model, bytes):
            peers_model = fix_inputs(peers_model, net.reading.fixed, options["shapes"] or {}, batch)
        result = checks.check_network(net, peers_model, inputs, say)
        answer = board.run_network(net) if board else None
    _show(result, as_json=as_json)
    if answer and not as_json:
        output.write(f"the self-test is right on {answer.emulator or answer.before.title}")
    if wrong := result.first:
        raise Refuted(
            f"{wrong.edge}: {wrong.differ[_OURS]:,} of {wrong.elements:,} {wrong.carries} differ from the "
            f"reference {result.reference}; this is a fault of bitsynth: report it with the file"
        )


def _show(result: NetworkCheck, *, as_json: bool) -> None:
    if as_json:
        output.write_json(result.as_json())
        return
    table = output.fit_named_table(*(partial(_table, result, brief) for brief in (False, True)))
    output.write(_heading(result), "", table, "", *_ends(result))


def _heading(result: NetworkCheck) -> Text:
    summary = f"   {output.count(result.inputs, 'input')} on {result.isa}, against reference {result.reference}"
    return Text.assemble((result.name, "bold"), summary)


def _table(result: NetworkCheck, brief: bool, gap: int, room: int) -> Table:
    """Return a table with a row for each edge: how many of its elements differ.

    Elements of other runtimes that differ on inputs with ties have columns of their own, which a brief table leaves
    out. A cell is empty where nothing was computed, or lies in no memory.
    """
    apart = [] if brief else _other_runtimes(result) if result.inputs_on_ties else []
    runtimes = [*result.peers, *(f"{who} on ties" for who in apart)]
    columns = ("operator", "by", "elements", *runtimes)
    table = output.table("edge", *columns, right=("elements", *runtimes), whole=columns, gap=gap)
    for edge in result.edges:
        counted = [edge.differ if who == _OURS else edge.ordinary for who in result.peers]
        cells = [_count(counts, who) for counts, who in zip(counted, result.peers, strict=True)]
        ties = [_count(edge.on_ties, who) for who in apart]
        table.add_row(output.cut_name(show(edge.edge), room), edge.op, edge.by, f"{edge.elements:,}", *cells, *ties)
    return table


def _other_runtimes(result: NetworkCheck) -> list[str]:
    return [who for who in result.peers if who != _OURS]


def _count(counts: Mapping[str, int], who: str) -> str:
    return f"{counts[who]:,}" if who in counts else ""


def _ends(result: NetworkCheck) -> list[str]:
    """Return lines that explain the counts, and name the runtimes that did not run."""
    compared = [e for e in result.edges if _OURS in e.differ]
    elements = sum(e.elements for e in compared)
    lines = (
        [] if result.first else [f"C equals the reference: {elements:,} elements of {len(compared)} edges in memory"]
    )
    for who in _other_runtimes(result):
        lines += _differences(result, who)
    if any(edge.on_ties.get(who) for edge in result.edges for who in _other_runtimes(result)):
        lines.append(
            "a tie is a number halfway between two codes of an input's quantizer: runtimes that compute in float32 may "
            "round it to the other code, and later edges differ too; neither is wrong"
        )
    return [*lines, *(f"{name} did not run: {why}" for name, why in result.left_out.items())]


def _differences(result: NetworkCheck, who: str) -> list[str]:
    """Return how many elements of another runtime differ, on ordinary inputs and on inputs with ties."""
    edges = [e for e in result.edges if who in e.differ]
    of_one_input = sum(e.elements for e in edges) // result.inputs
    ties, ordinary = result.inputs_on_ties, result.inputs - result.inputs_on_ties
    lines = []
    if ordinary:
        differ = sum(e.ordinary[who] for e in edges)
        on = f"on {output.count(ordinary, 'input')}{' without ties' if ties else ''}"
        lines.append(f"{who}: {differ:,} of {ordinary * of_one_input:,} elements differ {on}")
    if ties:
        differ = sum(e.on_ties[who] for e in edges)
        on = f"on {output.count(ties, 'input')} with numbers on ties"
        lines.append(f"{who}: {differ:,} of {ties * of_one_input:,} elements differ {on}")
    return lines
