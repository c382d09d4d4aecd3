"""What the caller promises of inputs that no quantizer reads."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.types import Integers
from bitsynth.spec.matmul import Encoding, MatmulOperand

_QUANTIZERS = (
    *("Quant", "IntQuant", "BipolarQuant", "QuantizeLinear", "DynamicQuantizeLinear"),
    *("FakeQuantize", "VitisQuantizeLinear", "ExtendedQuantizeLinear"),
)


def is_quantized(nodes: Iterable[Any], name: str) -> bool:
    """Whether quantizers alone, of the nodes of a file, read an input: then these say what it holds."""
    readers = [node.op_type for node in nodes if name in node.input]
    return bool(readers) and all(op in _QUANTIZERS for op in readers)


@dataclass(frozen=True)
class InputCodes:
    """Float inputs that hold codes on a scale.

    Args:
        bits: Bits of a code, 1 to 8.
        scale: What one step stands for.
        encoding: The codes' values: unsigned, signed, ternary, narrow or bipolar.
    """

    bits: int
    scale: float = 1.0
    encoding: str = "unsigned"

    @property
    def type(self) -> Integers:
        """The integers of such an input; SpecError if there are none such."""
        if not math.isfinite(self.scale) or not np.float32(self.scale) > 0:
            raise SpecError(f"the scale of input codes is {self.scale}; it must be a number above 0")
        operand = MatmulOperand(self.bits, Encoding.parse(self.encoding))
        low, high = operand.value(0), operand.value(operand.codes[-1])
        return Integers.between(low, high, np.float32(self.scale), 0.0, operand.scale)
