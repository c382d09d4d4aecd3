"""The node of a quantizer, whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Tensor, limits

ITSELF = np.ones(()), np.zeros(())
"""Scale and zero point of integers that stand for themselves."""


@dataclass(frozen=True)
class Quantizer:
    """Numbers as integers: over `scale`, rounded by one of `ROUNDINGS`, with `zero` added, within `limits`.

    With `zero_first` the zero point is added before they are rounded.
    """

    rounding: str
    limits: tuple[int, int]
    scale: Any
    zero: Any
    zero_first: bool = False

    def add(self, node: FileNode, edge: str, *, real: str = "", grid: tuple[Any, Any] = ITSELF, dtype: str = "") -> str:
        """The quantized edge; of constants as the file's floats have them, as exporters do it.

        Args:
            node: The node of the file that says so.
            edge: The numbers.
            real: The float type that this is computed in; the edge's unless one is said.
            grid: Scale and zero point of what the integers stand for.
            dtype: The type of the result in the file, of what the integers stand for if it is a float one; the edge's
                unless one is said.
        """
        weights = node.graph.in_floats(edge)
        return node.add(
            "quantize",
            edge if weights is None else node.constant(weights),
            scale=np.asarray(self.scale, np.float64),
            zero=np.asarray(self.zero),
            rounding=self.rounding,
            low=self.limits[0],
            high=self.limits[1],
            zero_first=self.zero_first,
            real=real or node.graph.edges[edge].dtype,
            out_scale=grid[0],
            out_zero=grid[1],
            **({"dtype": dtype} if dtype else {}),
        )


def quantized_to(
    node: FileNode, edge: str, scale: Tensor, zero: Tensor, dtype: str, *, real: str = "", zero_first: bool = False
) -> str:
    """Numbers as codes, which are integers of type `dtype` in the file; computed in `real`, or the scale's type."""
    made = Quantizer("ROUND", limits(dtype), scale, zero.astype(np.int64), zero_first)
    return made.add(node, edge, real=real or str(scale.dtype), grid=(1.0, 0.0), dtype=dtype)
