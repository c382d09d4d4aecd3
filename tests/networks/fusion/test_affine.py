"""Affine formulas of float64 behind sums: codes of the reference, of values that int32 holds and of wider ones."""

import numpy as np
import pytest
from support.fusion_cases import Small, values_of
from support.lane_texts import evaluated

from bitsynth.graph import run
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.formulas import Paired, find_chain, find_joined_chain, find_step_function
from bitsynth.network.formulas.affine import find_affine
from bitsynth.network.formulas.affine_formula import GUARD, AffineFormula
from bitsynth.network.formulas.residuals import PairProof
from bitsynth.network.fusion.affine import AffineGroup
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.program import Buffer, NetworkProgram
from bitsynth.network.run import Network

TARGET = NetworkTarget("avx2")


def affine_group(factors, zero, bits):
    """Sums of 6 channels and so many bits times factors, as codes from 0 to 255."""
    small = Small()
    sums = small.codes("x", (2, 6, 3, 5), -(1 << bits), 1 << bits)
    scaled = small.add("mul", sums, small.constant(np.array(factors, np.float32).reshape(-1, 1, 1)))
    graph = small.build((small.quantized(scaled, 0.37, float(zero)),))
    def_use = DefUse(graph, TARGET)
    chain = find_chain(def_use, "x")
    edge = graph.edges[chain.end]
    operand = operand_of(edge)
    line = find_affine(find_step_function(graph, chain), operand, edge.integers)
    return graph, AffineGroup(def_use, chain, line, operand, None)


@pytest.mark.parametrize("zero", [0, 128])
@pytest.mark.parametrize(
    ("most", "bits", "whole"), [(1e-4, 20, True), (1e-5, 23, True), (3e3, 20, True), (3e3, 30, False)]
)
def test_codes_are_the_references_wherever_values_are_cut(rng, most, bits, whole, zero):
    graph, group = affine_group(most * rng.uniform(-1, 1, 6), zero, bits)
    (given,), (result,) = group.inputs, group.outputs
    shape = graph.edges[given].shape
    source = Buffer(given, graph.edges[given], group.reads(given)[0], "input")
    out = Buffer(result, graph.edges[result], group.writes(result)[0], "output")
    buffers = {given: source, result: out}
    step = group.step(buffers)
    assert group.fits == whole
    net = Network(NetworkProgram(graph, "avx2", 1, (step,), buffers, (given,), (result,)))
    x = np.where(rng.integers(0, 2, shape), values_of(graph, rng)[given], rng.integers(-40, 41, shape))
    want = run(graph, {given: x})[result]
    assert len(np.unique(want)) > 1
    got = net({given: source.format.write(x).reshape(shape)})
    np.testing.assert_array_equal(out.read(np.asarray(got).reshape(-1)), want)


FACTORS = np.array([1e-3, -0.02, 0.5, 3.0])
SUMMANDS = np.array([0.5, -20.0, 1 / 3, 0.0])
RATIOS = np.array([0.5, 0.25, -1.0, 1e-9])
FORMULAS = [
    AffineFormula(FACTORS, SUMMANDS, 0, (0, 255)),
    AffineFormula(FACTORS, SUMMANDS, 128, (3, 200), ratio=RATIOS),
    AffineFormula(FACTORS, SUMMANDS, 7, (0, 255), gate=(1 / 6, 0.5)),
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_texts_give_the_codes_of_the_reference(rng, formula):
    """At ties too: elements of 0.5 and whole factors of them."""
    sums, elements = rng.integers(-1000, 1000, (999, 4)), rng.integers(-40, 300, (999, 4))
    given = {"s": (sums, 32), "e": (elements, 32), "f": formula.factor, "b": formula.summand, "r": RATIOS}
    (row, code), (clipped_row, clipped) = (formula.texts_of_rows(fits=fits) for fits in (True, False))
    want = formula.codes(sums, elements)
    assert len(np.unique(want)) > 99
    for text in (formula.text, code, clipped):
        np.testing.assert_array_equal(evaluated(text, given), want)
    assert row in code
    assert clipped_row in clipped


def test_the_guard_is_open_near_halves():
    """Within 1e-8 of one, on both sides of it; beyond the limits only where values are clipped after rounding."""
    values = np.array([[0.5, 1.5 + GUARD / 2, 2.5 - GUARD / 2, 1.5 + 2 * GUARD, 4.5 - 2 * GUARD, 3.0, 300.5, -0.5]])
    formula = AffineFormula(np.zeros(8), values[0], 0, (0, 255), ratio=np.zeros(8))
    zeros = np.zeros(values.shape, np.int64)
    given = {"s": (zeros, 32), "e": (zeros, 32), "f": formula.factor, "b": formula.summand, "r": formula.factor}
    for fits, beyond in ((True, 1), (False, 0)):
        near = evaluated(formula.near_half_text(fits=fits), given)[0]
        np.testing.assert_array_equal(near, [1, 1, 1, 0, 0, 0, beyond, beyond])
    (_, decided) = formula.decide(zeros, zeros)
    np.testing.assert_array_equal(decided[0], [1, 1, 1, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(("scale", "zero"), [(0.25, 3.0), (0.37, 0.0)])
def test_codes_of_pairs_are_the_references_also_at_halves(rng, scale, zero):
    """With scales that are powers of two, many values are halves: the reference is asked about these."""
    small = Small()
    one, other = (small.codes(name, (1, 6, 3, 5), -900, 900) for name in "xy")
    factors = np.array([0.125, -0.25, 0.5, -1, 0.75, 0.3], np.float32).reshape(-1, 1, 1)
    total = small.add("add", small.add("mul", one, small.constant(factors)), other)
    graph = small.build((small.quantized(small.add("relu", total), scale, zero, high=15),))
    chain = find_joined_chain(DefUse(graph, TARGET), "x", 1, graph.nodes[0])
    assert chain is not None
    proof = PairProof(Paired(graph, chain, operand_of(graph.edges[chain.end]), None))
    assert proof.guarded is not None
    sums, elements = rng.integers(-900, 901, (2, 600, 6))
    sums[::2] = np.rint((rng.integers(-1, 18, (300, 6)) * scale - elements[::2]) / factors.ravel()).clip(-900, 900)
    want = proof.ask(sums, elements)
    np.testing.assert_array_equal(proof.codes(sums, elements), want)
    assert proof.guarded.decide(sums, elements)[1].any() == (scale == 0.25)
    assert len(np.unique(want)) > 9


def test_breakpoints_of_pairs_do_not_depend_on_guesses(rng):
    small = Small()
    one, other = (small.codes(name, (1, 3, 2, 2), -90, 90) for name in "xy")
    factors = np.array([0.125, -0.25, 0.3], np.float32).reshape(-1, 1, 1)
    total = small.add("add", small.add("mul", one, small.constant(factors)), other)
    graph = small.build((small.quantized(total, 0.7, 4.0, high=15),))
    chain = find_joined_chain(DefUse(graph, TARGET), "x", 1, graph.nodes[0])
    proof = PairProof(Paired(graph, chain, operand_of(graph.edges[chain.end]), None))
    elements = proof.paired.elements
    near = rng.integers(-90, 91, (15, len(elements) * 3))
    np.testing.assert_array_equal(
        proof.breakpoints(elements, proof.codes), proof.breakpoints(elements, proof.ask, near)
    )
