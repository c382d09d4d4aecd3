"""Patterns of networks that were quantized before: products of integers, then Mul once or twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from support.onnx_files import model, node


def prequantized(
    *middle: Any,
    product: str = "MatMulInteger",
    shape: tuple[int, ...] = (4, 16),
    unsigned: bool = False,
    numbers: bool = False,
    **constants: Any,
) -> Any:
    """A product of integers and a bias, what comes between, and a quantizer; its codes, or the `numbers` they are."""
    sizes = (16, 8) if product == "MatMulInteger" else (8, 4, 3, 3)
    w = np.random.default_rng(0).integers(-9, 9, sizes).astype(np.int8)
    bias = np.arange(-4, 4, dtype=np.int32) * 9
    nodes = [
        node(product, "x w", "sums"),
        node("Add", "sums bias", "biased"),
        node("Cast", "biased", "h0", to=TensorProto.FLOAT),
        *middle,
        node("QuantizeLinear", f"h{len(middle)} one zero", "q" if numbers else "y"),
        *([node("DequantizeLinear", "q one zero", "y")] if numbers else []),
    ]
    given = {"w": w, "bias": bias if product == "MatMulInteger" else bias.reshape(1, 8, 1, 1)}
    return model(
        nodes,
        {"x": shape},
        given | {"one": np.float32(1), "zero": np.uint8(0) if unsigned else np.int8(0)} | constants,
        dtype=TensorProto.UINT8,
    )


TWO = (node("Mul", "h0 scale", "h1"), node("Mul", "h1 shift", "h2"))
THIRD: dict[str, Any] = {"scale": np.float32(11184810), "shift": np.float32(2**-29)}
PATTERNS: dict[str, Any] = {
    "two Mul": prequantized(*TWO, **THIRD),
    "one Mul, Relu": prequantized(
        node("Mul", "h0 m", "h1"), node("Relu", "h1", "h2"), unsigned=True, m=np.float32(0.0473)
    ),
    "convolution": prequantized(
        *TWO, product="ConvInteger", shape=(1, 4, 6, 6), scale=np.float32(1234), shift=np.float32(2**-14)
    ),
    "tanh of codes": prequantized(
        *TWO,
        node("QuantizeLinear", "h2 one zero", "h3"),
        node("DequantizeLinear", "h3 s zero", "h4"),
        node("Tanh", "h4", "h5"),
        node("Div", "h5 s", "h6"),
        s=np.float32(1 / 64),
        **THIRD,
    ),
    "sigmoid in half precision": prequantized(
        node("Mul", "h0 s", "h1"),
        node("Cast", "h1", "h2", to=TensorProto.FLOAT16),
        node("Sigmoid", "h2", "h3"),
        node("Cast", "h3", "h4", to=TensorProto.FLOAT),
        node("Mul", "h4 most", "h5"),
        unsigned=True,
        s=np.float32(1 / 512),
        most=np.float32(255),
    ),
}
