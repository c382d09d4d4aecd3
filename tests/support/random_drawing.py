"""A random network in the making: what every way to write one shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from onnx import helper

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 70)
MAX_ELEMENTS = 12_000
"""Of one edge: more would be slow, and show no more."""


def one_of(rng: Generator, some: Sequence[Any]) -> Any:
    """One of some, each as likely."""
    return some[int(rng.integers(0, len(some)))]


@dataclass(frozen=True)
class Value:
    """An edge of the network.

    Args:
        name: Its name.
        shape: Its axes.
        spread: About how far from 0 its numbers lie.
        dtype: float32, or the type of its codes.
        scale: What one code stands for; 0 of what is on no grid.
        zero: The code that stands for 0.
    """

    name: str
    shape: tuple[int, ...]
    spread: float = 1.0
    dtype: str = "float32"
    scale: float = 0.0
    zero: int = 0


@dataclass
class Drawing:
    """Nodes, constants and edges so far.

    If it is `dyadic`, all numbers are small multiples of powers of two, whose sums float32 holds in every order.
    """

    rng: Generator
    dialect: str
    dyadic: bool = False
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    weights: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """Weights by their shape, which other layers may have too."""

    def chance(self, one_in: int) -> bool:
        """True once in so many draws."""
        return int(self.rng.integers(0, one_in)) == 0

    def one_of(self, some: Sequence[Any]) -> Any:
        """One of some."""
        return one_of(self.rng, some)

    def constant(self, value: Any) -> str:
        """The name of an initializer, at times one that other nodes read too."""
        array, name = np.asarray(value), f"c{len(self.constants)}"
        if self.chance(2):
            name = next((n for n, x in self.constants.items() if _is_same(x, array)), name)
        self.constants[name] = array
        return name

    def node(self, op: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        """A node; the name of its first output."""
        names = [f"e{len(self.nodes)}{'abcd'[k] if outputs > 1 else ''}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, f"n{len(self.nodes)}", None, domain, **attributes))
        return names[0]

    def given(self, shape: tuple[int, ...], **about: Any) -> Value:
        """An input of the network."""
        value = Value(f"x{len(self.inputs)}", shape, **about)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def shape(self) -> tuple[int, ...]:
        """The shape of an input: an image of one axis or of two, or a row of numbers."""
        batch, channels = int(self.one_of((1, 1, 1, 2, 3))), int(self.one_of(CHANNELS[:12]))
        axes = int(self.one_of((0, 1, 2, 2, 2)))
        return (batch, channels, *(int(n) for n in self.rng.integers(2, 9 if axes == 2 else 14, axes)))

    def pick(self) -> Value:
        """An edge to go on from: mostly the last."""
        return self.values[-1] if self.rng.integers(0, 4) else self.one_of(self.values)

    def like(self, x: Value) -> Value:
        """An edge of the same shape and type, which may be the same."""
        return self.one_of([v for v in self.values if (v.shape, v.dtype) == (x.shape, x.dtype)])  # type: ignore[no-any-return]

    def scale(self, spread: float, bits: int) -> float:
        """A scale that spreads numbers over codes: a power of two, so that there are ties, or any."""
        about = max(float(spread), 1e-20) / (1 << max(bits - 1, 0)) * 1.5
        if self.dyadic or self.rng.integers(0, 2):
            return float(2.0 ** np.rint(np.log2(about)))
        return float(np.float32(about * self.rng.uniform(0.5, 1.5)))

    def codes(self, shape: tuple[int, ...], low: int, high: int) -> NDArray[np.int64]:
        """Weights: any, all the greatest, all the least, the ends alone, many zeros."""
        kind = int(self.rng.integers(0, 8))
        if kind < 2:
            return np.full(shape, (high, low)[kind], np.int64)
        if kind == 2:
            return self.rng.choice([low, high], shape)
        drawn = self.rng.integers(low, high + 1, shape)
        return np.where(self.rng.integers(0, 3, shape) == 0, drawn, min(max(low, 0), high)) if kind == 3 else drawn

    def keep(self, value: Value | None) -> bool:
        """Whether a step made an edge."""
        if value is None:
            return False
        self.values.append(value)
        return True


def _is_same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


@dataclass(frozen=True)
class Window:
    """A window over an image, as attributes of nodes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    image: tuple[int, ...]
    ceil: bool = False

    @classmethod
    def drawn(cls, d: Drawing, image: tuple[int, ...], *, most_pad: int = 2, ceil: bool = False) -> Window:
        """One that fits an image."""
        axes = len(image)
        kernel = tuple(int(min(k, n)) for k, n in zip(d.rng.integers(1, 4, axes), image, strict=True))
        dilations = tuple(
            int(d.rng.integers(1, 3)) if 2 * (k - 1) < n else 1 for k, n in zip(kernel, image, strict=True)
        )
        pads = tuple(
            int(min(p, most_pad, k - 1)) for p, k in zip(d.rng.integers(0, 3, 2 * axes), kernel * 2, strict=True)
        )
        return cls(kernel, tuple(map(int, d.rng.integers(1, 3, axes))), dilations, pads, image, ceil)

    @property
    def out(self) -> tuple[int, ...]:
        """How many there are along each axis."""
        axes, sizes = len(self.image), []
        for k, n in enumerate(self.image):
            padded = n + self.pads[k] + self.pads[k + axes]
            room = padded - self.dilations[k] * (self.kernel[k] - 1) - 1
            count = (-(-room // self.strides[k]) if self.ceil else room // self.strides[k]) + 1
            sizes.append(count - 1 if self.ceil and (count - 1) * self.strides[k] >= n + self.pads[k] else count)
        return tuple(sizes)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that every operator with a window has."""
        return {"strides": self.strides, "dilations": self.dilations, "pads": self.pads}


Step = Callable[[Drawing, Value], "Value | None"]
"""A layer that goes on from an edge; None if it does not fit."""
