"""Products of codes less a zero point of the run, as `quantize_dynamic` writes them, are layers of the codes."""

import numpy as np
import pytest
from support.network_batches import compiled_together, same
from support.onnx_files import model, node

import bitsynth
from bitsynth.graph import read, run
from bitsynth.graph.passes.zero_points import distribute_zero_points
from bitsynth.network.program import LayerStep

RNG = np.random.default_rng(0)
F = np.float32


def behind(product, x, w, *, signed=False, **attributes):
    """A model: codes of numbers at hand, a product of them with weights, times both scales, a bias."""
    axis = 1 if product == "ConvInteger" else -1
    channels = w.shape[0 if product == "ConvInteger" else 1]
    bias = RNG.normal(size=[channels if k == axis % len(x) else 1 for k in range(len(x))])
    given = {"w": w.astype(np.int8 if signed else np.uint8), "wz": w.dtype.type(0 if signed else 131), "s": F(0.03)}
    given["wz"] = given["w"].dtype.type(given["wz"])
    nodes = [
        node("DynamicQuantizeLinear", "x", "q qs qz"),
        node(product, "q w qz wz", "c", **attributes),
        node("Cast", "c", "f", to=1),
        node("Mul", "qs s", "t"),
        node("Mul", "f t", "m"),
        node("Add", "m b"),
    ]
    return model(nodes, {"x": x}, {**given, "b": bias.astype(F)})


def weights(*shape, signed=False):
    return RNG.integers(-128, 128, shape) if signed else RNG.integers(0, 256, shape)


CASES = {
    "dense": behind("MatMulInteger", (3, 20), weights(20, 9)),
    "dense of one": behind("MatMulInteger", (1, 1), weights(1, 1, signed=True), signed=True),
    "of sequences": behind("MatMulInteger", (2, 5, 12), weights(12, 7, signed=True), signed=True),
    "conv": behind("ConvInteger", (1, 4, 7, 6), weights(9, 4, 3, 3)),
    "padded": behind("ConvInteger", (2, 4, 7, 6), weights(9, 4, 3, 3), pads=[1, 2, 1, 0], strides=[2, 1]),
    "depthwise": behind("ConvInteger", (1, 6, 7, 7), weights(6, 1, 3, 3), pads=[1, 1, 1, 1], group=6),
    "padded of one sign": behind("ConvInteger", (1, 3, 5, 5), RNG.integers(131, 256, (4, 3, 3, 3)), pads=[1, 1, 1, 1]),
    "line": behind("ConvInteger", (1, 4, 30), weights(5, 4, 5, signed=True), signed=True, pads=[2, 2]),
}
SLOW = [pytest.param(isa, marks=pytest.mark.slow) for isa in ("avx512", "neon", "armv7_neon")]


def numbers(case, k):
    """Numbers of several kinds: of both signs, of one, all 0, tiny, huge, and so small that their scale is 0."""
    shape = tuple(d.dim_value for d in CASES[case].graph.input[0].type.tensor_type.shape.dim)
    x = RNG.normal(size=shape).astype(F)
    return (x, np.abs(x) + 3, np.zeros_like(x), -(x**2) - F(1e-30), x * F(1e30), np.copysign(F(3e-45), x))[k]


@pytest.mark.parametrize("isa", ["avx2", *SLOW])
def test_products_are_layers_and_exact(isa, skip_isa):
    nets = {case: bitsynth.compile(each, isa=isa) for case, each in CASES.items()}
    for case, net in nets.items():
        assert sum(isinstance(step, LayerStep) for step in net.program.steps) == 1, case
    try:
        compiled_together(isa, nets.values())
    except bitsynth.ToolError as why:
        skip_isa(isa, str(why))
    for case, net in nets.items():
        for k in range(6):
            given = {"x": numbers(case, k)}
            values = run(net.graph, given)
            wrong = [edge for edge, got in net.trace(given).items() if not same(values, edge, got)]
            assert not wrong, (case, k)


def test_the_integers_are_those_of_the_file():
    """Of every edge that the file has."""
    for case, each in CASES.items():
        graph = read(each)
        other = distribute_zero_points(graph)
        assert any(edge.endswith(".codes") for edge in other.edges), case
        given = {"x": numbers(case, 0)}
        before, after = run(graph, given), run(other, given)
        kept = [edge for edge in graph.edges if edge in other.edges]
        assert {"c", "y"} <= set(kept)
        assert all(np.array_equal(before.floats(e), after.floats(e)) for e in kept), case


def test_sums_as_large_as_int32_holds():
    """255 * 127 * 66,000, of codes alone and of what is taken off."""
    net = bitsynth.compile(behind("MatMulInteger", (1, 66000), np.full((66000, 1), 127), signed=True), isa="avx2")
    x = np.ones((1, 66000), F)
    x[0, 0] = 0
    for sign in (1, -1):
        assert same(run(net.graph, {"x": sign * x}), "y", net(sign * x))


def test_other_differences_stay():
    """A zero point for each row is not one number."""
    given = {"w": weights(6, 4).astype(np.uint8), "wz": np.uint8(3)}
    nodes = [node("DynamicQuantizeLinear", "x", "q qs qz"), node("MatMulInteger", "q w z wz", "c")]
    nodes += [node("DynamicQuantizeLinear", "r", "z zs zz"), node("Cast", "c", to=1)]
    graph = read(model([nodes[0], nodes[2], nodes[1], nodes[3]], {"x": (3, 6), "r": (3,)}, given))
    assert distribute_zero_points(graph) is graph


def test_names_of_the_file_are_not_taken():
    """An edge of the file that is called as the product of codes would be."""
    onnx_model = behind("MatMulInteger", (3, 20), weights(20, 9))
    for n in onnx_model.graph.node:
        for names in (n.input, n.output):
            names[:] = ["c.codes" if name == "m" else name for name in names]
    net = bitsynth.compile(onnx_model, isa="avx2")
    x = RNG.normal(size=(3, 20)).astype(F)
    assert same(run(net.graph, {"x": x}), "y", net(x))
