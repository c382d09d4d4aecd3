"""A node of a file, and what every reader adds to the graph: casts, quantizers, comparisons with 0, transposes.

Converters write Transpose around nodes of channels-last images. Transposes that undo each other vanish: for
Transpose(Round(Transpose(x))), which tf2onnx writes, the graph has Round(x) alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Edge, Integers, Reals, Shape, Tensor, cast, is_float, limits
from bitsynth.printable import show

MAX_FOLDING_ERROR = 2.0**-21
"""The relative error of a number that an exporter folded in float32: a few roundings."""
_MAX_NODES_BEFORE = 8
"""How far back nodes are searched for a transpose that can be undone."""
_IMAGE_RANK = 4
"""Axes of (N, H, W, C)."""
_ELEMENTWISE_KINDS = ("elementwise", "step")
_ORDER_INDEPENDENT = ("concatenate", "pad", "reduce_max", "reduce_min", "reduce_sum")
"""Operators of other kinds that can work on axes in any order; their attributes are reordered."""


@dataclass(frozen=True)
class FileNode:
    """A node of the file that is being read, and the graph that its reader adds nodes to.

    Args:
        op: The operator's name.
        domain: The operator's domain.
        version: The version of the domain that the file declares.
        name: The node's name, or the name of its first output.
        attributes: Values by name; texts as str, tensors as arrays.
        inputs: The edges of the graph that it reads; None for inputs that are left out.
        outputs: Names in the file; empty for outputs that are left out.
        graph: The graph under construction.
    """

    op: str
    domain: str
    version: int
    name: str
    attributes: dict[str, Any]
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    graph: GraphBuilder

    def __str__(self) -> str:
        return show(f"{self.op} {self.name}")

    def fail(self, why: str) -> SpecError:
        """Return a SpecError that names this node; the caller raises it."""
        return SpecError(f"{self}: {why}")

    def get(self, name: str, otherwise: Any = None) -> Any:
        """Return an attribute, or `otherwise` if it is left out."""
        return self.attributes.get(name, otherwise)

    def has(self, index: int) -> bool:
        """Return whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def edge(self, index: int) -> str:
        """Return the name of an input's edge; SpecError if it is left out."""
        if not self.has(index):
            raise self.fail(f"input {index} is missing")
        name = self.inputs[index]
        assert name is not None
        return name

    def input(self, index: int) -> Edge:
        """Return an input's edge: its shape and types."""
        return self.graph.edges[self.edge(index)]

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an input."""
        return self.input(index).shape

    def value(self, index: int, what: str) -> Tensor:
        """Return an input that is computed from constants, in the floats of the file; SpecError for other inputs."""
        numbers = self.graph.in_floats(self.edge(index))
        if numbers is None:
            raise self.fail(f"{what} is computed at run time; it must be a constant of the file")
        return numbers

    def numbers(self, name: str, index: int) -> list[int] | None:
        """Return whole numbers, an attribute of older versions or an input of newer ones; None if they are left out."""
        if name in self.attributes:
            return [int(n) for n in np.atleast_1d(self.attributes[name])]
        if not self.has(index):
            return None
        return [int(n) for n in self.value(index, name).reshape(-1)]

    def axis(self, axis: int, rank: int | None = None) -> int:
        """Return an axis counted from the first; SpecError if there is no such axis."""
        rank = len(self.shape()) if rank is None else rank
        if not -rank <= axis < rank:
            raise self.fail(f"axis {axis} of {rank} axes")
        return axis % rank

    def axes(self, axes: list[int] | None) -> tuple[int, ...]:
        """Return axes counted from the first, sorted, each once; all axes if None are given."""
        rank = len(self.shape())
        return tuple(range(rank)) if axes is None else tuple(sorted({self.axis(k) for k in axes}))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of the graph; return its output."""
        return self.graph.add(op, *inputs, source=str(self), **attributes)

    def constant(self, value: Any) -> str:
        """Add a constant of the graph; return its edge."""
        return self.graph.constant(value)

    def constant_like(self, value: Any, index: int = 0) -> str:
        """Add a constant in the type of an input; return its edge."""
        return self.constant(cast(value, self.input(index).dtype))

    def definition_constant(self, value: float) -> str:
        """Add a constant of an operator's definition: float64 in exact arithmetic, else in the type of input 0.

        Constants of a file are exact as they are. sqrt(2) in GELU is not, and float32 would lose half of its digits.
        """
        return self.constant(np.float64(value)) if self.graph.reference == "exact" else self.constant_like(value)

    def reshape(self, edge: str, sizes: Shape) -> str:
        """Return the edge in another shape; the edge itself if it has the shape."""
        if self.graph.edges[edge].shape == tuple(sizes):
            return edge
        return self.add("reshape", edge, sizes=tuple(sizes))

    def integers(self, index: int) -> Integers:
        """Return the type of an input that must carry integers of an integer type; SpecError if it does not."""
        kind = self.input(index).type
        if not isinstance(kind, Integers) or self.input(index).is_float:
            raise self.fail(f"input {index} has type {self.input(index).dtype}; it needs integers")
        return kind


def require_positive(node: FileNode, scale: Tensor, what: str = "scale") -> Tensor:
    """Return scales; SpecError unless all are finite and above 0."""
    numbers = scale.astype(np.float64)
    if not numbers.size or not np.isfinite(numbers).all() or (numbers <= 0).any():
        bad = numbers.reshape(-1)[~(np.isfinite(numbers) & (numbers > 0)).reshape(-1)]
        raise node.fail(f"{what} is {bad[0] if bad.size else 'empty'}; it must be a number above 0")
    return scale


def align_parameter(node: FileNode, parameter: Tensor, what: str) -> Tensor:
    """Return a parameter with as many axes as the first input, or none; SpecError unless it broadcasts to it."""
    shape = node.shape()
    if parameter.size == 1:
        return parameter.reshape(())
    try:
        fits = np.broadcast_shapes(parameter.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise node.fail(f"{what} of shape {parameter.shape} does not broadcast to {shape}")
    return parameter.reshape((1,) * (len(shape) - parameter.ndim) + parameter.shape)


PLAIN_GRID = np.ones(()), np.zeros(())
"""The scale and zero point of integers that stand for themselves."""


@dataclass(frozen=True)
class Quantizer:
    """A quantizer: x / `scale`, rounded by one of `ROUNDINGS`, plus `zero`, clipped to `limits`.

    With `zero_first` the zero point is added before rounding.
    """

    rounding: str
    limits: tuple[int, int]
    scale: Any
    zero: Any
    zero_first: bool = False

    def add(
        self, node: FileNode, edge: str, *, real: str = "", grid: tuple[Any, Any] = PLAIN_GRID, dtype: str = ""
    ) -> str:
        """Add the quantizer of an edge; return the edge of its integers.

        Constants are quantized in the floats of the file, as exporters do it.

        Args:
            node: The node of the file that is read.
            edge: The edge that is quantized.
            real: The float type of the division; by default the type of the edge.
            grid: The scale and zero point of the result: the numbers that the integers stand for.
            dtype: The type of the result in the file: an integer type, or the float type of dequantized numbers; by
                default the type of the edge.
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


def quantize_to(
    node: FileNode, edge: str, scale: Tensor, zero: Tensor, dtype: str, *, real: str = "", zero_first: bool = False
) -> str:
    """Add a quantizer to codes of an integer type of the file; return their edge.

    The division is computed in `real`, or in the type of the scale.
    """
    quantizer = Quantizer("ROUND", limits(dtype), scale, zero.astype(np.int64), zero_first)
    return quantizer.add(node, edge, real=real or str(scale.dtype), grid=(1.0, 0.0), dtype=dtype)


BOOL = "bool"


def compare_with_zero(node: FileNode, edge: str, *, strict: bool) -> str:
    """Return the edge of bits: 1 where a number is above 0 (or 0, unless `strict`), else 0."""
    return Quantizer("CEIL" if strict else "FLOOR", (0, 1), 1.0, 0 if strict else 1).add(node, edge, dtype=BOOL)


Reader = Callable[[FileNode], tuple[str, ...]]
"""Adds the nodes of the graph for a node of the file; returns the edges of its outputs."""


def cast_to(node: FileNode, edge: str, dtype: str) -> str:
    """Return the edge in another type of the file.

    Floats become integers by rounding toward 0; a bool is 1 wherever the number is not 0.
    """
    source = node.graph.edges[edge].dtype
    if source == dtype:
        return edge
    if dtype == BOOL and not _is_zero_or_one(node.graph.edges[edge].type):
        return compare_with_zero(
            node, node.add("abs", cast_to(node, edge, source if is_float(source) else "float32")), strict=True
        )
    if is_float(source) and not is_float(dtype):
        whole = node.add("round", edge, rounding="DOWN")
        return node.add("cast", whole, dtype=dtype)
    return node.add("cast", edge, dtype=dtype)


def _is_zero_or_one(kind: Integers | Reals) -> bool:
    """Return whether numbers can only be 0 and 1."""
    return isinstance(kind, Integers) and kind.is_plain and kind.least >= 0 and kind.most <= 1


def with_channels_last(read: Reader, *more: int) -> Reader:
    """Return a reader like `read` for nodes whose first input, inputs `more` and outputs have channels last."""

    def read_transposed(node: FileNode) -> tuple[str, ...]:
        inputs = list(node.inputs)
        for k in (0, *more):
            inputs[k] = to_channels_first(node, node.edge(k))
        return tuple(to_channels_last(node, edge) for edge in read(replace(node, inputs=tuple(inputs))))

    return read_transposed


def with_layout_attribute(read: Reader) -> Reader:
    """Return a reader like `read` for nodes whose attribute `channels_last` says where channels are."""
    return lambda node: (with_channels_last(read) if node.get("channels_last") else read)(node)


def to_channels_first(node: FileNode, edge: str) -> str:
    """Return an edge (N, ..., C) as (N, C, ...)."""
    rank = len(node.graph.edges[edge].shape)
    return transpose(node, edge, (0, rank - 1, *range(1, rank - 1)))


def to_channels_last(node: FileNode, edge: str) -> str:
    """Return an edge (N, C, ...) as (N, ..., C)."""
    rank = len(node.graph.edges[edge].shape)
    return transpose(node, edge, (0, *range(2, rank), 1))


def transpose(node: FileNode, edge: str, order: tuple[int, ...]) -> str:
    """Return an edge with its axes in another order; without a new transpose if one can be undone."""
    if order == tuple(range(len(order))):
        return edge
    if (edge, order) in node.graph.transposed:
        return node.graph.transposed[edge, order]
    shape = node.graph.edges[edge].shape
    long_axes = [k for k in order if shape[k] != 1]
    if long_axes == sorted(long_axes):
        return _remember(node, edge, order, node.reshape(edge, tuple(shape[k] for k in order)))
    return _reorder(node, edge, order) or _remember(node, edge, order, node.add("transpose", edge, order=order))


def find_channels_first(node: FileNode, edge: str, axes: tuple[int, ...]) -> tuple[str, tuple[int, ...], bool]:
    """Return an image (N, H, W, C) as (N, C, H, W) if that needs no transpose, and where its axes `axes` are there.

    Else the edge and the axes are returned as they are. The last result says whether an edge was found.
    """
    rank = len(node.graph.edges[edge].shape)
    order = (0, rank - 1, *range(1, rank - 1))
    reordered = _reorder(node, edge, order) if rank == _IMAGE_RANK else None
    if reordered is None:
        return edge, axes, False
    return reordered, tuple(sorted(order.index(k) for k in axes)), True


def _remember(node: FileNode, edge: str, order: tuple[int, ...], reordered: str) -> str:
    """Remember that `reordered` is `edge` transposed, so that neither is transposed again; return `reordered`."""
    back = tuple(int(k) for k in np.argsort(order))
    node.graph.transposed |= {(edge, order): reordered, (reordered, back): edge}
    return reordered


def _reorder(node: FileNode, edge: str, order: tuple[int, ...], deep: int = _MAX_NODES_BEFORE) -> str | None:
    """Return an edge with its axes in another order, if that needs no new transpose; else None.

    The nodes that make it are looked at: an elementwise node of transposed edges is repeated on the edges before.
    """
    graph, maker = node.graph, node.graph.maker(edge)
    if maker is not None and maker.op == "transpose":
        axes = maker.attributes["order"]
        return maker.inputs[0] if [axes[k] for k in order] == list(range(len(order))) else None
    known = graph.transposed.get((edge, order))
    if known is not None and graph.maker(known, "transpose") is None:
        return known
    if maker is None or not deep:
        return None
    if maker.op not in _ORDER_INDEPENDENT and TABLE[maker.op].kind not in _ELEMENTWISE_KINDS:
        return None
    inputs = []
    for name in maker.inputs:
        alike = len(graph.edges[name].shape) == len(order)
        reordered = _transpose_constant(node, name, order) if name in graph.constants else None
        reordered = reordered or (_reorder(node, name, order, deep - 1) if alike else None)
        if reordered is None:
            return None
        inputs.append(reordered)
    attributes = {key: _reorder_attribute(key, value, order) for key, value in maker.attributes.items()}
    return _remember(node, edge, order, node.add(maker.op, *inputs, **attributes))


def _transpose_constant(node: FileNode, name: str, order: tuple[int, ...]) -> str:
    """Return the edge of a constant operand with its axes in another order."""
    shape = node.graph.edges[name].shape
    if node.graph.constants[name].size == 1:
        return name
    whole = node.reshape(name, (1,) * (len(order) - len(shape)) + shape)
    return node.add("transpose", whole, order=order)


def _reorder_attribute(key: str, value: Any, order: tuple[int, ...]) -> Any:
    """Return an attribute of a node whose axes are in another order; rows of thresholds stay as they are."""
    if key == "pads":
        return tuple(value[k] for k in order)
    if key == "axes":
        return tuple(sorted(order.index(k) for k in value))
    if isinstance(value, tuple):
        return tuple(_reorder_attribute(key, part, order) for part in value)
    if key == "axis":
        return order.index(value)
    if key == "thresholds" or not isinstance(value, np.ndarray) or value.size == 1:
        return value
    whole: Tensor = value.reshape((1,) * (len(order) - value.ndim) + value.shape)
    return whole.transpose(order)
