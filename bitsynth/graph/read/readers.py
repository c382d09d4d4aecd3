"""Which operators are read, by whom, and which reference they mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from bitsynth.errors import SpecError
from bitsynth.graph.read import (
    activation_nodes,
    channels_last_nodes,
    comparison_nodes,
    constant_nodes,
    file,
    float_nodes,
    fused_nodes,
    integer_nodes,
    linear_nodes,
    lowered_nodes,
    microsoft_nodes,
    move_nodes,
    norm_nodes,
    place_nodes,
    qonnx_nodes,
    resize_nodes,
    rounding_nodes,
    transposed_nodes,
    vendor_nodes,
    window_nodes,
)
from bitsynth.graph.read.float_nodes import Reader

_STANDARD = {
    **float_nodes.READERS,
    **activation_nodes.READERS,
    **norm_nodes.READERS,
    **move_nodes.READERS,
    **place_nodes.READERS,
    **constant_nodes.READERS,
    **resize_nodes.READERS,
    **rounding_nodes.READERS,
    **comparison_nodes.READERS,
    **window_nodes.READERS,
    **transposed_nodes.READERS,
    **linear_nodes.READERS,
    **integer_nodes.READERS,
}
_QONNX = {**qonnx_nodes.QONNX, **lowered_nodes.READERS}
_BY_INTEGERS = {
    *({*linear_nodes.READERS, *microsoft_nodes.READERS} - {"QuantizeLinear", "DequantizeLinear"}),
    *("DynamicQuantizeMatMul", "MatMulIntegerToFloat"),
}
"""Operators that are defined by ONNX Runtime's formula where it differs from exact arithmetic."""
_CUSTOM: dict[str, dict[str, Reader]] = {
    "com.microsoft": {**microsoft_nodes.READERS, **fused_nodes.READERS},
    **dict.fromkeys(qonnx_nodes.DOMAINS, _QONNX),
    channels_last_nodes.DOMAIN: channels_last_nodes.READERS,
    **vendor_nodes.DOMAINS,
}
"""Readers of operators that are not of standard ONNX, by domain and operator."""
_VENDORS = {op for readers in vendor_nodes.DOMAINS.values() for op in readers}
_QUANTIZERS = {
    *("QuantizeLinear", "DequantizeLinear", "RequantShift", "Floor", "Round", "Sign"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    *_QONNX,
    *_VENDORS,
}
"""Operators by which a network is one of integers."""


def reader_of(op: str, domain: str) -> Reader | None:
    """What reads an operator of a domain; None if nothing does."""
    if domain in ("", "ai.onnx"):
        return _STANDARD.get(op) or _QONNX.get(op)
    return _CUSTOM.get(domain, integer_nodes.READERS).get(op)


def custom_operators() -> dict[str, tuple[str, ...]]:
    """Return the names of the operators that are not of standard ONNX, by domain; "" has those of any other domain."""
    return {domain: tuple(readers) for domain, readers in {**_CUSTOM, "": integer_nodes.READERS}.items()}


def require_known(nodes: Sequence[Any]) -> None:
    """SpecError that names the first node whose operator nothing reads, and the operators of others."""
    unknown = [node for node in nodes if reader_of(node.op_type, node.domain) is None]
    if not unknown:
        return
    first = unknown[0]
    why = f"{file.name_of(first)}: {_unknown(first.op_type, first.domain)}"
    others = dict.fromkeys(node.op_type for node in unknown if node.op_type != first.op_type)
    raise SpecError(why + (f"; likewise {', '.join(others)}" if others else ""))


def _unknown(op: str, domain: str) -> str:
    where = f" of {domain}" if domain else ""
    if op == "FloatQuant":
        return "quantizes to small floats, which are not compiled; quantize to integers"
    if op in ("Loop", "If", "Scan"):
        return "control flow is not compiled; export the network without it"
    if op in ("GRU", "LSTM", "RNN"):
        return "recurrent layers are not compiled; unroll them into MatMul, Sigmoid and Tanh, or cut the network before"
    if op == "MatMulNBits":
        return "weights in blocks of few bits are for activations of floats; quantize activations too, in QDQ or QONNX"
    return f"no operator{where} that is compiled; replace it, or cut the network before it"


def default_reference(model: Any) -> str:
    """Return the reference of a file that names none.

    ONNX Runtime's formulas for networks of its integer operators, for networks of floats, and for those that compute
    the scale of a quantizer from their inputs: such scales are floats, rounded as they are computed. Else exact.
    """
    used = {node.op_type for node in model.graph.node}
    if used & _BY_INTEGERS or not used & _QUANTIZERS or _computes_scales(model.graph):
        return "onnxruntime"
    return "exact"


def _computes_scales(graph: Any) -> bool:
    """Return whether the scale of a standard quantizer depends on an input of the network."""
    given = {x.name for x in graph.input} - {x.name for x in graph.initializer}
    depends = _depending(graph.node, given)
    scales = {
        n.input[1] for n in graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear") and len(n.input) > 1
    }
    return not depends.isdisjoint(scales)


def _depending(nodes: Sequence[Any], given: Iterable[str]) -> set[str]:
    """Return the edges of a file, in any order of nodes, that depend on those that are `given`, and these."""
    readers = defaultdict(list)
    for node in nodes:
        for name in node.input:
            readers[name].append(node)
    found, todo = set(given), list(given)
    while todo:
        new = {name for node in readers[todo.pop()] for name in node.output if name} - found
        found |= new
        todo += new
    return found
