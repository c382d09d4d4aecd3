"""One convolution's operands and its exact result, and the result of a baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bitsynth.bench.resnet18 import ResNetLayer
from bitsynth.errors import Refuted

_MIDDLE = 128


@dataclass(frozen=True, eq=False)
class ConvOperands:
    """Integers as fp32, so small that every sum is exact: `x` (1, IC, H, W), `w` (OC, IC, K, K), `y` their result.

    An int8 result stands for `step * (code - middle)`, the smallest power of two for `step` that saturates nothing.
    """

    layer: ResNetLayer
    x: NDArray[np.float32]
    w: NDArray[np.float32]
    y: NDArray[np.float32]
    step: float
    middle: int = _MIDDLE

    @classmethod
    def of(cls, layer: ResNetLayer) -> ConvOperands:
        """Return activations of two bits, weights of -1 and 1, the same ones every time."""
        rng = np.random.default_rng(layer.macs)
        x = rng.integers(0, 4, (1, layer.in_channels, layer.height, layer.height))
        w = rng.choice([-1, 1], (layer.out_channels, layer.in_channels, layer.kernel, layer.kernel))
        return cls.exact(layer, x.astype(np.float32), w.astype(np.float32))

    @classmethod
    def exact(cls, layer: ResNetLayer, x: NDArray[np.float32], w: NDArray[np.float32]) -> ConvOperands:
        """Return the operands `x` and `w` with their result."""
        y = convolve(x, w, layer.stride, layer.padding)
        return cls(layer, x, w, y, float(2.0 ** np.ceil(np.log2(max(1.0, np.abs(y).max() / (_MIDDLE - 1))))))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A convolution ready to be run: `call` runs it, `result` is what it then gave, as values (1, OC, H, W).

    `error` is how far the result may be from the exact one.
    """

    call: Callable[[], object]
    result: Callable[[], NDArray[Any]]
    error: float = 0.0

    def check(self, operands: ConvOperands) -> None:
        """Run once; Refuted if the result is wrong."""
        self.call()
        result = self.result()
        if result.shape != operands.y.shape:
            raise Refuted(f"{operands.layer.name}: its result has shape {result.shape}, not {operands.y.shape}")
        off = float(np.abs(result - operands.y).max())
        if not off <= self.error:
            raise Refuted(f"{operands.layer.name}: its result is off by {off:g}, more than {self.error:g}")


def convolve(x: NDArray[Any], w: NDArray[Any], stride: int, padding: int) -> NDArray[Any]:
    """Return the convolution of NCHW `x` with `w`, both square, zeros around."""
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    windows = sliding_window_view(np.pad(x, around), w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.ascontiguousarray(np.tensordot(windows, w, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2))
