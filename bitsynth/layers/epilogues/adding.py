"""Residuals as elementwise programs add them to values, before other programs make results of those."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.arguments import INT32
from bitsynth.layers.epilogues.kinds import Epilogue
from bitsynth.layers.epilogues.lowering import ProgramInputs, Sums
from bitsynth.layers.epilogues.residual import Residual, factors
from bitsynth.layers.epilogues.scaling import Rescale, Scale, floats_of
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.residual import ELEMENTS, added, scaled

_MOST = float(np.finfo(np.float32).max)


def adding(residual: Residual, epilogue: Epilogue, sums: Sums) -> tuple[ElementwiseSpec, ProgramInputs, Sums]:
    """The spec that adds the epilogue's residual to values `sums`, its inputs, and what values are then."""
    if isinstance(epilogue, Scale | Rescale):
        spec, inputs = scaled(ELEMENTS[residual.type]), _of_floats(residual, epilogue, sums)
        return spec, {x.name: inputs[x.name] for x in spec.inputs if x.name in inputs}, sums
    factor, ends = factors(residual, len(sums.columns), integers=True).astype(np.int64), np.iinfo(residual.type)
    most = int(np.abs(factor).max(initial=0)) * max(abs(int(end) - residual.zero_point) for end in (ends.min, ends.max))
    inputs = {"c": (-factor * residual.zero_point).astype(np.int32)}
    if (factor != 1).any():
        inputs["f"] = factor.astype(np.int32)
    spec = added(ELEMENTS[residual.type], factor="f" in inputs)
    return spec, inputs, replace(sums, bound=min(sums.bound + most, -int(INT32.min)))


def _of_floats(residual: Residual, epilogue: Scale | Rescale, sums: Sums) -> dict[str, NDArray[Any]]:
    """The inputs of a float32 spec; SpecError if sums times their scale may leave float32.

    They would be infinite, and no number with an infinite residual. Without a bias, -0 is added: that changes nothing.
    """
    channels = len(sums.columns)
    given = {"bias": np.full(channels, -0.0, np.float32), **floats_of(epilogue, channels)}
    most = np.abs(given["scale"].astype(np.float64)) * sums.bound + np.abs(given["bias"].astype(np.float64))
    if (most >= _MOST).any():
        raise SpecError("sums times scale may leave float32: with a residual, they may not")
    floats = {"m": given["scale"], "b": given["bias"], "f": factors(residual, channels, integers=False)}
    zero = np.array(residual.zero_point, np.int32)
    return {**{name: x.view(np.uint32) for name, x in floats.items()}, "z": zero}
