"""Nodes that move elements, such as Reshape, Slice, Gather and Pad, and nodes that become constants, such as Shape.

Operators that are read on constants alone, such as CumSum, become constants, too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bitsynth.graph.infer import MAX_ELEMENTS
from bitsynth.graph.read.file import require_onnx
from bitsynth.graph.read.file_node import FileNode, Reader, transpose
from bitsynth.graph.types import Shape, Tensor, cast


def _read_reshape(node: FileNode) -> tuple[str, ...]:
    asked, shape = node.numbers("shape", 1), node.shape()
    if asked is None:
        raise node.fail("has no shape")
    if not node.get("allowzero"):
        if any(n == 0 and k >= len(shape) for k, n in enumerate(asked)):
            raise node.fail(f"{asked} keeps an axis that {shape} does not have")
        asked = [shape[k] if n == 0 else n for k, n in enumerate(asked)]
    return (node.reshape(node.edge(0), _resolve_sizes(node, asked, shape)),)


def _resolve_sizes(node: FileNode, asked: list[int], shape: Shape) -> Shape:
    """Return the sizes asked for, with -1 replaced by the size that is left; SpecError if they do not fit."""
    size, known = math.prod(shape), math.prod(n for n in asked if n != -1)
    sizes = tuple(size // max(known, 1) if n == -1 else n for n in asked)
    if asked.count(-1) > 1 or min(sizes, default=0) < 0 or math.prod(sizes) != size:
        raise node.fail(f"{shape} cannot be reshaped to {asked}")
    return sizes


def _read_flatten(node: FileNode) -> tuple[str, ...]:
    axis, shape = node.get("axis", 1), node.shape()
    if not -len(shape) <= axis <= len(shape):
        raise node.fail(f"axis {axis} of {len(shape)} axes")
    axis = axis + len(shape) if axis < 0 else axis
    return (node.reshape(node.edge(0), (math.prod(shape[:axis]), math.prod(shape[axis:]))),)


def _read_squeeze(node: FileNode) -> tuple[str, ...]:
    asked, shape = node.numbers("axes", 1), node.shape()
    axes = node.axes(asked) if asked else tuple(k for k, n in enumerate(shape) if n == 1)
    if any(shape[k] != 1 for k in axes):
        raise node.fail(f"axes {axes} of {shape} are not all 1")
    return (node.reshape(node.edge(0), tuple(n for k, n in enumerate(shape) if k not in axes)),)


def _read_unsqueeze(node: FileNode) -> tuple[str, ...]:
    asked = node.numbers("axes", 1) or []
    rank = len(node.shape()) + len(asked)
    axes, rest = {node.axis(k, rank) for k in asked}, iter(node.shape())
    if len(axes) != len(asked):
        raise node.fail(f"axes {asked} name one twice")
    return (node.reshape(node.edge(0), tuple(1 if k in axes else next(rest) for k in range(rank))),)


def _read_transpose(node: FileNode) -> tuple[str, ...]:
    rank = len(node.shape())
    order = tuple(node.axis(int(k)) for k in node.get("perm") or reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise node.fail(f"perm {order} does not order {rank} axes")
    return (transpose(node, node.edge(0), order),)


def _read_concat(node: FileNode) -> tuple[str, ...]:
    axis = node.axis(node.get("axis", 1))
    return (concatenate(node, [node.edge(k) for k in range(len(node.inputs))], axis),)


def concatenate(node: FileNode, edges: list[str], axis: int) -> str:
    """Return the edge of several edges, one after the other; empty ones are left out."""
    nonempty = [e for e in edges if node.graph.edges[e].shape[axis]] or edges[:1]
    return nonempty[0] if len(nonempty) == 1 else node.add("concatenate", *nonempty, axis=axis)


def _add_slice(node: FileNode, edge: str, slices: Mapping[int, tuple[int | None, int | None, int]]) -> str:
    """Return the edge of (start, end, step) of some axes."""
    rank = len(node.graph.edges[edge].shape)
    of_axes = tuple(slices.get(k, (None, None, 1)) for k in range(rank))
    return node.add("slice", edge, slices=of_axes)


def _read_slice(node: FileNode) -> tuple[str, ...]:
    starts, ends = node.numbers("starts", 1), node.numbers("ends", 2)
    if starts is None or ends is None:
        raise node.fail("has no starts and ends")
    axes = node.numbers("axes", 3) or list(range(len(starts)))
    steps = node.numbers("steps", 4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.fail("starts, ends, axes and steps do not fit")
    shape, slices = node.shape(), {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[node.axis(axis)]
        slices[node.axis(axis)] = (start, None if step < 0 and end < -size else end, step)
    return (_add_slice(node, node.edge(0), slices),)


def _read_split(node: FileNode) -> tuple[str, ...]:
    axis = node.axis(node.get("axis", 0))
    size, parts = node.shape()[axis], node.numbers("split", 1)
    if parts is None:
        count = node.get("num_outputs") or len(node.outputs)
        most = -(-size // count)
        parts = [min(most, size - k * most) for k in range(count)]
    if sum(parts) != size or min(parts) < 0:
        raise node.fail(f"{size} cannot be split into {parts}")
    ends = np.cumsum(parts).tolist()
    return tuple(_add_slice(node, node.edge(0), {axis: (e - n, e, 1)}) for n, e in zip(parts, ends, strict=True))


def _read_gather(node: FileNode) -> tuple[str, ...]:
    axis = node.axis(node.get("axis", 0))
    places, size = node.value(1, "indices").astype(np.int64), node.shape()[axis]
    if places.size and (places.min() < -size or places.max() >= size):
        raise node.fail(f"indices go beyond the {size} elements of axis {axis}")
    return (node.add("gather", node.edge(0), places=places % max(size, 1), axis=axis),)


def _read_pad(node: FileNode) -> tuple[str, ...]:
    """Read Pad; negative pads cut elements off."""
    rank = len(node.shape())
    pads = node.numbers("pads", 1) or node.numbers("paddings", 1) or []
    axes = [node.axis(k) for k in node.numbers("axes", 3) or range(rank)]
    if len(pads) != 2 * len(axes) or max(map(abs, pads), default=0) > MAX_ELEMENTS:
        raise node.fail(f"pads {pads} do not fit {len(axes)} axes")
    edges = {axis: (pads[k], pads[k + len(axes)]) for k, axis in enumerate(axes)}
    cut = {k: (-min(a, 0), node.shape()[k] + min(b, 0), 1) for k, (a, b) in edges.items() if min(a, b) < 0}
    inner = _add_slice(node, node.edge(0), cut) if cut else node.edge(0)
    widths = tuple(tuple(max(n, 0) for n in edges.get(k, (0, 0))) for k in range(rank))
    return (_add_pad(node, inner, widths),)


def _add_pad(node: FileNode, edge: str, widths: tuple[tuple[int, ...], ...]) -> str:
    """Return the edge padded by `widths`, as the mode of the node says; SpecError if it would be too large."""
    mode = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}.get(
        node.get("mode", "constant")
    )
    if mode is None:
        raise node.fail(f"mode {node.get('mode')!r} is not known")
    fill = _fill_value(node) if mode == "constant" else 0.0
    sizes = [n + sum(w) for n, w in zip(node.graph.edges[edge].shape, widths, strict=True)]
    if math.prod(sizes) > MAX_ELEMENTS:
        raise node.fail(f"makes a tensor of shape {tuple(sizes)}, more than {MAX_ELEMENTS:,} elements")
    if not any(map(any, widths)):
        return edge
    if not fill:
        return node.add("pad", edge, pads=widths, mode=mode, fills=mode == "constant")
    for axis, (before, after) in enumerate(widths):
        edge = concatenate(
            node,
            [*_constant_border(node, edge, axis, before, fill), edge, *_constant_border(node, edge, axis, after, fill)],
            axis,
        )
    return edge


def _fill_value(node: FileNode) -> float:
    """Return the number to pad by."""
    if node.has(2):
        return float(node.value(2, "the padding").reshape(-1)[0])
    return float(node.get("value", 0.0))


def _constant_border(node: FileNode, edge: str, axis: int, count: int, fill: float) -> list[str]:
    """Return the edges to concatenate for `count` elements of padding along an axis; none if it is 0."""
    source = node.graph.edges[edge]
    if not count:
        return []
    shape = tuple(count if k == axis else n for k, n in enumerate(source.shape))
    return [node.constant(np.full(shape, cast(fill, source.dtype)))]


def _read_expand(node: FileNode) -> tuple[str, ...]:
    sizes = node.numbers("shape", 1) or []
    try:
        shape = np.broadcast_shapes(node.shape(), tuple(sizes))
    except ValueError:
        raise node.fail(f"{node.shape()} does not expand to {sizes}") from None
    return (node.add("expand", node.edge(0), sizes=shape),)


def _read_tile(node: FileNode) -> tuple[str, ...]:
    counts, shape = node.numbers("repeats", 1) or [], node.shape()
    if len(counts) != len(shape) or math.prod(counts) * math.prod(shape) > MAX_ELEMENTS:
        raise node.fail(f"repeats {counts} do not fit {shape}")
    places = {k: np.tile(np.arange(n), c) for k, (n, c) in enumerate(zip(shape, counts, strict=True)) if c != 1}
    return (node.add("resize", node.edge(0), places=places),)


def _depth_to_space_reader(op: str) -> Reader:
    def read(node: FileNode) -> tuple[str, ...]:
        block, shape = int(node.get("blocksize", 0)), node.shape()
        whole = shape[1:2] if op == "depth_to_space" else shape[2:]
        unit = block**2 if op == "depth_to_space" else block
        if len(shape) != 4 or block < 1 or any(n % unit for n in whole):
            raise node.fail(f"blocks of {block} do not fit an image {shape}")
        return (node.add(op, node.edge(0), block=block, mode=node.get("mode", "DCR")),)

    return read


def _resolve_indices(node: FileNode, index: int, sizes: Tensor | int) -> Tensor:
    """Return indices, those below 0 counted from the end; SpecError if one leaves its axis."""
    indices = node.value(index, "indices").astype(np.int64)
    if ((indices < -np.asarray(sizes)) | (indices >= sizes)).any():
        raise node.fail(f"indices go beyond the {sizes} elements")
    resolved: Tensor = np.where(indices < 0, indices + sizes, indices)
    return resolved


def _number_elements(shape: Shape) -> Tensor:
    """Return the elements of a tensor numbered in order, in its shape."""
    return np.arange(math.prod(shape)).reshape(shape)


def _elements_along_axis(node: FileNode) -> Tensor:
    """Return the numbers of the elements that GatherElements or ScatterElements selects."""
    shape, axis = node.shape(), node.axis(node.get("axis", 0))
    places = _resolve_indices(node, 1, shape[axis])
    if places.ndim != len(shape):
        raise node.fail(f"indices {places.shape} must have as many axes as {shape}")
    at = np.indices(places.shape)
    at[axis] = places
    elements: Tensor = _number_elements(shape)[tuple(at)]
    return elements


def _elements_by_rows(node: FileNode) -> Tensor:
    """Return the numbers of the elements that GatherND or ScatterND selects: rows of indices of the first axes."""
    shape = node.shape()
    count = node.shape(1)[-1]
    if node.get("batch_dims", 0) or not 1 <= count <= len(shape):
        raise node.fail(f"rows of {count} indices and batch_dims {node.get('batch_dims', 0)} are not compiled")
    places = _resolve_indices(node, 1, np.array(shape[:count]))
    elements: Tensor = _number_elements(shape)[tuple(np.moveaxis(places, -1, 0))]
    return elements


def _gather_elements(node: FileNode, numbers: Tensor) -> tuple[str, ...]:
    """Return the edge of the elements with these numbers."""
    flat = node.reshape(node.edge(0), (math.prod(node.shape()),))
    return (node.reshape(node.add("gather", flat, places=numbers.reshape(-1), axis=0), numbers.shape),)


def _scatter_elements(node: FileNode, numbers: Tensor) -> tuple[str, ...]:
    """Return the edge of the input with updates at the elements with these numbers; the last of several wins."""
    if node.get("reduction", "none") != "none":
        raise node.fail(f"reduction {node.get('reduction')!r} is not compiled")
    if numbers.shape != node.shape(2):
        raise node.fail(f"{node.shape(2)} updates are not for indices {node.shape(1)}")
    count = math.prod(node.shape())
    both = [node.reshape(node.edge(k), (math.prod(node.shape(k)),)) for k in (0, 2)]
    places = np.arange(count)
    places[numbers.reshape(-1)] = count + np.arange(numbers.size)
    gathered = node.add("gather", node.add("concatenate", *both, axis=0), places=places, axis=0)
    return (node.reshape(gathered, node.shape()),)


INDEXED_READERS: dict[str, Reader] = {
    "GatherElements": lambda node: _gather_elements(node, _elements_along_axis(node)),
    "GatherND": lambda node: _gather_elements(node, _elements_by_rows(node)),
    "Scatter": lambda node: _scatter_elements(node, _elements_along_axis(node)),
    "ScatterElements": lambda node: _scatter_elements(node, _elements_along_axis(node)),
    "ScatterND": lambda node: _scatter_elements(node, _elements_by_rows(node)),
}


def _read_shape(node: FileNode) -> tuple[str, ...]:
    shape = node.shape()
    cut = slice(node.get("start", 0), node.get("end", len(shape)))
    return (node.constant(np.array(shape[cut], np.int64)),)


def _read_size(node: FileNode) -> tuple[str, ...]:
    return (node.constant(np.array(math.prod(node.shape()), np.int64)),)


def _read_constant(node: FileNode) -> tuple[str, ...]:
    for name, dtype in (("value", None), ("value_float", np.float32), ("value_int", np.int64)):
        if name in node.attributes:
            return (node.constant(np.asarray(node.get(name), dtype)),)
    for name, kind in (("value_floats", np.float32), ("value_ints", np.int64)):
        if name in node.attributes:
            return (node.constant(np.array(node.get(name), kind)),)
    raise node.fail("has no value that is read: tensors, floats and ints are")


def _read_constant_of_shape(node: FileNode) -> tuple[str, ...]:
    shape = tuple(node.numbers("shape", 0) or ())
    value: Any = node.get("value", np.zeros(1, np.float32))
    if min(shape, default=0) < 0 or math.prod(shape) > MAX_ELEMENTS:
        raise node.fail(f"a tensor of shape {shape}")
    return (node.constant(np.full(shape, np.asarray(value).reshape(-1)[0])),)


def _read_range(node: FileNode) -> tuple[str, ...]:
    start, stop, step = (node.value(k, "the range").reshape(-1)[0] for k in range(3))
    if not step or abs((stop - start) / step) > MAX_ELEMENTS:
        raise node.fail(f"a range from {start} to {stop} by {step}")
    numbers: Tensor = np.arange(start, stop, step).astype(node.input(0).dtype)
    return (node.constant(numbers),)


_MAX_FOLDED_ELEMENTS = 1 << 24
"""The most elements that operands, and results, of a folded operator may have."""


def _fold(node: FileNode) -> tuple[str, ...]:
    """Read an operator on constants by the reference evaluator of onnx; SpecError if an input is not constant."""
    onnx = require_onnx()
    from onnx.reference import ReferenceEvaluator

    names = [f"x{k}" if node.has(k) else "" for k in range(len(node.inputs))]
    constants = {name: cast(node.value(k, "an input"), node.input(k).dtype) for k, name in enumerate(names) if name}
    if (
        sum(value.size for value in constants.values()) > _MAX_FOLDED_ELEMENTS
        or _count_results(node) > _MAX_FOLDED_ELEMENTS
    ):
        raise node.fail(f"has more than {_MAX_FOLDED_ELEMENTS:,} elements")
    outputs = [f"y{k}" if name else "" for k, name in enumerate(node.outputs)]
    folded = onnx.helper.make_node(node.op, names, outputs, **node.attributes)
    wanted = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs if name]
    inputs = [
        onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in constants.items()
    ]
    graph = onnx.helper.make_graph([folded], "constants", inputs, wanted)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", max(node.version, 13))])
    results = iter(ReferenceEvaluator(model).run(None, constants))
    return tuple(node.constant(np.asarray(next(results))) if name else "" for name in outputs)


def _count_results(node: FileNode) -> float:
    """Return the number of elements of the results, where inputs of few elements may make many; else 0."""
    return math.prod(node.shape()) * float(abs(node.value(1, "depth").reshape(-1)[0])) if node.op == "OneHot" else 0.0


FOLDED_READERS: dict[str, Reader] = dict.fromkeys(
    (
        *("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Compress", "Cos", "CumSum", "EyeLike"),
        *("IsInf", "IsNaN", "Mod", "NonZero", "OneHot", "ReduceProd", "Sin", "Trilu", "Unique", "Xor"),
    ),
    _fold,
)


READERS: dict[str, Reader] = {
    **INDEXED_READERS,
    "Concat": _read_concat,
    "DepthToSpace": _depth_to_space_reader("depth_to_space"),
    "Expand": _read_expand,
    "Flatten": _read_flatten,
    "Gather": _read_gather,
    "Pad": _read_pad,
    "Reshape": _read_reshape,
    "Slice": _read_slice,
    "SpaceToDepth": _depth_to_space_reader("space_to_depth"),
    "Split": _read_split,
    "Squeeze": _read_squeeze,
    "Tile": _read_tile,
    "Transpose": _read_transpose,
    "Unsqueeze": _read_unsqueeze,
    **FOLDED_READERS,
    "Constant": _read_constant,
    "ConstantOfShape": _read_constant_of_shape,
    "Range": _read_range,
    "Shape": _read_shape,
    "Size": _read_size,
}
