"""Fake quantizers of QKeras as tf2onnx writes them: limits behind a scale, estimators in parts, Transposes between."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from support.float_files import File

from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.types import Integers

LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
SHAPE = (1, 3, 2, 4)


def rounded(f, x, step=0.25, low=0, high=1.75):
    """Codes of 3 bits, cut behind the scale."""
    edge = f.add("Mul", f.add("Round", f.add("Mul", x, 1 / step)), step)
    return f.add("Max", f.add("Min", edge, high), low)


def last(f, op, x):
    """An operator on channels last."""
    return f.add("Transpose", f.add(op, f.add("Transpose", x, perm=LAST)), perm=FIRST)


def estimated(f, x, q, by=1.0):
    return f.add("Add", x, f.add("Mul", by, f.add("Add", f.add("Neg", x), q)))


def quantized_relu(f, x):
    """quantized_relu(4, 2): the limits of its estimator are a sum of choices."""
    scaled = f.add("Mul", x, 4)
    steps = estimated(f, scaled, last(f, "Round", scaled))
    codes = f.add("Mul", 4, f.add("Max", f.add("Min", f.add("Mul", steps, 0.0625), 0.9375), 0))
    channels = f.add("Transpose", x, perm=LAST)
    low = f.add("LessOrEqual", channels, 3.75)
    kept = f.add("Mul", f.add("Cast", low, to=1), f.add("Transpose", f.add("Relu", x), perm=LAST))
    most = np.full((1, 2, 4, 3), 3.75)
    cut = f.add("Add", kept, f.add("Mul", most, f.add("Cast", f.add("Not", low), to=1)))
    negative = f.add("Transpose", f.add("Neg", cut), perm=FIRST)
    return f.add("Add", f.add("Transpose", cut, perm=FIRST), f.add("Add", negative, codes))


def binary(f, x, one=1):
    sign = f.add("Sign", f.add("Transpose", x, perm=LAST))
    sign = f.add("Add", sign, f.add("Sub", one, f.add("Abs", sign)))
    return estimated(f, x, f.add("Transpose", sign, perm=FIRST))


def ternary(f, x):
    size = f.add("Transpose", f.add("Abs", x), perm=LAST)
    large = f.add("Cast", f.add("GreaterOrEqual", size, 0.5), to=1)
    signs = f.add("Mul", large, f.add("Sign", f.add("Transpose", x, perm=LAST)))
    return estimated(f, x, f.add("Transpose", signs, perm=FIRST))


QUANTIZERS = {
    "cut behind the scale": (rounded, 3),
    "a Clip behind the scale": (lambda f, x: f.add("Clip", rounded(f, x, high=9), -1, 1.5), 3),
    "a Relu behind the scale": (lambda f, x: f.add("Min", f.add("Relu", f.add("Round", x)), 5), 3),
    "zero point": (lambda f, x: f.add("Sub", f.add("Clip", f.add("Add", f.add("Round", x), 3), 0, 7), 3), 4),
    "bits": (lambda f, x: estimated(f, x, rounded(f, x, low=-1.75)), 4),
    "channels last": (lambda f, x: estimated(f, x, rounded(f, last(f, "Neg", last(f, "Neg", x)))), 3),
    "relu": (quantized_relu, 4),
    "binary": (binary, 1),
    "ternary": (ternary, 2),
    "limits above those of what is rounded": (
        lambda f, x: f.add("Max", f.add("Round", f.add("Clip", x, 0, 3)), 5),
        3,
    ),
}


def numbers(rng):
    """Eighths, which floats hold exactly: ties, and numbers beyond the limits."""
    return (rng.integers(-40, 41, SHAPE) / 8).astype(np.float32)


def right(file, last, rng):
    """The graph, which gives what the file's nodes do one by one."""
    model, x = file.model(SHAPE, last), numbers(rng)
    graph = read(model)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(run(graph, {"x": x}).floats(graph.outputs[0]), want)
    return graph


@pytest.mark.parametrize("name", QUANTIZERS)
def test_codes_of_few_bits(name, rng):
    written, bits = QUANTIZERS[name]
    file = File()
    graph = right(file, written(file, "x"), rng)
    kind = graph.edges[graph.outputs[0]].type
    assert isinstance(kind, Integers)
    assert kind.bits == bits
    assert "transpose" not in {node.op for node in graph.nodes}


OTHERS = {
    "limits beside the grid": lambda f, x: rounded(f, x, high=1.8125),
    "a scale below 0": lambda f, x: f.add("Max", f.add("Min", f.add("Mul", f.add("Round", x), -0.5), 1), 0),
    "a scale of each pixel": lambda f, x: f.add("Min", f.add("Mul", f.add("Round", x), np.array([1, 2, 3, 4]) / 4), 1),
    "half of what is less": lambda f, x: estimated(f, x, rounded(f, x), 0.5),
    "less another": lambda f, x: f.add("Add", x, f.add("Add", f.add("Neg", f.add("Abs", x)), rounded(f, x))),
    "signs of 2": lambda f, x: binary(f, x, 2),
    "an order that is not undone": lambda f, x: f.add(
        "Transpose", f.add("Round", f.add("Transpose", x, perm=LAST)), perm=LAST
    ),
    "a number of each channel between": lambda f, x: f.add(
        "Transpose", f.add("Mul", f.add("Transpose", x, perm=LAST), [1, 2, 4]), perm=FIRST
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_written_otherwise_stays(name, rng):
    file = File()
    graph = right(file, OTHERS[name](file, "x"), rng)
    kind = graph.edges[graph.outputs[0]].type
    assert not isinstance(kind, Integers) or kind.bits > 1 + (name == "signs of 2")


@pytest.mark.parametrize("seed", range(20))
def test_scales_and_limits_in_any_order(seed):
    """Chains of scales, numbers added and limits behind rounded numbers, whether they are codes of a grid or not."""
    rng, file = np.random.default_rng(seed), File()
    edge = file.add("Round", file.add("Mul", "x", 2.0 ** rng.integers(-1, 4)))
    for _ in range(rng.integers(1, 6)):
        op = rng.choice(["Mul", "Div", "Add", "Sub", "Min", "Max", "Relu", "Clip"])
        number = 2.0 ** rng.integers(-2, 3) if op in ("Mul", "Div") else rng.integers(-20, 21) / 4
        limits = {"Relu": [], "Clip": [number - 2, number + 3]}.get(op, [number])
        edge = file.add(str(op), edge, *limits)
    right(file, edge, rng)


SCALES = {
    "exponential": lambda f, s: f.add("Exp", s),
    "softplus": lambda f, s: f.add("Softplus", s),
    "power of 2": lambda f, s: f.add("Pow", 2, f.add("Floor", f.add("Div", f.add("Log", s), np.log(2)))),
}


@pytest.mark.parametrize("name", SCALES)
def test_scales_that_are_computed_are_those_of_the_files_floats(name, rng):
    """As if the exporter had folded them: their own functions give no number of floats."""

    def written(f, scale):
        codes = f.add("Round", f.add("Div", "x", scale))
        return f.add("Mul", f.add("Clip", codes, f.add("Neg", f.add("Sqrt", 4)), 3), scale)

    file = File()
    scale = SCALES[name](file, file.constant(0.3))
    (value,) = ReferenceEvaluator(file.model(SHAPE, scale)).run(None, {"x": numbers(rng)})
    graph = read(file.model(SHAPE, written(file, scale)))
    assert [node.op for node in graph.nodes] == ["quantize"]
    found = graph.nodes[0].attributes["scale"]
    assert found == np.float32(found) == pytest.approx(value, rel=2.0**-22)


def test_logarithms_of_what_is_given_are_refused():
    file = File()
    with pytest.raises(SpecError, match="only logarithms of constants above 0"):
        read(file.model(SHAPE, file.add("Log", "x")))
