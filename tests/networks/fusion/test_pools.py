"""Pools of codes by glue."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fusion_cases import Small, agree, matched

from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.network.fusion.glue import match_pool

GRIDS = [(0, 3, 1), (-128, 127, 1), (-7, 7, 1), (-1, 1, 2), (-7, 7, 2), (0, 200, 1), (-1, 1, 1)]


def window(kernel: Any, strides: Any = None, dilations: Any = None, begins: Any = None, ends: Any = None, ceil=False):
    ones, none = (1,) * len(kernel), (0,) * len(kernel)
    return SlidingWindow(kernel, strides or kernel, dilations or ones, begins or none, ends or none, ceil)


@st.composite
def windows(draw, *, padded):
    def pair(low, high):
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    kernel, dilations = pair(1, 3), pair(1, 2)
    pads = [pair(0, 1) if padded and min(kernel) > 1 else (0, 0) for _ in range(2)]
    return window(kernel, pair(1, 3), dilations, pads[0], pads[1], padded and draw(st.booleans()))


@settings(max_examples=12)
@given(st.sampled_from(GRIDS), windows(padded=True), st.sampled_from([1, 3, 64, 70]), st.integers(5, 9))
def test_a_maximum_of_windows_becomes_glue(grid, slides, channels, size):
    low, high, step = grid
    small = Small()
    x = small.codes("x", (2, channels, size, 7), low, high, 0.3, 0.0, step)
    graph = small.build((small.add("max_pool", x, window=slides),))
    agree(graph, matched(graph, match_pool), np.random.default_rng(size))


@settings(max_examples=12)
@given(st.sampled_from(GRIDS), windows(padded=False), st.sampled_from([1, 3, 65]), st.sampled_from([3, 0.37]))
def test_a_mean_of_windows_becomes_glue(grid, slides, channels, divisor):
    """Sums, divided and rounded, ties among them; a zero point that is subtracted first."""
    low, high, step = grid
    small = Small()
    x = small.codes("x", (1, channels, 8, 7), low, high, 0.25, 0.0 if step == 2 else 2.0, step)
    mean = small.add("div", small.add("sum_pool", x, window=slides), small.constant(np.float32(divisor)))
    graph = small.build((small.quantized(mean, 0.5, 3.0, -4, 60),))
    agree(graph, matched(graph, match_pool), np.random.default_rng(channels))


@pytest.mark.parametrize("reference", ["exact", "onnxruntime", "onnx"])
def test_means_of_images(rng, reference):
    small = Small(reference)
    x = small.codes("x", (2, 5, 7, 7), 0, 255, 1.0, 128.0)
    mean = small.add("div", small.add("reduce_sum", x, axes=(2, 3)), small.constant(np.float32(49)))
    flat = small.add("reshape", small.quantized(mean, 0.7, 100.0), sizes=(2, 5))
    graph = small.build((flat,))
    group = matched(graph, match_pool)
    agree(graph, group, rng)
    assert group
    assert len(group.nodes) == len(graph.nodes)


def test_sums_that_are_codes(rng):
    """Of few pixels: sums of 0 to 3 over 4 x 4 are 6 bits."""
    small = Small()
    x = small.codes("x", (1, 64, 4, 4), 0, 3, 0.2)
    mean = small.add("div", small.add("reduce_sum", x, axes=(2, 3)), small.constant(np.float32(16)))
    graph = small.build((small.add("reshape", mean, sizes=(1, 64)),))
    group = matched(graph, match_pool)
    agree(graph, group, rng)
    assert group
    assert len(group.nodes) == len(graph.nodes)


def test_pools_of_signals_become_glue(rng):
    """One axis beside channels."""
    small = Small()
    x = small.codes("x", (2, 6, 11), -8, 7)
    graph = small.build((small.add("max_pool", x, window=window((3,), (2,), None, (1,), (1,))),))
    agree(graph, matched(graph, match_pool), rng)


def _refused(make):
    small = Small()
    graph = small.build((make(small),))
    return matched(graph, match_pool) is None


REFUSED = {
    "wide sums": lambda s: s.add("reduce_sum", s.codes("x", (1, 3, 4, 4), 0, 255), axes=(2, 3)),
    "padded sums": lambda s: s.add(
        "sum_pool", s.codes("x", (1, 3, 4, 4), 0, 1), window=window((3, 3), (1, 1), None, (1, 1), (1, 1))
    ),
    "sums of channels": lambda s: s.add("reduce_sum", s.codes("x", (1, 3, 4, 4), 0, 1), axes=(1,)),
    "padding alone": lambda s: s.add(
        "max_pool", s.codes("x", (1, 3, 4, 1), 0, 1), window=window((1, 2), (1, 1), (1, 2), (0, 1), (0, 1))
    ),
    "reals": lambda s: s.add(
        "max_pool", s.codes("x", (1, 3, 4, 4), 0, [[[[1.0]]]], [[[[1]], [[2]], [[3]]]]), window=window((2, 2))
    ),
    "volumes": lambda s: s.add("max_pool", s.codes("x", (1, 3, 4, 4, 4), 0, 1), window=window((2, 2, 2))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_pools_are_no_glue(name):
    assert _refused(REFUSED[name])
