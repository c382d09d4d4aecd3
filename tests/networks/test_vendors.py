"""Quantizers of other tools: the codes that OpenVINO's FakeQuantize means, and QuantizeLinear by other names."""

from typing import Any

import numpy as np
import pytest
from support.onnx_files import model, node

from bitsynth.errors import SpecError
from bitsynth.graph import read, run

OPENVINO = "org.openvinotoolkit"


def fake(ends: tuple[Any, ...], levels: int) -> Any:
    """A FakeQuantize of an input (1, 4, 20, 20)."""
    given = {name: np.asarray(end, np.float32) for name, end in zip("abcd", ends, strict=True)}
    one = node("FakeQuantize", "x a b c d", domain=OPENVINO, levels=levels)
    return model([one], {"x": (1, 4, 20, 20)}, given, domains={OPENVINO: 1})


def formula(x, ends, levels):
    """OpenVINO's own, in float64 of the file's numbers."""
    low, high, out_low, out_high = (np.asarray(end, np.float32).astype(np.float64) for end in ends)
    steps = np.rint((np.clip(x.astype(np.float64), low, high) - low) / (high - low) * (levels - 1))
    return steps / (levels - 1) * (out_high - out_low) + out_low


CHANNELS = np.array([0.5, 1, 2, 4]).reshape(1, 4, 1, 1)
CASES = {
    "around 0": ((-2, 1.984375, -2, 1.984375), 256, (-128, 127)),
    "weights": ((-CHANNELS, CHANNELS, -CHANNELS, CHANNELS), 255, (-127, 127)),
    "from 0": ((0, 3, 0, 3), 256, (0, 255)),
    "a zero point": ((-0.5, 2.05, -0.5, 2.05), 256, (0, 255)),
    "0 between two levels": ((-0.5, 0.6, -0.5, 0.6), 256, (0, 255)),
    "another scale": ((0, 6, 0, 1), 16, (0, 15)),
    "two levels": ((-3, 2, -1, 1), 2, (0, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_fake_quantize_is_a_quantizer(name, rng):
    ends, levels, limits = CASES[name]
    graph = read(fake(ends, levels))
    kind = graph.edges["y"].integers
    assert (kind.least, kind.most) == limits
    x = rng.normal(0, 2, (1, 4, 20, 20)).astype(np.float32)
    (results,) = run(graph, {"x": x}).outputs()
    np.testing.assert_allclose(results, formula(x, ends, levels), atol=2e-7)


def test_limits_that_make_no_scale_are_refused():
    with pytest.raises(
        SpecError, match=r"FakeQuantize the_FakeQuantize: input_high is 0.0; it must be a number above 0"
    ):
        read(fake((1, 1, 0, 1), 4))
    with pytest.raises(SpecError, match=r"levels is 1; it must be 2 to"):
        read(fake((0, 1, 0, 1), 1))


@pytest.mark.parametrize(("domain", "prefix"), [("com.vai.quantize", "Vitis"), ("com.amd.quark", "Extended")])
def test_quantize_linear_by_another_name(domain, prefix, rng):
    nodes = [
        node(f"{prefix}QuantizeLinear", "x s z", "q", domain=domain),
        node(f"{prefix}DequantizeLinear", "q s z", domain=domain),
    ]
    given = {"s": np.float32(0.125), "z": np.int8(0)}
    graph = read(model(nodes, {"x": (4, 64)}, given, domains={domain: 1}))
    x = rng.normal(0, 5, (4, 64)).astype(np.float32)
    (results,) = run(graph, {"x": x}).outputs()
    assert (results == np.clip(np.rint(x / 0.125), -128, 127) * 0.125).all()
    assert graph.reference == "exact"
