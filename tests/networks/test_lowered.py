"""Files on the way to hardware: channels last, convolutions as products of patches, bits that are counted."""

from typing import Any

import numpy as np
import pytest
from support.network_batches import same
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run

LAST = "qonnx.custom_op.channels_last"
SHAPE = (1, 8, 6, 6)
CODES: dict[str, Any] = {"signed": 0, "narrow": 0, "domain": QONNX}
PATCH: dict[str, Any] = {"domain": QONNX, "kernel_size": [3, 3], "stride": [1, 1], "pad_amount": [1, 1, 1, 1]}
WINDOW: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


@pytest.fixture
def given(rng):
    """Scales, weights of a convolution, one by channel, and batch norm."""
    return {
        "s": np.float32(0.25),
        "z": np.float32(0),
        "b": np.float32(2),
        "w": rng.integers(-1, 2, (16, 8, 3, 3)).astype(np.float32),
        "d": rng.integers(-1, 2, (16, 1, 3, 3)).astype(np.float32),
        "gain": rng.uniform(0.5, 2, 16).astype(np.float32),
        "bias": rng.normal(size=16).astype(np.float32),
        "mean": rng.normal(size=16).astype(np.float32),
        "variance": rng.uniform(0.5, 2, 16).astype(np.float32),
    }


def channels_first(given):
    nodes = [
        node("Quant", "x s z b", "q", **CODES),
        node("Conv", "q w", "c", **WINDOW),
        node("BatchNormalization", "c gain bias mean variance", "n"),
        node("Relu", "n", "r"),
        node("Quant", "r s z b", "p", **CODES),
        node("Conv", "p d", "e", name="second", group=16, **WINDOW),
        node("Add", "e p", "a"),
        node("Quant", "a s z b", "t", name="third", **CODES),
        node("MaxPool", "t", "y", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    return model(nodes, {"x": SHAPE}, given)


def channels_last(given):
    """The same as qonnx's ConvertToChannelsLast writes it."""
    nodes = [
        node("Transpose", "x", "l", perm=[0, 2, 3, 1]),
        node("Quant", "l s z b", "q", **CODES),
        node("Conv", "q w", "c", domain=LAST, **WINDOW),
        node("BatchNormalization", "c gain bias mean variance", "n", domain=LAST),
        node("Relu", "n", "r"),
        node("Quant", "r s z b", "p", **CODES),
        node("Conv", "p d", "e", name="second", domain=LAST, group=16, **WINDOW),
        node("Add", "e p", "a"),
        node("Quant", "a s z b", "t", name="third", **CODES),
        node("MaxPool", "t", "m", domain=LAST, kernel_shape=[2, 2], strides=[2, 2]),
        node("Transpose", "m", "y", name="back", perm=[0, 3, 1, 2]),
    ]
    return model(nodes, {"x": SHAPE}, given | {k: given[k].transpose(0, 2, 3, 1) for k in "wd"}, domains={LAST: 1})


def patches(given):
    """The same as FINN's LowerConvsToMatMul writes it; weights by channel are dense, with zeros."""
    dense = np.zeros((16, 16, 3, 3), np.float32)
    dense[range(16), range(16)] = given["d"][:, 0]
    nodes = [
        node("Quant", "x s z b", "q", **CODES),
        node("Transpose", "q", "l", perm=[0, 2, 3, 1]),
        node("Im2Col", "l", "i", input_shape="(1,6,6,8)", **PATCH),
        node("MatMul", "i w", "j"),
        node("Transpose", "j", "c", name="first", perm=[0, 3, 1, 2]),
        node("BatchNormalization", "c gain bias mean variance", "n"),
        node("Relu", "n", "r"),
        node("Quant", "r s z b", "p", **CODES),
        node("Transpose", "p", "o", name="last", perm=[0, 2, 3, 1]),
        node("Im2Col", "o", "u", name="second", input_shape="(1,6,6,16)", depthwise=1, **PATCH),
        node("MatMul", "u d", "v", name="sums"),
        node("Add", "v o", "a"),
        node("Quant", "a s z b", "t", name="third", **CODES),
        node("MaxPoolNHWC", "t", "m", domain=QONNX, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0]),
        node("Transpose", "m", "y", name="back", perm=[0, 3, 1, 2]),
    ]
    rows = {k: w.transpose(2, 3, 1, 0).reshape(-1, 16) for k, w in (("w", given["w"]), ("d", dense))}
    return model(nodes, {"x": SHAPE}, given | rows)


@pytest.mark.parametrize("form", [channels_last, patches])
def test_other_layouts_are_the_network_with_channels_first(form, given, rng):
    graph, plain = read(form(given)), read(channels_first(given))
    assert [node.op for node in graph.nodes] == [node.op for node in plain.nodes]
    assert [node.attributes.get("groups") for node in graph.nodes if node.op == "conv"] == [1, 16]
    x = rng.normal(size=SHAPE).astype(np.float32)
    (want,), (got,) = run(plain, {"x": x}).outputs(), run(graph, {"x": x}).outputs()
    assert (got == want).all()


def test_patches_alone_are_patches(rng):
    """What qonnx's Im2Col gives: by pixel, then by channel."""
    patch: dict[str, Any] = {"kernel_size": [2, 3], "stride": [2, 1], "pad_amount": [0, 1, 1, 0]}
    graph = read(model([node("Im2Col", "x", domain=QONNX, input_shape="(1,5,4,2)", **patch)], {"x": (1, 5, 4, 2)}))
    x = rng.normal(size=(1, 5, 4, 2)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 1), (1, 0), (0, 0)))
    want = [[padded[0, 2 * h : 2 * h + 2, w : w + 3].reshape(-1) for w in range(3)] for h in range(3)]
    (got,) = run(graph, {"x": x}).outputs()
    assert (got == np.array([want])).all()


def test_padding_of_patches_that_is_not_0_is_refused():
    patch: dict[str, Any] = {"kernel_size": [2, 2], "stride": [1, 1], "pad_value": 1}
    with pytest.raises(SpecError, match=r"Im2Col the_Im2Col: pads with 1; only 0"):
        read(model([node("Im2Col", "x", domain=QONNX, **patch)], {"x": (1, 5, 4, 2)}))


def test_bits_that_are_alike_are_a_product_of_bits(rng):
    """What qonnx's XnorPopcountMatMul counts."""
    w = rng.integers(0, 2, (64, 16)).astype(np.float32)
    nodes = [
        node("MultiThreshold", "x t", "a", domain=QONNX, out_dtype="BINARY"),
        node("XnorPopcountMatMul", "a w", domain=QONNX),
    ]
    net = bitsynth.compile(model(nodes, {"x": (1, 64)}, {"t": np.zeros((1, 1), np.float32), "w": w}), isa="avx2")
    assert [step.kind for step in net.report().steps if step.nodes] == ["plain", "layer"]
    x = rng.normal(size=(1, 64)).astype(np.float32)
    alike = ((x[0, :, None] >= 0) == w).sum(0)
    (results,) = run(net.graph, {"x": x}).outputs()
    assert (results == alike).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_means_of_integers_are_shifted_sums(layout, rng):
    """QuantAvgPool2d of Brevitas: 16 * 3 has 6 bits, and 2 of them are left."""
    pool: dict[str, Any] = {"kernel": 4, "stride": 4, "ibits": 2, "obits": 2, "signed": 0}
    nodes = [
        node("MultiThreshold", "x t", "a", domain=QONNX, data_layout=layout, out_dtype="UINT2"),
        node("QuantAvgPool2d", "a", domain=QONNX, data_layout=layout, **pool),
    ]
    net = bitsynth.compile(model(nodes, {"x": (1, 8, 8, 8)}, {"t": np.array([[-0.5, 0, 0.5]], np.float32)}), isa="avx2")
    x = rng.normal(size=(1, 8, 8, 8)).astype(np.float32)
    codes = sum((x >= limit).astype(int) for limit in (-0.5, 0, 0.5))
    first = codes if layout == "NCHW" else codes.transpose(0, 3, 1, 2)
    want = first.reshape(1, 8, 2, 4, 2, 4).sum((3, 5)) >> 4
    want = want if layout == "NCHW" else want.transpose(0, 2, 3, 1)
    values = run(net.graph, {"x": x})
    assert (values.outputs()[0] == want).all()
    assert same(values, "y", net(x))


def scales_apart(name):
    """A quantizer as ExtractQuantScaleZeroPt writes it: by 1, between Div and Mul."""
    return [
        node("Div", f"{name} s{name}", f"{name}1", name=f"div {name}"),
        node("Quant", f"{name}1 one z b", f"{name}2", name=f"quant {name}", domain=QONNX, signed=1, narrow=1),
        node("Mul", f"{name}2 s{name}", f"{name}3", name=f"mul {name}"),
    ]


def test_scales_apart_from_quantizers_are_theirs(rng):
    w = rng.normal(size=(64, 16)).astype(np.float32)
    scale = rng.uniform(0.1, 0.3, (1, 16)).astype(np.float32)
    given = {"w": w, "sw": scale, "sx": np.float32(0.3), "one": np.float32(1), "z": np.float32(0), "b": np.float32(3)}
    nodes = [*scales_apart("x"), *scales_apart("w"), node("MatMul", "x3 w3")]
    graph = read(model(nodes, {"x": (1, 64)}, given))
    assert (graph.constants[graph.nodes[-1].inputs[1]] == np.clip(np.rint(w / scale), -3, 3)).all()
    x = rng.normal(size=(1, 64)).astype(np.float32)
    (results,) = run(graph, {"x": x}).outputs()
    codes = np.clip(np.rint(x / np.float64(np.float32(0.3))), -3, 3)
    np.testing.assert_allclose(
        results, codes * np.float32(0.3) @ (np.clip(np.rint(w / scale), -3, 3) * scale), rtol=1e-5
    )


def test_a_scale_that_nodes_make_of_constants(rng):
    """Brevitas without folding of constants leaves Abs, Max and Div of learned scales in the file."""
    nodes = [
        node("Abs", "t", "a"),
        node("Max", "a least", "c"),
        node("Div", "c seven", "s"),
        node("Quant", "x s z b", domain=QONNX, signed=1, narrow=1),
    ]
    given = {k: np.float32(v) for k, v in (("t", -1.1), ("least", 1e-6), ("seven", 7), ("z", 0), ("b", 4))}
    graph = read(model(nodes, {"x": (1, 8)}, given))
    assert graph.edges["y"].integers.scale == np.float32(1.1) / np.float32(7)


def gated(given, *, last):
    """A mean of each channel, a convolution of it, and its sigmoid times the image: squeeze and excite."""
    axes = [1, 2] if last else [2, 3]
    domain = LAST if last else ""
    given = given | {"g": given["w"][:8, :, :1, :1], "axes": np.array(axes)}
    nodes = [
        node("Quant", "x s z b", "q", **CODES),
        *([node("Transpose", "q", "p", perm=[0, 2, 3, 1])] if last else [node("Identity", "q", "p")]),
        node("ReduceMean", "p axes", "m", keepdims=1),
        node("Conv", "m g", "c", domain=domain),
        node("Sigmoid", "c", "e"),
        node("Mul", "p e", "a"),
        node("ReduceMax", "a axes", "y", name="most", keepdims=0),
    ]
    given = given | ({"g": given["g"].transpose(0, 2, 3, 1)} if last else {})
    return model(nodes, {"x": SHAPE}, given, domains={LAST: 1})


def test_means_of_channels_last_move_nothing(given, rng):
    graph, plain = read(gated(given, last=True)), read(gated(given, last=False))
    assert "transpose" not in [node.op for node in graph.nodes]
    x = rng.normal(size=SHAPE).astype(np.float32)
    (got,), (want,) = run(graph, {"x": x}).outputs(), run(plain, {"x": x}).outputs()
    assert got.shape == (1, 8)
    assert (got == want).all()
