"""Networks whose residual streams are real numbers: plain C around layers, in the order in which these write."""

import math

import numpy as np
import pytest
from support.float_residuals import resnet_of_reals

import bitsynth
from bitsynth.graph.operators import TABLE
from bitsynth.network import check
from bitsynth.network.check import comparison
from bitsynth.spec.layout import Layout


@pytest.fixture(autouse=True)
def no_peers(monkeypatch):
    monkeypatch.setattr(comparison, "PEERS", {})


def plain_steps(net):
    """Pairs of a step of elementwise plain C and its nodes."""
    steps = [(step, net.program.nodes_of(step)) for step in net.program.steps if step.kind == "plain" and step.nodes]
    return [(step, nodes) for step, nodes in steps if all(TABLE[n.op].kind in ("elementwise", "step") for n in nodes)]


def require_equal(net, outcome, rng, count=2):
    shape = net.graph.edges["x"].shape
    inputs = [{"x": rng.normal(0, 4, shape).astype(np.float32)} for _ in range(count)]
    result = check.check_network(net, outcome, inputs)
    assert result.first is None
    assert sum(edge.carries == "codes" for edge in result.edges) >= 7


@pytest.mark.slow
@pytest.mark.parametrize("dyadic", [False, True], ids=["generic", "on ties"])
def test_every_edge_is_the_references(rng, dyadic):
    result = resnet_of_reals(rng, 48, dyadic=dyadic)
    require_equal(bitsynth.compile(result, isa="avx2"), result, rng)


def test_streams_lie_as_layers_write(rng):
    net = bitsynth.compile(resnet_of_reals(rng), isa="avx2")
    formats = [[net.program.buffers[name].format for name in (*s.inputs, *s.outputs)] for s, _ in plain_steps(net)]
    streams = [some for some in formats if any(f.dtype == "int32" for f in some)]
    assert len(streams) == 4
    assert all(f.layout == Layout.NHWC for some in streams for f in some)
    pools = [s for s in net.program.steps if any(n.op == "max_pool" for n in net.program.nodes_of(s))]
    assert [net.program.buffers[s.outputs[0]].format.layout for s in pools] == [Layout.NHWC]


def test_pairs_decide_where_float64_does_not(rng):
    """Loops of many elements that round sums of reals are in float64, with a bound, and in pairs behind."""
    net = bitsynth.compile(resnet_of_reals(rng, 48), isa="avx2")
    many = [s for s, nodes in plain_steps(net) if nodes[-1].op == "quantize" and "in0" in s.body
            and math.prod(net.program.buffers[s.outputs[0]].edge.shape) == 16 * 12 * 12]  # fmt: skip
    assert len(many) == 2
    for step in many:
        guarded, pairs = step.body.split("return BS_OK;")
        assert "bs_undecided" in guarded
        assert "bs_sum_error" not in guarded
        assert "bs_sum_error" in pairs
