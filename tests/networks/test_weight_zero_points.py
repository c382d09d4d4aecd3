"""Weights with a zero point, as ONNX Runtime and converters of TFLite write them: every product is a layer."""

import numpy as np
import pytest
from onnx import TensorProto
from support.case_selection import quick
from support.network_batches import compiled_together, same
from support.onnx_files import model, node

import bitsynth
from bitsynth.graph import run
from bitsynth.network.program import LayerStep

RNG = np.random.default_rng(0)
F = np.float32
KERNEL = RNG.integers(0, 256, (12, 4, 3, 3)).astype(np.uint8)
MATRIX = RNG.integers(0, 256, (20, 9)).astype(np.uint8)
MADE = {"ys": F(60.0), "yz": np.uint8(131), "s": F(0.02), "ws": F(0.5)}
ENDS = {"x": (1, 4, 7, 6)}


def qlinear_conv(zero, act):
    given = {"w": KERNEL, "wz": np.uint8(zero), "z": act, "b": RNG.integers(-9999, 9999, 12).astype(np.int32), **MADE}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearConv", "q s z w ws wz ys yz b", "r", pads=[1, 1, 1, 1]),
        node("DequantizeLinear", "r ys yz"),
    ]
    return model(nodes, ENDS, given)


def qlinear_matmul(zero, act):
    given = {"w": MATRIX, "wz": np.uint8(zero), "z": act, **MADE}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearMatMul", "q s z w ws wz ys yz", "r"),
        node("DequantizeLinear", "r ys yz"),
    ]
    return model(nodes, {"x": (3, 20)}, given)


def qdq(zero, act, weights=KERNEL, kind=np.uint8):
    given = {"w": weights, "wz": np.asarray(zero, kind), "z": act, "zero": np.uint8(0), **MADE}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "v"),
        node("DequantizeLinear", "w ws wz", "u"),
        node("Conv", "v u", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("QuantizeLinear", "r ys zero", "p"),
        node("DequantizeLinear", "p ys zero"),
    ]
    return model(nodes, ENDS, given)


def depthwise(zero, act):
    weights = RNG.integers(0, 256, (4, 1, 3, 3)).astype(np.uint8)
    onnx_model = qdq(zero, act, weights)
    onnx_model.graph.node[3].attribute.append(node("Conv", "v u", group=4).attribute[0])
    return onnx_model


def conv_integer(zero, act):
    given = {"w": KERNEL, "wz": np.uint8(zero), "z": act}
    nodes = [node("ConvInteger", "x w z wz", "r"), node("Cast", "r", to=TensorProto.FLOAT)]
    return model(nodes, ENDS, given, dtype=TensorProto.INT8 if act.dtype == np.int8 else TensorProto.UINT8)


FILES = {f.__name__: f for f in (qlinear_conv, qlinear_matmul, qdq, depthwise, conv_integer)}


CASES = [(isa, zero) for isa in ("avx2", "avx512", "neon", "armv7_neon") for zero in (1, 113, 200, 255)]


@pytest.mark.parametrize(("isa", "zero"), quick([("avx2", 200)], of=CASES, spread=True))
def test_every_product_is_a_layer(isa, zero, skip_isa):
    acts = (np.uint8(0), np.uint8(77), np.int8(-5))
    nets = [bitsynth.compile(make(zero, acts[(k + zero) % 3]), isa=isa) for k, make in enumerate(FILES.values())]
    for net in nets:
        (layer,) = [step for step in net.program.steps if isinstance(step, LayerStep)]
        assert layer.layer.plan.spec.wgt.zero or layer.layer.plan.spec.wgt.bits == 8
    try:
        compiled_together(isa, nets)
    except bitsynth.ToolError as why:
        skip_isa(isa, str(why))
    for net in nets:
        (name,) = net.graph.inputs
        edge = net.graph.edges[name]
        x = RNG.normal(size=edge.shape).astype(F) if edge.dtype == "float32" else RNG.integers(-128, 128, edge.shape)
        x = x.astype(edge.dtype)
        values = run(net.graph, {name: x})
        wrong = [edge for edge, got in net.trace(x).items() if not same(values, edge, got)]
        assert not wrong


def test_narrow_weights_keep_their_bits():
    """Codes of 4 bits less 7 reach from -7 to 8, which 5 signed bits would hold."""
    weights = KERNEL & 15
    weights[0, 0, 0] = 0, 15, 7
    net = bitsynth.compile(qdq(7, np.uint8(0), weights), isa="avx2")
    (layer,) = [step for step in net.program.steps if isinstance(step, LayerStep)]
    assert str(layer.layer.plan.spec.wgt) == "4-bit unsigned less 7"
    x = RNG.normal(size=ENDS["x"]).astype(F)
    assert same(run(net.graph, {"x": x}), "y", net(x))
