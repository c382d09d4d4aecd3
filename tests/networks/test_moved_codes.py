"""A whole number of steps added to codes moves their zero point; a product of them stays a layer of few bits."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.network_batches import same
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.graph import read, run
from bitsynth.graph.types import Integers
from bitsynth.network.certificate import checker, digest

SHAPE = (1, 8, 6, 6)
CODES = [node("Quant", "x s z b", "q", domain=QONNX, signed=0, narrow=0)]
SIGNS = [node("BipolarQuant", "x one", "q", domain=QONNX)]
GIVEN = {
    "one": np.float32(1),
    "half": np.float32(0.5),
    "s": np.float32(0.25),
    "z": np.float32(0),
    "b": np.float32(2),
    "step": np.float32(0.25),
    "third": np.float32(0.3),
    "channels": np.arange(8, dtype=np.float32).reshape(8, 1, 1) / 4,
}
MOVED = {
    "codes - 1 step": [*CODES, node("Sub", "q step", "u")],
    "codes + 4 steps": [*CODES, node("Add", "q one", "u")],
    "2 steps - codes": [*CODES, node("Sub", "half q", "u")],
    "bipolar / 2 + 1/2": [*SIGNS, node("Mul", "q half", "m"), node("Add", "m half", "u")],
    "1 - bipolar": [*SIGNS, node("Sub", "one q", "u")],
}
OTHER = {
    "codes + 1.2 steps": [*CODES, node("Add", "q third", "u")],
    "1.2 steps - codes": [*CODES, node("Sub", "third q", "u")],
    "steps by channel": [*CODES, node("Add", "q channels", "u")],
}


def build(nodes, rng, pads=0):
    weights = rng.choice([-1.0, 1.0], (16, 8, 3, 3)).astype(np.float32)
    return model([*nodes, node("Conv", "u w", "y", pads=[pads] * 4)], {"x": SHAPE}, {**GIVEN, "w": weights})


@pytest.mark.parametrize("pads", [0, 1])
@pytest.mark.parametrize("form", [*MOVED, *OTHER])
def test_products_of_moved_codes_are_layers_with_the_results_of_the_file(form, pads, rng):
    file = build({**MOVED, **OTHER}[form], rng, pads)
    net = bitsynth.compile(file, isa="avx2")
    assert ("layer" in [step.kind for step in net.report().steps]) == (form in MOVED)
    x = rng.normal(0, 1, SHAPE).astype(np.float32)
    values, floats = run(net.graph, {"x": x}), run(read(file, reference="onnx"), {"x": x})
    assert np.allclose(np.asarray(values.outputs()[0], float), floats.outputs()[0], rtol=1e-5, atol=1e-5)
    assert all(same(values, name, result) for name, result in net.trace(x).items())
    certificate = json.loads(json.dumps(net.certificate))
    checker.check({**certificate, "digest": digest(certificate)}, Path())


@pytest.mark.parametrize("form", OTHER)
def test_other_constants_move_no_zero_point(form, rng):
    assert not isinstance(read(build(OTHER[form], rng)).edges["u"].type, Integers)
