"""Dense products of sequences, and elementwise nodes after them, become products of rows, with the same integers."""

import numpy as np
import pytest
from support.network_batches import compiled_together, same
from support.onnx_files import model, node

import bitsynth
from bitsynth.graph import read, run
from bitsynth.graph.passes.sequences import flatten_sequences
from bitsynth.network.program import GlueStep, LayerStep

RNG = np.random.default_rng(0)
F = np.float32
GRID = {"s": F(0.05), "z": np.uint8(120), "ws": F(0.01), "wz": np.int8(0), "ms": F(0.09), "mz": np.uint8(131)}
CODES = {"bs": F(0.03), "bz": np.uint8(90), "ys": F(0.11), "yz": np.uint8(128)}


def linear(x, to, name, constants, per_channel=False):
    """What `quantize_static` makes of a Linear of three axes: codes behind the product, and behind the bias."""
    channels = constants[f"{name}.w"].shape[1]
    scale = RNG.uniform(0.005, 0.02, channels).astype(F) if per_channel else GRID["ws"]
    zero = np.zeros(channels, np.int8) if per_channel else GRID["wz"]
    constants |= {f"{name}.ws": scale, f"{name}.wz": zero, f"{name}.b": RNG.integers(0, 256, channels).astype(np.uint8)}
    return [
        node("DequantizeLinear", f"{name}.w {name}.ws {name}.wz", f"{name}.v", axis=1),
        node("MatMul", f"{x} {name}.v", f"{name}.m"),
        *codes(f"{name}.m", f"{name}.n", "ms mz"),
        node("DequantizeLinear", f"{name}.b bs bz", f"{name}.c"),
        node("Add", f"{name}.n {name}.c", f"{name}.a"),
        *codes(f"{name}.a", to, "ys yz"),
    ]


def codes(x, to, grid):
    return [node("QuantizeLinear", f"{x} {grid}", f"{to}.q"), node("DequantizeLinear", f"{to}.q {grid}", to)]


def weights(*shapes):
    return {
        f"{name}.w": RNG.integers(-128, 128, shape).astype(np.int8) for name, shape in zip("lk", shapes, strict=False)
    }


def one(shape, channels=9, per_channel=False):
    constants = weights((shape[-1], channels))
    nodes = [*codes("x", "v", "s z"), *linear("v", "y", "l", constants, per_channel)]
    return model(nodes, {"x": shape}, {**GRID, **CODES, **constants})


def block():
    """Two of them with a sum around, which a softmax reads too."""
    constants = weights((8, 16), (16, 8))
    nodes = [
        *codes("x", "v", "s z"),
        *linear("v", "h", "l", constants),
        node("Relu", "h", "r"),
        *codes("r", "p", "ys yz"),
        *linear("p", "o", "k", constants),
        node("Add", "o v", "t"),
        *codes("t", "u", "ys yz"),
        node("Softmax", "u", axis=-1),
    ]
    return model(nodes, {"x": (2, 5, 8)}, {**GRID, **CODES, **constants})


def attention():
    """Products of two edges of codes, with codes behind, as heads of a transformer have them."""
    nodes = [
        *codes("x", "v", "s z"),
        node("Transpose", "v", "t", perm=[0, 1, 3, 2]),
        node("MatMul", "v t", "p"),
        *codes("p", "q", "ms mz"),
        node("MatMul", "q v", "o"),
        *codes("o", "y", "ys yz"),
    ]
    return model(nodes, {"x": (1, 3, 6, 4)}, {**GRID, **CODES})


CASES = {
    "three axes": one((2, 5, 12)),
    "one row": one((1, 1, 12), 1),
    "four axes": one((2, 3, 4, 6)),
    "scales of channels": one((1, 7, 20), 17, per_channel=True),
    "block": block(),
}
SLOW = [pytest.param(isa, marks=pytest.mark.slow) for isa in ("avx512", "neon", "armv7_neon")]


@pytest.mark.parametrize("isa", ["avx2", *SLOW])
def test_integers_are_the_reference(isa, skip_isa):
    nets = {case: bitsynth.compile(each, isa=isa) for case, each in CASES.items()}
    try:
        compiled_together(isa, nets.values())
    except bitsynth.ToolError as why:
        skip_isa(isa, str(why))
    for case, net in nets.items():
        assert any(name.endswith(".rows") for name in net.program.graph.edges), case
        shape = net.graph.edges["x"].shape
        for scale in (1, 8):
            given = {"x": RNG.normal(size=shape, scale=scale).astype(F)}
            values = run(net.program.graph, given)
            assert same(run(net.graph, given), "y", net(given)), case
            assert not [edge for edge, got in net.trace(given).items() if not same(values, edge, got)], case


@pytest.mark.parametrize("isa", ["avx2", *SLOW])
def test_products_of_two_edges_are_layers_with_the_codes_behind(isa, skip_isa):
    net = bitsynth.compile(attention(), isa=isa)
    try:
        compiled_together(isa, [net])
    except bitsynth.ToolError as why:
        skip_isa(isa, str(why))
    layers = [step.nodes for step in net.program.steps if isinstance(step, LayerStep)]
    assert [(nodes[0], nodes[-1]) for nodes in layers] == [("t", "q.q"), ("o", "y.q")]
    for scale in (1, 8):
        given = {"x": RNG.normal(size=(1, 3, 6, 4), scale=scale).astype(F)}
        values = run(net.program.graph, given)
        assert not [edge for edge, got in net.trace(given).items() if not same(values, edge, got)]


def test_biases_behind_codes_are_looked_up():
    steps = bitsynth.compile(CASES["three axes"], isa="avx2").program.steps
    kinds = [type(step) for step in steps if isinstance(step, LayerStep | GlueStep)]
    assert kinds == [LayerStep, GlueStep]


def test_the_file_keeps_its_edges():
    """Each edge that is left has the numbers that it had."""
    for case, each in CASES.items():
        graph = read(each)
        other = flatten_sequences(graph)
        given = {"x": RNG.normal(size=graph.edges["x"].shape).astype(F)}
        before, after = run(graph, given), run(other, given)
        for edge in graph.edges.keys() & other.edges.keys():
            assert np.array_equal(before.floats(edge), after.floats(edge)), (case, edge)


def test_products_of_two_axes_stay():
    graph = read(one((5, 12)))
    assert flatten_sequences(graph) is graph


def test_names_of_the_file_are_not_taken():
    """An edge of the file that is called as the rows of another would be."""
    onnx_model = one((2, 5, 12))
    for n in onnx_model.graph.node:
        for names in (n.input, n.output):
            names[:] = ["l.m.rows" if name == "y.q" else name for name in names]
    net = bitsynth.compile(onnx_model, isa="avx2")
    given = {"x": RNG.normal(size=(2, 5, 12)).astype(F)}
    assert same(run(net.graph, given), "y", net(given))
