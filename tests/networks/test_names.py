"""Whatever a file calls its edges, its C has the integers of the reference on every edge."""

import os

import numpy as np
import pytest
from support.edge_names import ODD, adversarial, edges_of, renamed
from support.network_batches import QUICK, compiled_together, same
from support.onnx_files import QONNX, model, node
from support.random_graphs import RandomGraph

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.ir import Names
from bitsynth.graph.read import InputCodes
from bitsynth.network.patterns import export_integers

ASKED = int(os.environ.get("BITSYNTH_GRAPHS", "0"))
FIRST = int(os.environ.get("BITSYNTH_FIRST_SEED", "0"))
BATCH = 24
"""Networks in a library."""

pytestmark = pytest.mark.filterwarnings("ignore::bitsynth.errors.BitsynthWarning")
"""Biases are drawn at the ends of int32, too."""


def networks(seeds):
    """Compile random networks whose edges have names that the product makes for the network as it was drawn."""
    fields = {}
    for seed in seeds:
        drawn, rng = RandomGraph(seed), np.random.default_rng(seed)
        try:
            plain = bitsynth.compile(drawn.model, isa="avx2")
        except SpecError as why:
            assert "which int32 does not hold" in str(why)  # noqa: PT017
            continue
        own = [*plain.graph.edges, *plain.program.buffers]
        names = adversarial(edges_of(drawn.model), rng, own)
        fields[seed] = names, bitsynth.compile(renamed(drawn.model, names), isa="avx2"), plain
    assert len(fields) > 0.95 * len(seeds) - 1
    compiled_together("avx2", [net for _, net, _ in fields.values()], QUICK)
    return fields


def check(seeds):
    """Require the results of the network as it was drawn, and the reference's on every edge."""
    for seed, (names, net, plain) in networks(seeds).items():
        data = RandomGraph(seed).data()
        given = {name: data[name] for name in plain.graph.inputs}
        wanted = run(plain.graph, given)
        ours = {names.get(name, name): x for name, x in given.items()}
        values, results = run(net.graph, ours), net(ours)
        results = results if isinstance(results, tuple) else (results,)
        for old, name, got in zip(plain.graph.outputs, net.graph.outputs, results, strict=True):
            assert name == names.get(old, old), seed
            np.testing.assert_array_equal(values.floats(name), wanted.floats(old), err_msg=str(seed))
            assert same(values, name, got), f"network {seed}: {name}"
        wrong = [name for name, got in net.trace(ours).items() if not same(values, name, got)]
        assert not wrong, f"network {seed}: {wrong}"
        assert net.files("net")["net.certificate.json"]


def test_names_of_edges_change_no_result():
    check(range(4))


@pytest.mark.slow
@pytest.mark.timeout(600 + 20 * ASKED)
def test_names_of_edges_change_no_result_of_many_networks():
    seeds = range(FIRST, FIRST + (ASKED or BATCH))
    for k in range(0, len(seeds), BATCH):
        check(seeds[k : k + BATCH])


@pytest.mark.parametrize("hidden", ["input.1", "input.copy", "out.out0", "input.copy_1"])
@pytest.mark.parametrize("floats", [True, False])
def test_a_buffer_never_has_the_name_of_another_edge(hidden, floats):
    """torch.onnx.export calls edges `input.1`, which is what a converted buffer of `input` was called."""
    rng = np.random.default_rng(0)
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("Quant", "c1 s z b", "hidden", domain=QONNX, signed=0, narrow=0, rounding_mode="FLOOR"),
        node("Conv", "hidden w2", "c2", pads=[1, 1, 1, 1]),
        node("Quant", "c2 s z b", "out", domain=QONNX, signed=0, narrow=0, rounding_mode="FLOOR"),
        node("Conv", "x w3", "c3", pads=[1, 1, 1, 1]),
        node("Quant", "c3 s z b", "other", domain=QONNX, signed=0, narrow=0, rounding_mode="FLOOR"),
    ]
    if not floats:
        nodes.insert(0, node("Cast", "input", "x", to=1))
    given: dict[str, object] = {k: rng.integers(-7, 8, (16, 16, 3, 3)).astype(np.float32) for k in ("w1", "w2", "w3")}
    given |= {"s": np.float32(32), "z": np.float32(0), "b": np.float32(8)}
    onnx_model = model(
        nodes,
        {"x" if floats else "input": (1, 16, 6, 6)},
        given,
        outputs="out other",
        dtype=1 if floats else 2,
    )
    onnx_model = renamed(onnx_model, {"hidden": hidden} | ({"x": "input"} if floats else {}))
    codes = InputCodes(8, 1.0, "unsigned") if floats else None
    net = bitsynth.compile(onnx_model, isa="avx2", codes=codes)
    x = rng.integers(0, 256, (1, 16, 6, 6)).astype(np.float32 if floats else np.uint8)
    values = run(net.graph, {"input": x})
    for name, got in zip(net.graph.outputs, net(x), strict=True):
        np.testing.assert_array_equal(got, values.floats(name))
    assert {buffer.edge.name for buffer in net.program.buffers.values()} <= set(net.graph.edges)
    assert all(name == b.edge.name or name not in edges_of(onnx_model) for name, b in net.program.buffers.items())


@pytest.mark.parametrize("name", ODD)
def test_any_name_of_an_edge(name):
    """As an input, an output and between; also as the names that nodes have."""
    onnx_model = model(
        [
            node("Quant", "x s z b", "q", domain=QONNX, signed=0, narrow=0),
            node("Conv", "q w", "c", name=name),
            node("Relu", "c", "y"),
        ],
        {"x": (1, 2, 3, 3)},
        {"s": np.float32(0.5), "z": np.float32(0), "b": np.float32(2), "w": np.ones((4, 2, 1, 1), np.float32)},
    )
    for edge in ("x", "q", "c", "y", "w"):
        read(renamed(onnx_model, {edge: name})).check()
    net = bitsynth.compile(renamed(onnx_model, {"q": name, "x": f"{name}.copy"}), isa="avx2")
    x = np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3) / 8
    assert same(run(net.graph, {f"{name}.copy": x}), "y", net(x))


def test_names_that_an_exported_file_makes_are_none_of_the_network():
    onnx_model = model(
        [
            node("Quant", "x s z b", "q", domain=QONNX, signed=0, narrow=0),
            node("MatMul", "q w", "m"),
            node("Quant", "m s z b", "y", domain=QONNX, signed=0, narrow=0),
        ],
        {"x": (1, 4)},
        {"s": np.float32(0.5), "z": np.float32(0), "b": np.float32(2), "w": np.eye(4, dtype=np.float32)},
    )
    first = export_integers(read(onnx_model))
    own = sorted(edges_of(first) - edges_of(onnx_model))
    names = dict(zip(("q", "m"), own[:2], strict=True))
    again = export_integers(read(renamed(onnx_model, names)))
    produced = [name for one in again.graph.node for name in one.output]
    constants = [tensor.name for tensor in again.graph.initializer]
    assert len({*produced, *constants}) == len(produced) + len(constants)


def test_a_name_is_made_once():
    names = Names({"x", "x_1"}, ["x_3"])
    assert [names.make("x") for _ in range(3)] == ["x_2", "x_4", "x_5"]
    assert [names.make("y") for _ in range(2)] == ["y", "y_1"]
