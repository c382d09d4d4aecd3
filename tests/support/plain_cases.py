"""Small graphs of every operator of the table, on numbers and on codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph
from bitsynth.graph.operators.rounding import ROUNDINGS
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Reals, Shape, Tensor

IMAGE = (2, 4, 7, 6)
Made = tuple[str, ...]
Case = Callable[[GraphBuilder, str], Made]
CASES: dict[str, tuple[Shape, list[Case]]] = {}
_NUMBERS = np.random.default_rng(16)


def graph_of(names: Iterable[str], reference: str, rng: np.random.Generator) -> tuple[Graph, dict[str, Tensor]]:
    """A graph of cases, and its inputs: many of them multiples of 1/16, so that there are ties."""
    builder, outputs, inputs = GraphBuilder("cases", reference), [], {}
    for k, name in enumerate(names):
        shape, parts = CASES[name]
        x = builder.input(f"x{k}", shape, "float32", Reals())
        outputs += [each for part in parts for each in part(builder, x)]
        values = (rng.normal(size=shape) * 1.3).astype(np.float32)
        values.reshape(-1)[::3] = np.rint(values.reshape(-1)[::3] * 16) / 16
        inputs[x] = values
    return builder.build(tuple(dict.fromkeys(outputs))), inputs


def numbers(*shape: int) -> Tensor:
    """Floats as constants."""
    return _NUMBERS.normal(size=shape).astype(np.float32)


def integers(*shape: int) -> Tensor:
    """Whole numbers as constants, in float32."""
    return _NUMBERS.integers(-3, 4, shape).astype(np.float32)


def codes(b: GraphBuilder, x: str, bits: int = 4, scale: Any = 0.13, zero: float = 0.0, **options: Any) -> str:
    """A quantizer."""
    low, grid = -(1 << bits - 1), (np.asarray(scale, np.float32), np.asarray(zero, np.float32))
    settings: dict[str, Any] = {
        "scale": grid[0],
        "zero": grid[1],
        "zero_first": False,
        "low": np.asarray(low),
        "high": np.asarray(low + (1 << bits) - 1),
        "rounding": "ROUND",
        "real": "float32",
        "out_scale": grid[0],
        "out_zero": grid[1],
        "dtype": "float32",
    }
    return b.add("quantize", x, **(settings | options))


def case(name: str, *parts: Case, shape: Shape = IMAGE) -> None:
    """Add a case."""
    CASES[name] = (shape, list(parts))


def both(part: Callable[[GraphBuilder, str], str | Made]) -> Case:
    """On numbers and on codes."""

    def made(b: GraphBuilder, x: str) -> Made:
        results = (part(b, x), part(b, codes(b, x)))
        return tuple(n for f in results for n in ((f,) if isinstance(f, str) else f))

    return made


def of(op: str, **attributes: Any) -> Case:
    """An operator on numbers and on codes."""
    return both(lambda b, x: b.add(op, x, **attributes))


def window(kernel: Shape, strides: Shape = (), dilations: Shape = (), begins: Shape = (), ends: Shape = (),
           ceil: bool = False) -> SlidingWindow:  # fmt: skip
    """A window, of steps 1 and without padding unless they are given."""
    ones, none = (1,) * len(kernel), (0,) * len(kernel)
    return SlidingWindow(kernel, strides or ones, dilations or ones, begins or none, ends or none, ceil)


# Element by element.

_ACTIVATIONS: dict[str, dict[str, Any]] = {
    **{op: {} for op in ("neg", "abs", "relu", "sqrt", "exp", "tanh", "sigmoid", "erf")},
    "leaky_relu": {"alpha": 0.01},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.5},
    "hard_swish": {"alpha": 1 / 6},
    "clip": {"low": -0.3, "high": None},
}


def _binary(op: str) -> Case:
    def made(b: GraphBuilder, x: str) -> Made:
        moved = b.add("transpose", b.add("transpose", x, order=(3, 2, 1, 0)), order=(3, 2, 1, 0))
        others = (b.constant(numbers(4, 1, 1)), b.constant(np.float32(2)), moved)
        return tuple(b.add(op, x, other) for other in others)

    return both(made)


def _normed(b: GraphBuilder, x: str) -> str:
    parameters = [b.constant(abs(numbers(1, 4, 1, 1))) for _ in range(4)]
    return b.add("batch_norm", x, *parameters, epsilon=1e-5)


case(
    "elementwise",
    *(of(op, **attributes) for op, attributes in _ACTIVATIONS.items()),
    both(lambda b, x: b.add("log", b.add("exp", x))),
    *(of("power", exponent=e) for e in (0.5, 1.0, 2.0, 3.0, 4.0)),
    *(_binary(op) for op in ("add", "sub", "mul", "div", "max", "min")),
    both(_normed),
)


def _wrapping(b: GraphBuilder, x: str) -> Made:
    whole = b.add("cast", b.add("round", b.add("mul", x, b.constant(np.float32(90))), rounding="DOWN"), dtype="int8")
    two, moved = b.constant(np.int8(3)), b.add("neg", whole)
    results = [b.add(op, whole, n) for op in ("add", "sub", "mul", "div", "max", "min") for n in (two, moved)]
    return (*results, b.add("relu", whole), b.add("abs", whole), b.add("clip", whole, low=-5, high=9))


def _narrow(b: GraphBuilder, x: str, dtype: str) -> Made:
    y = b.add("cast", x, dtype=dtype)
    return (
        b.add("add", b.add("mul", y, y), y),
        b.add("div", y, b.add("exp", y)),
        b.add("softmax", b.add("sigmoid", y), axes=(3,)),
        b.add("reduce_sum", y, axes=(1, 2)),
    )


case("integers of the file", _wrapping)
case("narrow floats", *(partial(_narrow, dtype=dtype) for dtype in ("float16", "bfloat16")))


# Steps.


def _round(mode: str) -> Case:
    def made(b: GraphBuilder, x: str) -> Made:
        scaled = (
            b.add("mul", codes(b, x, scale=s), b.constant(np.float32(by))) for s, by in ((0.13, 0.25), (0.125, 4))
        )
        return tuple(b.add("round", y, rounding=mode) for y in (x, *scaled))

    return made


def _quantize(mode: str) -> Case:
    def made(b: GraphBuilder, x: str) -> Made:
        scales = 0.125 * _NUMBERS.integers(1, 8, (1, 4, 1, 1))
        kinds: list[dict[str, Any]] = [
            {},
            {"zero": 1.0, "zero_first": True},
            {"scale": scales, "zero": 0.5, "zero_first": True},
        ]
        given = [codes(b, x, 3, **({"scale": 0.25} | kind), rounding=mode) for kind in kinds]
        return (*given, codes(b, codes(b, x, 6, 0.125), 3, 0.25, rounding=mode))

    return made


case("round", *(_round(mode) for mode in ROUNDINGS))
case("quantize", *(_quantize(mode) for mode in ROUNDINGS))


def _thresholds(b: GraphBuilder, x: str) -> Made:
    levels = np.sort(_NUMBERS.normal(size=(4, 15)), 1)
    levels[:, 3] = 0.25
    kinds: list[dict[str, Any]] = [
        {"thresholds": levels, "step": 1, "least": -8},
        {"thresholds": levels[:1], "step": 2, "least": -15},
    ]
    more: dict[str, Any] = {"axis": 1, "out_scale": np.float32(0.5), "dtype": "float32"}
    return tuple(b.add("multi_threshold", y, **k, **more) for y in (x, codes(b, x, 5, 0.25)) for k in kinds)


def _truncated(b: GraphBuilder, x: str, zero: float, mode: str) -> Made:
    grid: dict[str, Any] = {
        "scale": np.float32(0.0625),
        "zero": np.float32(zero),
        "real": "float32",
        "divisor": np.float32(16),
    }
    out: dict[str, Any] = {"out_scale": np.float32(1), "out_zero": np.float32(0), "dtype": "float32"}
    limits: dict[str, Any] = {"low": np.asarray(-8), "high": np.asarray(7)}
    return (b.add("trunc", codes(b, x, 8, 0.0625, zero), **grid, **out, **limits, rounding=mode),)


def _requantized(b: GraphBuilder, x: str) -> Made:
    out: dict[str, Any] = {"low": np.asarray(-128), "high": np.asarray(127), "rounding": "ROUND", "dtype": "int8"}
    out |= {"out_scale": np.float32(1), "out_zero": np.float32(0)}
    whole = b.add("cast", b.add("round", b.add("mul", x, b.constant(np.float32(90))), rounding="DOWN"), dtype="int32")
    scales = tuple(np.asarray(s, np.float32) for s in (0.03, 0.5, 0.0625))
    grids = tuple(np.asarray(v, t) for s, z in ((0.5, 3), (0.25, -4), (0.75, 1)) for v, t in ((s, "f4"), (z, "i8")))
    return (
        b.add("requantize", whole, factors=scales, zero=np.asarray(3), zero_first=False, **out),
        b.add("requantize", whole, factors=scales, zero=np.asarray(3), zero_first=True, **out),
        b.add("add_codes", whole, whole, grids=grids, **out),
    )


def _bytes(b: GraphBuilder, x: str) -> str:
    """Return the edge of integers of 8 bits with a sign."""
    return b.add("cast", b.add("view", codes(b, x, 8, 0.0625), scale=1.0, zero=0.0, dtype="float32"), dtype="int8")


def _fixed_point(b: GraphBuilder, x: str) -> Made:
    whole = b.add("cast", b.add("round", b.add("mul", x, b.constant(np.float32(90))), rounding="DOWN"), dtype="int32")
    sums = b.add("clip", whole, low=-1000, high=1000)
    channels = np.array([1 << 30, 1518500250, (1 << 31) - 1, 1234567891]).reshape(1, 4, 1, 1)
    right = np.array([2, 0, 5, 1]).reshape(1, 4, 1, 1)
    multiply = partial(b.add, "multiply_shift", sums, zero=3)
    return (
        multiply(multiplier=channels, shift=np.asarray(31), right=right, low=-128, high=127, dtype="int8"),
        multiply(
            multiplier=channels[:, :1], shift=np.asarray(28), right=right[:, :1], low=None, high=None, dtype="int32"
        ),
    )


def _looked_up(b: GraphBuilder, x: str) -> Made:
    table = np.abs(np.arange(-128, 128)) - 5
    return (b.add("lookup", _bytes(b, x), table=table, first=-128, dtype="int8"),)


def _softmax_of_codes(b: GraphBuilder, x: str) -> Made:
    powers = np.rint(((1 << 31) - 1) * np.exp(-0.07 * np.arange(256))).astype(np.int64)
    at = [b.add("softmax_codes", _bytes(b, x), axes=a, powers=powers, low=-128, high=127) for a in ((1,), (3,))]
    return tuple(at)


case("fixed point", _fixed_point)
case("lookup", _looked_up)
case("softmax of codes", _softmax_of_codes)


def _view(b: GraphBuilder, x: str) -> Made:
    view = b.add("view", codes(b, x), scale=np.float32(0.5), zero=np.float32(0), dtype="float32")
    return (b.add("relu", view), view)


case("thresholds", _thresholds)
case("trunc", *(partial(_truncated, zero=z, mode=m) for z in (0.0, 3.0) for m in ("FLOOR", "ROUND", "CEIL")))
case("requantize", _requantized)
case("view", _view)


# Products.


def _convolutions(weights: Shape, groups: int = 1, **options: Any) -> Case:
    def made(b: GraphBuilder, x: str) -> Made:
        reals, whole = b.constant(numbers(*weights)), b.constant(integers(*weights))
        pairs = ((x, reals), (codes(b, x), whole), (codes(b, x, 5, 0.1, 3.0), whole), (codes(b, x), reals))
        sliding = window(weights[2:], **options)
        return tuple(b.add("conv", y, w, groups=groups, window=sliding) for y, w in pairs)

    return made


def _computed_weights(b: GraphBuilder, x: str) -> Made:
    every = b.add("reshape", x, sizes=(6, 4, 7, 2))
    parts = [(g, b.add("slice", every, slices=((0, 6, 1), (0, 4 // g, 1), (0, 3, 1), (0, 2, 1)))) for g in (1, 2)]
    return tuple(
        b.add("conv", x, f(b, w), groups=g, window=window((3, 2))) for g, w in parts for f in (lambda b, v: v, codes)
    )


_CONVOLUTIONS: list[tuple[str, Shape, Shape, dict[str, Any]]] = [
    ("line", (2, 4, 9), (6, 4, 3), {"strides": (2,), "begins": (1,), "ends": (2,)}),
    ("grouped", (1, 4, 7, 6), (6, 2, 3, 2), {"groups": 2, "dilations": (2, 1), "begins": (0, 1), "ends": (2, 0)}),
    ("depthwise", IMAGE, (4, 1, 3, 3), {"groups": 4, "begins": (1, 1), "ends": (1, 1), "strides": (2, 2)}),
    ("solid", (1, 4, 5, 5, 5), (9, 4, 2, 2, 2), {}),
    ("one pixel", (2, 4, 3, 3), (12, 4, 3, 3), {}),
    ("few pixels", (2, 4, 4, 3), (18, 2, 3, 3), {"groups": 2}),
    ("pointwise", (1, 8, 9, 9), (16, 8, 1, 1), {"strides": (2, 2)}),
    (
        "strided",
        (1, 3, 17, 19),
        (7, 3, 5, 5),
        {"strides": (3, 2), "begins": (2, 2), "ends": (2, 2), "dilations": (1, 2)},
    ),
]
for _name, _shape, _weights, _options in _CONVOLUTIONS:
    case(f"conv {_name}", _convolutions(_weights, **_options), shape=_shape)
case("conv of computed weights", _computed_weights)


def _matrices(shape: Shape) -> Case:
    def made(b: GraphBuilder, x: str) -> Made:
        reals, whole = b.constant(numbers(*shape)), b.constant(integers(*shape))
        pairs = ((x, reals), (codes(b, x), whole), (codes(b, x, 5, zero=2.0), reals))
        return tuple(b.add("matmul", y, w) for y, w in pairs)

    return made


def _computed_matrices(b: GraphBuilder, x: str) -> Made:
    turned, products = b.add("transpose", x, order=(0, 1, 3, 2)), []
    for f in (lambda b, v: v, codes):
        a, c = f(b, x), f(b, turned)
        few = b.add("slice", c, slices=((0, 1, 1), (0, 4, 1), (0, 6, 1), (0, 3, 1)))
        products += [b.add("matmul", *pair) for pair in ((a, c), (c, a), (b.constant(integers(5, 7)), a), (a, few))]
    return tuple(products)


case("matmul", _matrices((33, 65)), shape=(7, 33))
for _first, _second in (
    ((2, 3, 5), (5, 1)),
    ((2, 3, 4, 5), (2, 1, 5, 9)),
    ((5,), (5, 3)),
    ((4, 5), (5,)),
    ((2, 9, 5), (5, 2)),
    ((3, 4, 5), (2, 3, 5, 6)),
    ((5,), (5,)),
):
    case(f"matmul of {_first} and {_second}", _matrices(_second), shape=_first)
case("matmul of computed factors", _computed_matrices)


# Pools and reductions.

_POOLS: list[dict[str, Any]] = [
    {"kernel": (2, 2), "strides": (2, 2)},
    {"kernel": (3, 3), "strides": (2, 2), "begins": (1, 1), "ends": (1, 1), "ceil": True},
    {"kernel": (3, 2), "dilations": (2, 1), "begins": (0, 1)},
    {"kernel": (7, 6)},
    {"kernel": (1, 1), "strides": (2, 2)},
]
for _place, _options in enumerate(_POOLS):
    case(f"pools {_place}", *(of(op, window=window(**_options)) for op in ("max_pool", "sum_pool")))
for _axes in ((2, 3), (1,), (0, 3), (3,)):
    case(f"reductions along {_axes}", *(of(op, axes=_axes) for op in ("reduce_sum", "reduce_max", "reduce_min")))
case("softmax", of("softmax", axes=(1,)), of("softmax", axes=(2, 3)))


def _ranked(axis: int, k: int, largest: bool, last: bool) -> Case:
    return both(lambda b, x: b.add_all("rank", x, count=2, axis=axis, k=k, largest=largest, last=last))


case("rank", _ranked(1, 1, True, False), _ranked(3, 4, False, False), _ranked(2, 7, True, True))


# Moves.


def _on_grids(op: str, **attributes: Any) -> Case:
    scales = 0.125 * np.arange(1, 5).reshape(1, 4, 1, 1)
    return lambda b, x: (b.add(op, codes(b, x, 4, scales), **attributes),)


def moved(op: str, **attributes: Any) -> None:
    """A case of a move, of a grid a channel too."""
    case(f"{op} {len(CASES)}", of(op, **attributes), _on_grids(op, **attributes))


def _joined(b: GraphBuilder, x: str) -> Made:
    return (
        b.add("concatenate", x, x, axis=1),
        b.add("concatenate", x, b.constant(numbers(*IMAGE)), axis=2),
        b.add("concatenate", codes(b, x), codes(b, x, 3, 0.4), axis=1),
        b.add("concatenate", codes(b, x), x, axis=3),
    )


def _packed_blocks(b: GraphBuilder, x: str) -> str:
    even = b.add("slice", x, slices=((0, 2, 1), (0, 4, 1), (0, 6, 1), (0, 6, 1)))
    return b.add("space_to_depth", even, block=2, mode="DCR")


case("concatenate", _joined)
case("space_to_depth", both(_packed_blocks))
moved("reshape", sizes=(2, 168))
moved("reshape", sizes=(8, 3, 14))
moved("transpose", order=(3, 1, 0, 2))
moved("slice", slices=((0, 2, 1), (3, None, -2), (1, 7, 3), (0, 6, 1)))
moved("gather", places=np.array([[2, 0], [1, 1]]), axis=1)
moved("gather", places=np.array(2), axis=3)
moved("pad", mode="constant", pads=((0, 0), (1, 0), (2, 1), (0, 3)), fills=True)
moved("pad", mode="reflect", pads=((0, 0), (0, 0), (2, 1), (1, 3)))
moved("pad", mode="edge", pads=((0, 0), (0, 0), (2, 1), (1, 3)))
moved("expand", sizes=(3, 2, 4, 7, 6))
moved("resize", places={2: np.repeat(np.arange(7), 2), 3: np.array([0, 0, 1, 2, 2, 3, 4, 4, 5])})
moved("depth_to_space", block=2, mode="DCR")
moved("depth_to_space", block=2, mode="CRD")
