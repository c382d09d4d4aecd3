"""Networks drawn at random: their C has the integers of the reference on every edge, with any number of threads."""

import os

import numpy as np
import pytest
from onnx_files import QONNX, model, node
from random_graphs import RandomGraph

import bitsynth
from bitsynth import Pool
from bitsynth.errors import ToolError
from bitsynth.graph import run
from bitsynth.graph.arithmetic import Interval
from bitsynth.graph.types import Integers

ASKED = int(os.environ.get("BITSYNTH_GRAPHS", "0"))
COUNT = {"avx2": 24, "avx512": 12, "neon": 3, "armv7_neon": 3}
"""Networks of each set that the slow suite compiles, unless BITSYNTH_GRAPHS says how many."""


@pytest.fixture
def quickly(monkeypatch):
    """Networks are compiled without optimization: they run a few times."""
    monkeypatch.setattr("bitsynth.network.machine.FLAGS", ("-O0",))


def same(values, name, got):
    """Whether an edge in C is the reference's: integers all, numbers but for what sums of float64 lose."""
    edge, want = values.graph.edges[name], values[name]
    if isinstance(edge.type, Integers) and got.dtype == np.int64:
        return np.array_equal(got, want)
    if isinstance(want, Interval) and got.dtype == np.float64:
        want = (want.low + want.high) / 2
        return np.allclose(got, want, rtol=1e-9, atol=1e-300 + 1e-12 * np.abs(want[np.isfinite(want)]).max(initial=0))
    want = values.floats(name)
    if isinstance(edge.type, Integers):
        return np.array_equal(got, want)
    got, want = got.astype(np.float64), want.astype(np.float64)
    return np.allclose(got, want, rtol=1e-6, atol=1e-6 * np.abs(want[np.isfinite(want)]).max(initial=0), equal_nan=True)


def check(seed, isa, threads=1, *, trace=True):
    """Compile a network and run it on two inputs: every edge in memory, and the outputs where buffers share memory."""
    drawn = RandomGraph(seed)
    with Pool(threads) as pool:
        net = bitsynth.compile(drawn.model, isa=isa, threads=pool)
        for k in range(2):
            given = {name: drawn.data(k)[name] for name in net.graph.inputs}
            values, made = run(net.graph, given), net(given)
            outputs = zip(net.graph.outputs, made if isinstance(made, tuple) else (made,), strict=True)
            found = [*net.trace(given).items(), *outputs] if trace else [*outputs]
            wrong = [name for name, got in found if not same(values, name, got)]
            assert not wrong, f"{drawn} on {isa} with {threads} threads: {wrong}"


def test_c_has_the_integers_of_the_reference():
    check(1, "avx2", trace=False)


@pytest.mark.slow
@pytest.mark.timeout(600 + 20 * ASKED)
@pytest.mark.parametrize("isa", COUNT)
def test_many_networks(isa, skip_isa, quickly):
    try:
        check(0, isa)
    except ToolError as why:
        skip_isa(isa, str(why))
    for seed in range(ASKED or COUNT[isa]):
        check(seed, isa, (1, 2, 5)[seed % 3])


@pytest.mark.slow
def test_threads_change_nothing(quickly):
    for seed in range(6):
        for threads in (2, 5):
            check(seed, "avx2", threads, trace=False)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["Tanh", "Sigmoid"])
def test_functions_stay_below_one(quickly, function):
    """Rounded down, numbers that lie nearer to 1 than float64 tells are 0."""
    floor = node("Quant", "f s z b", domain=QONNX, signed=0, narrow=0, rounding_mode="FLOOR")
    given = {"s": np.float32(1), "z": np.float32(0), "b": np.float32(4)}
    net = bitsynth.compile(model([node(function, "x", "f"), floor], {"x": (1, 4)}, given), isa="avx2")
    x = np.array([[1, 19, 50, 1000]], np.float32)
    assert run(net.graph, {"x": x})["y"].tolist() == net(x).tolist() == [[0, 0, 0, 0]]


@pytest.mark.slow
def test_strides_that_leave_one_element_behind_the_padding(quickly):
    made = model(
        [node("Conv", "x w", strides=[2], pads=[1, 0])],
        {"x": (1, 1, 2)},
        {"w": np.array([[[0.3, 0.7]]], np.float32)},
    )
    net = bitsynth.compile(made, isa="avx2")
    x = np.array([[[1, 5]]], np.float32)
    assert same(run(net.graph, {"x": x}), "y", net(x))
