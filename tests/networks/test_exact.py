"""Exact arithmetic: intervals hold every number and are points where they may be; fractions decide the rest."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.arithmetic import Floats, Fractions, Interval, Intervals, directed
from bitsynth.graph.arithmetic.floats import round_once
from bitsynth.graph.arithmetic.fractions import FUNCTIONS
from bitsynth.graph.arithmetic.intervals import interval
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.types import Integers, Reals

SIZES = st.floats(-1e30, 1e30, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-30)
WHOLE = st.integers(-(2**20), 2**20).map(float)
NUMBERS = st.one_of(SIZES, WHOLE, WHOLE.map(lambda x: x / 64))
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8)
OPERATIONS = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "mixed": lambda a, b: (a + b) * a - b * 3.0,
}


def holds(bounds, exact):
    return all(
        Fraction(x) <= v <= Fraction(y) for x, y, v in zip(bounds.low.flat, bounds.high.flat, exact, strict=True)
    )


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=25)
@given(PAIRS)
def test_intervals_hold_the_number(name, pairs):
    pairs = [(a, b or 1.0) for a, b in pairs]
    a, b = (np.array(x) for x in zip(*pairs, strict=True))
    function = OPERATIONS[name]
    bounds = function(interval(a), interval(b))
    exact = [function(Fraction(x), Fraction(y)) for x, y in pairs]
    assert holds(bounds, exact)
    if name != "mixed":
        assert [x == y for x, y in zip(bounds.low, bounds.high, strict=True)] == [float(v) == v for v in exact]


@pytest.mark.parametrize("name", ["add_bounds", "multiply_bounds", "divide_bounds"])
@pytest.mark.parametrize(
    "shapes", [((1, 3, 80, 400), (1, 3, 1, 1)), ((70_000,), (1,)), ((9, 5000), (5000,)), ((2, 40_000), (2, 40_000))]
)
def test_blocks_are_what_the_whole_is(name, shapes):
    """Bounds of many numbers; in some blocks some numbers are known exactly, in others all."""
    rng, result = np.random.default_rng(3), getattr(directed, name)
    a, b = (rng.integers(1, 9, shape) / 8 for shape in shapes)
    for exact in (True, False):
        a.reshape(-1)[: a.size // 3] *= 1 if exact else np.pi
        low, high = result(a, b)
        least, most = result.__wrapped__(a, b)
        assert np.array_equal(low, least)
        assert np.array_equal(high, most)
        assert (low is high) == (least is most)


@settings(max_examples=25)
@given(PAIRS, st.data())
def test_wide_intervals_hold_every_pair(pairs, data):
    a, b = (Interval(np.array([min(p)]), np.array([max(p)])) for p in (pairs[0], pairs[-1]))
    picks = [data.draw(st.sampled_from([x.low[0], x.high[0]])) for x in (a, b)]
    for function in (OPERATIONS["multiply"], OPERATIONS["subtract"]):
        assert holds(function(a, b), [function(*map(Fraction, picks))])


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1e30), min_size=1, max_size=8))
def test_roots_are_bounded(numbers):
    found = Intervals().call("sqrt", interval(np.array(numbers)))
    for low, high, x in zip(found.low, found.high, numbers, strict=True):
        assert Fraction(low) ** 2 <= Fraction(x) <= Fraction(high) ** 2


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "erf", "log"])
@settings(max_examples=25)
@given(st.lists(st.floats(-30, 30) | st.sampled_from([1 + 2.0**-50, 1 - 2.0**-53, 1.0, 0.0]), min_size=1, max_size=4))
def test_functions_are_bounded(name, numbers):
    a = np.array(numbers) if name != "log" else np.abs(numbers) + (np.array(numbers) == 0)
    exact = Fractions().call(name, Fractions().constant(a))
    assert holds(Intervals().call(name, interval(a)), exact)


def test_the_error_function_rises_and_never_reaches_one():
    """Its distance from 1 is less than any float64 holds, and decides what rounds down."""
    result = Fractions().call("erf", Fractions().constant(np.arange(-128, 129) / 8))
    assert (np.diff(result) > 0).all()
    assert -1 < result[0] < result[-1] < 1
    assert (result == -result[::-1]).all()


def test_products_of_dyadic_numbers_are_points(rng):
    a = rng.integers(-256, 256, (4, 32)) / 256
    found = Intervals().matmul(interval(a), interval(a.T))
    assert found.is_point
    assert holds(found, (Fractions().constant(a) @ Fractions().constant(a.T)).flat)


def test_products_of_others_are_bounded(rng):
    a, b = rng.normal(size=(4, 32)), rng.normal(size=(32, 3))
    spread = 1e-9 * rng.uniform(size=a.shape)
    found = Intervals().matmul(Interval(a - spread, a + spread), interval(b))
    for one in (a, a - spread, a + spread):
        assert holds(found, (Fractions().constant(one) @ Fractions().constant(b)).flat)
    assert (found.high - found.low).max() < 1e-7


# Ties that intervals do not decide: 1/3 of something, three times.

THIRDS = {"three": np.float32(3), "s": np.float32(1), "z": np.float32(0), "b": np.float32(8)}
QUANT = node("Quant", "h s z b", "y", domain=QONNX, signed=1, narrow=0)
X = np.arange(-8, 8, dtype=np.float32).reshape(1, 2, 2, 4) / 2
"""Multiples of 1/2: half of them are ties."""


def thirds(*nodes, **constants):
    """x / 3, then `nodes` from `t` to `h`, then a quantizer of steps of 1."""
    return model([node("Div", "x three", "t"), *nodes, QUANT], {"x": X.shape}, THIRDS | constants)


def one_hot(*shape):
    """Weights that pick every channel by itself, times three."""
    return np.eye(int(np.prod(shape[1:])), dtype=np.float32)[: shape[0]].reshape(shape) * np.float32(3)


CHAINS = {
    "elementwise": thirds(node("Mul", "t three", "h")),
    "moved": thirds(
        node("Transpose", "t", "u", perm=[0, 1, 3, 2]),
        node("Concat", "u u", "v", axis=1),
        node("Slice", "v from to axes", "w"),
        node("Pad", "w pads", "p"),
        node("Mul", "p three", "q"),
        node("Slice", "q one_ five rows", "r"),
        node("Transpose", "r", "h", perm=[0, 1, 3, 2]),
        **{"from": np.array([1]), "to": np.array([3]), "axes": np.array([1])},
        pads=np.array([0, 0, 1, 0, 0, 0, 0, 0]),
        one_=np.array([1]),
        five=np.array([5]),
        rows=np.array([2]),
    ),
    "convolved": thirds(node("Conv", "t w", "h"), w=one_hot(2, 2, 1, 1)),
    "grouped": thirds(node("Conv", "t w", "h", group=2), w=one_hot(1, 1, 1, 1).repeat(2, 0)),
    "multiplied": thirds(node("MatMul", "t w", "h"), w=one_hot(4, 4)),
    "of all sizes": thirds(node("MatMul", "t w", "h"), w=one_hot(4, 4) + np.float32(2**-140) * np.eye(4, k=-3)),
    "pooled": thirds(node("MaxPool", "t", "u", kernel_shape=[1, 1]), node("Mul", "u three", "h")),
    "summed": thirds(node("ReduceSum", "t axes", "u"), node("Mul", "u three", "h"), axes=np.array([3])),
}


@pytest.mark.parametrize("name", CHAINS)
def test_ties_are_decided_in_fractions(name):
    graph = read(CHAINS[name])
    values = run(graph, {"x": X})
    before = graph.nodes[-1].inputs[0]
    assert not values[before].is_point
    want = {
        "moved": lambda: X[:, [1, 0]],
        "summed": lambda: X.sum(3, keepdims=True),
        "of all sizes": lambda: X + X[..., 3:] / 1024 * np.eye(1, 4),
    }.get(name, lambda: X)()
    assert (values["y"] == np.rint(want)).all()


def test_the_greatest_of_equals_is_the_first():
    nodes = [node("Div", "x three", "t"), node("Mul", "t three", "u"), node("Concat", "x u", "c", axis=3)]
    onnx_model = model([*nodes, node("ArgMax", "c", axis=3, keepdims=0)], {"x": X.shape}, THIRDS)
    assert (run(read(onnx_model), {"x": X}).outputs()[0] == 3).all()


def test_irrational_spreads_are_no_ties(rng):
    """x / sqrt(2), of a batch norm, is on no boundary but 0; float64 alone could not tell."""
    given = {k: np.full(2, v, np.float32) for k, v in {"g": 1, "o": 0, "m": 0, "v": 2}.items()}
    onnx_model = model(
        [node("BatchNormalization", "x g o m v", "h", epsilon=0.0), QUANT], {"x": X.shape}, THIRDS | given
    )
    got = run(read(onnx_model), {"x": X * 8})["y"]
    want = [round(float(np.longdouble(v) / np.sqrt(np.longdouble(2)))) for v in (X * 8).flat]
    assert got.reshape(-1).tolist() == want


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_round_a_sum_once(rng, dtype):
    """Sums whose middle is a tie that a part of another size decides."""
    half = float(np.finfo(dtype).eps) / 2
    a = np.array([[1, half, tiny] for tiny in (0, half / 999, -half / 999, 2.0**-900)])
    ones, maths = np.ones((3, 1), np.float64), Floats("onnx")
    got = round_once(Intervals().matmul(a, ones), np.dtype(dtype), lambda where: exact_rows(a)[where[0]])
    up = 1 + np.finfo(dtype).eps
    assert got.reshape(-1).tolist() == [1, up, 1, up]
    b = rng.normal(size=(8, 50)).astype(dtype)
    b[:, 25:] = -b[:, :25] * dtype(1.001)  # little is left
    wanted = [dtype(float(v)) for v in exact_rows(b)] if dtype != np.float64 else [math.fsum(r) for r in b]
    assert maths.matmul(b, np.ones((50, 1), dtype)).reshape(-1).tolist() == wanted
    assert maths.sum(b, (1,)).reshape(-1).tolist() == wanted


def exact_rows(a):
    return Fractions().constant(a).sum(-1)


def test_functions_are_the_nearest_floats():
    x = np.linspace(-9, 9, 400, dtype=np.float32)
    for name in ("tanh", "sigmoid", "exp", "erf"):
        exact = Fractions().call(name, Fractions().constant(x))
        assert (Floats("onnx").call(name, x) == [np.float32(float(v)) for v in exact]).all()


def residual(rng):
    """A small residual network with scales of few bits, so that ties are frequent, and of many."""
    constants = {
        "s": np.float32(0.25),
        "r": np.float32(0.7),
        "z": np.float32(0),
        "b": np.float32(3),
        "one": np.float32(1),
        **{k: rng.integers(-3, 4, (4, 4, 3, 3)).astype(np.float32) / 4 for k in ("w1", "w2")},
        **{k: rng.uniform(0.5, 2, 4).astype(np.float32) for k in ("g", "o", "m", "v")},
    }
    quantizer: dict[str, Any] = {"domain": QONNX, "signed": 0, "narrow": 0}
    nodes = [
        node("Quant", "x s z b", "a", name="first", **quantizer),
        node("Conv", "a w1", "c1", name="c1", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c1 g o m v", "n1"),
        node("Relu", "n1", "r1"),
        node("Quant", "r1 r z b", "q1", name="second", **quantizer),
        node("Conv", "q1 w2", "c2", name="c2", pads=[1, 1, 1, 1]),
        node("Add", "c2 a", "sum"),
        node("Quant", "sum s z b", "q2", name="third", **quantizer),
        node("GlobalAveragePool", "q2", "mean"),
        node("Tanh", "mean", "t"),
        node("Quant", "t s z b", "y", name="last", **quantizer),
    ]
    return model(nodes, {"x": (1, 4, 5, 5)}, constants)


def assert_as_fractions_do(graph, x, values):
    """The integers of every edge equal the integers of a run in which every number is a fraction."""
    known = {**graph.constants, "x": Fractions().constant(x)}
    for one in graph.nodes:
        given = tuple(graph.constants.get(name) for name in one.inputs)
        edges = graph.edges_of(one.inputs), given, graph.reference, graph.edges_of(one.outputs)
        known[one.outputs[0]], *_ = TABLE[one.op].run(Site(one, *edges, Fractions()), *(known[n] for n in one.inputs))
        if isinstance(graph.edges[one.outputs[0]].type, Integers):
            assert (values[one.outputs[0]] == known[one.outputs[0]]).all(), one


@st.composite
def open_steps(draw):
    """A graph of x / c * c and a row that rounds it, with constants that broadcast in any way; and x, half of it ties.

    Where c is 1, numbers are points; elsewhere intervals leave the ties open.
    """
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))

    def constant(*numbers, dtype=np.float32):
        kept = [draw(st.sampled_from((1, n))) for n in shape][draw(st.integers(0, len(shape))) :]
        picked = draw(st.lists(st.sampled_from(numbers), min_size=math.prod(kept), max_size=math.prod(kept)))
        return np.array(picked, dtype).reshape(kept)

    builder = GraphBuilder("steps", "exact")
    third = builder.constant(constant(3, 3, 5, 1))
    edge = builder.add("mul", builder.add("div", builder.input("x", shape, "float32", Reals()), third), third)
    mode = draw(st.sampled_from(["ROUND", "FLOOR", "HALF_UP", "DOWN"]))
    common = {"scale": constant(0.5, 1), "zero": constant(0, 1), "rounding": mode, "real": "float32"}
    grid: dict[str, Any] = {"low": np.int64(-9), "high": np.int64(9)}
    grid |= {"out_scale": np.float64(1), "out_zero": np.float64(0)}
    row, more = draw(
        st.sampled_from([("quantize", {"zero_first": True}), ("quantize", {"zero_first": False}), ("trunc", {})])
    )
    edge = builder.add(row, edge, **common, **grid, **(more or {"divisor": constant(2, 4, dtype=np.float64)}))
    halves = st.lists(st.integers(-12, 12), min_size=math.prod(shape), max_size=math.prod(shape))
    return builder.build((edge,)), np.array(draw(halves), np.float32).reshape(shape) / 2


@settings(max_examples=60)
@given(open_steps())
def test_fractions_decide_what_intervals_leave_open_in_every_shape(drawn):
    graph, x = drawn
    assert_as_fractions_do(graph, x, run(graph, {"x": x}))


def test_intervals_decide_as_fractions_do(rng):
    """The same network, every number a fraction."""
    graph = read(residual(rng))
    x = rng.integers(-4, 12, (1, 4, 5, 5)).astype(np.float32) / 8
    values = run(graph, {"x": x})
    assert_as_fractions_do(graph, x, values)
    assert len(np.unique(values["q2"])) > 4


@pytest.mark.parametrize("x", [np.inf, np.nan])
def test_what_is_no_real_number_is_refused(x):
    graph = read(model([node("Relu", "x")], {"x": (1,)}), reference="exact")
    with pytest.raises(SpecError, match="input x holds infinity or NaN"):
        run(graph, {"x": np.array([x], np.float32)})


def test_what_is_over_zero_names_the_node():
    nodes = [node("Reciprocal", "x", "h"), node("Quant", "h s z b", domain=QONNX, signed=1, narrow=0)]
    given = {"s": np.float32(0.3), "z": np.float32(0), "b": np.float32(4)}
    graph = read(model(nodes, {"x": (1,)}, given), reference="exact")
    with pytest.raises(SpecError, match=r"Quant the_Quant: .*; exact arithmetic has real numbers alone"):
        run(graph, {"x": np.zeros(1, np.float32)})


@pytest.mark.parametrize("op", ["Add", "Mul", "Max"])
@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_infinite_constants_are_no_real_numbers(op, number):
    constants = {"c": np.array([1, number], np.float32)}
    onnx_model = model([node(op, "x c", name="n")], {"x": (1, 2)}, constants)
    with pytest.raises(SpecError, match=f"^{op} n: the constant c holds infinity"):
        read(onnx_model, reference="exact")
    assert len(read(onnx_model, reference="onnxruntime").nodes) == 1


def test_limits_that_cut_nothing_are_read():
    onnx_model = model([node("Clip", "x l h")], {"x": (1, 2)}, {"l": np.float32(-np.inf), "h": np.float32(3)})
    assert [n.op for n in read(onnx_model, reference="exact").nodes] == ["clip"]


def between_quantizers(nodes, end, *, rounding="CEIL", **more):
    """Nodes between a quantizer to v0 and one of `end` that rounds so."""
    grid: dict[str, Any] = {"domain": QONNX, "signed": 0, "narrow": 0}
    first, last = node("Quant", "x s z b", "v0", **grid), node("Quant", f"{end} s z b", rounding_mode=rounding, **grid)
    given = {"s": np.float32(0.25), "z": np.float32(0), "b": np.float32(2), "w": np.eye(4, dtype=np.float32)}
    return read(model([first, *nodes, last], {"x": (1, 4)}, given | more), reference="exact")


SMALL = np.array([[0, 0.25, 0.5, 0.75]], np.float32)


@pytest.mark.parametrize("op", ["Mul", "Add", "MatMul"])
def test_each_number_is_made_once_on_however_many_paths(op, monkeypatch):
    """2^13 paths: after 13 squares every number is smaller than float64 holds, so that only fractions decide."""
    squares = [node("Mul", f"v{k} v{k}", f"v{k + 1}", name=f"m{k}") for k in range(13)]
    more = {"Mul": [], "Add": [node("Add", "v13 v13", "v14")], "MatMul": [node("MatMul", "v13 w", "v14")]}[op]
    graph = between_quantizers([*squares, *more], "v14" if more else "v13")
    calls = []
    real = Fraction.__mul__

    def counted(a, b):
        calls.append(a)
        return real(a, b)

    monkeypatch.setattr(Fraction, "__mul__", counted)
    assert run(graph, {"x": SMALL})["y"].tolist() == [[0, 1, 1, 1]]
    assert 0 < len(calls) < 1000


def test_fractions_that_grow_too_long_are_refused_by_the_node():
    squares = [node("Mul", f"v{k} v{k}", f"v{k + 1}", name=f"m{k}") for k in range(40)]
    graph = between_quantizers(squares, "v40")
    with pytest.raises(SpecError, match=r"^Mul m14: an exact value would be a fraction of 65,538 bits, more than"):
        run(graph, {"x": SMALL})


def test_sums_of_ever_other_denominators_are_refused_by_the_node():
    """A sum of x / n has the least common multiple of all n as its denominator."""
    quantizer = node("Quant", "t s z b", domain=QONNX, signed=1, narrow=0, rounding_mode="CEIL")
    nodes = [node("Div", "x n", "d"), node("ReduceSum", "d axes", "r"), node("Sub", "r r", "t"), quantizer]
    primes = [n for n in range(3, 60_000, 2) if all(n % d for d in range(3, math.isqrt(n) + 1, 2))]
    over = np.array([primes], np.float32)
    given = {"s": np.float32(1), "z": np.float32(0), "b": np.float32(8), "axes": np.array([1]), "n": over}
    graph = read(model(nodes, {"x": over.shape}, given), reference="exact")
    with pytest.raises(SpecError, match=r"^ReduceSum the_ReduceSum: an exact value would be a fraction of"):
        run(graph, {"x": np.ones_like(over)})


@pytest.mark.parametrize("deep", [30, 3000])
def test_chains_of_real_numbers_may_be_as_long_as_they_like(deep):
    """Of v + 0 nothing is lost, but for the first step's rounding: all are open until the last one asks."""
    nodes = [node("Mul", "v0 t", "u0"), node("Sub", "u0 e", "v1")]
    nodes += [node("Neg", f"v{k}", f"v{k + 1}", name=f"n{k}") for k in range(1, deep + 1)]
    given = {"s": np.float32(0.25), "z": np.float32(0), "b": np.float32(2)}
    given |= {"t": np.float32(1 / 3), "e": np.float32(2**-100)}
    grid: dict[str, Any] = {"domain": QONNX, "signed": 0, "narrow": 0, "rounding_mode": "FLOOR"}
    nodes = [node("Quant", "x s z b", "v0", **grid), *nodes, node("Quant", f"v{deep + 1} s z b", "y", **grid)]
    graph = read(model(nodes, {"x": (1, 4)}, given), reference="exact")
    t, e = Fraction(float(given["t"])), Fraction(2) ** -100
    want = [min(3, max(0, math.floor((Fraction(x) * t - e) * (-1) ** deep * 4))) for x in SMALL[0].tolist()]
    assert run(graph, {"x": SMALL})["y"].tolist() == [want]


@pytest.mark.parametrize(
    ("name", "x", "least", "most"),
    [
        ("sigmoid", Fraction(-(10**6)), Fraction(0), Fraction(1, 10**4000)),
        ("erf", Fraction(1 << 200), 1 - Fraction(1, 10**4000), Fraction(1)),
        ("log", 1 + Fraction(1, 2**20000), Fraction(1, 2**20001), Fraction(1, 2**20000)),
        ("exp", Fraction(1, 10**6000), Fraction(1), 1 + Fraction(2, 10**6000)),
        ("sqrt", Fraction(2, 10**400), Fraction(1, 10**200), Fraction(2, 10**200)),
    ],
)
def test_functions_near_to_what_they_never_reach(name, x, least, most):
    assert least < FUNCTIONS[name](x) < most


def test_powers_of_e_are_as_good_as_infinite():
    assert FUNCTIONS["exp"](Fraction(10**9)) > 10**4300
    nodes = [node("Mul", "v0 k", "m"), node("Exp", "m", "e")]
    graph = between_quantizers(nodes, "e", k=np.float32(2.0**20))
    assert run(graph, {"x": SMALL})["y"].tolist() == [[3, 3, 3, 3]]


def test_rounded_numbers_beyond_int64_keep_their_sign():
    numbers = {"s": np.float32(0.125), "z": np.float32(0), "b": np.float32(4)}
    nodes = [node("Round", "x", "r"), node("Quant", "r s z b", "y", domain=QONNX, signed=1, narrow=0)]
    net = bitsynth.compile(model(nodes, {"x": (1, 4)}, numbers), isa="avx2")
    x = np.array([[1e30, -1e30, 9.3e18, -2.5]], np.float32)
    wanted = [[0.875, -1, 0.875, -1]]
    assert run(net.graph, {"x": x}).floats("y").tolist() == net(x).tolist() == wanted
