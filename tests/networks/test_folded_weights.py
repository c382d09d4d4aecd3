"""Weights that exporters fold into floats: codes of one scale a channel again, unless they are no such."""

import numpy as np
import pytest
from support.onnx_files import model, node

from bitsynth.graph import read, run
from bitsynth.graph.types import Integers

GIVEN = {"low": np.float32(0), "most": np.float32(15), "step": np.float32(0.3)}
QUANTIZED = [
    node("Div", "x step", "a", name="a"),
    node("Clip", "a low most", "b", name="b"),
    node("Round", "b", "c", name="c"),
    node("Mul", "c step", "q", name="q"),
]


def net(w, *, shape=(1, 8, 6, 6), op="Conv", **attributes):
    given = GIVEN | {"w": w, "g": np.float32(0.05), "h": np.float32(7)}
    behind = [node("Div", "r g", "d"), node("Round", "d", "e", name="e"), node("Clip", "e low h", "y", name="y")]
    return model([*QUANTIZED, node(op, "q w", "r", **attributes), *behind], {"x": shape}, given)


def weights_of(graph):
    (product,) = (n for n in graph.nodes if n.op in ("conv", "matmul"))
    return graph.edges[product.inputs[1]], graph.constants.get(product.inputs[1])


def codes(rng, bits, shape=(16, 8, 3, 3)):
    most = 2 ** (bits - 1) - 1
    result = rng.integers(-most, most + 1, shape)
    result[:, 0, 0] = most if most else 1
    return result


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_codes_times_a_scale_and_a_gain(bits, rng):
    """The batch norm's gain rounds each weight once more."""
    w = codes(rng, bits)
    gain = (rng.uniform(0.3, 2, (16, 1, 1, 1)) * rng.choice([-1, 1], (16, 1, 1, 1))).astype(np.float32)
    folded = (w * np.float32(0.0371)).astype(np.float32) * gain
    edge, held = weights_of(read(net(folded)))
    assert held is not None
    assert (held == w * np.sign(gain)).all()
    np.testing.assert_allclose(held * edge.integers.scale, folded, rtol=1e-6)


def test_levels_of_dorefa(rng):
    """2 * (code / 15) - 1 in float32 leaves small weights off by many units in their last place."""
    w = rng.integers(0, 16, (16, 8, 3, 3)).astype(np.float32)
    w[0, 0, 0, 0] = 15
    _, held = weights_of(read(net(w / np.float32(15) * 2 - 1)))
    assert held is not None
    assert (held == 2 * w - 15).all()


def test_binary_and_ternary_weights_with_the_mean_of_a_channel(rng):
    w = rng.normal(size=(16, 8, 3, 3)).astype(np.float32)
    size = abs(w).mean((1, 2, 3), keepdims=True)
    for want in (np.sign(w), np.sign(w) * (abs(w) > 0.7 * size)):
        edge, held = weights_of(read(net((want * size).astype(np.float32))))
        assert held is not None
        assert (held == want).all()
        assert edge.integers.bits == (2 if (want == 0).any() else 1)
        assert (edge.integers.scale.reshape(-1) == size.reshape(-1)).all()


def test_a_channel_of_zeros(rng):
    w = codes(rng, 3)
    w[5] = 0
    _, held = weights_of(read(net((w * np.float32(0.21)).astype(np.float32))))
    assert held is not None
    assert (held == w).all()


@pytest.mark.parametrize(
    ("op", "turned", "how"), [("MatMul", False, {}), ("Gemm", False, {}), ("Gemm", True, {"transB": 1})]
)
def test_matrices_have_a_scale_a_column(op, turned, how, rng):
    w = codes(rng, 4, (24, 8, 1, 1))[:, :, 0, 0]
    folded = (w * rng.uniform(0.1, 1, (24, 1))).astype(np.float32)
    _, held = weights_of(read(net(folded if turned else folded.T.copy(), shape=(2, 8), op=op, **how)))
    assert held is not None
    assert (held == w.T).all()


def test_small_channels_beside_great_ones_are_no_zeros(rng):
    w = codes(rng, 3) * np.float32(0.21)
    w[3] *= np.float32(2.0**-24)
    w = w.astype(np.float32)
    edge, held = weights_of(read(net(w)))
    assert held is not None
    np.testing.assert_allclose(held * edge.integers.scale, w, rtol=1e-6)
    w[3, 0, 0, 0] = 0.3
    edge, _ = weights_of(read(net(w)))
    assert not isinstance(edge.type, Integers)


def test_real_weights_stay(rng):
    w = rng.normal(size=(16, 8, 3, 3)).astype(np.float32)
    edge, _ = weights_of(read(net(w)))
    assert not isinstance(edge.type, Integers)
    near = (codes(rng, 4) * 0.1 * (1 + 1e-5 * rng.normal(size=w.shape))).astype(np.float32)
    edge, _ = weights_of(read(net(near)))
    assert not isinstance(edge.type, Integers)


def test_formulas_of_floats_keep_the_weights_of_the_file(rng):
    w = (codes(rng, 4) * np.float32(0.21)).astype(np.float32)
    edge, _ = weights_of(read(net(w), reference="onnxruntime"))
    assert not isinstance(edge.type, Integers)


def test_codes_are_those_of_the_file_in_floats(rng):
    """All but those beside a rounding's boundary."""
    model_ = net((codes(rng, 4) * np.float32(0.0213)).astype(np.float32))
    x = rng.uniform(0, 5, (1, 8, 6, 6)).astype(np.float32)
    got, want = (run(read(model_, reference=r), {"x": x}).outputs()[0] for r in ("exact", "onnx"))
    assert len(np.unique(got)) > 4
    assert (got != want).mean() < 0.01


def test_weights_that_a_file_computes_from_constants(rng):
    """A straight-through estimator, -x + q + x, of constants: float64 in exact arithmetic."""
    w = codes(rng, 4)
    given = GIVEN | {"x0": rng.normal(size=w.shape).astype(np.float32), "q0": w * np.float32(0.125)}
    items = [node("Neg", "x0", "n"), node("Add", "n q0", "d"), node("Add", "d x0", "w", name="w")]
    edge, held = weights_of(read(model([*QUANTIZED, *items, node("Conv", "q w", "y")], {"x": (1, 8, 6, 6)}, given)))
    assert held is not None
    assert (held == w).all()
    assert edge.integers.scale == 0.125
