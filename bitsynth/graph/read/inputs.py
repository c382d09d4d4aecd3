"""Inputs of a file: sizes that it leaves open, by the name of an input or of a symbol, and inputs made constant.

Given:  inputs x (batch, sequence) and state (2, batch, 128); `shapes` {"x": (1, 512)}
Result: batch is 1 and sequence 512, so that state is (2, 1, 128)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.read.file import dtype_of, require_known_type, require_onnx
from bitsynth.graph.types import Shape, Tensor, cast
from bitsynth.printable import show

Shapes = Mapping[str, int | Sequence[int]]
"""Shapes of inputs and sizes of symbols, by name."""
_IMAGE_RANK = 4
"""Axes of (N, C, H, W)."""
_WORD = re.compile(r"[A-Za-z]{1,12}")
_NO_SYMBOLS = ("", "?", "None", "-1", "unknown")
"""Texts that exporters write for a size without a name: two of them need not be equal."""


def close_shapes(
    inputs: Sequence[Any], shapes: Shapes, batch: int | None, fixed: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Shape]:
    """Return the shape of each input of a file, all its sizes known.

    Args:
        inputs: The inputs, as the file describes them.
        shapes: The shapes of some inputs and the sizes of some symbols. A symbol has one size in all inputs.
        batch: The size of each first axis that is open and not in `shapes`.
        fixed: Values of some inputs. An array has its own shape, and settles the symbols that the input has.

    Raises:
        SpecError: A size is missing, or does not fit the file; the message says what to give.
    """
    for name, shape in shapes.items():
        sizes_of_one = shape if isinstance(shape, Sequence) else (shape,)
        if not all(type(size) is int and size > 0 for size in sizes_of_one):
            raise SpecError(f"--shape {name}: sizes are whole numbers above 0, not {_join(sizes_of_one)}")
    arrays = {name: np.shape(value) for name, value in fixed.items() if np.ndim(value)}
    for given in inputs:
        shape, axes = arrays.get(given.name, ()), len(given.type.tensor_type.shape.dim)
        if shape and given.type.tensor_type.HasField("shape") and len(shape) != axes:
            raise SpecError(f"input {given.name} has {axes} axes; its fixed value has {len(shape)}")
    # An empty array is not compared with the file, which writes 0 for an open size too.
    settled = {name for name, shape in arrays.items() if 0 in shape}
    settled |= {x.name for x in inputs if x.name in fixed and not x.type.tensor_type.HasField("shape")}
    inputs = [x for x in inputs if x.name not in settled]
    shapes = {**{name: shape for name, shape in arrays.items() if name not in settled}, **shapes}
    file_shapes = {given.name: _file_shape(given, shapes) for given in inputs}
    sizes = _symbol_sizes(file_shapes, shapes, batch)
    closed = {}
    for name, dims in file_shapes.items():
        given = _given_shape(name, shapes)
        own = [sizes.get(dim, 0) if isinstance(dim, str) else dim for dim in dims]
        if given:
            own = [size or given[k] for k, size in enumerate(own)]
        elif batch and dims and not own[0]:
            own[0] = batch
        if not all(own):
            raise SpecError(_describe_open(name, dims, own))
        closed[name] = tuple(own)
    return closed


def _file_shape(given: Any, shapes: Shapes) -> list[int | str]:
    """Return the sizes of an input in the file: a number, a symbol, or "" for an open size without a symbol."""
    tensor = given.type.tensor_type
    shape = _given_shape(given.name, shapes)
    if not given.type.HasField("tensor_type") or not (tensor.HasField("shape") or shape):
        raise SpecError(f"input {given.name} has no shape; give it, such as --shape {given.name}=1x3x224x224")
    dims: list[int | str] = [""] * len(shape) if not tensor.HasField("shape") else []
    for k, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value not in (0, -1):
            if dim.dim_value < 0:
                raise SpecError(f"input {given.name}: axis {k} is of size {dim.dim_value}")
            dims.append(dim.dim_value)
        else:
            dims.append("" if dim.dim_param in _NO_SYMBOLS else dim.dim_param)
    if shape and len(shape) != len(dims):
        raise SpecError(f"input {given.name} has {len(dims)} axes; --shape gives {len(shape)}, {_join(shape)}")
    for k, (dim, size) in enumerate(zip(dims, shape, strict=False)):
        if isinstance(dim, int) and dim != size:
            raise SpecError(f"input {given.name}: axis {k} is {dim} in the file; --shape gives {size}")
    return dims


def _given_shape(name: str, shapes: Shapes) -> tuple[int, ...]:
    """Return the shape that is given for an input; () if none is."""
    shape = shapes.get(name, ())
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _symbol_sizes(file_shapes: Mapping[str, list[int | str]], shapes: Shapes, batch: int | None) -> dict[str, int]:
    """Return the size of each symbol that `shapes` or `batch` settles; SpecError if it would have two sizes."""
    symbols = {dim for dims in file_shapes.values() for dim in dims if isinstance(dim, str) and dim}
    if unknown := [name for name in shapes if name not in file_shapes and name not in symbols]:
        open_sizes = f"; open sizes: {', '.join(map(show, sorted(symbols)))}" if symbols else ""
        raise SpecError(
            f"--shape {unknown[0]}: neither an input nor an open size of the file; "
            f"inputs: {', '.join(map(show, file_shapes))}{open_sizes}"
        )
    sizes: dict[str, int] = {}

    def settle(symbol: int | str, size: int, whose: str) -> None:
        if isinstance(symbol, str) and symbol and sizes.setdefault(symbol, size) != size:
            raise SpecError(f"{symbol} is {sizes[symbol]} and, by {whose}, {size}; it is one size in the file")

    for name, size in shapes.items():
        if name not in file_shapes and isinstance(size, int):
            settle(name, size, f"--shape {name}")
        elif name not in file_shapes:
            raise SpecError(f"--shape {name}: one size, such as {name}=1, not {_join(_given_shape(name, shapes))}")
        else:
            for symbol, of_axis in zip(file_shapes[name], _given_shape(name, shapes), strict=True):
                settle(symbol, of_axis, f"--shape {name}")
    for name, dims in file_shapes.items():
        if batch and name not in shapes and dims and isinstance(dims[0], str) and dims[0]:
            settle(dims[0], batch, "--batch")
    return sizes


def _describe_open(name: str, dims: Sequence[int | str], sizes: Sequence[int]) -> str:
    """Return the text of an error about an input that has open sizes, with the option that gives them."""
    still_open = [k for k, size in enumerate(sizes) if not size]
    names = [show(str(dims[k])) or "unknown" for k in still_open]
    axes = ", ".join(f"axis {k} is {size}" for k, size in zip(still_open, names, strict=True))
    if still_open == [0]:
        return f"input {name}: {axes}; fix the batch with --batch N"
    return f"input {name}: {axes}; give --shape {name}={_example(dims, sizes)} with numbers"


def _example(dims: Sequence[int | str], sizes: Sequence[int]) -> str:
    """Return a shape with capital letters where sizes are open: the symbol of the file, or a letter by the axis."""
    letters = "NCHW" if len(sizes) == _IMAGE_RANK else "NLABCDEF"
    words = [
        dim.upper() if isinstance(dim, str) and _WORD.fullmatch(dim) else letters[k % len(letters)]
        for k, dim in enumerate(dims)
    ]
    return "x".join(str(size or word) for size, word in zip(sizes, words, strict=True))


def _join(shape: Sequence[int]) -> str:
    """Return a shape as options give it."""
    return "x".join(map(str, shape))


def fixed_value(given: Any, value: Any, shape: Shape = ()) -> Tensor:
    """Return the value of a fixed input as an array, in the type of the file unless it is an array already.

    A single number fills the input's shape. SpecError if the numbers do not fit the input.
    """
    if isinstance(value, np.ndarray | np.generic):
        require_known_type(str(value.dtype))
        return np.asarray(value)
    tensor = given.type.tensor_type
    try:
        numbers = np.asarray(value)
        array = cast(numbers, dtype_of(tensor.elem_type))
    except (ValueError, TypeError, OverflowError) as error:
        raise SpecError(f"input {given.name}: {value!r} are not its numbers: {error}") from None
    if (array != numbers).any() and array.dtype.kind != "f":
        raise SpecError(f"input {given.name}: {value!r} are no {array.dtype}")
    return np.full(shape, array) if array.ndim == 0 else array


def with_shapes(model: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Return a copy of a model in which inputs have these shapes, and constants are no inputs."""
    changed = require_onnx().ModelProto()
    changed.CopyFrom(model)
    drop_constant_inputs(changed)
    for given in changed.graph.input:
        if given.name in shapes:
            del given.type.tensor_type.shape.dim[:]
            for size in shapes[given.name]:
                given.type.tensor_type.shape.dim.add().dim_value = size
    return changed


def drop_constant_inputs(model: Any) -> None:
    """Take initializers, which old files list as inputs too, from the inputs of a model."""
    constants = {x.name for x in model.graph.initializer}
    inputs = [x for x in model.graph.input if x.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)


def require_inputs(fixed: Mapping[str, Any], graph: Any) -> None:
    """Raise SpecError for a fixed input that the file does not have."""
    names = [given.name for given in graph.input]
    if unknown := [name for name in fixed if name not in names]:
        raise SpecError(f"--fix {unknown[0]}: no input of the file; inputs: {', '.join(names)}")


def fix_inputs(model: Any, fixed: Mapping[str, Any], shapes: Shapes, batch: int | None) -> Any:
    """Return a model whose `fixed` inputs are constants, for other runtimes; the model itself if none is fixed."""
    if not fixed:
        return model
    require_inputs(fixed, model.graph)
    onnx = require_onnx()
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    inputs = {given.name: given for given in changed.graph.input}
    closed = close_shapes(list(inputs.values()), shapes, batch, fixed)
    for name in fixed.keys() & inputs.keys():
        array = fixed_value(inputs[name], fixed[name], closed.get(name, ()))
        changed.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        changed.graph.input.remove(inputs[name])
    return changed
