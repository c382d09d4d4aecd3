"""`bitsynth inspect`: what a network of an ONNX file is, node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.files import require_writable
from bitsynth.cli.options.networks import (
    Batch,
    BecomesOn,
    InputBits,
    InputEncoding,
    InputScale,
    ModelArgument,
    Reference,
)
from bitsynth.cli.options.output import HtmlFile, Json
from bitsynth.cli.parse import input_codes
from bitsynth.cli.reports.network_cells import bits_of, by_whom, carries, range_of, shape_of, share
from bitsynth.files import replace_file
from bitsynth.printable import one_line, shown
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.graph.inspect import EdgeFacts, NetworkFacts, NodeFacts
    from bitsynth.graph.ir import Graph
    from bitsynth.network.report import NetworkReport
    from bitsynth.progress import Progress

_ADVICE = "name another file"


def inspect(
    model: ModelArgument,
    batch: Batch = None,
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
    isa: BecomesOn = "",
    html: HtmlFile = None,
    as_json: Json = False,
) -> None:
    """Show a quantized ONNX file node by node.

    For each node: its result's integers or floats, range, shape and weights, and why a product stays in floats. With
    --isa also what computes the node there: a layer with its schedule, glue or plain C. Nothing in the file is
    executed.
    """
    from bitsynth.graph import inspect as facts_of
    from bitsynth.graph import read

    if html:
        require_writable(html.parent, _ADVICE)
    codes = input_codes(input_bits, input_scale, input_encoding)
    with output.progress("inspect") as say:
        say("reading")
        graph = read(model, batch=batch, reference=reference, codes=codes)
        facts, found = facts_of.inspected(graph), _lowered(graph, isa, say) if isa else None
    became = _became(found) if found else {}
    if html:
        from bitsynth.cli.reports.inspect_page import page

        replace_file(html, page(facts, became, found).encode(), _ADVICE)
    if as_json:
        output.write_json({**facts_of.as_json(facts), **({"compiled": found.as_json()} if found else {})})
        return
    table = output.fitting(lambda gap: _table(facts, became, gap), lambda gap: _table(facts, became, gap, brief=True))
    output.write(_heading(facts), "", table, "", *_ends(facts))


def _lowered(graph: Graph, isa: str, say: Progress) -> NetworkReport:
    """What the network becomes on an instruction set."""
    from bitsynth.host.sets import widest
    from bitsynth.network.compiling import network_of
    from bitsynth.network.wiring import NetworkTarget

    target = NetworkTarget(widest(isa))
    return network_of(graph, target, target.threads, say, {}).report()


def _became(found: NetworkReport) -> dict[str, str]:
    """What computes each node, by the node's name."""
    return {name: by_whom(step) for step in found.steps for name in step.nodes}


def _heading(facts: NetworkFacts) -> Text:
    return Text.assemble(
        (shown(facts.name), "bold"), f"   {output.count(len(facts.nodes), 'node')}, reference {facts.reference}"
    )


def _table(facts: NetworkFacts, became: Mapping[str, str], gap: int, *, brief: bool = False) -> Table:
    """A row an edge; a brief table leaves out scales and multiply-accumulates, and folds names alone."""
    right = ("range", "weights", "bytes") if brief else ("range", "MAC", "weights", "bytes")
    by = ["by"] if became else []
    columns = ("operator", "shape", "carries", *right, *by)
    table = output.table("node", *columns, right=right, whole=columns, gap=gap)
    for edge in facts.inputs:
        table.add_row(shown(edge.name), *_cells(edge, "input", brief), *[""] * (len(right) - 1 + len(by)))
    for node in facts.nodes:
        for edge in node.outputs:
            macs = [] if brief else [f"{node.macs:,}" if node.macs else ""]
            table.add_row(
                shown(edge.name),
                *_cells(edge, node.op, brief),
                *macs,
                *_weights(node, brief),
                *[became.get(node.node, "") for _ in by],
            )
    return table


def _cells(edge: EdgeFacts, op: str, brief: bool) -> tuple[str, str, str, str]:
    return op, shape_of(edge), bits_of(edge) if brief else carries(edge), range_of(edge)


def _weights(node: NodeFacts, brief: bool) -> tuple[str, str]:
    if node.weights is None:
        return "", ""
    edge = node.weights.edge
    text = edge.dtype if edge.carries == "reals" else f"{edge.bits}-bit" if brief else bits_of(edge)
    return text, f"{node.weights.packed_bytes:,}"


def _ends(facts: NetworkFacts) -> list[str]:
    """Totals, and what stays in floats."""
    packed, stored = (sum(getattr(w, k) for w in facts.weights) for k in ("packed_bytes", "file_bytes"))
    lines = [f"{facts.macs:,} MAC; weights {packed:,} bytes packed, {stored:,} in the types of the file"]
    lines += [_in_floats(facts, n) for n in facts.nodes if n.stays_float]
    lines += [f"{n.node}: {n.note}" for n in facts.nodes if n.note]
    return [one_line(line) for line in lines]


def _in_floats(facts: NetworkFacts, node: NodeFacts) -> str:
    """What a product in floats costs, why it is one, and what to change."""
    cost = f"{node.macs:,} MAC, {share(node.macs, facts.macs)} of all, computed in floats"
    return f"{node.node}: {cost}: {node.stays_float}; {node.change}"
