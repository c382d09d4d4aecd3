"""`bitsynth inspect`: show a network of an ONNX file node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.options.networks import (
    Batch,
    BecomesOn,
    FixedInputs,
    InputBits,
    InputEncoding,
    InputScale,
    InputShapes,
    ModelArgument,
    Reference,
    warn_of_fixed_batch,
)
from bitsynth.cli.options.output import HtmlFile, Json
from bitsynth.cli.output import require_writable
from bitsynth.cli.parse import input_codes, parse_fixed, parse_shapes
from bitsynth.cli.reports.network_cells import (
    bits_of,
    by_whom,
    carries,
    plain_reasons,
    range_of,
    shape_of,
    share,
)
from bitsynth.cli.reports.weight_names import weight_names
from bitsynth.files import replace_file
from bitsynth.printable import one_line, show
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.graph.inspect import EdgeFacts, NetworkFacts, NodeFacts
    from bitsynth.graph.ir import Graph
    from bitsynth.network.report import NetworkReport, StepReport
    from bitsynth.progress import Progress

_ADVICE = "name another file"
_WIDE = ("operator", "shape", "carries", "range", "MAC", "weights", "bytes")
_BRIEF = ("operator", "shape", "carries", "range", "weights", "bytes")
_NARROW = ("operator", "shape", "carries", "weights")
_OF_STEPS = ("operator", "shape", "carries")
"""Columns behind a node's name; the last is for narrow tables with a column `by`."""
_NUMBERS = ("range", "MAC", "weights", "bytes")


def inspect(
    model: ModelArgument,
    batch: Batch = None,
    shape: InputShapes = None,
    fix: FixedInputs = None,
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
    isa: BecomesOn = "",
    html: HtmlFile = None,
    as_json: Json = False,
) -> None:
    """Show a quantized network node by node.

    For each node: its result's integers or floats, range, shape and weights, and why a product stays in floats. With
    --isa also what computes the node there: a layer with its schedule, glue or plain C. Nothing in the file is
    executed.
    """
    from bitsynth.graph import inspect as facts_of
    from bitsynth.graph import read

    if html:
        require_writable(html.parent, _ADVICE)
    codes = input_codes(input_bits, input_scale, input_encoding)
    shapes, fixed = parse_shapes(shape), parse_fixed(fix)
    with output.progress("inspect") as say:
        say("reading")
        graph = read(model, batch=batch, reference=reference, codes=codes, shapes=shapes, fixed=fixed)
        warn_of_fixed_batch(graph, batch)
        facts, report = facts_of.inspect_graph(graph), _compile_report(graph, isa, say) if isa else None
    became = {name: step for step in report.steps for name in step.nodes} if report else {}
    if html:
        from bitsynth.cli.reports.inspect_page import page

        by = {name: by_whom(step) for name, step in became.items()}
        replace_file(html, page(facts, by, report).encode(), _ADVICE)
    if as_json:
        output.write_json({**facts_of.as_json(facts), **({"compiled": report.as_json()} if report else {})})
        return
    table = _table(facts, became, weight_names(model, graph))
    output.write(_heading(facts), "", table, "", *_ends(facts))
    if report:
        output.write(*plain_reasons(report))


def _compile_report(graph: Graph, isa: str, say: Progress) -> NetworkReport:
    """Compile the graph for an instruction set, and return a report of its steps."""
    from bitsynth.host.placement import widest
    from bitsynth.network.compiling import network_of
    from bitsynth.network.def_use import NetworkTarget

    target = NetworkTarget(widest(isa))
    return network_of(graph, target, target.threads, say, {}).report()


def _heading(facts: NetworkFacts) -> Text:
    return Text.assemble(
        (show(facts.name), "bold"), f"   {output.count(len(facts.nodes), 'node')}, reference {facts.reference}"
    )


def _table(facts: NetworkFacts, became: Mapping[str, StepReport], weights: Mapping[str, str]) -> Table:
    """Return a table with a row for each edge, as wide as the terminal."""
    by = ["by"] if became else []
    forms = [("wide", _WIDE), ("brief", _BRIEF), ("narrow", _OF_STEPS if by else _NARROW)]
    makes = (partial(_edges, facts, became, weights, form, [*columns, *by]) for form, columns in forms)
    return output.fit_named_table(*makes)


def _edges(
    facts: NetworkFacts,
    became: Mapping[str, StepReport],
    weights: Mapping[str, str],
    form: str,
    columns: Sequence[str],
    gap: int,
    room: int,
) -> Table:
    right = [column for column in columns if column in _NUMBERS]
    table = output.table("node", *columns, right=right, whole=columns, gap=gap)
    for edge in facts.inputs:
        cells = _cells(edge, "input", form)
        table.add_row(output.cut_name(show(edge.name), room), *(cells.get(column, "") for column in columns))
    for node in facts.nodes:
        name = f" ({weights[node.node]})" if node.node in weights else ""
        for edge in node.outputs:
            cells = {**_cells(edge, node.op, form), **_weights(node, form)}
            cells["MAC"] = f"{node.macs:,}" if node.macs else ""
            cells["by"] = by_whom(became[node.node], brief=form == "narrow") if node.node in became else ""
            named = output.cut_name(f"{show(edge.name)}{name}", room)
            table.add_row(named, *(cells.get(column, "") for column in columns))
    return table


def _cells(edge: EdgeFacts, op: str, form: str) -> dict[str, str]:
    carried = carries(edge) if form == "wide" else bits_of(edge)
    return {"operator": op, "shape": shape_of(edge), "carries": carried, "range": range_of(edge)}


def _weights(node: NodeFacts, form: str) -> dict[str, str]:
    if node.weights is None:
        return {}
    edge = node.weights.edge
    text = edge.dtype if edge.carries == "reals" else bits_of(edge) if form == "wide" else f"{edge.bits}-bit"
    return {"weights": text, "bytes": f"{node.weights.packed_bytes:,}"}


def _ends(facts: NetworkFacts) -> list[str]:
    """Return the lines below the table: totals, and the products that stay in floats."""
    packed, stored = (sum(getattr(w, k) for w in facts.weights) for k in ("packed_bytes", "file_bytes"))
    lines = [f"{facts.macs:,} MAC; weights {packed:,} bytes packed, {stored:,} in the types of the file"]
    lines += [_in_floats(facts, n) for n in facts.nodes if n.stays_float]
    lines += [f"{n.node}: {n.note}" for n in facts.nodes if n.note]
    return [one_line(line) for line in lines]


def _in_floats(facts: NetworkFacts, node: NodeFacts) -> str:
    """Return a line on a product in floats: its cost, why it is in floats, and what to change."""
    cost = f"{node.macs:,} MAC, {share(node.macs, facts.macs)} of all, computed in floats"
    return f"{node.node}: {cost}: {node.stays_float}; {node.change}"
