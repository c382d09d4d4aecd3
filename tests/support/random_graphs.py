"""Quantized networks drawn at random, as ONNX models: odd shapes, widths, scales with ties, odd wiring."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from onnx import TensorProto, helper

from support import random_codes, random_floats
from support.onnx_files import MICROSOFT, QONNX, tensor
from support.random_drawing import Drawing, Value

DIALECTS = ("qonnx", "qcdq", "qdq", "qlinear", "integer")
_TYPES = {
    "float32": TensorProto.FLOAT,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int64": TensorProto.INT64,
}
_OPSETS = {"qonnx": 13, "qcdq": 13, "qdq": 25, "qlinear": 13, "integer": 13}


@dataclass(frozen=True)
class RandomGraph:
    """A random network; the seed says everything of it.

    Args:
        seed: Any number.
        asked: How it writes quantized numbers, one of DIALECTS; empty if the seed is to say.
    """

    seed: int
    asked: str = ""

    @property
    def dialect(self) -> str:
        return self.asked or DIALECTS[self.seed % len(DIALECTS)]

    @property
    def is_dyadic(self) -> bool:
        """Whether float32 computes all its numbers exactly, so that each executor has the same results."""
        return self.seed % 3 == 0

    @cached_property
    def drawing(self) -> Drawing:
        """The nodes, drawn."""
        rng = np.random.default_rng([self.seed, DIALECTS.index(self.dialect)])
        drawing = Drawing(rng, self.dialect, self.is_dyadic)
        draw = random_codes if self.dialect in ("qlinear", "integer") else random_floats
        draw.begin(drawing)
        for _ in range(rng.integers(1, 13)):
            draw.step(drawing)
        draw.end(drawing)
        return drawing

    @cached_property
    def model(self) -> Any:
        """The file."""
        drawing = self.drawing
        graph = helper.make_graph(
            drawing.nodes,
            f"random{self.seed}",
            [helper.make_tensor_value_info(x.name, _TYPES[x.dtype], x.shape) for x in drawing.inputs],
            [helper.make_tensor_value_info(name, element, None) for name, element in self._outputs()],
            [tensor(value, name) for name, value in drawing.constants.items()],
        )
        versions = {"": _OPSETS[self.dialect], QONNX: 1, MICROSOFT: 1}
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid(d, v) for d, v in versions.items()], ir_version=10
        )

    def _outputs(self) -> list[tuple[str, int]]:
        return [(x.name, _TYPES[x.dtype]) for x in self.drawing.outputs]

    def data(self, seed: int = 0) -> dict[str, NDArray[Any]]:
        """Inputs by name: every code of integers, numbers on and around ties of floats."""
        rng = np.random.default_rng([self.seed, seed])
        return {x.name: _given(rng, x) for x in self.drawing.inputs}


def _given(rng: Generator, x: Value) -> NDArray[Any]:
    if x.dtype != "float32":
        info = np.iinfo(x.dtype)
        if rng.integers(0, 8) == 0:
            return np.full(x.shape, rng.choice([info.min, info.max]), x.dtype)
        return rng.integers(info.min, info.max + 1, x.shape).astype(x.dtype)
    halves = rng.integers(-40, 41, x.shape) * 0.5 * x.scale
    near = rng.normal(size=x.shape) * x.spread
    return np.where(rng.integers(0, 2, x.shape) == 1, halves, near).astype(np.float32)
