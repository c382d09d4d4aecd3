"""Nodes of com.microsoft that ONNX Runtime's optimizer joins of several: products with what follows, norms, GELU."""

from __future__ import annotations

from dataclasses import replace

from bitsynth.graph.read.activation_nodes import READERS as ACTIVATIONS
from bitsynth.graph.read.activation_nodes import gelu, swish
from bitsynth.graph.read.float_nodes import Reader, cast_to
from bitsynth.graph.read.layouts import by_layout, channels_last
from bitsynth.graph.read.linear_nodes import dynamic_quantize, plain, qlinear_conv
from bitsynth.graph.read.norm_nodes import layer_norm, rms_norm
from bitsynth.graph.read.rounding_nodes import READERS as ROUNDING
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.read.window_nodes import conv, gemm, max_pool

_PARAMETERS = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Softplus": (),
    "Tanh": (),
}
"""The attributes of activations that a product may have behind it, in the order of `activation_params`."""


def _of(node: FileNode, *edges: str) -> FileNode:
    """The node with other inputs."""
    return replace(node, inputs=edges)


def _activated(node: FileNode, edge: str) -> tuple[str, ...]:
    """An edge with the node's activation behind it."""
    name = node.get("activation", "")
    if not name:
        return (edge,)
    if name not in _PARAMETERS:
        raise node.fail(f"activation {name!r} is not known; known: {', '.join(_PARAMETERS)}")
    numbers = [float(n) for n in node.get("activation_params", ())]
    alone = {
        key: float(node.get(f"activation_{key}")) for key in _PARAMETERS[name] if f"activation_{key}" in node.attributes
    }
    attributes = dict(zip(_PARAMETERS[name], numbers, strict=False)) | alone
    return ({**ACTIVATIONS, **ROUNDING}[name])(replace(node, inputs=(edge,), attributes=attributes))


def _fused_conv(node: FileNode) -> tuple[str, ...]:
    (made,) = conv(node)
    return _activated(node, node.add("add", made, node.edge(3)) if node.has(3) else made)


def _fused_gemm(node: FileNode) -> tuple[str, ...]:
    return _activated(node, gemm(node)[0])


def _fused_matmul(node: FileNode) -> tuple[str, ...]:
    """A product, factors with their last axes turned first, times alpha."""
    if node.get("transBatchA") or node.get("transBatchB"):
        raise node.fail("turns axes of batches, which is not compiled")
    factors = []
    for k, name in enumerate(("transA", "transB")):
        rank = len(node.shape(k))
        order = (*range(rank - 2), rank - 1, rank - 2)
        factors.append(
            node.add("transpose", node.edge(k), order=order) if node.get(name) and rank > 1 else node.edge(k)
        )
    made = node.add("matmul", *factors)
    alpha = node.get("alpha", 1.0)
    return (made if alpha == 1.0 else node.add("mul", made, node.like(alpha)),)


def _with_bias(node: FileNode) -> FileNode:
    """The node of the sum of its first two inputs."""
    return _of(node, node.add("add", node.edge(0), node.edge(1)) if node.has(1) else node.edge(0))


def _fast_gelu(node: FileNode) -> tuple[str, ...]:
    return gelu(replace(_with_bias(node), attributes={"approximate": "tanh"}))


def _quick_gelu(node: FileNode) -> tuple[str, ...]:
    return swish(replace(node, attributes={"alpha": node.get("alpha", 1.702)}))


def _skip_norm(norm: Reader, *, bias: int) -> Reader:
    """A norm of a sum: of two edges, and of the input `bias` if it is there; the sum is the fourth result."""

    def read(node: FileNode) -> tuple[str, ...]:
        total = node.add("add", node.edge(0), node.edge(1))
        total = node.add("add", total, node.edge(bias)) if node.has(bias) else total
        rest = tuple(node.edge(k) for k in range(2, bias) if node.has(k))
        made = norm(replace(node, inputs=(total, *rest), attributes={"epsilon": node.get("epsilon", 1e-12)}))
        return made[0], *("",) * 2, total

    return read


def _matmul_to_float(node: FileNode) -> tuple[str, ...]:
    """A product of integers times the scales of both."""
    scales = [node.edge(2), node.edge(3)]
    return (_to_float(node, (plain(node, 0, 4, -2), plain(node, 1, 5, -1)), scales, 6),)


def _to_float(node: FileNode, factors: tuple[str, str], scales: list[str], bias: int) -> str:
    sums = cast_to(node, node.add("matmul", *factors, dtype="int32"), "float32")
    made = node.add("mul", sums, node.add("mul", *scales))
    return node.add("add", made, node.edge(bias)) if node.has(bias) else made


def _dynamic_matmul(node: FileNode) -> tuple[str, ...]:
    codes, scale, zero = dynamic_quantize(_of(node, node.edge(0)))
    whole = [cast_to(node, edge, "int32") for edge in (codes, zero)]
    return (_to_float(node, (node.add("sub", *whole), plain(node, 1, 3, -1)), [scale, node.edge(2)], 4),)


READERS: dict[str, Reader] = {
    "BiasGelu": lambda node: gelu(_with_bias(node)),
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": gelu,
    "MatMulIntegerToFloat": _matmul_to_float,
    "NhwcMaxPool": channels_last(max_pool),
    "QLinearConv": by_layout(qlinear_conv),
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_norm(layer_norm, bias=4),
    "SkipSimplifiedLayerNormalization": _skip_norm(rms_norm, bias=3),
}
