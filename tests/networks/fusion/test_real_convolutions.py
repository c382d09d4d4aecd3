"""Convolutions of the caller's numbers: every code is the exact sum's, however near the sum is to a threshold."""

from typing import Any

import numpy as np
import pytest
from support.fusion_cases import Small, matched, run_plain

from bitsynth.graph import run
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Reals
from bitsynth.network.fusion.real_convolutions import RealConvolution, match_real_convolution
from bitsynth.network.fusion.real_levels import fit_level_formulas


def window(kernel: Any, strides: Any, pads: Any) -> SlidingWindow:
    return SlidingWindow(kernel, strides, (1,) * len(kernel), pads, pads)


CASES: dict[str, dict[str, Any]] = {
    "padded": {"shape": (2, 3, 9, 21), "channels": 6, "window": window((3, 3), (1, 1), (1, 1))},
    "apart": {"shape": (1, 1, 20, 13), "channels": 5, "window": window((5, 3), (2, 3), (2, 0)), "high": 255},
    "line": {"shape": (1, 2, 150), "channels": 4, "window": window((5,), (2,), (2,)), "high": 1},
    "floors": {"shape": (1, 2, 11, 11), "channels": 3, "window": window((2, 2), (1, 1), (0, 0)), "floors": True},
}

BEHIND = {
    "two": {"shape": (1, 2, 13, 12), "channels": 4, "window": window((3, 2), (2, 1), (1, 0)), "then": (2, 3)},
    "mixed": {"shape": (2, 1, 40), "channels": 5, "window": window((3,), (2,), (0,)), "then": (4,)},
}


def convolved_twice(small, name, rng, options):
    """Whole numbers as weights, a number for each channel between, and steps of 2 behind."""
    shape, channels, first = (options[key] for key in ("shape", "channels", "window"))
    axes = [1] * (len(shape) - 2)
    x = small.input(name, shape, "float32", Reals())
    weights = rng.integers(-3, 4, (channels, shape[1], *first.kernel))
    edge = small.add("conv", x, small.constant(np.float32(weights)), window=first, groups=1)
    edge = small.add("add", edge, small.constant(np.float32(rng.integers(-9, 9, (channels, *axes)) / 4)))
    weights = rng.integers(-3, 4, (3, channels, *options["then"]))
    behind = window(options["then"], (2,) * len(axes), (0,) * len(axes))
    return small.quantized(
        small.add("conv", edge, small.constant(np.float32(weights)), window=behind, groups=1), 8.0, 7.0, 0, 15
    )


def convolved(small, name, rng, options):
    """Channels whose codes rise, fall and, if they are not floors, stay; the weights are codes on a scale each."""
    shape, channels, window = (options[key] for key in ("shape", "channels", "window"))
    high, floors = options.get("high", 15), options.get("floors", False)
    x = small.input(name, shape, "float32", Reals())
    axes = [1] * (len(shape) - 2)
    whole = rng.integers(-7, 8, (channels, shape[1], *window.kernel))
    scales = np.float32(2.0 ** rng.integers(-3, 2, (channels, 1, *axes)) * rng.choice([1, 0.3]))
    edge = small.add("conv", x, small.constant((whole * scales).astype(np.float32)), window=window, groups=1)
    gains = np.float32(rng.choice([1, -0.5, 1.7 if floors else 0, 1.7], channels)).reshape(-1, *axes)
    edge = small.add("add", small.add("mul", edge, small.constant(gains)), small.constant(np.float32(0.25)))
    if floors:
        return small.add("clip", small.add("round", edge, rounding="FLOOR"), low=0, high=high)
    return small.quantized(edge, 0.5, 3.0, 0, high)


@pytest.mark.parametrize("cases", [("line", "floors"), pytest.param(tuple(CASES), marks=pytest.mark.slow)])
def test_codes_of_sums(rng, cases):
    """Of numbers on a coarse grid, whose sums lie on thresholds, and of others."""
    small = Small()
    outputs = tuple(convolved(small, name, rng, options) for name, options in CASES.items() if name in cases)
    graph = small.build(outputs)
    found = [matched(graph, match_real_convolution, k) for k, n in enumerate(graph.nodes) if n.op == "conv"]
    groups = [group for group in found if isinstance(group, RealConvolution)]
    assert {e for group in groups for e in group.inputs} == set(cases)
    drawn = {name: rng.normal(size=graph.edges[name].shape) * 4 for name in graph.inputs}
    x = {n: np.where(rng.random(v.shape) < 0.8, np.rint(v * 4) / 4, v).astype(np.float32) for n, v in drawn.items()}
    want, got = run(graph, x), run_plain(graph, groups, x)
    for group in groups:
        np.testing.assert_array_equal(got[group.outputs[0]], want[group.outputs[0]], str(group.inputs))


def test_convolutions_that_are_one(rng):
    """Two in a row, with only additions of numbers between, become one with the products of their weights."""
    small = Small()
    graph = small.build(tuple(convolved_twice(small, name, rng, options) for name, options in BEHIND.items()))
    groups = [group for k in range(len(graph.nodes)) if (group := matched(graph, match_real_convolution, k))]
    assert [[n.op for n in r.nodes][:3] for r in groups if r.inputs[0] in BEHIND] == [["conv", "add", "conv"]] * 2
    x = {n: (np.rint(rng.normal(size=graph.edges[n].shape) * 16) / 4).astype(np.float32) for n in graph.inputs}
    want, got = run(graph, x), run_plain(graph, groups, x)
    for group in groups:
        np.testing.assert_array_equal(got[group.outputs[0]], want[group.outputs[0]], str(group.inputs))
        assert len(np.unique(want[group.outputs[0]])) > 4


def test_lines_of_thresholds():
    """The margin covers what a sum in float32 may be off by; what is no line is refused."""
    weights = np.ones((1, 50))
    formulas = fit_level_formulas(np.array([[-np.inf, 1.5, 3.5, 5.5, np.inf]]), weights)
    assert formulas is not None
    np.testing.assert_allclose(formulas.rows, [[0.5, 0.75, 1, 4]])
    assert formulas.margins[0, 0] >= 0.5 * 50 * 51 * 2**-24
    assert fit_level_formulas(np.array([[1.0, 3.5, 4.0]]), weights) is None
    far = fit_level_formulas(np.array([[-1e50, 1.5, 3.5, 1e40]]), weights)
    assert far is not None
    np.testing.assert_allclose(far.rows[0, 2:], [1, 3])
    assert far.margins[0, 0] * 2.0**98 > 0.5
