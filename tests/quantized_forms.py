"""Quantized operators of ONNX and of ONNX Runtime in the forms in which exporters write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx_files import MICROSOFT, model, node

FORMS: dict[str, Callable[[], Any]] = {}
_V = np.random.default_rng(16).integers(-3, 4, (8, 5)).astype(np.float32)


def _dynamic() -> Any:
    """DynamicQuantizeLinear, MatMulInteger and the scales, as ONNX Runtime's `quantize_dynamic` writes it."""
    nodes = [
        node("DynamicQuantizeLinear", "x", "c s z"),
        node("MatMulInteger", "c u z uz", "i"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "s us", "t"),
        node("Mul", "f t", "y"),
    ]
    given = {"u": _V.astype(np.int8), "uz": np.int8(0), "us": np.float32(0.125)}
    return model(nodes, {"x": (3, 8)}, given, opset=13)


FORMS["dynamic quantization"] = _dynamic


def _qlinear(op: str, nodes: list[Any], **given: Any) -> None:
    every = [node("QuantizeLinear", "x s z", "c"), *nodes, node("DequantizeLinear", "d s2 z2", "y")]
    constants = {"s": np.float32(0.05), "z": np.uint8(120), "s2": np.float32(0.031), "z2": np.uint8(7)} | given
    FORMS[op] = lambda: model(every, {"x": (3, 8)}, constants, opset=13)


for _op in ("QLinearSigmoid", "QLinearLeakyRelu"):
    _qlinear(_op, [node(_op, "c s z s2 z2", "d", domain=MICROSOFT)])
_qlinear("QLinearConcat", [node("QLinearConcat", "s2 z2 c s z c s2 z2", "d", domain=MICROSOFT, axis=1)])
_qlinear("QLinearAdd", [node("QLinearAdd", "c s z c s2 z2 s2 z2", "d", domain=MICROSOFT)])
for _turned in (0, 1):
    _qlinear(
        f"QGemm {_turned}",
        [node("QGemm", "c s z u us uz b s2 z2", "d", domain=MICROSOFT, transB=_turned, alpha=0.5)],
        u=np.ascontiguousarray(_V.T if _turned else _V).astype(np.int8),
        us=np.linspace(0.01, 0.05, 5, dtype=np.float32),
        uz=np.zeros(5, np.int8),
        b=np.arange(-2, 3, dtype=np.int32) * 100,
    )
