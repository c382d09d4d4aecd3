"""Elementwise joins of edges of codes, by tables."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fusion_cases import Small, matched, whole

from bitsynth.layers.glue import PairLookup
from bitsynth.layers.glue.programs import list_called
from bitsynth.network.fusion.glue import GlueGroup
from bitsynth.network.fusion.pair_tables import match_pair_chains, match_pair_node

GRIDS = [(0, 3, 1), (-128, 127, 1), (-7, 7, 1), (-1, 1, 2), (0, 200, 1), (-1, 1, 1)]


def of(small, name, grid, shape=(1, 3, 5, 4)):
    low, high, step = grid
    return small.codes(name, shape, low, high, 0.11 if name == "x" else 0.23, 0.0 if step == 2 else 1.0, step)


@settings(max_examples=8)
@given(
    st.sampled_from(["exact", "onnxruntime"]),
    st.sampled_from(["add", "sub", "mul", "max"]),
    st.sampled_from(GRIDS),
    st.sampled_from(GRIDS),
    st.sampled_from([(1, 3, 5, 4), (2, 70), (1, 9, 6)]),
)
def test_any_function_of_two(reference, function, first, second, shape):
    small = Small(reference)
    edge = small.add(function, of(small, "x", first, shape), of(small, "y", second, shape))
    graph = small.build((small.quantized(small.add("relu", edge), 0.3, 2.0, 0, 63),))
    whole(graph, match_pair_node, np.random.default_rng(0))


def scaled(small, edge, factor):
    """Codes on another grid, as integerized networks have them before they are added."""
    result = small.add("mul", edge, small.constant(np.float32(factor)))
    return small.add("clip", small.add("round", result, rounding="FLOOR"), low=0, high=255)


def test_with_chains_before_it(rng):
    """Of both, and only as far as codes that only they read."""
    small = Small()
    x, y = (small.codes(n, (1, 3, 4, 4), 0, 255) for n in "xy")
    added = small.add("add", scaled(small, x, 0.4), scaled(small, y, 0.57))
    graph = small.build((small.quantized(added, 2.0, 0.0, 0, 127),))
    group = whole(graph, match_pair_chains, rng)
    assert group.inputs == ("x", "y")
    near = matched(graph, match_pair_node, 6)
    assert near
    assert len(near.nodes) == 2


def test_a_sum_of_codes_of_which_not_all_come_is_no_table(rng):
    """What the sum has beyond them is no matter, nor that it goes beyond the edge's range there."""
    small = Small()
    x, y = (small.codes(n, (1, 3, 4, 4), 0, most) for n, most in (("x", 129), ("y", 119)))
    graph = small.build((small.add("add", x, y),))
    group = whole(graph, match_pair_node, rng)
    assert isinstance(group, GlueGroup)
    glue = group.make("NHWC", "NHWC")
    assert [p.spec.name for p in list_called("avx2", glue.constants)] == ["weighted16"]
    assert isinstance(glue, PairLookup)
    np.testing.assert_array_equal(glue.pairs[:130, :120], np.add.outer(np.arange(130), np.arange(120)))


REFUSED: dict[str, Any] = {
    "reals": lambda s: s.add("add", of(s, "x", GRIDS[0]), of(s, "y", GRIDS[0])),
    "a function a channel": lambda s: s.quantized(
        s.add(
            "mul",
            s.add("add", of(s, "x", GRIDS[0]), of(s, "y", GRIDS[0])),
            s.constant(np.array([1, 2, 3], np.float32).reshape(3, 1, 1)),
        ),
        1.0,
    ),
    "broadcast": lambda s: s.quantized(s.add("add", of(s, "x", GRIDS[0]), of(s, "y", GRIDS[0], (1, 3, 1, 1))), 1.0),
    "wide": lambda s: s.quantized(s.add("add", of(s, "x", GRIDS[0]), of(s, "y", (0, 300, 1))), 1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_pairs_are_no_table(name):
    small = Small()
    graph = small.build((REFUSED[name](small),))
    assert matched(graph, match_pair_node) is None
    assert matched(graph, match_pair_chains) is None
