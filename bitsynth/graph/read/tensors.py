"""Tensors of a file as arrays, and its types by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.read.file import require_onnx
from bitsynth.graph.types import Tensor, is_float

_NOT_READ = ("complex", "string", "object", "<U", "float8_", "float4_", "float6_")


def dtype_of(number: int) -> str:
    """The name of a type of ONNX by its number; SpecError for those that networks do not have."""
    onnx = require_onnx()
    try:
        name = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)))
    except (KeyError, ValueError, TypeError):
        raise SpecError(f"type {number} is not known") from None
    return known(name)


def known(name: str) -> str:
    """The name of a type; SpecError for those that networks do not have."""
    if name.startswith(_NOT_READ):
        raise SpecError(f"type {name} is not compiled; known: float, int and uint types")
    return name


def array_of(tensor: Any) -> Tensor:
    """The numbers of a tensor; SpecError if its data do not fit its shape, or a float is not a number."""
    onnx = require_onnx()
    where = tensor.name or "a tensor"
    try:
        dtype_of(tensor.data_type)
        array: Tensor = onnx.numpy_helper.to_array(tensor)
        if any(n < 0 for n in tensor.dims):
            raise SpecError(f"its shape is {tuple(tensor.dims)}; sizes are 0 or more")
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    except Exception as error:
        raise SpecError(f"{where}: its data do not fit its type and shape: {error}") from None
    if is_float(str(array.dtype)) and np.isnan(array.astype(np.float64)).any():
        raise SpecError(f"{where}: it holds NaN; train or export the network again")
    return array
