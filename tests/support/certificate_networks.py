"""Networks whose certificates tests change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.types import Integers, Reals
from bitsynth.network.certificate import checker
from support.certificates import encode_json_array


def quantized(
    builder: GraphBuilder, edge: str, *, low: int = 0, high: int = 3, scale: float = 0.3, mode: str = "ROUND"
) -> str:
    """Codes of numbers."""
    grid: dict[str, Any] = {"low": low, "high": high, "out_scale": np.float64(scale), "out_zero": np.float64(0)}
    real: dict[str, Any] = {"scale": np.float32(scale), "zero": np.float32(0), "rounding": mode, "real": "float32"}
    return builder.add("quantize", edge, zero_first=True, **real, **grid)


def layer(
    rng: np.random.Generator,
    reference: str = "exact",
    dtype: str = "float32",
    between: Callable[[GraphBuilder, str], str] = lambda builder, edge: edge,
    is_normed: bool = True,
    **quantizer: Any,
) -> Graph:
    """A convolution, a batch norm of signs both ways if asked for, what is `between`, and a quantizer."""
    builder = GraphBuilder("layer", reference)
    x = builder.input("x", (1, 8, 5, 5), dtype, Integers.between(0, 3, 0.5))
    w = builder.constant(rng.integers(-3, 4, (6, 8, 3, 3)).astype(dtype), "w")
    window = SlidingWindow((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    result = builder.add("conv", x, w, window=window, groups=1, name="sums")
    numbers = [rng.normal(size=(1, 6, 1, 1)) for _ in range(3)] + [rng.uniform(0.5, 9, (1, 6, 1, 1))]
    constants = [builder.constant(n.astype(dtype)) for n in numbers]
    sums = builder.add("batch_norm", result, *constants, epsilon=1e-5) if is_normed else result
    return builder.build((quantized(builder, between(builder, sums), **quantizer),))


def zoo(rng: np.random.Generator) -> Graph:
    """Floats to codes, two layers, their sum, a table, a pool, and sums of a last layer."""
    builder = GraphBuilder("zoo", "exact")
    x = builder.input("x", (1, 2, 4, 4), "float32", Reals())
    edge = first = quantized(builder, x, scale=0.7)
    for k, (groups, mode) in enumerate(((1, "ROUND"), (2, "FLOOR"))):
        w = builder.constant(rng.integers(-2, 3, (2, 2 // groups, 3, 3)).astype(np.float32), f"w{k}")
        window = SlidingWindow((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
        edge = builder.add("conv", edge, w, window=window, groups=groups, name=f"sums{k}")
        numbers = [rng.normal(size=(1, 2, 1, 1)) for _ in range(3)] + [rng.uniform(0.5, 9, (1, 2, 1, 1))]
        edge = builder.add("batch_norm", edge, *(builder.constant(n.astype(np.float32)) for n in numbers), epsilon=1e-5)
        edge = quantized(builder, builder.add("relu", edge), mode=mode)
    edge = quantized(builder, builder.add("add", edge, first), high=7, scale=0.4)
    edge = quantized(builder, builder.add("leaky_relu", edge, alpha=0.1), high=7, scale=0.5)
    edge = builder.add("reduce_sum", edge, axes=(2, 3), keep=True)
    edge = quantized(builder, edge, high=15, scale=3.0)
    edge = builder.add("reshape", edge, sizes=(1, 2))
    w = builder.constant(rng.integers(-2, 3, (2, 3)).astype(np.float32), "w")
    return builder.build((builder.add("matmul", edge, w, name="y"),))


def tail(rng: np.random.Generator) -> Graph:
    """Sums through a line of many levels, the greatest of them, and a bias of floats behind a last layer."""
    builder = GraphBuilder("tail", "exact")
    x = builder.input("x", (1, 2, 4, 4), "float32", Reals())
    edge = quantized(builder, x, scale=0.7)
    w = builder.constant(rng.integers(-2, 3, (4, 2, 3, 3)).astype(np.float32), "w")
    window = SlidingWindow((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    edge = builder.add("conv", edge, w, window=window, groups=1, name="sums")
    edge = builder.add("mul", edge, builder.constant(rng.uniform(0.5, 9, (1, 4, 1, 1)).astype(np.float32)))
    edge = quantized(builder, edge, high=127, scale=0.3)
    pool = SlidingWindow((2, 2), (2, 2), (1, 1), (0, 0), (0, 0))
    edge = builder.add("max_pool", edge, window=pool)
    edge = builder.add("reshape", edge, sizes=(1, 16))
    edge = builder.add("matmul", edge, builder.constant(np.eye(16, 3, dtype=np.float32), "v"))
    return builder.build(
        (builder.add("add", edge, builder.constant(np.array([[0.1, 0.2, 0.3]], np.float32)), name="y"),)
    )


def sliced(rng: np.random.Generator) -> Graph:
    """Channels of sums that differ in range, in another order."""
    builder = GraphBuilder("sliced", "exact")
    x = builder.input("x", (1, 8), "float32", Integers.between(0, 3, 0.5))
    w = builder.constant(rng.integers(1, 9, (8, 4)).astype(np.float32) * [1, 2, 3, 4], "w")
    edge = builder.add("gather", builder.add("matmul", x, w), places=np.array([3, 1]), axis=1)
    return builder.build((builder.add("reduce_sum", edge, axes=(1,), keep=True),))


def changed(given: Any, *, step: int, path: tuple[Any, ...], value: Callable[[Any], Any]) -> Any:
    """The certificate with an array or number of a step's changed by `value`, which gets what it was."""
    certificate = copy.deepcopy(given)
    inner = certificate["steps"][step]
    for part in path[:-1]:
        inner = inner[part]
    was = inner[path[-1]]
    inner[path[-1]] = encode_json_array(value(checker.array(was).copy())) if isinstance(was, dict) else value(was)
    return certificate
