"""A layer's weight and epilogue from a file of numpy arrays."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.files import open_file
from bitsynth.layers.epilogues import Epilogue, Requantize, Scale, Thresholds
from bitsynth.layers.epilogues.residual import Residual

WEIGHT = "weight"
_MOST_BYTES = 1 << 32
"""As doubles: 2**29 weights."""
_DAMAGED = ValueError, EOFError, MemoryError, BadZipFile, zlib.error, RuntimeError, TokenError
"""What numpy and zipfile raise for files of other kinds, cut short, encrypted or changed."""
_RESIDUAL = "residual_scale", "residual_type", "residual_zero_point"
_EPILOGUES = ({"scale", "bias"}, {"scale"}, {"thresholds"}, {"multiplier", "shift", "bits"})


def read(path: Path) -> tuple[NDArray[Any], Epilogue | None]:
    """The weight in a .npy file; in a .npz file `weight` and the arrays of an epilogue. SpecError for anything else."""
    arrays = _arrays(path)
    if WEIGHT not in arrays:
        raise SpecError(f"{path} has no array {WEIGHT!r}, but {', '.join(arrays) or 'none at all'}")
    return arrays[WEIGHT], _epilogue(path, {name: a for name, a in arrays.items() if name != WEIGHT})


def _arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    try:
        with open_file(path, _MOST_BYTES) as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {WEIGHT: loaded}
            if sum(member.file_size for member in loaded.zip.infolist()) > _MOST_BYTES:
                raise SpecError(f"{path} unpacks to more than the {_MOST_BYTES:,} bytes that a layer may have")
            return {name: _array(name, loaded[name]) for name in loaded}
    except _DAMAGED as error:
        raise SpecError(f"{path} is no .npy or .npz file of plain arrays: {error}") from None


def _array(name: str, member: object) -> NDArray[Any]:
    if not isinstance(member, np.ndarray):
        raise ValueError(f"its member {name} is no array")
    return member


def _epilogue(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Epilogue | None:
    """The epilogue that the arrays beside the weight make; None if there are none."""
    if not arrays:
        return None
    if set(arrays) - set(_RESIDUAL) not in _EPILOGUES:
        known = "scale and bias; thresholds; or multiplier, shift and bits; and residual_scale with its type"
        raise SpecError(f"{path} has {', '.join(sorted(arrays))} beside the weight; an epilogue is {known}")
    residual = _residual(path, arrays)
    if "thresholds" in arrays:
        return Thresholds(arrays["thresholds"], residual=residual)
    if "scale" in arrays:
        return Scale(arrays["scale"], arrays.get("bias", 0.0), residual)
    shift, bits = (_number(path, name, arrays[name]) for name in ("shift", "bits"))
    return Requantize(arrays["multiplier"], shift, bits, residual=residual)


def _residual(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Residual | None:
    """The residual that arrays describe; None if there are none."""
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
