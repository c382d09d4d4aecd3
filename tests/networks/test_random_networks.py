"""Networks drawn at random: their C has the integers of the reference on every edge, with any number of threads."""

import os

import numpy as np
import pytest
from support.network_batches import QUICK, compiled_together, same
from support.onnx_files import QONNX, model, node
from support.random_graphs import RandomGraph

import bitsynth
from bitsynth.errors import SpecError, ToolError
from bitsynth.graph import run
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import load
from bitsynth.layers.library import FLAGS

ASKED = int(os.environ.get("BITSYNTH_GRAPHS", "0"))
FIRST = int(os.environ.get("BITSYNTH_FIRST_SEED", "0"))
COUNT = {"avx2": 24, "avx512": 12, "neon": 3, "armv7_neon": 3}
"""Networks of each set that the slow suite compiles, unless BITSYNTH_GRAPHS says how many."""

BATCH = 48
"""Networks in a library."""

pytestmark = pytest.mark.filterwarnings("ignore::bitsynth.errors.BitsynthWarning")
"""Biases are drawn at the ends of int32, too."""

OPTIMIZED = 10
"""Of libraries each so manieth is compiled as users do."""


def networks(seeds, isa, threads, flags):
    """Networks of seeds, of so many threads in turn, in one library; none of a seed whose sums leave int32."""
    fields = {}
    for k, seed in enumerate(seeds):
        try:
            fields[seed] = bitsynth.compile(RandomGraph(seed).model, isa=isa, threads=threads[k % len(threads)])
        except SpecError as why:
            if "which int32 does not hold" not in str(why):
                raise
    assert len(fields) > 0.95 * len(seeds) - 1
    compiled_together(isa, fields.values(), flags)
    return fields


def check(seeds, isa, threads=(1,), flags=QUICK):
    """Run networks on two inputs: every edge in memory, and the outputs where buffers share memory."""
    for seed, net in networks(seeds, isa, threads, flags).items():
        for k in range(2):
            given = {name: x for name, x in RandomGraph(seed).data(k).items() if name in net.graph.inputs}
            values, result = run(net.graph, given), net(given)
            outputs = zip(net.graph.outputs, result if isinstance(result, tuple) else (result,), strict=True)
            wrong = [name for name, got in (*net.trace(given).items(), *outputs) if not same(values, name, got)]
            assert not wrong, f"network {seed} on {isa} with {net.pool.threads} threads: {wrong}"


def test_c_has_the_integers_of_the_reference():
    drawn = RandomGraph(1)
    net, given = bitsynth.compile(drawn.model, isa="avx2"), drawn.data()
    values = run(net.graph, given)
    assert all(same(values, name, got) for name, got in zip(net.graph.outputs, net(given), strict=True))


@pytest.mark.slow
@pytest.mark.timeout(600 + 20 * ASKED)
@pytest.mark.parametrize("isa", COUNT)
def test_many_random_networks_are_exact(isa, skip_isa):
    threads = (1, 2, 5) if runs_natively(load(isa).table) else (1,)
    try:
        check([0], isa)
    except ToolError as why:
        skip_isa(isa, str(why))
    seeds = range(FIRST, FIRST + (ASKED or COUNT[isa]))
    for k in range(0, len(seeds), BATCH):
        check(seeds[k : k + BATCH], isa, threads, FLAGS if k // BATCH % OPTIMIZED == OPTIMIZED - 1 else QUICK)


@pytest.mark.slow
def test_threads_change_nothing():
    for threads in (2, 5):
        check(range(6), "avx2", (threads,))


@pytest.mark.slow
@pytest.mark.parametrize("function", ["Tanh", "Sigmoid"])
def test_functions_stay_below_one(function):
    """Rounded down, numbers that lie nearer to 1 than float64 tells are 0."""
    floor = node("Quant", "f s z b", domain=QONNX, signed=0, narrow=0, rounding_mode="FLOOR")
    given = {"s": np.float32(1), "z": np.float32(0), "b": np.float32(4)}
    net = bitsynth.compile(model([node(function, "x", "f"), floor], {"x": (1, 4)}, given), isa="avx2")
    x = np.array([[1, 19, 50, 1000]], np.float32)
    assert run(net.graph, {"x": x})["y"].tolist() == net(x).tolist() == [[0, 0, 0, 0]]


@pytest.mark.slow
def test_strides_that_leave_one_element_behind_the_padding():
    onnx_model = model(
        [node("Conv", "x w", strides=[2], pads=[1, 0])],
        {"x": (1, 1, 2)},
        {"w": np.array([[[0.3, 0.7]]], np.float32)},
    )
    net = bitsynth.compile(onnx_model, isa="avx2")
    x = np.array([[[1, 5]]], np.float32)
    assert same(run(net.graph, {"x": x}), "y", net(x))
