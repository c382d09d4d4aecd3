"""`bitsynth inspect`: what a network of an ONNX file is, node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.options import Batch, InputBits, InputEncoding, InputScale, Json, ModelArgument, Reference
from bitsynth.errors import SpecError
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
    from bitsynth.graph import InputCodes, read
    from bitsynth.graph import inspect as facts_of

    if input_bits is None and (input_scale != 1.0 or input_encoding is not Encoding.UNSIGNED):
        raise SpecError("--input-scale and --input-encoding say more of the codes of --input-bits; give that too")
    codes = None if input_bits is None else InputCodes(input_bits, input_scale, input_encoding.value)
    facts = facts_of.inspected(read(model, batch=batch, reference=reference, codes=codes))
    if as_json:
        output.write_json(facts_of.as_json(facts))
        return
    output.write(_heading(facts), "", output.fitting(lambda gap: _table(facts, gap)), "", *_ends(facts))


def _heading(facts: NetworkFacts) -> Text:
    return Text.assemble(
        (facts.name, "bold"), f"   {output.count(len(facts.nodes), 'node')}, reference {facts.reference}"
    )


def _table(facts: NetworkFacts, gap: int) -> Table:
    right = ("range", "MAC", "weights", "bytes")
    table = output.table("node", "operator", "shape", "carries", *right, right=right, gap=gap)
    for edge in facts.inputs:
        table.add_row(edge.name, "input", _shape(edge), _carries(edge), _range(edge), "", "", "")
    for node in facts.nodes:
        for edge in node.outputs:
            cells = edge.name, node.op, _shape(edge), _carries(edge), _range(edge)
            table.add_row(*cells, f"{node.macs:,}" if node.macs else "", *_weights(node))
    return table


def _shape(edge: EdgeFacts) -> str:
    return "x".join(map(str, edge.shape)) or "one"


def _carries(edge: EdgeFacts) -> str:
    if edge.carries == "reals":
        return edge.dtype
    return f"{edge.bits}-bit {edge.encoding} {edge.carries}{_scale(edge)}"


def _scale(edge: EdgeFacts) -> str:
    zero = f", zero {edge.zero[0]:g}" if edge.zero != (0.0,) and len(edge.zero) == 1 else ""
    if edge.scale == (1.0,):
        return zero
    return f" x {edge.scale[0]:.4g}{f' to {edge.scale[-1]:.4g}' if len(edge.scale) > 1 else ''}{zero}"


def _range(edge: EdgeFacts) -> str:
    return "" if edge.least is None else f"{edge.least:,} to {edge.most:,}"


def _weights(node: NodeFacts) -> tuple[str, str]:
    if node.weights is None:
        return "", ""
    return _carries(node.weights.edge).partition(" x ")[0], f"{node.weights.packed_bytes:,}"


def _ends(facts: NetworkFacts) -> list[Text]:
    """Totals, and what stays in floats."""
    packed, stored = (sum(getattr(w, k) for w in facts.weights) for k in ("packed_bytes", "file_bytes"))
    lines = [f"{facts.macs:,} MAC; weights {packed:,} bytes packed, {stored:,} in the types of the file"]
    lines += [f"{n.node}: {n.stays_float}: computed in floats" for n in facts.nodes if n.stays_float]
    lines += [f"{n.node}: {n.note}" for n in facts.nodes if n.note]
    return [Text(line) for line in lines]
