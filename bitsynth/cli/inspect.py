"""`bitsynth inspect`: what a network of an ONNX file is, node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.options import Batch, InputBits, InputEncoding, InputScale, Json, ModelArgument, Reference
from bitsynth.cli.parse import input_codes
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.graph.inspect import EdgeFacts, NetworkFacts, NodeFacts


def inspect(
    model: ModelArgument,
    batch: Batch = None,
    reference: Reference = None,
    input_bits: InputBits = None,
    input_scale: InputScale = 1.0,
    input_encoding: InputEncoding = Encoding.UNSIGNED,
    as_json: Json = False,
) -> None:
    """Show what a quantized ONNX file is: per node its integers, ranges, shape and weights, and why floats stay.

    Nothing in the file is executed.
    """
    from bitsynth.graph import inspect as facts_of
    from bitsynth.graph import read

    codes = input_codes(input_bits, input_scale, input_encoding)
    facts = facts_of.inspected(read(model, batch=batch, reference=reference, codes=codes))
    if as_json:
        output.write_json(facts_of.as_json(facts))
        return
    table = output.fitting(lambda gap: _table(facts, gap), lambda gap: _table(facts, gap, brief=True))
    output.write(_heading(facts), "", table, "", *_ends(facts))


def _heading(facts: NetworkFacts) -> Text:
    return Text.assemble(
        (facts.name, "bold"), f"   {output.count(len(facts.nodes), 'node')}, reference {facts.reference}"
    )


def _table(facts: NetworkFacts, gap: int, *, brief: bool = False) -> Table:
    """A row an edge; a brief table leaves out scales and multiply-accumulates, and folds names alone."""
    right = ("range", "weights", "bytes") if brief else ("range", "MAC", "weights", "bytes")
    columns = ("operator", "shape", "carries", *right)
    table = output.table("node", *columns, right=right, whole=columns, gap=gap)
    for edge in facts.inputs:
        table.add_row(edge.name, *_cells(edge, "input", brief), *[""] * (len(right) - 1))
    for node in facts.nodes:
        for edge in node.outputs:
            macs = [] if brief else [f"{node.macs:,}" if node.macs else ""]
            table.add_row(edge.name, *_cells(edge, node.op, brief), *macs, *_weights(node, brief))
    return table


def _cells(edge: EdgeFacts, op: str, brief: bool) -> tuple[str, str, str, str]:
    return op, _shape(edge), _brief(edge) if brief else _carries(edge), _range(edge)


def _shape(edge: EdgeFacts) -> str:
    return "x".join(map(str, edge.shape)) or "one"


def _brief(edge: EdgeFacts) -> str:
    return edge.dtype if edge.carries == "reals" else f"{edge.bits}-bit {edge.encoding}"


def _carries(edge: EdgeFacts) -> str:
    return edge.dtype if edge.carries == "reals" else f"{_brief(edge)} {edge.carries}{_scale(edge)}"


def _scale(edge: EdgeFacts) -> str:
    zero = f", zero {edge.zero[0]:g}" if edge.zero != (0.0,) and len(edge.zero) == 1 else ""
    if edge.scale == (1.0,):
        return zero
    return f" x {edge.scale[0]:.4g}{f' to {edge.scale[-1]:.4g}' if len(edge.scale) > 1 else ''}{zero}"


def _range(edge: EdgeFacts) -> str:
    return "" if edge.least is None else f"{edge.least:,} to {edge.most:,}"


def _weights(node: NodeFacts, brief: bool) -> tuple[str, str]:
    if node.weights is None:
        return "", ""
    edge = node.weights.edge
    text = edge.dtype if edge.carries == "reals" else f"{edge.bits}-bit" if brief else _brief(edge)
    return text, f"{node.weights.packed_bytes:,}"


def _ends(facts: NetworkFacts) -> list[str]:
    """Totals, and what stays in floats."""
    packed, stored = (sum(getattr(w, k) for w in facts.weights) for k in ("packed_bytes", "file_bytes"))
    lines = [f"{facts.macs:,} MAC; weights {packed:,} bytes packed, {stored:,} in the types of the file"]
    lines += [f"{n.node}: {n.stays_float}: computed in floats" for n in facts.nodes if n.stays_float]
    lines += [f"{n.node}: {n.note}" for n in facts.nodes if n.note]
    return lines
