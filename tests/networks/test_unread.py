"""Channels that no product reads are left out, and nothing else changes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.fusion_cases import Small, values_of
from support.network_batches import same

from bitsynth.graph import run
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.passes.unread_channels import drop_unread_channels
from bitsynth.layers.glue.programs import instruction_set
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.run import Network

RNG = np.random.default_rng(3)
PADDED = SlidingWindow((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
POINT = SlidingWindow((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
HALVES = SlidingWindow((2, 2), (2, 2), (1, 1), (0, 0), (0, 0))
WIDE, READ = 40, (3, 7, 8, 21, 22, 30, 39)


def weights(out, channels, window=PADDED, read=None):
    """Weights of 3 bits, 0 for channels that are not read."""
    text = RNG.integers(-4, 4, (out, channels, *window.kernel)).astype(np.float32)
    left = np.setdiff1d(np.arange(channels), range(channels) if read is None else read)
    text[:, left] = 0
    return text


def conv(small, x, values, window=PADDED, groups=1):
    return small.add("conv", x, small.constant(values), window=window, groups=groups)


def start(small, channels=5):
    return small.codes("x", (1, channels, 6, 4), -4, 3, 0.25)


def by_channel(small, shape, low, high):
    return small.constant(RNG.uniform(low, high, shape).astype(np.float32))


def elementwise(small):
    x = small.add("add", conv(small, start(small), weights(WIDE, 5)), by_channel(small, (WIDE, 1, 1), -9, 9))
    return small.add("relu", small.add("mul", x, by_channel(small, (1, WIDE, 1, 1), -1, 1)))


def quantized(small):
    return small.quantized(elementwise(small), RNG.uniform(0.1, 0.5, (WIDE, 1, 1)), 0.0, 0, 15)


def counted(small, *, pooled=False, axis=1):
    x = elementwise(small)
    levels = np.sort(RNG.uniform(0, 9, (small.edges[x].shape[axis], 3)).astype(np.float32))
    attributes: dict[str, Any] = {"step": 1, "least": 0, "axis": axis, "out_scale": np.float64(1)}
    codes = small.add("multi_threshold", x, thresholds=levels, **attributes)
    return small.add("max_pool", codes, window=HALVES) if pooled else codes


def behind(small, codes, read=READ):
    return small.quantized(conv(small, codes, weights(6, WIDE, read=read)), 3.0, 0.0, 0, 15)


def two(small):
    """The second has outputs that the third does not read, and without these does not read outputs of the first."""
    middle = weights(WIDE, WIDE, read=READ)
    middle[::2, READ[0]] = middle[1::2, RNG.integers(0, WIDE)] = 1
    codes = small.quantized(conv(small, quantized(small), middle), 9.0, 0.0, 0, 15)
    return small.quantized(conv(small, codes, weights(6, WIDE, POINT, (1, 2)), POINT), 3.0)


LEFT_OUT: dict[str, Any] = {
    "quantizer": lambda s: behind(s, quantized(s)),
    "thresholds": lambda s: behind(s, counted(s)),
    "pool": lambda s: behind(s, counted(s, pooled=True)),
    "two": two,
    "none read": lambda s: behind(s, quantized(s), ()),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_results_stay_without_unread_channels(rng, name):
    small = Small()
    graph = small.build((LEFT_OUT[name](small),))
    result = drop_unread_channels(graph)
    result.check()
    assert [(node.name, node.op) for node in result.nodes] == [(node.name, node.op) for node in graph.nodes]
    convs = [result.edges[node.outputs[0]].shape[1] for node in result.nodes if node.op == "conv"]
    assert convs == [16] * (len(convs) - 1) + [6]
    x = values_of(graph, rng)
    np.testing.assert_array_equal(run(result, x)[graph.outputs[0]], run(graph, x)[graph.outputs[0]])


def test_an_edge_has_the_channels_that_are_read(rng):
    small = Small()
    codes = quantized(small)
    graph = small.build((behind(small, codes),))
    result = drop_unread_channels(graph)
    x = values_of(graph, rng)
    found, every = run(result, x)[f"{codes}.read"], run(graph, x)[codes]
    assert codes not in result.edges
    columns = [tuple(every[:, c].reshape(-1)) for c in range(WIDE)]
    places = [columns.index(tuple(found[:, c].reshape(-1))) for c in range(found.shape[1])]
    assert set(places) >= {columns.index(columns[c]) for c in READ}


def with_zero_point(small, zero):
    """Weights whose codes stand for 0 where they are the zero point."""
    replaced = small.constant(weights(6, WIDE, read=READ))
    edge = small.edges[replaced]
    small.edges[replaced] = replace(edge, type=replace(edge.type, zero=np.asarray(zero, np.float64)))
    return small.add("conv", quantized(small), replaced, window=PADDED, groups=1)


def test_zero_points_of_weights_say_what_is_read():
    kept, left_out = Small(), Small()
    graph = kept.build((with_zero_point(kept, 1),))
    assert drop_unread_channels(graph) is graph
    graph = left_out.build((with_zero_point(left_out, 0),))
    assert drop_unread_channels(graph) is not graph


def beside(small, codes):
    """A second reader."""
    behind(small, codes)
    return small.add("add", conv(small, codes, weights(WIDE, WIDE, POINT), POINT), codes)


def residual(small):
    """What is added has all channels."""
    x = small.add("add", elementwise(small), small.codes("other", (1, WIDE, 6, 4), 0, 9))
    return behind(small, small.quantized(x, 0.3, 0.0, 0, 15))


STAY: dict[str, Any] = {
    "every channel": lambda s: behind(s, quantized(s), range(34)),
    "other readers": lambda s: beside(s, quantized(s)),
    "residuals": residual,
    "thresholds of columns": lambda s: behind(s, counted(s, axis=3)),
    "real numbers": lambda s: conv(s, elementwise(s), weights(6, WIDE, read=READ)),
    "inputs": lambda s: conv(s, start(s, WIDE), weights(6, WIDE, read=READ)),
    "groups": lambda s: behind(
        s, s.quantized(conv(s, start(s, 4), weights(WIDE, 2, read=(0,)), groups=2), 9.0, 0.0, 0, 15)
    ),
}


@pytest.mark.parametrize("name", STAY)
def test_read_channels_stay(name):
    small = Small()
    graph = small.build((STAY[name](small),))
    assert drop_unread_channels(graph) is graph


def test_outputs_of_the_network_stay():
    small = Small()
    codes = quantized(small)
    graph = small.build((behind(small, codes), codes))
    assert drop_unread_channels(graph) is graph


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT_OUT)
def test_c_gives_what_the_whole_network_does(rng, name):
    small = Small()
    graph = small.build((LEFT_OUT[name](small),))
    x = values_of(graph, rng)
    want = run(graph, x)
    assert same(want, graph.outputs[0], Network(lower(graph, NetworkTarget(instruction_set("auto"))))(want.floats("x")))
