"""The body of a step while it is written: loops one after another, constants, and scratch memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Edge, Integers, Shape, is_float, numpy_type
from bitsynth.network.plain.loops import AxisStep, ConstantArrays, Loops, dense_steps
from bitsynth.network.plain.maths import InC
from bitsynth.network.plain.memory import BufferAccess
from bitsynth.network.plain.terms import LoopTerm
from bitsynth.network.plain.writer import WHOLE, Writer
from bitsynth.network.program import c_type, integers_type, reals_type


@dataclass(frozen=True)
class ScratchArray:
    """An array in scratch memory: its name in C and its elements' type; float16 and bfloat16 are kept as float."""

    name: str
    dtype: str

    @property
    def held(self) -> str:
        """The type in memory."""
        return "float32" if self.dtype in ("float16", "bfloat16") else self.dtype

    @property
    def c_type(self) -> str:
        """The type in C."""
        return c_type(self.held)

    def from_place(self, code: str) -> ScratchArray:
        """Return the array from an offset on, a C expression."""
        return ScratchArray(f"({self.name} + {code})", self.dtype)

    def of_matrix(self, index: str, size: int) -> ScratchArray:
        """Return one of several matrices of `size` elements, whose number is a C expression."""
        return self.from_place(f"{index} * {size}" if index != "0" else "0")

    def at(self, writer: Writer, steps: Sequence[AxisStep], offset: int = 0) -> LoopTerm:
        """Return the number at a place of the loop."""
        at = writer.loops.at(self.name, steps, offset)
        dtype = WHOLE if "int" in self.dtype else numpy_type(self.dtype)
        bounds = (int(np.iinfo(self.dtype).min), int(np.iinfo(self.dtype).max)) if dtype == WHOLE else None
        return LoopTerm(writer, dtype, writer.loops.value(self.c_type, at), bounds)

    def keep(self, writer: Writer, term: LoopTerm, steps: Sequence[AxisStep], offset: int = 0) -> None:
        """Store a number at a place of the loop."""
        cast = writer.hold(writer.cast(term, WHOLE if "int" in self.dtype else numpy_type(self.dtype)))
        writer.loops.do(f"{writer.loops.at(self.name, steps, offset)} = ({self.c_type}){cast.code};")


@dataclass
class NodeBody:
    """C of one node and of the elementwise nodes that use its result.

    Args:
        graph: The network.
        nodes: The nodes that it computes, in order.
        memories: The buffers of the edges, by name.
    """

    graph: Graph
    nodes: tuple[Node, ...]
    memories: Mapping[str, BufferAccess]
    constants: ConstantArrays = field(default_factory=ConstantArrays)
    lines: list[str] = field(default_factory=list)
    scratch_bytes: int = 0

    @property
    def node(self) -> Node:
        """The first node, after which the others are computed element by element."""
        return self.nodes[0]

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The edges that the first node reads."""
        return self.graph.edges_of(self.node.inputs)

    @property
    def outs(self) -> tuple[Edge, ...]:
        """The edges that the first node computes."""
        return self.graph.edges_of(self.node.outputs)

    @property
    def gives_integers(self) -> bool:
        """Whether its first result carries integers."""
        return isinstance(self.outs[0].type, Integers)

    def array(self, dtype: str, count: int) -> ScratchArray:
        """Return a new array in scratch memory, aligned to 64 bytes, with room for a vector after it."""
        array = ScratchArray(f"s{self.scratch_bytes}", dtype)
        kind = array.c_type
        self.do(f"{kind} *const {array.name} = ({kind} *)((uint8_t *)scratch + {self.scratch_bytes});")
        self.scratch_bytes += (-(-count * np.dtype(array.held).itemsize // 64) + 8) * 64
        return array

    def writer(self, shape: Shape, order: Sequence[AxisStep] = (), *, paired: bool = False) -> Writer:
        """Return a writer of loops over a shape; `close` adds them to the body."""
        loops = Loops(shape, self.constants, order=order)
        exact, unbounded = self.graph.reference == "exact", self.graph.may_leave_float64
        return Writer(loops, exact=exact, paired=paired, unbounded=unbounded)

    def close(self, writer: Writer, until: str = "") -> None:
        """Add the loops; the outermost of several ends where C is true."""
        self.do(writer.loops.render(until))

    def do(self, code: str) -> None:
        """Add statements."""
        self.lines.append(code)

    def numbers_type(self, edge: Edge) -> str:
        """Return the type of an array of an edge's numbers, or of integers if the result carries them."""
        if self.gives_integers:
            return "int64" if integers_type(edge.integers) == "int64" else "int32"
        dtype = reals_type(self.graph.reference, edge)
        return dtype if is_float(dtype) else "float64"

    def number(self, term: LoopTerm, edge: Edge, *, centred: bool) -> LoopTerm:
        """Return an element as the result uses it: an integer, less its zero point if `centred`, or a number."""
        kind = edge.type
        if not (self.gives_integers and isinstance(kind, Integers)):
            number: LoopTerm = InC(term.writer, self.graph.reference).number(term, edge)
            return number
        return term - kind.zero.astype(np.int64) if centred and kind.zero.any() else term

    def element(self, edge: Edge, writer: Writer, begin: Shape | None = None) -> LoopTerm:
        """Return an element of an input at a place of the loop over its axes, or over parts of them from `begin` on."""
        begin = begin or (0,) * len(edge.shape)
        cut = tuple(slice(b, b + n) for b, n in zip(begin, writer.loops.shape, strict=True))
        if edge.name in self.graph.constants:
            return writer.constant(self.graph.constants[edge.name][cut])
        memory = self.memories[edge.name]
        steps = memory.format.strides(edge.shape)
        return memory.load(writer, steps, sum(b * s for b, s in zip(begin, steps, strict=True)))

    def stage(
        self,
        edge: Edge,
        to: ScratchArray,
        steps: Sequence[AxisStep],
        *,
        centred: bool,
        begin: Shape | None = None,
        shape: Shape | None = None,
    ) -> None:
        """Copy an input's numbers, or a part of them, to an array."""
        writer = self.writer(shape or edge.shape, steps)
        term = self.element(edge, writer, begin)
        to.keep(writer, self.number(term, self._part(edge, writer, begin), centred=centred), steps)
        self.close(writer)

    @staticmethod
    def _part(edge: Edge, writer: Writer, begin: Shape | None) -> Edge:
        """Return the edge with the grid of a part of it."""
        kind = edge.type
        if not begin or not isinstance(kind, Integers):
            return edge
        cut = tuple(slice(b, b + n) for b, n in zip(begin, writer.loops.shape, strict=True))
        scale, zero = (np.broadcast_to(p, edge.shape)[cut] if p.size > 1 else p for p in (kind.scale, kind.zero))
        return Edge(edge.name, writer.loops.shape, edge.dtype, Integers(kind.low, kind.high, scale, zero, kind.step))

    def line_up(self, edge: Edge, last: Sequence[int], *, centred: bool) -> ScratchArray:
        """Return an array of an input's numbers, with some axes moved last."""
        to = self.array(self.numbers_type(edge), int(np.prod(edge.shape)))
        order = [*(k for k in range(len(edge.shape)) if k not in last), *last]
        dense = dense_steps(tuple(edge.shape[k] for k in order))
        self.stage(edge, to, [dense[order.index(k)] for k in range(len(edge.shape))], centred=centred)
        return to
