"""Numbers of the caller as codes."""

from typing import Any

import numpy as np
import pytest
from support.fusion_cases import Small, matched, run_plain

from bitsynth.graph import run
from bitsynth.graph.types import Reals
from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.floats import reached
from bitsynth.network.formulas.step_functions import float_of
from bitsynth.network.fusion.inputs import InputGroup, LevelCodes, fit_rounded_levels, input_step, match_input
from bitsynth.spec.layout import Layout


def floats(values: Any) -> Any:
    return np.array(values, np.float32)


def chained(small, name, shape, chain):
    """Nodes between an input and its quantizer."""
    at, axes = small.input(name, shape, "float32", Reals()), [1] * (len(shape) - 2)
    if chain == "affine":
        return small.add("sub", small.add("mul", at, small.constant(floats(2))), small.constant(floats(1)))
    if chain == "falling":
        return small.add("div", small.add("neg", at), small.constant(floats(1.5)))
    if chain == "normalized":
        means, spreads = np.linspace(0.3, 0.6, shape[1]), np.linspace(0.2, 0.3, shape[1])
        at = small.add("sub", at, small.constant(floats(means).reshape(1, -1, *axes)))
        return small.add("div", at, small.constant(floats(spreads).reshape(-1, *axes)))
    if chain == "flattened":
        return small.add("reshape", at, sizes=(shape[0], -1))
    if chain == "bent":
        return small.add("mul", small.add("hard_sigmoid", at, alpha=0.2, beta=0.5), small.constant(floats(3)))
    if chain == "channels last":
        return small.add("transpose", at, order=(0, 3, 1, 2))
    return at


SHAPES = {
    "gray": (1, 1, 9, 7),
    "colours": (2, 3, 11, 250),
    "features": (3, 70),
    "few features": (3, 5),
    "signal": (1, 5, 33),
    "one": (2, 9, 1, 1),
}
FORMULA = {"low": -128, "high": 127}
CASES: dict[str, dict[str, Any]] = {
    "bytes": {"scale": 1 / 256, "high": 255},
    "few": {"high": 3, "scale": 0.41},
    "sixteen": {"low": -8, "high": 7, "scale": 0.5},
    "signed": {**FORMULA, "scale": 0.0173},
    "narrow": {"low": -127, "high": 127, "scale": 0.33674246},
    "zero point": {"scale": 0.0173, "zero": 131.0, "high": 255},
    "affine": {"chain": "affine", **FORMULA, "scale": 1 / 128},
    "affine, of any scale": {"chain": "affine", **FORMULA, "scale": 0.00791},
    "falling": {"chain": "falling", **FORMULA, "scale": 0.013},
    "normalized": {"chain": "normalized", **FORMULA, "scale": 0.0186},
    "a few of normalized": {"chain": "normalized", "low": -1, "high": 1, "scale": 0.9},
    "flattened": {"chain": "flattened", "high": 255, "scale": 0.1},
    "floors": {"mode": "FLOOR", "high": 100, "scale": 0.0173},
    "floors of few": {"mode": "FLOOR", "high": 9, "scale": 0.0173},
    "bent": {"chain": "bent", "high": 255, "scale": 0.013},
    "channels last": {"chain": "channels last", **FORMULA, "scale": 0.02},
}


QUICK = ("bytes", "few", "normalized", "flattened")


def networks(reference, cases):
    """One of all cases, each of an input and an output of its own."""
    small, result = Small(reference), []
    for case in cases:
        options = CASES[case]
        chain = options.get("chain", "")
        for kind, shape in SHAPES.items():
            every_kind = case == "normalized" or (cases is CASES and case == "bytes")
            if kind == "colours" or every_kind:
                at = chained(small, f"{case}, {kind}", shape, chain)
                result.append(small.quantized(at, **{k: v for k, v in options.items() if k != "chain"}))
    return small.build(tuple(result))


def near_turns(group, shape, rng):
    """Numbers at thresholds, beside them, and anywhere."""
    step_function = group.step_function
    others = step_function.thresholds + rng.integers(-1, 2, step_function.thresholds.shape)
    breakpoints = float_of(others.clip(step_function.low[:, None], step_function.high[:, None])).reshape(-1)
    anywhere = rng.normal(scale=np.abs(breakpoints[np.abs(breakpoints) < 1e30]).max() + 1e-9, size=shape)
    return np.where(rng.random(shape) < 0.7, rng.choice(breakpoints, shape), floats(anywhere)).astype(np.float32)


@pytest.mark.parametrize(
    ("reference", "cases"),
    [("exact", QUICK), *(pytest.param(r, CASES, marks=pytest.mark.slow) for r in ("exact", "onnxruntime"))],
)
def test_codes_of_numbers(rng, reference, cases):
    graph = networks(reference, cases)
    found = [matched(graph, match_input, k) for k, node in enumerate(graph.nodes) if node.inputs[0] in graph.inputs]
    groups = [group for group in found if isinstance(group, InputGroup)]
    assert sum(len(group.nodes) for group in groups) == len(graph.nodes)
    x = {r.inputs[0]: near_turns(r, graph.edges[r.inputs[0]].shape, rng) for r in groups}
    want, got = run(graph, x), run_plain(graph, groups, x)
    for group in groups:
        np.testing.assert_array_equal(got[group.outputs[0]], want[group.outputs[0]], str(group.inputs))


def test_numbers_of_one_pixel_have_both_orders():
    """A certificate tries both: planes of one pixel have a formula for each channel, too."""
    small = Small("exact")
    at = chained(small, "x", SHAPES["few features"], "normalized")
    graph = small.build((small.quantized(at, low=-128, high=127, scale=0.0186),))
    groups = [matched(graph, match_input, k) for k, node in enumerate(graph.nodes) if node.inputs[0] in graph.inputs]
    (group,) = [group for group in groups if isinstance(group, InputGroup)]
    edge = graph.edges[group.outputs[0]]
    assert all(input_step(group.step_function, edge, order).body for order in (Layout.PLAIN, Layout.NHWC))


@pytest.mark.parametrize("case", CASES)
def test_formulas_and_searches_count_the_thresholds_that_are_reached(rng, case):
    """Also of numbers that are subnormal, infinite, or not a number, which has level 0."""
    small, options = Small(), {k: v for k, v in CASES[case].items() if k != "chain"}
    shape = (1, 4, 4, 3) if case == "channels last" else (1, 3, 4, 4)
    at = chained(small, "x", shape, CASES[case].get("chain", ""))
    group = matched(small.build((small.quantized(at, **options),)), match_input)
    assert isinstance(group, InputGroup)
    codes = LevelCodes.of(group.step_function, 0)
    odd = floats([0, -0.0, 1e-45, -1e-45, 1e30, -1e30, np.nan, -np.nan, np.inf, -np.inf])
    bits = [Bits(ConcreteDomain(), 32, t.astype(np.uint64)) for t in codes.table.T]
    near = [codes.thresholds, *(np.nextafter(codes.thresholds, floats(end)) for end in (-np.inf, np.inf))]
    x = np.array([[*np.ravel(t), *odd, *rng.normal(size=50)] for t in zip(*near, strict=True)], np.float32)
    want = (x[:, :, None] >= codes.thresholds[:, None]).sum(2)
    for channel, formula in enumerate(fit_rounded_levels(group.step_function)):
        np.testing.assert_array_equal(formula(x[channel]), want[channel])
    if not codes.counts:
        value = Bits(ConcreteDomain(), 32, x.view(np.uint32).astype(np.uint64).T)
        np.testing.assert_array_equal(np.minimum(reached(bits, value).v, codes.levels).T, want)


def _refused(make):
    small = Small()
    graph = small.build((make(small),))
    return matched(graph, match_input) is None


REFUSED = {
    "no codes": lambda s: s.add("relu", s.input("x", (1, 3), "float32", Reals())),
    "not monotone": lambda s: s.quantized(s.add("abs", s.input("x", (1, 3), "float32", Reals())), 1.0),
    "other floats": lambda s: s.quantized(s.input("x", (1, 3), "float64", Reals()), 1.0),
    "other order": lambda s: s.quantized(
        s.add("transpose", s.input("x", (1, 3, 4, 5), "float32", Reals()), order=(0, 1, 3, 2)), 1.0
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_inputs_are_not_fused(name):
    assert _refused(REFUSED[name])
