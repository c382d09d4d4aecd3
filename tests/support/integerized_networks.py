"""Networks as integerized ones are written: sums times a number and with one added, divided by a power of 2, cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from support.onnx_files import QONNX, model, node

SHIFT = 19
"""Of multipliers: what they are divided by is a power of 2."""
CHANNELS = 16


def requantized(
    given: str, result: str, factor: Any, added: Any, constants: dict[str, Any], codes: int = 255
) -> Iterator[Any]:
    """Nodes that make codes of an edge."""
    constants |= {f"{result}.m": np.float32(factor), f"{result}.b": np.float32(added), "over": np.float32(1 << SHIFT)}
    constants |= {"none": np.float32(0), f"{result}.most": np.float32(codes)}
    yield node("Mul", f"{given} {result}.m", f"{result}.p")
    yield node("Add", f"{result}.p {result}.b", f"{result}.s")
    yield node("Div", f"{result}.s over", f"{result}.q")
    yield node("Floor", f"{result}.q", f"{result}.f")
    yield node("Clip", f"{result}.f none {result}.most", result)


def residual(rng: np.random.Generator, size: int = 12) -> Any:
    """Two convolutions of codes, each made codes of, both rescaled and added."""
    shape = (1, CHANNELS, size, size)
    constants: dict[str, Any] = {"one": np.float32(1), "zero": np.float32(0), "eight": np.float32(8)}
    nodes = [node("Quant", "x one zero eight", "q", domain=QONNX, signed=0, narrow=0, rounding_mode="ROUND")]
    for k in "ab":
        constants[f"w{k}"] = rng.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
        factors = rng.integers(800, 3000, (1, CHANNELS, 1, 1)) * rng.choice([1, 1, 1, -1], (1, CHANNELS, 1, 1))
        nodes.append(node("Conv", f"q w{k}", f"c{k}", pads=[1, 1, 1, 1], kernel_shape=[3, 3]))
        nodes += requantized(f"c{k}", f"r{k}", factors, rng.integers(-(1 << 25), 1 << 26, factors.shape), constants)
        nodes += requantized(f"r{k}", f"t{k}", int(rng.integers(1 << 17, 1 << 18)), 1 << 18, constants)
    nodes.append(node("Add", "ta tb", "y"))
    return model(nodes, {"x": shape}, constants)
