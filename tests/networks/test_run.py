"""Networks in process: the C of a program against the layers it is made of, with one thread and with several."""

import numpy as np
import pytest
from support.case_selection import quick
from support.network_programs import CHANNELS, SIDE, by_hand
from support.onnx_files import model, node

from bitsynth import Pool, SpecError, compile
from bitsynth.graph import InputCodes, run
from bitsynth.network.run import Network


def picture(rng):
    return rng.integers(0, 4, (1, CHANNELS, SIDE, SIDE)).astype(np.float32)


@pytest.fixture
def net():
    return Network(by_hand("avx2")[0])


@pytest.mark.parametrize("threads", quick([2], of=[1, 2, 5]))
def test_the_layers_give_the_same(rng, threads):
    program, wanted = by_hand("avx2", threads)
    x = picture(rng)
    with Pool(threads) as pool:
        assert np.array_equal(Network(program, pool)(x), wanted(x)["y"])


def test_a_trace_has_every_edge(rng, net):
    x, wanted = picture(rng), by_hand("avx2")[1]
    found, want = net.trace(x), wanted(x)
    assert sorted(found) == ["f", "p", "q", "s", "t", "x", "y"]
    assert np.array_equal(found["x"], x)
    assert np.array_equal(found["q"], x)
    assert np.array_equal(found["s"], np.moveaxis(want["s"], -1, 1))
    assert found["s"].dtype == np.int64
    assert np.array_equal(found["f"].reshape(1, -1), want["y"])
    assert np.array_equal(found["y"], want["y"])
    assert found["t"].shape == (1, CHANNELS, SIDE, SIDE)
    assert found["t"].max() == 3


def test_inputs_by_place_by_name_and_as_a_dict(rng, net):
    x = picture(rng)
    assert all(np.array_equal(net(x), y) for y in (net(x=x), net({"x": x}), net(x.astype(np.int64))))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "input x is missing"),
        ((np.zeros(3, np.float32),), "has shape"),
        ((np.zeros((1, CHANNELS, SIDE, SIDE), np.float32),) * 2, "takes 1 inputs, not 2"),
        (({"z": 1},), "no input z; the network's are x"),
        ((np.full((1, CHANNELS, SIDE, SIDE), 2**24 + 1),), "numbers of int64 that float32 does not hold"),
        ((np.zeros((1, CHANNELS, SIDE, SIDE), complex),), "input x has type complex128; it wants integers or floats"),
        ((np.full((1, CHANNELS, SIDE, SIDE), "one"),), "input x has type <U3; it wants integers or floats"),
        (([[1, 2], [3]],), "input x is no array"),
        ((np.full((1, CHANNELS, SIDE, SIDE), 4, np.float32),), "not one of those its codes stand for"),
    ],
)
def test_what_is_no_input(net, given, message):
    with pytest.raises(SpecError, match=message):
        net(*given)


def test_a_bound_call_runs_again_on_what_it_has(rng, net):
    x, other = picture(rng), picture(rng)
    call, out = net.bind(x, times=2)
    assert call() == 0
    assert np.array_equal(out, net(x))
    assert net.bind(other)[0]() == 0
    assert call() == 0
    assert np.array_equal(out, net(x))


def test_steps_run_alone(rng, net):
    x = picture(rng)
    call, out = net.bind(x, steps=(0, 3))
    assert call() == 0
    assert not out.any()
    call, out = net.bind(x, steps=(3, 6))
    assert call() == 0
    assert np.array_equal(out, net(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codes", "numbers", "others"),
    [
        (
            InputCodes(2, 0.1),
            [0, 0.1, 0.2, 0.3, 3 * np.float32(0.1)],
            [0.15, 0.4, -0.1, np.nan, np.inf, 0.1000001, 1e30],
        ),
        (InputCodes(1, 0.5, "bipolar"), [0.5, -0.5], [0, 0.25, 1]),
    ],
)
def test_numbers_beside_the_codes_of_an_input(codes, numbers, others):
    """The reference and C refuse the same."""
    w = np.arange(24, dtype=np.float32).reshape(8, 3)
    net = compile(model([node("MatMul", "x w")], {"x": (1, 8)}, {"w": w}), isa="avx2", codes=codes)
    x = np.resize(np.array(numbers, np.float32), (1, 8))
    assert np.array_equal(net(x), run(net.graph, {"x": x}).outputs()[0])
    for other in others:
        x[0, 5] = other
        for call in (net, lambda x: run(net.graph, {"x": x})):
            with pytest.raises(SpecError, match=r"is not one of|not one of those"):
                call(x)
