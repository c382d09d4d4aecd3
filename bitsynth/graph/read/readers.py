"""The table of ONNX operators: the reader of each, by domain, and the reference that a file means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from bitsynth.errors import SpecError
from bitsynth.graph.read import file
from bitsynth.graph.read.file_node import Reader
from bitsynth.graph.read.nodes import (
    comparisons,
    constants_and_moves,
    elementwise,
    microsoft,
    products_and_pools,
    qonnx,
    quantized,
    recurrent,
    reductions_and_norms,
    resize,
)
from bitsynth.graph.read.tflite import DOMAIN as TFLITE
from bitsynth.graph.read.tflite.codes import READERS as TFLITE_READERS

_STANDARD = {
    **elementwise.READERS,
    **comparisons.READERS,
    **reductions_and_norms.READERS,
    **constants_and_moves.READERS,
    **resize.READERS,
    **recurrent.READERS,
    **products_and_pools.READERS,
    **quantized.READERS,
    **quantized.ANY_DOMAIN_READERS,
}
_BY_INTEGERS = {
    *({*quantized.READERS, *microsoft.QUANTIZED_READERS} - {"QuantizeLinear", "DequantizeLinear"}),
    *("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"),
}
"""Operators of integer networks of ONNX Runtime, whose formula differs from exact arithmetic."""
_CUSTOM: dict[str, dict[str, Reader]] = {
    "com.microsoft": {**microsoft.READERS, **recurrent.MICROSOFT_READERS},
    **dict.fromkeys(qonnx.DOMAINS, qonnx.READERS),
    qonnx.CHANNELS_LAST_DOMAIN: qonnx.CHANNELS_LAST_READERS,
    **quantized.VENDOR_READERS,
    TFLITE: TFLITE_READERS,
}
"""Readers of operators that are not of standard ONNX, by domain and operator."""
_VENDORS = {op for readers in quantized.VENDOR_READERS.values() for op in readers}
_QUANTIZERS = {
    *("QuantizeLinear", "DequantizeLinear", "RequantShift", "Floor", "Round", "Sign"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    *qonnx.READERS,
    *_VENDORS,
}
"""Operators that only networks of integers have."""


def reader_of(op: str, domain: str) -> Reader | None:
    """Return the reader of an operator of a domain; None if it has none."""
    if domain in ("", "ai.onnx"):
        return _STANDARD.get(op) or qonnx.READERS.get(op)
    return _CUSTOM.get(domain, quantized.ANY_DOMAIN_READERS).get(op)


def custom_operators() -> dict[str, tuple[str, ...]]:
    """Return the names of operators outside standard ONNX, by domain; "" has the operators of any other domain."""
    return {domain: tuple(readers) for domain, readers in {**_CUSTOM, "": quantized.ANY_DOMAIN_READERS}.items()}


def require_known(nodes: Sequence[Any]) -> None:
    """Raise SpecError for the first node whose operator has no reader; it names all such operators."""
    unknown = [node for node in nodes if not file.is_control_flow(node) and not reader_of(node.op_type, node.domain)]
    if not unknown:
        return
    first = unknown[0]
    why = f"{file.name_of(first)}: {_explain_unknown(first.op_type, first.domain)}"
    others = dict.fromkeys(node.op_type for node in unknown if node.op_type != first.op_type)
    raise SpecError(why + (f"; the same holds for {', '.join(others)}" if others else ""))


def _explain_unknown(op: str, domain: str) -> str:
    """Return why an operator is not read, and what to do."""
    where = f" of {domain}" if domain else ""
    if op == "FloatQuant":
        return "quantizes to small floats, which are not compiled; quantize to integers"
    if op == "Scan":
        return "is not compiled; export the network without it, or with a Loop"
    if op == "RNN":
        return "is not compiled; use LSTM or GRU, or unroll it into MatMul and Tanh"
    return f"no operator{where} that is compiled; replace it, or cut the network before it"


def default_reference(model: Any) -> str:
    """Return the reference of a file that names none.

    That is TensorFlow Lite's for its files; ONNX Runtime's for networks of its integer operators, for networks of
    floats, and for networks that compute a quantizer's scale from their inputs, as these scales are floats, rounded as
    they are computed; else exact.
    """
    if any(node.domain == TFLITE for node in model.graph.node):
        return "tflite"
    used = {node.op_type for node in file.nodes_of(model.graph)}
    if used & _BY_INTEGERS or not used & _QUANTIZERS or _computes_scales(model.graph):
        return "onnxruntime"
    return "exact"


def _computes_scales(graph: Any) -> bool:
    """Return whether the scale of a standard quantizer depends on an input of the network."""
    inputs = {x.name for x in graph.input} - {x.name for x in graph.initializer}
    nodes = list(file.nodes_of(graph))
    depends = _find_dependent(nodes, inputs)
    scales = {n.input[1] for n in nodes if n.op_type in ("QuantizeLinear", "DequantizeLinear") and len(n.input) > 1}
    return not depends.isdisjoint(scales)


def _find_dependent(nodes: Sequence[Any], given: Iterable[str]) -> set[str]:
    """Return the edges of a file, whose nodes may be in any order, that depend on the `given` edges, and these."""
    readers = defaultdict(list)
    for node in nodes:
        for name in node.input:
            readers[name].append(node)
    dependent, todo = set(given), list(given)
    while todo:
        new = {name for node in readers[todo.pop()] for name in node.output if name} - dependent
        dependent |= new
        todo += new
    return dependent
