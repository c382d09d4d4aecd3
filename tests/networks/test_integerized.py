"""Integerized networks: every step a layer of lines of 32 bits, the reference's at every edge, and certified."""

import copy

import numpy as np
import pytest
from support.certificate_networks import changed
from support.certificates import certified, failure
from support.integerized_networks import residual
from support.network_batches import compiled_together, numbers, same

import bitsynth
from bitsynth.graph import read, run
from bitsynth.layers.epilogues import FixedPoint
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.encodings import activations
from bitsynth.network.formulas import find_chain, find_fixed_point, find_step_function
from bitsynth.network.program import LayerStep


@pytest.fixture(scope="module")
def graph():
    return read(residual(np.random.default_rng(11)))


@pytest.fixture(scope="module")
def found(graph):
    return certified(graph)


def layer_claims(found):
    return [(k, step["claims"][0]) for k, step in enumerate(found["steps"]) if step["kind"] == "layer"]


@pytest.mark.parametrize("ends", ["ra", "ta"])
def test_lines_are_the_chain_on_the_whole_range(graph, ends):
    def_use = DefUse(graph, NetworkTarget("avx2"))
    chain = find_chain(def_use, "ca")
    assert chain.end == "ta"
    if ends == "ra":
        edges = {n.outputs[0]: k for k, n in enumerate(chain.nodes)}
        nodes = chain.nodes[: edges["ra"] + 1]
        chain = type(chain)(chain.start, nodes, chain.constant_nodes, chain.axes[: len(nodes) + 1], chain.varies)
    kind = graph.edges[ends].integers
    result = find_fixed_point(def_use, chain, next(activations(kind)))
    assert (result.then is not None) == (ends == "ta")
    step_function = find_step_function(graph, chain)
    most = int(max(-step_function.low.min(), step_function.high.max()))
    sums = np.clip(np.linspace(-most, most, 60_001).astype(np.int64)[:, None], step_function.low, step_function.high)
    sums = np.concatenate([sums, step_function.points()])
    np.testing.assert_array_equal(result.reference(sums.astype(np.int32)), step_function.at(sums))


EMULATED = [pytest.param(name, marks=pytest.mark.slow) for name in ("neon", "armv7_neon")]


@pytest.mark.parametrize("isa", ["avx2", pytest.param("avx512", marks=pytest.mark.slow), *EMULATED])
def test_every_edge_is_the_references(isa, skip_lesser):
    skip_lesser(isa)
    rng = np.random.default_rng(3)
    nets = [bitsynth.compile(residual(rng, size), isa=isa) for size in (5, 12)]
    compiled_together(isa, nets)
    for net in nets:
        layers = [step.layer.epilogue for step in net.program.steps if isinstance(step, LayerStep)]
        assert [type(x) for x in layers] == [FixedPoint, FixedPoint]
        given = {x: numbers(rng, net.graph.edges[x]) * 40 for x in net.graph.inputs}
        values = run(net.graph, given)
        assert not [e for e, got in net.trace(given).items() if not same(values, e, got)]
        assert len(np.unique(values["y"])) > 20


def test_lines_are_claimed_and_hold(found):
    assert [claim["by"] for _, claim in layer_claims(found)] == ["lines", "lines"]
    assert not any(step["unclaimed"] for step in found["steps"])
    assert failure(found) == ""


@pytest.mark.parametrize(
    ("line", "number", "by"),
    [
        (line, number, by)
        for line in range(2)
        for number in range(4)
        for by in (1, -1)
        if (line + number + (by > 0)) % 2
    ],
)
def test_a_number_of_a_line_that_is_another_is_refused(found, line, number, by):
    place, _ = layer_claims(found)[0]
    great = {2: 1 << 12, 3: 1 << 22}.get(number, 1 << 14 if line == 0 else 1 << 32)
    forged = changed(found, step=place, path=("claims", 0, "values", line, number), value=lambda x: x + by * great)
    if line == 1 and (number, by) in ((0, -1), (1, 1)):
        assert failure(forged) == ""  # kept between numbers farther out, which never come
    else:
        assert failure(forged)


def test_products_that_would_wrap_are_refused(found):
    place, _ = layer_claims(found)[0]
    moved = changed(found, step=place, path=("claims", 0, "values", 0, 3), value=lambda x: x + (1 << 32))
    assert "leave int32" in failure(moved)


def test_lines_are_no_sums(found):
    place, _ = layer_claims(found)[0]
    forged = copy.deepcopy(found)
    forged["steps"][place]["claims"][0]["by"] = "sums"
    assert failure(forged)
