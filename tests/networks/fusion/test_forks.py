"""Functions of one edge of codes whose ways part and meet again, by tables."""

import math
from typing import Any

import numpy as np
import pytest
from support.fusion_cases import Small, agree, matched, whole

from bitsynth.network.fusion import lookup
from bitsynth.network.fusion.lookup import match_forks

REFERENCES = ["exact", "onnxruntime", "onnx"]


def x_of(small, shape=(1, 3, 5, 4), grid=(-128, 127)):
    return small.codes("x", shape, *grid, 0.043, 3.0)


def times(small, edge, factor):
    return small.add("mul", edge, small.constant(np.float32(factor)))


def plus(small, edge, summand):
    return small.add("add", edge, small.constant(np.float32(summand)))


def silu(small, x):
    return small.add("mul", small.add("sigmoid", x), x)


def quantized_silu(small, x):
    """With a quantizer of the gate, as `quantize_static` writes it."""
    return small.add("mul", x, small.quantized(small.add("sigmoid", x), 1 / 256))


def hard_swish(small, x):
    """As relu6(x + 3) * x / 6."""
    return times(small, small.add("mul", x, small.add("clip", plus(small, x, 3), low=0.0, high=6.0)), 1 / 6)


def gelu(small, x):
    """As PyTorch writes it."""
    gate = plus(small, small.add("erf", times(small, x, 1 / math.sqrt(2))), 1.0)
    return small.add("mul", times(small, x, 0.5), gate)


def gelu_by_tanh(small, x):
    """Whose cube is a way of its own within another."""
    inner = small.add("add", x, times(small, small.add("power", x, exponent=3.0), 0.044715))
    gate = plus(small, small.add("tanh", times(small, inner, math.sqrt(2 / math.pi))), 1.0)
    return small.add("mul", x, times(small, gate, 0.5))


def square(small, x):
    return small.add("mul", x, x)


def behind_another(small, x):
    """Ways that part behind a node."""
    return silu(small, plus(small, x, 0.5))


FUNCTIONS = [silu, quantized_silu, hard_swish, gelu, gelu_by_tanh, square, behind_another]


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_fork_becomes_a_table(rng, reference, function):
    small = Small(reference)
    graph = small.build((small.quantized(function(small, x_of(small)), 0.021, 7.0),))
    group = whole(graph, match_forks, rng)
    assert group.inputs == ("x",)


def test_a_function_a_channel(rng):
    small = Small()
    x = x_of(small, grid=(0, 15))
    gain = small.constant(np.array([0.5, -1, 3], np.float32).reshape(1, 3, 1, 1))
    graph = small.build(
        (small.quantized(small.add("mul", x, small.add("tanh", small.add("mul", x, gain))), 0.01, 9.0),)
    )
    whole(graph, match_forks, rng)


def test_what_moves_behind_it(rng):
    small = Small()
    flat = small.add("reshape", silu(small, x_of(small, (1, 6, 1, 1))), sizes=(1, 6))
    graph = small.build((small.quantized(flat, 0.05, 3.0),))
    whole(graph, match_forks, rng)


def test_the_longest_that_others_do_not_read(rng):
    """Codes on the way that another node reads end the group; other readers of the source do not."""
    small = Small()
    x = x_of(small)
    codes = small.quantized(silu(small, x), 0.03, 9.0)
    again = small.quantized(silu(small, codes), 0.02, 11.0)
    graph = small.build((again, small.add("add", codes, again), small.add("exp", x)))
    group = matched(graph, match_forks)
    agree(graph, group, rng)
    assert group
    assert group.outputs == (codes,)


REFUSED: dict[str, Any] = {
    "a chain": lambda s, x: s.quantized(s.add("tanh", x), 0.01),
    "reals": silu,
    "two edges": lambda s, x: s.quantized(s.add("mul", s.codes("y", (1, 3, 4, 4), 0, 3), s.add("tanh", x)), 0.01),
    "a number a pixel": lambda s, x: s.quantized(
        s.add("mul", x, s.add("tanh", s.add("mul", x, s.constant(np.arange(4, dtype=np.float32))))), 0.01
    ),
    "other places": lambda s, x: s.quantized(s.add("sub", x, s.add("transpose", x, order=(0, 1, 3, 2))), 0.1),
}


@pytest.mark.parametrize(("places", "moves"), [((1, 3, 1, 1), False), ((1, 3, 1, 1), True), ((1, 1, 1, 4), False)])
def test_scales_of_several_places(rng, places, moves):
    """Of channels they are told apart, but not behind what makes other channels; of columns they are not."""
    small = Small()
    result = square(small, small.codes("x", (1, 3, 4, 4), -4, 3, 2.0 ** np.arange(math.prod(places)).reshape(places)))
    result = small.add("reshape", result, sizes=(1, 48)) if moves else result
    graph = small.build((small.quantized(result, 2.1),))
    group = matched(graph, match_forks)
    assert (group is not None) == (places[1] > 1 and not moves)
    if group:
        agree(graph, group, rng)


@pytest.mark.parametrize("name", REFUSED)
def test_other_forks_are_no_table(name):
    small = Small()
    graph = small.build((REFUSED[name](small, x_of(small, (1, 3, 4, 4))),))
    assert all(matched(graph, match_forks, k) is None for k in range(len(graph.nodes)))


def test_a_way_out_is_refused():
    """The gate is read elsewhere."""
    small = Small()
    x = x_of(small)
    gate = small.add("sigmoid", x)
    graph = small.build((small.quantized(small.add("mul", x, gate), 0.03), small.add("exp", gate)))
    assert matched(graph, match_forks) is None


def test_a_great_many_nodes(monkeypatch):
    monkeypatch.setattr(lookup, "_MAX_NODES", 3)
    small = Small()
    graph = small.build((small.quantized(gelu(small, x_of(small)), 0.03),))
    assert matched(graph, match_forks) is None
