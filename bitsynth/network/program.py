"""A network as steps on buffers, in order: the interface between lowering and the C writer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Edge, Integers, Shape, Tensor, numpy_type
from bitsynth.layers.glue.base import Glue
from bitsynth.layers.packed import PackedLayer
from bitsynth.layers.packed_codes import pack_words, packed_words, unpack_words
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand

if TYPE_CHECKING:
    from bitsynth.network.declines import Alternative
    from bitsynth.network.formulas.affine_formula import AffineFormula
    from bitsynth.network.formulas.curves import Curve
    from bitsynth.network.formulas.step_functions import StepFunction

_C_TYPES = {"float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t", "bool": "uint8_t"}
_BYTES = MatmulOperand(8, Encoding.UNSIGNED)
"""Codes that are the integers that they stand for, of all values of a byte."""


@dataclass(frozen=True)
class Format:
    """The type and layout of an edge's elements in memory.

    Args:
        dtype: The numpy type of an element.
        operand: The encoding whose codes elements are, if they are codes; else they are the edge's integers or numbers.
        layout: The order of elements: plain, NHWC or packed.
    """

    dtype: str
    operand: MatmulOperand | None = None
    layout: Layout = Layout.PLAIN

    @classmethod
    def codes(cls, operand: MatmulOperand, layout: Layout = Layout.NHWC) -> Format:
        """Return the format of codes of an operand: a byte each, or in words."""
        return cls("uint64" if layout == Layout.PACKED else "uint8", operand, layout)

    @property
    def bits(self) -> int:
        """Bits of an element in memory: of a code if codes are packed."""
        if self.layout == Layout.PACKED and self.operand:
            return self.operand.bits
        return 8 * numpy_type(self.dtype).itemsize

    def elements(self, shape: Shape) -> Shape:
        """Return the axes of an edge of this shape in the order of memory."""
        if self.layout == Layout.PLAIN or len(shape) < 2:
            return shape
        batch, channels, *image = shape
        last = packed_words(self.operand.bits, channels) if self.layout == Layout.PACKED and self.operand else channels
        return (batch, *image, last)

    def bytes(self, shape: Shape) -> int:
        """Return the bytes of an edge of this shape."""
        return math.prod(self.elements(shape)) * np.dtype(self.dtype).itemsize

    def lies_in_order(self, shape: Shape) -> bool:
        """Return whether elements of an edge of this shape lie in the order of its axes, each by itself."""
        if self.layout == Layout.PACKED:
            return False
        return self.layout == Layout.PLAIN or len(shape) < 3 or 1 in (shape[1], math.prod(shape[2:]))

    def has_elements_of(self, other: Format) -> bool:
        """Return whether an element has the same bytes in another format: 8-bit unsigned codes are integers as well."""
        operands = {self.operand, other.operand}
        return self.dtype == other.dtype and (len(operands) == 1 or operands == {None, _BYTES})

    def strides(self, shape: Shape) -> Shape:
        """Return the stride in elements along each axis of the edge; packed words have none."""
        lies = self.elements(shape)
        steps = [math.prod(lies[k + 1 :]) for k in range(len(lies))]
        if self.layout == Layout.NHWC and len(shape) > 1:
            steps = [steps[0], steps[-1], *steps[1:-1]]
        return tuple(steps)

    def read(self, memory: NDArray[Any], shape: Shape) -> Tensor:
        """Return the integers or numbers (`shape`) in the flat `memory`."""
        image = memory.reshape(self.elements(shape))
        if self.layout == Layout.PACKED and self.operand:
            image = unpack_words(_image(image), self.operand.bits, shape[1]).reshape(*image.shape[:-1], shape[1])
        if self.layout != Layout.PLAIN:
            image = np.moveaxis(image, -1, 1)
        if self.operand is None:
            return image
        values: Tensor = image.astype(np.int64) * self.operand.scale + self.operand.offset
        return values

    def write(self, values: Tensor) -> NDArray[Any]:
        """Return integers or numbers as flat memory of this format."""
        image = values if self.operand is None else self.operand.encode(values, "values")
        if self.layout != Layout.PLAIN:
            image = np.moveaxis(image, 1, -1)
        if self.layout == Layout.PACKED and self.operand:
            image = pack_words(_image(image.astype(np.uint8)), self.operand.bits)
        return np.ascontiguousarray(image, np.dtype(self.dtype)).reshape(-1)


def _image(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of any number of axes with four axes; the last stays."""
    return np.ascontiguousarray(array).reshape(1, 1, -1, array.shape[-1])


@dataclass(frozen=True)
class Buffer:
    """The memory of one edge of the graph.

    Args:
        name: Unique.
        edge: The edge whose elements it has.
        format: How they lie.
        role: "arena", or "input" or "output" for what the caller gives.
        alias: The buffer whose memory this is too, as moves that leave everything in its place have it; else empty.
    """

    name: str
    edge: Edge
    format: Format
    role: str = "arena"
    alias: str = ""

    @property
    def bytes(self) -> int:
        """Its bytes in memory."""
        return self.format.bytes(self.edge.shape)

    def read(self, memory: NDArray[Any]) -> Tensor:
        """Return the edge's integers or numbers from its memory."""
        return self.format.read(memory, self.edge.shape)


@dataclass(frozen=True)
class Matrices:
    """Where the factors of products of matrices lie in the memory of two edges, in elements.

    Args:
        outer: The axes of separate products, () for one.
        rows: The stride along each outer axis of the first factor, from row to row, and along K.
        columns: The same of the second factor, from column to column.
        results: The same of results, from row to row; () if these lie matrix by matrix, row by row.
    """

    outer: Shape
    rows: Shape
    columns: Shape
    results: Shape = ()

    @property
    def count(self) -> int:
        """The number of products."""
        return math.prod(self.outer)

    def all_starts(self) -> tuple[Tensor, ...]:
        """Return the place of the first element of both factors in each product: two arrays (count,), uint32.

        A third array has the place of the first result, unless results lie in order. SpecError if a place exceeds
        uint32.
        """
        sides = self.rows[:-2], self.columns[:-2], *((self.results[:-1],) if self.results else ())
        return tuple(map(self._starts, sides))

    def _starts(self, strides: Shape) -> Tensor:
        places: Tensor = np.zeros(self.outer, np.int64)
        for axis, stride in enumerate(strides):
            shape = [-1 if k == axis else 1 for k in range(len(self.outer))]
            places = places + stride * np.arange(self.outer[axis]).reshape(shape)
        if places.max(initial=0) > np.iinfo(np.uint32).max:
            raise SpecError(f"a matrix begins behind {np.iinfo(np.uint32).max:,} elements")
        return places.reshape(-1).astype(np.uint32)


@dataclass(frozen=True, eq=False)
class LayerStep:
    """A layer: a convolution or matrix product with its epilogue.

    `inputs` are activations, the weights if these are an edge, and, if the epilogue has one, the residual; `outputs`
    the results and, if it is kept, the sum. `image` is (batch, height, width) of the activations as the layer takes
    them. `matrices` says where both factors lie if weights are an edge; then `image` is (products, 1, rows).
    """

    kind: ClassVar[str] = "layer"
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer: PackedLayer
    image: tuple[int, int, int]
    matrices: Matrices | None = None


@dataclass(frozen=True, eq=False)
class GlueStep:
    """A layer of glue on inputs of (batch, height, width) pixels."""

    kind: ClassVar[str] = "glue"
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    glue: Glue
    image: tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class PlainStep:
    """Plain C: the body of a function.

    It sees `in0`, `in1` ... and `out0` ..., restrict pointers to the buffers' elements, `k0` ..., pointers to
    `constants`, and `scratch`, a `void *` to `scratch_bytes` bytes aligned to 64. `headers` of the runtime are included
    before. It may return a status of `bs_layer.h`, such as BS_CODES, which ends the run; at its end it need not
    return.

    `formula` is the function of float32 numbers, or of accumulators, that it computes. `reason` says why no layer, glue
    or formula computes its nodes; it is empty for a step with a formula and for a conversion.
    """

    kind: ClassVar[str] = "plain"
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str
    constants: tuple[NDArray[Any], ...] = ()
    scratch_bytes: int = 0
    headers: tuple[str, ...] = ()
    formula: StepFunction | AffineFormula | Curve | None = None
    reason: str = ""


NetworkStep = LayerStep | GlueStep | PlainStep


@dataclass(frozen=True, eq=False)
class NetworkProgram:
    """A lowered network: every step after those whose buffers it reads.

    `nodes` of a step are the graph's nodes that it computes, by name, the last one's edge its result; each node of the
    graph belongs to exactly one step, except nodes that became aliases.

    Args:
        graph: The graph that it computes.
        isa: The instruction set it is made for.
        threads: Threads it is scheduled for.
        steps: In order.
        buffers: Every buffer by name.
        inputs: Buffers that the caller gives, one for each input of the graph.
        outputs: Buffers that the caller gets, in the file's order.
        cpu: The processor of the set that its layers were chosen for; "" if that is not known.
        alternatives: The fusion patterns that lost by their cost, by the first node of the group that was chosen.
    """

    graph: Graph
    isa: str
    threads: int
    steps: tuple[NetworkStep, ...]
    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    cpu: str = ""
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)

    @cached_property
    def _places(self) -> dict[str, int]:
        """The place of each node of the graph, by name."""
        return {node.name: place for place, node in enumerate(self.graph.nodes)}

    def nodes_of(self, step: NetworkStep) -> list[Node]:
        """Return the nodes of the graph that a step computes, in an order in which they can run."""
        return [self.graph.nodes[place] for place in sorted(self._places[name] for name in step.nodes)]


def alias_root(buffers: Mapping[str, Buffer], name: str) -> str:
    """Return the name of the buffer whose memory a buffer shares."""
    while buffers[name].alias:
        name = buffers[name].alias
    return name


def reals_type(reference: str, edge: Edge) -> str:
    """Return the type of an edge's real numbers in C: float64 in exact arithmetic, else the file's."""
    return "float64" if reference == "exact" else edge.dtype


def integers_type(kind: Integers) -> str:
    """Return the narrowest signed or unsigned type of 8 to 64 bits that holds an edge's integers."""
    names = ("uint8", "int8", "int16", "int32", "int64")
    return next(n for n in names if np.iinfo(n).min <= kind.least and kind.most <= np.iinfo(n).max)


def plain_format(edge: Edge, reference: str, layout: Layout = Layout.PLAIN) -> Format:
    """Return the format of an edge's integers or numbers as they are, without an encoding."""
    kind = edge.type
    dtype = integers_type(kind) if isinstance(kind, Integers) else reals_type(reference, edge)
    return Format(dtype, None, layout)


def caller_format(edge: Edge) -> Format:
    """Return the format of an input or output of the network: numbers in the file's type and order."""
    return Format(edge.dtype)


def c_type(dtype: str) -> str:
    """Return the C type that holds an element: a byte for integers of fewer bits, the bits of 16-bit floats."""
    if dtype in _C_TYPES:
        return _C_TYPES[dtype]
    kind, _, bits = dtype.rpartition("int")
    return f"{kind}int{max(8, int(bits))}_t"
