"""Sums of products: integers in 32 bits, real numbers in float64, each sum in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bitsynth.graph.types import Edge, Tensor
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.coded import CodedTiles, code_tiles, constant_factor
from bitsynth.network.plain.elements import deliver, result_writer
from bitsynth.network.plain.loops import AxisStep
from bitsynth.network.plain.maths import within

LANES = 64
"""The most elements that are computed at once, and so behind the last."""
TILE_COLUMNS = 32
"""The most columns of codes that are expanded at once."""
MIN_ROW_PIXELS = 8
"""Pixels of a row of sums that are fewer than these had better be rows."""


def sums_type(body: NodeBody) -> str:
    """Return the type of sums."""
    return "int32" if body.gives_integers else "float64"


@dataclass(frozen=True)
class CodedRows:
    """FactorRows of weights stored as codes: tiles of 4 rows, then of 1 row, by the number of rows."""

    blocks: Mapping[int, CodedTiles]

    def of_matrix(self, index: str, size: int) -> CodedRows:
        """Return the rows of one of several matrices, whose number is a C expression."""
        return CodedRows({rows: tiles.of_matrix(index, size) for rows, tiles in self.blocks.items()})


FactorRows = ScratchArray | CodedRows
"""FactorRows of weights, as `block_rows` has them."""
FactorPlanes = ScratchArray | CodedTiles
"""FactorPlanes, or tiles of the columns of one matrix."""


@dataclass(frozen=True)
class ProductSums:
    """The arguments of a call of `BS_PRODUCT`: rows of weights, planes, and the places of sums.

    Args:
        body: Where it is done.
        rows: FactorRows of weights.
        channels: FactorPlanes.
        plane: Elements from one to the next.
        taps: Where the elements lie that a sum has of each.
        pixels: Sums of a row.
    """

    body: NodeBody
    rows: int
    channels: int
    plane: int
    taps: Sequence[int]
    pixels: int

    @property
    def depth(self) -> int:
        """The products of a sum."""
        return self.channels * len(self.taps)

    @property
    def apart(self) -> int:
        """The elements from a row of sums to the next."""
        return -(-self.pixels // LANES) * LANES

    def array(self, count: int) -> ScratchArray:
        """Return an array for the sums of `count` calls."""
        return self.body.array(sums_type(self.body), count * self.rows * self.apart)

    def code(self, weights: FactorRows, planes: FactorPlanes, sums: ScratchArray) -> str:
        """Return C that computes the sums; the arrays' names are pointers to their first elements."""
        if not isinstance(planes, CodedTiles):
            return self._rows(weights, planes, sums, self.plane, str(self.pixels))
        width = planes.width
        tile_sums = sums.from_place(f"tile * {width}")
        count = f"{self.pixels} - tile * {width} < {width} ? {self.pixels} - tile * {width} : {width}"
        return (
            f"for (size_t tile = 0; tile < {planes.tiles}; ++tile) {{\n{planes.expand('tile')}\n"
            f"{self._rows(weights, planes.expanded, tile_sums, width, count)}\n}}"
        )

    def _rows(self, weights: FactorRows, planes: ScratchArray, sums: ScratchArray, plane: int, pixels: str) -> str:
        """Return C that computes the sums of `pixels` columns of planes, a C expression, for each row of weights."""
        cast = "(uint32_t *)" if self.body.gives_integers else ""
        taps = self.body.constants.add(np.asarray(self.taps, np.uint32))
        const = cast.replace("(", "(const ")
        lines = []
        for block, first, count in blocks(self.rows):
            if isinstance(weights, CodedRows):
                tiles = weights.blocks[block]
                expansion, rows = tiles.expand(f"(r - {first}) / {block}") + "\n", tiles.expanded
            else:
                expansion, rows = "", weights.from_place(f"r * {self.depth}")
            name = "_".join(x.dtype if "int" in x.dtype else x.c_type for x in (rows, planes))
            call = (
                f"bs_products{block}_{name}({const}{rows.name}, {const}({planes.name}), "
                f"{self.channels}, {plane}, {taps}, {len(self.taps)}, {pixels}, "
                f"{cast}({sums.name} + r * {self.apart}), {self.apart});"
            )
            loop = f"for (size_t r = {first}; r < {first + count}; r += {block})"
            lines.append(f"{loop} {{\n{expansion}{call}\n}}" if expansion else f"{loop}\n{call}")
        return "\n".join(lines)


def constant_array(body: NodeBody, numbers: Tensor) -> ScratchArray:
    """Add numbers to the constants, in float32 if it holds them exactly, with room for a vector after them."""
    flat = np.append(numbers.reshape(-1), np.zeros(LANES, numbers.dtype))
    if flat.dtype == np.float64:
        with np.errstate(over="ignore"):
            small = flat.astype(np.float32)
        flat = small if (small == flat).all() else flat
    return ScratchArray(body.constants.add(flat), str(flat.dtype))


def blocks(rows: int) -> list[tuple[int, int, int]]:
    """Return rows in blocks of 4, then 1 by 1: rows of a block, first row, number of blocks."""
    fours = rows // 4 * 4
    return [part for part in ((4, 0, fours), (1, fours, rows - fours)) if part[2]]


def block_rows(weights: Tensor) -> Tensor:
    """Return weights (..., rows, depth) as blocks of rows, depth before rows."""
    outer, depth = weights.shape[:-2], weights.shape[-1]
    parts = [
        weights[..., first : first + count, :].reshape(*outer, count // block, block, depth).swapaxes(-1, -2)
        for block, first, count in blocks(weights.shape[-2])
    ]
    return np.concatenate([part.reshape(*outer, -1) for part in parts], -1)


def stage_blocked(
    body: NodeBody, edge: Edge, to: ScratchArray, row: int | None, steps: Sequence[int], depth: Sequence[int]
) -> None:
    """Write loops that copy rows into blocks as `block_rows` has them: axis `row`, axes `depth` and outer ones."""
    size = math.prod(edge.shape[k] for k in depth)
    for block, first, count in blocks(1 if row is None else edge.shape[row]):
        own: list[AxisStep] = [step * block if k in depth else step for k, step in enumerate(steps)]
        begin, shape = [0] * len(steps), list(edge.shape)
        if row is not None:
            own[row] = size if block == 1 else f"{{i}} / {block} * {size * block} + {{i}} % {block}"
            begin[row], shape[row] = first, count
        moved = ScratchArray(f"({to.name} + {first * size})", to.dtype)
        body.staged(edge, moved, own, centred=True, begin=tuple(begin), shape=tuple(shape))


def constant_rows(body: NodeBody, edge: Edge, arrange: Callable[[Tensor], Tensor]) -> FactorRows:
    """Add a constant factor to the constants, as rows of weights.

    Args:
        body: Where the products are computed.
        edge: The factor.
        arrange: Returns an array of the edge's shape as matrices (..., rows, depth).
    """
    tiles = {}
    for block, first, count in blocks(arrange(np.empty(edge.shape, bool)).shape[-2]):
        part = partial(_row_tiles, arrange, block, first, count)
        tiles[block] = code_tiles(body, edge, block, part)
    coded = {block: own for block, own in tiles.items() if own}
    if len(coded) == len(tiles):
        return CodedRows(coded)
    return constant_array(body, block_rows(arrange(constant_factor(body, edge))))


def _row_tiles(arrange: Callable[[Tensor], Tensor], block: int, first: int, count: int, array: Tensor) -> Tensor:
    """Return rows of matrices (..., rows, depth) as tiles (matrix, tile, depth, block): `count` from row `first` on."""
    matrices = arrange(array)
    rows, depth = matrices[..., first : first + count, :], matrices.shape[-1]
    return rows.reshape(-1, count // block, block, depth).swapaxes(-1, -2)


def constant_columns(body: NodeBody, edge: Edge, arrange: Callable[[Tensor], Tensor]) -> FactorPlanes:
    """Add a constant factor to the constants, as planes that are matrices (..., depth, columns).

    Args:
        body: Where the products are computed.
        edge: The factor.
        arrange: Returns an array of the edge's shape as these matrices.
    """
    columns = arrange(np.empty(edge.shape, bool)).shape[-1]
    width = -(-columns // -(-columns // TILE_COLUMNS))
    coded = code_tiles(body, edge, width, lambda x: _column_tiles(arrange(x), width))
    return coded or constant_array(body, arrange(constant_factor(body, edge)))


def _column_tiles(matrices: Tensor, width: int) -> Tensor:
    """Return matrices (..., depth, columns) as tiles (matrix, tile, depth, width), the last columns repeated."""
    depth, columns = matrices.shape[-2:]
    tiles = -(-columns // width)
    padded = np.pad(matrices.reshape(-1, depth, columns), ((0, 0), (0, 0), (0, tiles * width - columns)), "edge")
    return padded.reshape(-1, depth, tiles, width).swapaxes(1, 2)


def deliver_sums(body: NodeBody, sums: ScratchArray, steps: Sequence[AxisStep]) -> None:
    """Store sums, whose strides along the result's axes are `steps`."""
    out = body.outs[0]
    writer = result_writer(body)
    term = sums.at(writer, steps)
    deliver(body, writer, within(term, out) if body.gives_integers else term)
