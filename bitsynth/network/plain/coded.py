"""Constant factors of products that are stored as codes, with their scales, and expanded where they are used.

A factor is cut into tiles (depth, width). C expands a tile into scratch memory right before the products that read it,
so that neither the library nor the arena holds the factor's numbers.

Given:  weights (64, 32) of 4 bits; each 32 numbers of a column have a scale
Result: k0: 32 rows of 32 bytes, each with codes 2 * i0 and 2 * i0 + 1 of a column; k1: 2 rows of 32 scales
        s0[i0 * 64 + i1 * 32 + i2] = (float)((k0[i0 * 32 + i2] >> i1 * 4 & 15) - 8) * k1[i0 / 16 * 32 + i2]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bitsynth.graph.types import Edge, Integers, Tensor, numpy_type
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.loops import AxisStep
from bitsynth.network.plain.terms import LoopTerm
from bitsynth.network.plain.writer import REAL, WHOLE, Writer

MIN_ELEMENTS = 1024
"""Factors of fewer elements are stored as numbers: the C that expands codes takes more than they save."""
_BYTE = 8
_ZERO_LIMITS = (-(1 << 15), (1 << 15) - 1)


@dataclass(frozen=True)
class _Parameter:
    """Scales or zero points of tiles.

    Args:
        name: The constant in C; "" if there is one number for all.
        one: That number.
        dtype: The type in which they are used.
        steps: The strides in a tile along (bytes of depth, codes of a byte, width).
        tile: Elements of a tile; 0 if all tiles have the same.
    """

    name: str
    one: Tensor
    dtype: np.dtype[np.generic]
    steps: tuple[AxisStep, ...] = ()
    tile: int = 0

    @classmethod
    def add(cls, body: NodeBody, numbers: Tensor, block: int, parts: int, dtype: np.dtype[np.generic]) -> _Parameter:
        """Add the numbers (tiles, depth, width) to the constants: one a column for each `block` of the depth."""
        first = numbers.reshape(-1)[0]
        if (numbers == first).all():
            return cls("", np.asarray(first), dtype)
        held = numbers[:, ::block]
        held = held[:, :, :1] if (held == held[:, :, :1]).all() else held
        held = held[:1] if (held == held[:1]).all() else held
        blocks, width = held.shape[1:]
        if blocks == 1:
            deep: tuple[AxisStep, AxisStep] = (0, 0)
        elif block % parts:  # a block is a row
            deep = (width * parts, width)
        else:
            deep = (f"{{i}} / {block // parts} * {width}" if block > parts else width, 0)
        tile = blocks * width if len(held) > 1 else 0
        return cls(body.constants.add(held), np.asarray(first), dtype, (*deep, 1 if width > 1 else 0), tile)

    def term(self, writer: Writer, tile: str) -> LoopTerm:
        """Return the number for an element of a tile, a C expression."""
        if not self.name:
            return writer.constant(self.one.astype(self.dtype))
        start = f"({self.name} + {tile} * {self.tile})" if self.tile else self.name
        at = writer.loops.at(start, self.steps)
        if self.dtype == WHOLE:
            return LoopTerm(writer, WHOLE, writer.loops.value("int32_t", at), _ZERO_LIMITS)
        kind = "double" if self.dtype == REAL else "float"
        return LoopTerm(writer, self.dtype, writer.loops.value(kind, at))


@dataclass(frozen=True)
class CodedTiles:
    """Tiles of one or several matrices as codes.

    Args:
        body: Where they are read.
        codes: The constant with the codes: bytes (tiles, depth / codes of a byte, width).
        bits: Bits of a code: 1, 2, 4 or 8.
        tiles: Tiles of a matrix.
        depth: Rows of a tile, including rows that fill the last byte.
        width: Columns of a tile.
        scale: The scales of numbers; None of integers.
        zero: The codes that stand for 0.
        expanded: The scratch memory that gets a tile's numbers.
        first: The C expression of the first tile of the matrix.
    """

    body: NodeBody
    codes: str
    bits: int
    tiles: int
    depth: int
    width: int
    scale: _Parameter | None
    zero: _Parameter
    expanded: ScratchArray
    first: str = ""

    def of_matrix(self, index: str, size: int) -> CodedTiles:
        """Return the tiles of one of several matrices, whose number is a C expression."""
        del size  # which arrays of numbers need
        return self if index == "0" else replace(self, first=f"({index}) * {self.tiles} + ")

    def expand(self, tile: str) -> str:
        """Return C that expands a tile of the matrix, a C expression, into `expanded`."""
        parts = _BYTE // self.bits
        writer = self.body.writer((self.depth // parts, parts, self.width))
        tile = f"({self.first}{tile})"
        byte = writer.loops.at(f"({self.codes} + {tile} * {self.depth // parts * self.width})", (self.width, 0, 1))
        if self.bits < _BYTE:
            byte = f"{byte} >> ({writer.loops.place((0, self.bits, 0))}) & {(1 << self.bits) - 1}"
        code = LoopTerm(writer, WHOLE, writer.loops.value("int32_t", byte), (0, (1 << self.bits) - 1))
        number = code - self.zero.term(writer, tile) if self.zero.name or self.zero.one else code
        if self.scale:
            number = writer.cast(number, self.scale.dtype) * self.scale.term(writer, tile)
        self.expanded.keep(writer, number, (parts * self.width, self.width, 1))
        return writer.loops.render()


def code_tiles(body: NodeBody, edge: Edge, width: int, arrange: Callable[[Tensor], Tensor]) -> CodedTiles | None:
    """Add a constant to the constants as codes; return None if it has no codes of at most 8 bits, or few elements.

    Args:
        body: Where the constant is read.
        edge: The constant.
        width: Columns of a tile.
        arrange: Returns an array of the edge's shape as tiles (matrix, tile, depth, width).
    """
    kind, integers = edge.type, body.graph.constants[edge.name]
    if not isinstance(kind, Integers) or not kind.is_centred or integers.size < MIN_ELEMENTS:
        return None
    least = int(integers.min())
    span = (int(integers.max()) - least).bit_length()
    if span > _BYTE:
        return None
    values = arrange(integers - least)
    tiles, depth = values.shape[1], values.shape[2]
    dtype = _scaled_type(body, edge)
    zero, scale = (arrange(np.broadcast_to(x, edge.shape)).reshape(-1, depth, width) for x in (kind.zero, kind.scale))
    scale = scale.astype(dtype or np.float64)
    with np.errstate(over="ignore"):
        scale = scale.astype(np.float32) if (scale.astype(np.float32) == scale).all() else scale
    zero = zero - least
    zero_type = next((t for t in ("uint8", "int8", "int16") if (zero == zero.astype(np.int64).astype(t)).all()), None)
    if zero_type is None:
        return None
    blocks = [_find_block(x) for x in (zero, scale)]
    parts = _BYTE // next(bits for bits in (1, 2, 4, 8) if span <= bits)
    if any(1 < block < depth and block % parts for block in blocks):
        parts = 1
    full = -(-depth // parts) * parts
    blocks = [full if block == depth else block for block in blocks]
    fill = (0, 0), (0, full - depth), (0, 0)
    scale, zero = np.pad(scale, fill, "edge"), np.pad(zero, fill, "edge")
    codes = np.pad(values.reshape(-1, depth, width), fill).astype(np.uint8)
    number = _number_type(body, edge)
    return CodedTiles(
        body,
        body.constants.add(_pack(codes, parts)),
        _BYTE // parts,
        tiles,
        full,
        width,
        _Parameter.add(body, scale, blocks[1], parts, dtype) if dtype is not None else None,
        _Parameter.add(body, zero.astype(zero_type), blocks[0], parts, WHOLE),
        body.array(number, full * width),
    )


def _pack(codes: Tensor, parts: int) -> Tensor:
    """Return codes (tiles, depth, width) as bytes (tiles, depth / parts, width), `parts` codes of a column each."""
    packed = np.zeros((len(codes), codes.shape[1] // parts, codes.shape[2]), np.uint8)
    for part in range(parts):
        packed |= codes[:, part::parts] << np.uint8(part * (_BYTE // parts))
    return packed


def _find_block(numbers: Tensor) -> int:
    """Return the greatest size of blocks of the depth of (tiles, depth, width) in which no column changes."""
    changes = np.flatnonzero((numbers[:, 1:] != numbers[:, :-1]).any((0, 2))) + 1
    return math.gcd(*map(int, changes)) if len(changes) else numbers.shape[1]


def _scaled_type(body: NodeBody, edge: Edge) -> np.dtype[np.generic] | None:
    """Return the type in which integers of a factor are scaled; None if they are used as they are."""
    if body.gives_integers or (body.graph.reference != "exact" and not edge.is_float):
        return None
    return REAL if body.graph.reference == "exact" else numpy_type(edge.dtype)


def _number_type(body: NodeBody, edge: Edge) -> str:
    """Return the type of a factor's numbers in scratch memory: float32 if it holds them exactly."""
    if body.gives_integers:
        return "int32"
    numbers = constant_factor(body, edge)
    with np.errstate(over="ignore"):
        return "float32" if (numbers.astype(np.float32) == numbers).all() else "float64"


def constant_factor(body: NodeBody, edge: Edge) -> Tensor:
    """Return a constant factor's numbers, or its integers less zero points, in the shape of the edge."""
    value, kind = body.graph.constants[edge.name], edge.type
    if not isinstance(kind, Integers):
        return value.astype(np.float64)
    centred = value - kind.zero
    if body.gives_integers:
        return np.asarray(np.broadcast_to(centred, edge.shape), np.int32)
    if body.graph.reference == "exact":
        return np.asarray(centred * kind.scale)
    if not edge.is_float:
        return np.asarray(centred, np.float64)
    dtype = numpy_type(edge.dtype)
    return np.asarray(centred.astype(dtype) * kind.scale.astype(dtype), np.float64)
