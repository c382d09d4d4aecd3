"""Moves and maxima after the codes of what they move."""

from typing import Any

import numpy as np
import pytest
from support.fusion_cases import Small, values_of

from bitsynth.graph import run
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.sinking import _MOVES, sink_moves

HALVES = SlidingWindow((2, 2), (2, 2), (1, 1), (0, 0), (0, 0))


def sums(small, low=-900, high=700):
    return small.codes("x", (1, 8, 6, 4), low, high, 0.01)


def scaled(small, edge, factors):
    return small.add("mul", edge, small.constant(np.array(factors, np.float32).reshape(-1, 1, 1)))


def real(small):
    """Real numbers, of an input that is not the caller's."""
    return small.add("div", sums(small), small.constant(np.float32(3)))


def maxima_of_reals(small, factors):
    """Codes of maxima of real numbers, times these."""
    return small.quantized(scaled(small, small.add("max_pool", real(small), window=HALVES), factors), 0.37)


def maxima(small, factors):
    return small.quantized(scaled(small, small.add("max_pool", sums(small), window=HALVES), factors), 0.37)


SINK: dict[str, Any] = {
    "blocks": lambda s: s.quantized(
        s.add("relu", s.add("depth_to_space", sums(s), block=2, mode="CRD")), 0.07, 0.0, 0, 15
    ),
    "another shape": lambda s: s.quantized(s.add("tanh", s.add("reshape", sums(s), sizes=(1, 192))), 0.01, 99.0),
    "two moves": lambda s: s.quantized(
        s.add("reshape", s.add("transpose", sums(s), order=(0, 2, 3, 1)), sizes=(1, 192)), 0.3
    ),
    "maxima": lambda s: maxima(s, [1.5]),
    "maxima of channels": lambda s: maxima(s, np.arange(1, 9)),
    "maxima of reals": lambda s: maxima_of_reals(s, np.arange(1, 9)),
}


@pytest.mark.parametrize("name", SINK)
def test_codes_come_first(rng, name):
    small = Small()
    graph = small.build((SINK[name](small),))
    result = sink_moves(graph, NetworkTarget("avx2"))
    result.check()
    assert {node.op for node in result.nodes} == {node.op for node in graph.nodes}
    moved = next(node.op for node in graph.nodes if node.op in (*_MOVES, "max_pool"))
    first = next(k for k, node in enumerate(result.nodes) if node.op == moved)
    assert operand_of(result.edges[result.nodes[first].inputs[0]])
    x = values_of(graph, rng)
    np.testing.assert_array_equal(run(result, x)[result.outputs[0]], run(graph, x)[graph.outputs[0]])


STAY: dict[str, Any] = {
    "codes": lambda s: s.quantized(s.add("depth_to_space", sums(s, 0, 200), block=2, mode="CRD"), 0.3),
    "channels": lambda s: s.quantized(scaled(s, s.add("depth_to_space", sums(s), block=2, mode="CRD"), [1, 2]), 0.3),
    "no codes": lambda s: s.add("relu", s.add("depth_to_space", sums(s), block=2, mode="CRD")),
    "maxima that fall": lambda s: maxima(s, [-1.5]),
    "maxima of reals that fall": lambda s: maxima_of_reals(s, [1, 1, 1, 1, -1, 1, 1, 1]),
    "maxima that fall in a channel": lambda s: maxima(s, [1, 1, 1, 1, -1, 1, 1, 1]),
}


@pytest.mark.parametrize("name", STAY)
def test_other_nodes_do_not_sink(name):
    small = Small()
    x = small.build((STAY[name](small),))
    assert sink_moves(x, NetworkTarget("avx2")) is x


def test_maxima_of_floats_stay_where_they_may_be_none():
    small = Small("onnxruntime")
    graph = small.build((maxima_of_reals(small, [1.5]),))
    assert sink_moves(graph, NetworkTarget("avx2")) is graph


def test_what_is_read_elsewhere_stays():
    small = Small()
    moved = small.add("depth_to_space", sums(small), block=2, mode="CRD")
    graph = small.build((small.quantized(moved, 0.3), moved))
    assert sink_moves(graph, NetworkTarget("avx2")) is graph
