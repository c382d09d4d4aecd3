"""Activations of more than 8 bits are multiplied as two digits, with the same results."""

from typing import Any

import numpy as np
import pytest
from support.fusion_cases import Small, values_of
from support.network_batches import same

from bitsynth.graph import run
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.passes import wide_activations
from bitsynth.graph.passes.wide_activations import split_wide_activations
from bitsynth.layers.glue.programs import instruction_set
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.program import LayerStep
from bitsynth.network.run import Network
from bitsynth.spec.matmul import MAX_BITS

PADDED = SlidingWindow((3, 2), (1, 2), (1, 1), (1, 0), (0, 1))
RANGES = ((0, 735), (0, 256), (0, 65500), (-129, 100), (-735, 735), (-32767, 32639), (100, 1000))
"""Among them the narrowest, and almost the widest, with and without a sign."""


@pytest.fixture
def small_layers(monkeypatch):
    """Split activations of layers that are too small for it."""
    monkeypatch.setattr(wide_activations, "outweighs_tables", lambda *_: True)


def dense(small: Small, low: int, high: int, largest: int = 127, zero: float = 0.0) -> str:
    x = small.codes("x", (3, 20), low, high, 0.25, zero)
    weights = np.random.default_rng(4).integers(-largest, largest, (20, 9), endpoint=True).astype(np.float32)
    return small.add("matmul", x, small.constant(weights))


def convolution(small: Small, low: int, high: int, groups: int = 1, zero: float = 0.0) -> str:
    x = small.codes("x", (2, 4, 5, 6), low, high, 0.25, zero)
    weights = np.random.default_rng(5).integers(-7, 8, (6, 4 // groups, 3, 2)).astype(np.float32)
    return small.add("conv", x, small.constant(weights), window=PADDED, groups=groups)


SPLIT: dict[str, Any] = {
    "dense layer": dense,
    "convolution": convolution,
    "dense layer, zero point": lambda s, low, high: dense(s, low + 9, high + 9, zero=9.0),
    "convolution, zero point": lambda s, low, high: convolution(s, low + 9, high + 9, zero=9.0),
}


@pytest.mark.usefixtures("small_layers")
@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_products_read_digits_and_give_the_same_integers(rng, name, low, high):
    small = Small()
    graph = small.build((SPLIT[name](small, low, high),))
    (before,) = graph.nodes
    result = split_wide_activations(graph)
    result.check()
    (product,) = (node for node in result.nodes if node.op == before.op)
    assert result.edges[product.inputs[0]].integers.bits <= MAX_BITS
    edges = [g.edges[graph.outputs[0]] for g in (graph, result)]
    assert edges[0].dtype == edges[1].dtype
    assert edges[0].integers.same_grid(edges[1].integers)
    x = values_of(graph, rng)
    np.testing.assert_array_equal(run(result, x)[graph.outputs[0]], run(graph, x)[graph.outputs[0]])


def no_constant(small: Small) -> str:
    x, y = (small.codes(name, shape, 0, 999) for name, shape in (("x", (3, 20)), ("y", (20, 9))))
    return small.add("matmul", x, y)


LEFT: dict[str, Any] = {
    "8 bits": lambda s: dense(s, 0, 255),
    "8 bits with a sign": lambda s: dense(s, -128, 127),
    "17 bits": lambda s: dense(s, 0, 1 << 16),
    "a digit of 9 bits": lambda s: dense(s, -32768, 32767),
    "weights of 9 bits": lambda s: dense(s, 0, 999, 255),
    "groups": lambda s: convolution(s, 0, 999, 2),
    "two edges": no_constant,
}


@pytest.mark.usefixtures("small_layers")
@pytest.mark.parametrize("name", LEFT)
def test_other_products_stay(name):
    small = Small()
    graph = small.build((LEFT[name](small),))
    assert split_wide_activations(graph) is graph


@pytest.mark.parametrize("outputs", [73, 74])
def test_layers_with_fewer_weights_than_table_entries_stay(outputs):
    small = Small()
    x = small.codes("x", (3, 20), 0, 735, 0.25)
    graph = small.build((small.add("matmul", x, small.constant(np.ones((20, outputs), np.float32))),))
    assert (split_wide_activations(graph) is graph) == (20 * outputs <= 2 * 736)


@pytest.mark.slow
@pytest.mark.usefixtures("small_layers")
@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize(("low", "high"), [RANGES[0], RANGES[4]])
def test_a_layer_computes_products_of_digits(rng, name, low, high):
    small = Small()
    graph = small.build((SPLIT[name](small, low, high),))
    program = lower(graph, NetworkTarget(instruction_set("auto")))
    assert any(isinstance(step, LayerStep) for step in program.steps)
    want = run(graph, values_of(graph, rng))
    assert same(want, graph.outputs[0], Network(program)(want.floats("x")))
