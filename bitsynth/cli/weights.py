"""Weight and epilogue of a layer, read from a file of numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.array_files import read_arrays
from bitsynth.layers.epilogues import Epilogue, Requantize, Scale, Thresholds
from bitsynth.layers.epilogues.residual import Residual

WEIGHT = "weight"
_RESIDUAL = "residual_scale", "residual_type", "residual_zero_point"
_EPILOGUES = ({"scale", "bias"}, {"scale"}, {"thresholds"}, {"multiplier", "shift", "bits"})


def read(path: Path) -> tuple[NDArray[Any], Epilogue | None]:
    """Return the weight in a .npy file, or `weight` and epilogue arrays in a .npz file; SpecError for other files."""
    arrays = read_arrays(path, WEIGHT)
    if WEIGHT not in arrays:
        raise SpecError(f"{path} has no array {WEIGHT!r}, but {', '.join(arrays) or 'none at all'}")
    return arrays[WEIGHT], _epilogue(path, {name: a for name, a in arrays.items() if name != WEIGHT})


def _epilogue(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Epilogue | None:
    """Return the epilogue that the arrays other than the weight describe; None if there are none."""
    if not arrays:
        return None
    if set(arrays) - set(_RESIDUAL) not in _EPILOGUES:
        known = "scale and bias; thresholds; or multiplier, shift and bits; and residual_scale with its type"
        raise SpecError(f"{path} has {', '.join(sorted(arrays))} besides the weight; an epilogue is {known}")
    residual = _residual(path, arrays)
    if "thresholds" in arrays:
        return Thresholds(arrays["thresholds"], residual=residual)
    if "scale" in arrays:
        return Scale(arrays["scale"], arrays.get("bias", 0.0), residual)
    shift, bits = (_number(path, name, arrays[name]) for name in ("shift", "bits"))
    return Requantize(arrays["multiplier"], shift, bits, residual=residual)


def _residual(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Residual | None:
    """Return the residual that the arrays describe; None if there are none."""
    scale, kind, zero = _RESIDUAL
    if scale not in arrays:
        if unfit := [name for name in (kind, zero) if name in arrays]:
            raise SpecError(f"{path} has {', '.join(unfit)}, but no {scale}")
        return None
    names = arrays.get(kind, np.array("uint8"))
    if names.size != 1 or names.dtype.kind != "U":
        raise SpecError(f"{path}: {kind} must be one name of a type, not {names.dtype} {names.shape}")
    return Residual(str(names.reshape(-1)[0]), arrays[scale], _number(path, zero, arrays.get(zero, np.array(0))))


def _number(path: Path, name: str, array: NDArray[Any]) -> int:
    if array.size != 1 or array.dtype.kind not in "iu":
        raise SpecError(f"{path}: {name} must be one whole number, not {array.dtype} {array.shape}")
    return int(array.reshape(-1)[0])
