"""Real numbers of a float convolution become codes by levels in float64."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from bitsynth.graph import read, run
from bitsynth.isa import lane
from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.functions import FUNCTIONS
from bitsynth.network.compiling import compile
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.formulas import Oracle, find_chain, find_step_function
from bitsynth.network.fusion.real_levels import RealsGroup, _signed_thresholds, code_text
from bitsynth.network.lower import cover

CHANNELS = 5
DOMAIN = "qonnx.custom_op.general"


@pytest.fixture
def model(rng):
    """A float convolution inside a network, batch norm with gains of both signs and one of 0, a quantizer of 2 bits."""
    gains = np.array([1, -2, 0, 0.5, -0.25], np.float32)
    constants = {
        "w": rng.normal(size=(CHANNELS, 2, 3, 3)).astype(np.float32),
        "gain": gains,
        **{n: rng.normal(size=CHANNELS).astype(np.float32) for n in ("shift", "mean")},
        "var": rng.random(CHANNELS).astype(np.float32) + np.float32(0.5),
        "scale": np.float32(0.5),
        "zero": np.float32(0),
        "bits": np.float32(2),
    }
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Conv", ["n", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "gain", "shift", "mean", "var"], ["b"]),
        helper.make_node("Quant", ["b", "scale", "zero", "bits"], ["y"], domain=DOMAIN, signed=1, narrow=0),
    ]
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    shapes = {"x": (1, 2, 9, 20), "y": (1, CHANNELS, 7, 18)}
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items())
    return helper.make_model(helper.make_graph(nodes, "net", [x], [y], held))


def test_levels_are_those_of_the_chain(model, rng):
    graph = read(model)
    (group,) = (r for r in cover(DefUse(graph, NetworkTarget("avx2"))) if isinstance(r, RealsGroup))
    step_function = group.step_function
    assert set(step_function.rising.tolist()) == {True, False}
    numbers = _signed_thresholds(step_function)
    signs = np.where(step_function.rising, 1.0, -1.0)
    at = np.where(np.isfinite(numbers), numbers * signs[:, None], 0).T
    points = np.concatenate([at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf), rng.normal(size=(9, CHANNELS))])
    result = step_function.least + ((points * signs)[..., None] >= numbers).sum(-1)
    np.testing.assert_array_equal(result, Oracle(graph, step_function.chain, doubles=True)(points))


@pytest.mark.parametrize(("levels", "first", "step"), [(1, 1, -1), (3, 0, 1), (31, 31, -1)])
def test_codes_count_the_thresholds_that_are_reached(rng, levels, first, step):
    """Thresholds are reached by numbers equal to them, by infinity too, and none by NaN."""
    thresholds = np.sort(rng.normal(size=levels))
    thresholds[0] = -np.inf
    x = np.array([*thresholds, *np.nextafter(thresholds, -np.inf), np.nan, np.inf, -np.inf, *rng.normal(size=9)])
    domain = ConcreteDomain()
    number, one, *t = (Bits(domain, 64, np.asarray(v).view(np.uint64)) for v in (x, np.ones(1), *thresholds[:, None]))
    given = {"x": number, "r": one, "t": t}
    text = code_text(levels, first, step)
    code = lane.compile_lane(lane.parse("code", text, given), [*given], FUNCTIONS)(*given.values(), 0)
    np.testing.assert_array_equal(code.v % 256, first + step * (x[:, None] >= thresholds).sum(1))


@pytest.mark.slow
def test_c_gives_the_codes(model, rng):
    net = compile(model, isa="avx2")
    x = {"x": rng.normal(size=(1, 2, 9, 20)).astype(np.float32)}
    np.testing.assert_array_equal(net.trace(x)["y"], run(net.graph, x)["y"])


FALLING = {
    "gain": np.array([-0.34, 0.79, 0.74], np.float32),
    "shift": np.array([-0.94, 1, -0.31], np.float32),
    "mean": np.array([0.09, 0.95, 0.98], np.float32),
    "var": np.array([3.5, 2, 4.7], np.float32),
    "levels": np.linspace(-8, 5, 15, dtype=np.float32)[None],
}
BIPOLAR = {
    "bias": np.array([8.9, 0.8, -5.2], np.float32)[:, None, None],
    "scale": np.float32(64),
    "zero": np.float32(0),
    "bits": np.float32(1),
}
ENDS: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "falling": (FALLING, 4, "BatchNormalization", "MultiThreshold"),
    "bipolar": (BIPOLAR, 1, "Add", "Quant"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_greatest_numbers_do_not_hide_where_levels_turn(end):
    constants, count, first, last = ENDS[end]
    names = list(constants)
    options: dict[str, Any] = {"signed": 1, "narrow": 0} if last == "Quant" else {}
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node(first, ["n", *names[:count]], ["b"]),
        helper.make_node(last, ["b", *names[count:]], ["y"], domain=DOMAIN, **options),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 3, 4, 4)) for n in "xy")
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = read(helper.make_model(helper.make_graph(nodes, "net", [x], [y], held)))
    step_function = find_step_function(graph, find_chain(DefUse(graph, NetworkTarget("avx2")), "n"), doubles=True)
    assert (
        (step_function.thresholds > step_function.low[:, None])
        & (step_function.thresholds <= step_function.high[:, None])
    ).all()


def test_what_float64_does_not_tell_is_left_to_pairs():
    """3 * (3 / 6 + 1 / 2), with the float64 nearest to 1 / 6, is below a tie by less than float64 has."""
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Concat", ["n", "n"], ["c"], axis=1),
        helper.make_node("HardSwish", ["c"], ["h"]),
        helper.make_node("Quant", ["h", "scale", "zero", "bits"], ["y"], domain=DOMAIN, signed=0, narrow=0),
    ]
    constants = {"scale": np.float32(2), "zero": np.float32(0), "bits": np.float32(2)}
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    sizes = {"x": (1, 1, 4), "y": (1, 2, 4)}
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in sizes.items())
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    net = compile(helper.make_model(helper.make_graph(nodes, "net", [x], [y], held), opset_imports=opsets), isa="avx2")
    given = {"x": np.array([[[-3, -3.1, -2.9, 1]]], np.float32)}
    np.testing.assert_array_equal(net.trace(given)["y"], run(net.graph, given)["y"])
    assert net.trace(given)["y"][0, 0, 0] == 1
