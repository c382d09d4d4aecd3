"""Elements of buffers as terms of a loop, and terms stored to buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Edge, Integers, Shape, limits, numpy_type
from bitsynth.network.plain.loops import AxisStep, align_steps
from bitsynth.network.plain.terms import LoopTerm
from bitsynth.network.plain.writer import REAL, WHOLE, Writer
from bitsynth.network.program import Buffer, Format, c_type

_VALUES = {"float16": "bs_half_value", "bfloat16": "bs_bfloat_value"}
_BITS = {"float16": "bs_half_bits", "bfloat16": "bs_bfloat_bits"}


@dataclass(frozen=True)
class BufferAccess:
    """A buffer as a parameter of a step: its name in C, its edge and its format."""

    name: str
    edge: Edge
    format: Format

    @classmethod
    def of(cls, name: str, buffer: Buffer) -> BufferAccess:
        """Return the access to a buffer that a step calls `name`."""
        return cls(name, buffer.edge, buffer.format)

    def steps(self, shape: Shape) -> tuple[int, ...]:
        """Return the strides of its elements in loops over a shape to which the edge broadcasts."""
        own = self.edge.shape
        return align_steps(self.format.strides(own), own, shape)

    def load(self, writer: Writer, steps: Sequence[AxisStep] | None = None, offset: int = 0) -> LoopTerm:
        """Return the element at a place of the loop: an integer, or a number in the buffer's type."""
        at = writer.loops.at(self.name, steps or self.steps(writer.loops.shape), offset)
        kind = self.edge.type
        if not self.holds_integers:
            return self._load_number(writer, at)
        bounds = (kind.least, kind.most) if isinstance(kind, Integers) else limits(self.format.dtype)
        if self.format.operand is None:
            term = writer.loops.value(_width(bounds), f"({_width(bounds)}){at}")
            return LoopTerm(writer, WHOLE, term, bounds)
        operand = self.format.operand
        code = LoopTerm(writer, WHOLE, writer.loops.value("int32_t", f"(int32_t){at}"), (0, 255))
        scaled = code if operand.scale == 1 else code * operand.scale
        return (scaled if not operand.offset else scaled + operand.offset).within(*bounds)

    @property
    def holds_integers(self) -> bool:
        """Whether elements are integers or codes."""
        return self.format.operand is not None or "float" not in self.format.dtype

    def _load_number(self, writer: Writer, at: str) -> LoopTerm:
        dtype = self.format.dtype
        held = f"{_VALUES[dtype]}({at})" if dtype in _VALUES else at
        return LoopTerm(
            writer, numpy_type(dtype), writer.loops.value("double" if dtype == "float64" else "float", held)
        )

    def store(self, writer: Writer, term: LoopTerm, steps: Sequence[AxisStep] | None = None, offset: int = 0) -> None:
        """Store a number, or an integer, in this buffer."""
        at = writer.loops.at(self.name, steps or self.steps(writer.loops.shape), offset)
        writer.loops.do(f"{at} = ({c_type(self.format.dtype)})({self.code(writer, term)});")

    def code(self, writer: Writer, term: LoopTerm) -> str:
        """Return C for a number, or an integer, as this buffer holds it."""
        operand, dtype = self.format.operand, self.format.dtype
        if operand is not None:
            whole = writer.cast(term, WHOLE)
            off = whole - operand.offset if operand.offset else whole
            code = writer.hold(off).code
            return f"(uint32_t)({code}) >> 1" if operand.scale == 2 else code
        if self.holds_integers:
            return writer.hold(writer.cast(term, WHOLE)).code
        cast = writer.hold(writer.cast(term, REAL if dtype == "float64" else numpy_type(dtype))).code
        return f"{_BITS[dtype]}({cast})" if dtype in _BITS else cast


def _width(bounds: tuple[int, int]) -> str:
    held = np.iinfo(np.int32).min <= bounds[0] and bounds[1] <= np.iinfo(np.int32).max
    return "int32_t" if held else "int64_t"
