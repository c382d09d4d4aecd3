"""The kinds of epilogues of a layer's int32 sums: floats, or codes for the next layer."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.fixed_point import FixedPoint
from bitsynth.layers.epilogues.requantize import Requantize
from bitsynth.layers.epilogues.scaling import Rescale, Scale
from bitsynth.layers.epilogues.thresholds import Thresholds
from bitsynth.spec.matmul import Encoding, MatmulOperand

Epilogue = Scale | Requantize | Rescale | Thresholds | FixedPoint


def kept_type(epilogue: Epilogue | None) -> np.dtype[Any] | None:
    """The type of the sums that a layer keeps beside its results; None if it keeps none."""
    if epilogue is None or epilogue.residual is None or not epilogue.residual.keep_sum:
        return None
    return np.dtype(np.float32 if isinstance(epilogue, Scale | Rescale) else np.int32)


def gives_codes(epilogue: Epilogue | None) -> TypeGuard[Requantize | Rescale | Thresholds | FixedPoint]:
    """Whether results are codes, which can be packed."""
    return epilogue is not None and not isinstance(epilogue, Scale)


def check_epilogue(epilogue: Any, out_layout: str) -> None:
    """SpecError for what is not an epilogue, or is one whose results cannot lie as `out_layout` says."""
    if epilogue is not None and not isinstance(epilogue, Epilogue):
        raise SpecError(f"an epilogue is Scale, Requantize, Rescale or Thresholds, not {epilogue!r}")
    if out_layout != "packed":
        return
    if not gives_codes(epilogue):
        raise SpecError("only codes can be packed: give Thresholds, Requantize or Rescale, or another out_layout")
    if epilogue.codes[0] < 0:
        raise SpecError("signed codes cannot be packed: give a zero_point, and codes from 0 on")


def check_encoding(epilogue: Epilogue | None, encoding: str) -> None:
    """SpecError if results are codes that `encoding`, unless it is empty, does not have."""
    if not encoding or not gives_codes(epilogue):
        return
    operand, last = MatmulOperand(epilogue.bits, Encoding.parse(encoding)), epilogue.codes[1]
    if last > operand.codes[-1]:
        raise SpecError(f"codes of {operand} go to {operand.codes[-1]}, and those of the epilogue to {last}")
