"""Quantizers of every kind against their definitions, in fractions and in the reference of ONNX."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from support.onnx_files import MICROSOFT, QONNX, model, node, quant, tensor

from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.types import Integers

HALF = Fraction(1, 2)
MODES: dict[str, Callable[[Fraction], int]] = {
    "ROUND": round,
    "HALF_EVEN": round,
    "CEIL": math.ceil,
    "FLOOR": math.floor,
    "UP": lambda t: math.ceil(t) if t > 0 else math.floor(t),
    "DOWN": math.trunc,
    "ROUND_TO_ZERO": math.trunc,
    "HALF_UP": lambda t: math.floor(abs(t) + HALF) * (1 if t >= 0 else -1),
    "HALF_DOWN": lambda t: math.ceil(abs(t) - HALF) * (1 if t >= 0 else -1),
}


def codes(result, x, **options):
    graph = read(result, **options)
    graph.check()
    (name,) = graph.outputs
    return graph.edges[name].integers, run(graph, {"x": x})[name]


def numbers(rng, scale):
    """Numbers around, and exactly on, what modes decide differently."""
    steps = np.arange(-64, 64).reshape(2, 64) / 4
    return np.vstack([steps, rng.normal(size=(2, 64)) * 4]).astype(np.float32) * np.float32(scale)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("scale", "zero"), [(1.0, 0.0), (0.375, 3.0), (0.1, -2.0), (1e-13, 0.0), (0.7, 0.25)])
def test_rounding_is_exact(rng, mode, scale, zero):
    x = numbers(rng, scale)
    kind, got = codes(quant(4, scale, zero, rounding_mode=mode.lower()), x)
    s, z = Fraction(float(np.float32(scale))), Fraction(zero)
    want = [min(max(MODES[mode](Fraction(float(v)) / s + z), -8), 7) for v in x.reshape(-1)]
    assert got.reshape(-1).tolist() == want
    assert (kind.least, kind.most, float(kind.zero)) == (-8, 7, zero)


@pytest.mark.parametrize(
    ("bits", "signed", "narrow", "low", "high"),
    [(2, 1, 0, -2, 1), (2, 1, 1, -1, 1), (3, 0, 0, 0, 7), (3, 0, 1, 0, 6), (1, 0, 0, 0, 1), (8, 1, 1, -127, 127)],
)
def test_codes_stay_within_limits(rng, bits, signed, narrow, low, high):
    kind, got = codes(quant(bits, signed=signed, narrow=narrow), numbers(rng, 30))
    assert (kind.least, kind.most) == (got.min(), got.max()) == (low, high)


def test_one_signed_bit_is_bipolar(rng):
    x = numbers(rng, 1)
    kind, got = codes(quant(1), x)
    assert (kind.encoding, kind.bits, kind.step) == ("bipolar", 1, 2)
    assert (got == np.where(x >= 0, 1, -1)).all()


def test_float_references_compute_what_is_written():
    x = np.full((4, 64), 0.49999997, np.float32)
    onnx_model = quant(4, rounding_mode="HALF_UP")
    assert codes(onnx_model, x)[1].max() == 0
    assert codes(onnx_model, x, reference="onnx")[1].min() == 1


def test_weights_are_rounded_in_floats(rng):
    """A weight that is above -87.5 steps, but not after a division in float32."""
    for scale in rng.uniform(0.01, 1, 100).astype(np.float32):
        w = np.float32(-87.5) * scale
        if w / scale == -87.5 and Fraction(float(w)) / Fraction(float(scale)) > -87.5:
            break
    onnx_model = quant(8, scale)
    onnx_model.graph.input.pop()
    onnx_model.graph.initializer.append(tensor(np.full((4, 64), w, np.float32), "x"))
    assert set(read(onnx_model).constants["y"].flat) == {-88}


def test_bipolar_quant_gives_signs(rng):
    onnx_model = model(
        [node("BipolarQuant", "x s", domain="onnx.brevitas")],
        {"x": (4, 64)},
        {"s": np.full((4, 1), 0.5, np.float32)},
    )
    x = numbers(rng, 1)
    graph = read(onnx_model)
    assert (run(graph, {"x": x}).outputs()[0] == np.where(x >= 0, 0.5, -0.5)).all()


@pytest.mark.parametrize("version", [1, 2])
def test_trunc_follows_its_definition(rng, version):
    x = np.float32(0.5) * rng.integers(-128, 128, (4, 64)).astype(np.float32)
    second = {"t": np.float32(8.0)} if version == 2 else {}
    given = "x s z i t o" if version == 2 else "x s z i o"
    onnx_model = model(
        [node("Trunc", given, domain=QONNX, rounding_mode="FLOOR")],
        {"x": (4, 64)},
        {"s": np.float32(0.5), "z": np.float32(0), "i": np.float32(8), "o": np.float32(4), **second},
        domains={QONNX: version},
    )
    got = run(read(onnx_model), {"x": x}).outputs()[0]
    assert (got == np.floor(x * 2 / 16) * (8.0 if version == 2 else 0.5)).all()


@pytest.mark.parametrize(("scale", "bias"), [(1.0, 0.0), (2.0, -1.0), (1.0, -2.0), (0.5, 0.3), (0.25, 0.125)])
def test_multi_threshold_counts_thresholds(rng, scale, bias):
    thresholds = np.sort(rng.integers(-5, 6, (6, 3)), 1).astype(np.float32)
    onnx_model = model(
        [node("MultiThreshold", "x t", domain=QONNX, out_scale=scale, out_bias=bias)],
        {"x": (2, 6, 5)},
        {"t": thresholds},
    )
    x = rng.integers(-6, 7, (2, 6, 5)).astype(np.float32)
    count = (x[..., None] >= thresholds[None, :, None, :]).sum(-1)
    graph = read(onnx_model)
    got = run(graph, {"x": x}).outputs()[0]
    np.testing.assert_allclose(got, scale * count + bias, rtol=1e-6)
    edge = graph.edges[graph.outputs[0]]
    assert isinstance(edge.type, Integers) == (bias != 0.3)
    if (scale, bias) == (2.0, -1.0):
        kind = edge.integers
        assert (kind.step, kind.least, kind.most) == (2, -1, 5)


def test_qcdq_is_the_quantizer_that_it_stands_for(rng):
    parts = [
        node("QuantizeLinear", "x s z", "q"),
        node("Clip", "q low high", "c"),
        node("DequantizeLinear", "c s z", "y"),
    ]
    given = {"s": np.float32(0.3), "z": np.uint8(1), "low": np.uint8(0), "high": np.uint8(3)}
    graph = read(model(parts, {"x": (4, 64)}, given))
    (only,) = graph.nodes
    kind = graph.edges["y"].integers
    assert (only.op, kind.bits, kind.least, kind.most) == ("quantize", 2, 0, 3)
    x = numbers(rng, 0.3)
    want = np.clip(np.rint(x / np.float32(0.3)) + 1, 0, 3)
    assert (run(graph, {"x": x})["y"] == want).all()


def test_codes_that_others_read_stay_apart(rng):
    parts = [
        node("QuantizeLinear", "x s", "q"),
        node("DequantizeLinear", "q s", "a"),
        node("DequantizeLinear", "q t", "b"),
        node("Add", "a b"),
    ]
    given = {"s": np.float32(0.5), "t": np.float32(0.25)}
    x = numbers(rng, 1)
    graph = read(model(parts, {"x": (4, 64)}, given))
    q = np.clip(np.rint(x / 0.5), 0, 255)
    assert (run(graph, {"x": x}).outputs()[0] == q * 0.75).all()


WEIGHTS = np.random.default_rng(3).integers(-9, 9, (8, 6))


def requantizing(x_zero=3, y_zero=5, w_zero=0):
    """QLinearMatMul of (64, 8) by (8, 6), scales that are powers of two: ties are frequent."""
    given = {
        "xs": np.float32(0.5),
        "xz": np.uint8(x_zero),
        "w": WEIGHTS.astype(np.int8),
        "ws": np.float32(0.25),
        "wz": np.int8(w_zero),
        "ys": np.float32(4.0),
        "yz": np.uint8(y_zero),
    }
    return model([node("QLinearMatMul", "x xs xz w ws wz ys yz")], {"x": (64, 8)}, given, dtype=TensorProto.UINT8)


def test_references_differ_at_ties_alone(rng):
    x = rng.integers(0, 60, (64, 8)).astype(np.uint8)
    result = requantizing()
    exact, float32, onnx = (codes(result, x, reference=r)[1] for r in ("exact", "onnxruntime", "onnx"))
    sums = (x.astype(int) - 3) @ WEIGHTS
    assert (exact == np.clip([[round(Fraction(int(s), 32)) + 5 for s in row] for row in sums], 0, 255)).all()
    assert (float32 == exact).all()
    (want,) = ReferenceEvaluator(result).run(None, {"x": x})
    assert (onnx == want).all()
    assert set(abs(sums[onnx != exact]) % 32) == {16}


def test_sums_of_codes(rng):
    """Grids whose ratios are decimal: many sums lie where float32 decides for them."""
    scales = [np.float32(v) for v in (0.31, 0.17, 0.4)]
    constants: dict[str, Any] = dict(zip(("as", "bs", "cs"), scales, strict=True))
    constants |= {k: np.uint8(v) for k, v in {"az": 3, "bz": 9, "cz": 4}.items()}
    onnx_model = model(
        [node("QLinearAdd", "a as az b bs bz cs cz", domain=MICROSOFT)],
        {"a": (4, 64), "b": (4, 64)},
        constants,
        dtype=TensorProto.UINT8,
    )
    a, b = (rng.integers(0, 256, (4, 64)).astype(np.uint8) for _ in range(2))
    s, t, u = (Fraction(float(v)) for v in scales)
    want = [
        min(max(round((s * (int(p) - 3) + t * (int(q) - 9)) / u + 4), 0), 255)
        for p, q in zip(a.flat, b.flat, strict=True)
    ]
    exact, float32 = (
        run(read(onnx_model, reference=r), {"a": a, "b": b}).outputs()[0] for r in ("exact", "onnxruntime")
    )
    assert exact.dtype == np.uint8
    assert exact.reshape(-1).tolist() == want
    assert 0 < (exact != float32).sum() < 20
    assert abs(exact.astype(int) - float32).max() == 1


def test_sums_of_codes_are_fused():
    """A tie, at which fused multiply-add loses less: 20, were every product rounded."""
    constants: dict[str, Any] = {"as": np.float32(0.04344048), "bs": np.float32(0.0625), "cs": np.float32(0.125)}
    constants |= {"az": np.int8(127), "bz": np.int8(0), "cz": np.int8(0)}
    onnx_model = model(
        [node("QLinearAdd", "a as az b bs bz cs cz", domain=MICROSOFT)],
        {"a": (1,), "b": (1,)},
        constants,
        dtype=TensorProto.INT8,
    )
    given = {"a": np.array([127], np.int8), "b": np.array([39], np.int8)}
    assert run(read(onnx_model), given).outputs()[0] == 19


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"scale": 0.0}, "the_Quant: scale is 0.0; it must be a number above 0"),
        ({"scale": -1.0}, "scale is -1.0"),
        ({"scale": np.inf}, "scale is inf"),
        ({"bits": 2.5}, r"bit_width is \[2.5\]; it must be one whole number from 1 to 32"),
        ({"bits": 33}, "bit_width is"),
        ({"rounding_mode": "STOCHASTIC"}, "rounding_mode 'STOCHASTIC'; known: ROUND"),
        ({"scale": [1.0, 2.0]}, r"scale of shape \(2,\) does not broadcast to \(4, 64\)"),
    ],
)
def test_what_no_quantizer_can_be(change, why):
    bits = change.pop("bits", 4)
    with pytest.raises(SpecError, match=why):
        read(quant(bits, **change))
