"""Quantized operators of ONNX and of ONNX Runtime, and files, in the forms in which exporters write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from support.network_forms import FORMS as PLAIN
from support.onnx_files import MICROSOFT, QONNX, model, node

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
for _axis, _opset in ((-1, 13), (0, 13), (1, 11)):
    _how: Any = {"axis": _axis, "opset": _opset}
    _qlinear(f"QLinearSoftmax {_how}", [node("QLinearSoftmax", "c s z s2 z2", "d", domain=MICROSOFT, **_how)])
_qlinear(
    "a quantized factor that is computed",
    [
        node("Pow", "sixteen root", "p"),
        node("QuantizeLinear", "p s2 z2", "e"),
        node("DequantizeLinear", "e s2 z2", "f"),
        node("DequantizeLinear", "c s z", "g"),
        node("Mul", "f g", "h"),
        node("QuantizeLinear", "h s2 z2", "d"),
    ],
    sixteen=np.float32(16),
    root=np.float32(-0.5),
)
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


def _repeated() -> Any:
    """Initializers that are inputs too, and no import of the quantizers' domain but with an empty name."""
    file = PLAIN["depthwise"]()
    for one in file.graph.initializer:
        file.graph.input.append(helper.make_tensor_value_info(one.name, one.data_type, one.dims))
    return file


def _imports(domains: dict[str, int]) -> Any:
    file = PLAIN["depthwise"]()
    del file.opset_import[:]
    file.opset_import.extend(helper.make_opsetid(d, v) for d, v in domains.items())
    return file


FORMS["initializers as inputs"] = _repeated
FORMS["a domain is not imported"] = lambda: _imports({"": 13})
FORMS["nothing is imported but quantizers"] = lambda: _imports({QONNX: 1})
for _domain in ("onnx.brevitas", "finn.custom_op.general", "qonnx.custom_op.general"):

    def _other(domain: str = _domain) -> Any:
        file = PLAIN["hard sigmoid"]()
        for n in file.graph.node:
            n.domain = domain if n.domain else ""
        return file

    FORMS[f"quantizers of {_domain}"] = _other
