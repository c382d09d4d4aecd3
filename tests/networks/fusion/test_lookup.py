"""Elementwise chains between codes, by tables."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fusion_cases import Small, agree, matched, whole

from bitsynth.network.fusion.lookup import match_lookup

GRIDS = [(0, 3, 1), (-128, 127, 1), (-7, 7, 1), (-1, 1, 2), (-7, 7, 2), (-2, 26, 2), (0, 200, 1), (-1, 1, 1)]
FUNCTIONS: dict[str, Any] = {
    "tanh": {},
    "sigmoid": {},
    "hard_swish": {"alpha": 1 / 6},
    "leaky_relu": {"alpha": 0.1},
    "abs": {},
    "neg": {},
}


def floats(values):
    return np.array(values, np.float32)


def activated(reference, function, grid, shape, scale=0.11):
    low, high, step = grid
    small = Small(reference)
    x = small.codes("x", shape, low, high, scale, 0.0, step)
    edge = small.add(function, x, **FUNCTIONS[function])
    return small, small.quantized(edge, 0.031, 17.0)


@settings(max_examples=12)
@given(
    st.sampled_from(["exact", "onnxruntime", "onnx"]),
    st.sampled_from(sorted(FUNCTIONS)),
    st.sampled_from(GRIDS),
    st.sampled_from([(2, 3, 4, 5), (1, 64, 3), (3, 70)]),
)
def test_any_function_of_codes_becomes_a_table(reference, function, grid, shape):
    small, result = activated(reference, function, grid, shape)
    graph = small.build((result,))
    agree(graph, matched(graph, match_lookup), np.random.default_rng(0))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (4, 3)])
def test_a_function_a_channel(rng, shape):
    """Of constants of several shapes."""
    small = Small()
    x = small.codes("x", shape, 0, 15, 0.3)
    axes = [1] * (len(shape) - 2)
    edge = small.add("mul", x, small.constant(floats([0.5, -1.3, 2]).reshape(1, 3, *axes)))
    edge = small.add("add", edge, small.constant(floats([0.1, 4, -1]).reshape(3, *axes)))
    graph = small.build((small.quantized(edge, 0.25, 3.0, 0, 15),))
    whole(graph, match_lookup, rng)


def test_thresholds_and_shapes(rng):
    """A reshape that leaves channels what they are."""
    small = Small()
    x = small.codes("x", (1, 3, 1, 1), -8, 7, 0.5)
    flat = small.add("reshape", x, sizes=(1, 3))
    steps: dict[str, Any] = {
        "thresholds": np.array([[-1.5, 0.0, 2.0], [-9, -8, 1], [0.5, 0.5, 99]]),
        "axis": 1,
        "step": 1,
        "least": 0,
    }
    graph = small.build((small.add("multi_threshold", flat, **steps, out_scale=1.0),))
    agree(graph, matched(graph, match_lookup), rng)


def test_the_longest_chain_that_gives_codes(rng):
    """Not the real numbers after it."""
    small, codes = activated("exact", "tanh", GRIDS[1], (1, 3, 4, 4))
    again = small.quantized(codes, 0.4, 1.0, 0, 7)
    graph = small.build((small.add("exp", again),))
    group = matched(graph, match_lookup)
    agree(graph, group, rng)
    assert group
    assert group.outputs == (again,)


@pytest.mark.parametrize(("low", "high", "alias"), [(0, 7, True), (0, 5, True), (-8, 7, False), (0, 7.5, False)])
def test_what_changes_nothing_is_the_same_memory(rng, low, high, alias):
    """A ReLU of what is not below 0, on another scale, of another shape."""
    small = Small()
    x = small.codes("x", (1, 6, 1, 1), low, int(high), 0.5)
    edge = small.add("relu", small.add("mul", x, small.constant(floats(2.0))))
    edge = edge if high in (5, 7) else small.quantized(edge, 2.0, 0.0, 0, 7)
    graph = small.build((small.add("reshape", edge, sizes=(1, 6)),))
    group = matched(graph, match_lookup)
    agree(graph, group, rng)
    assert group
    assert group.is_alias == alias


REFUSED = {
    "a function a pixel": lambda s: s.quantized(
        s.add("mul", s.codes("x", (1, 2, 2, 2), 0, 3), s.constant(floats([[0.5, 1.5], [2.5, 3.5]]))), 1.0
    ),
    "pixels that become channels": lambda s: s.quantized(
        s.add("reshape", s.codes("x", (1, 2, 2, 2), 0, 3), sizes=(1, 8)), 0.4
    ),
    "reals": lambda s: s.add("exp", s.codes("x", (1, 2, 2, 2), 0, 3)),
    "wide": lambda s: s.quantized(s.codes("x", (1, 2, 2, 2), 0, 300), 3.0),
    "two inputs": lambda s: s.quantized(s.add("add", s.codes("x", (1, 2), 0, 3), s.codes("y", (1, 2), 0, 3)), 3.0),
    "rows": lambda s: s.quantized(s.add("mul", s.codes("x", (1, 2, 2), 0, 3), s.constant(floats([0.5, 1.5]))), 1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_functions_are_no_table(name):
    small = Small()
    graph = small.build((REFUSED[name](small),))
    assert matched(graph, match_lookup) is None
