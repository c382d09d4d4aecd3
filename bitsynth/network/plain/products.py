"""Plain C of matrix products and convolutions: integers in 32 bits, real numbers in float64, each sum in a fixed order.

Of matrix products of any number of axes, the longer side of a result is vectorized. Convolutions multiply rows of
weights with vectors of pixels; for few pixels, rows of pixels with channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bitsynth.graph.types import Edge, Shape, Tensor
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.coded import CodedTiles, code_tiles, constant_factor
from bitsynth.network.plain.elements import deliver_array
from bitsynth.network.plain.loops import AxisStep, dense_steps
from bitsynth.network.plain.planes import ImagePlanes

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
    """Rows of weights stored as codes: tiles of 4 rows, then of 1 row, by the number of rows."""

    blocks: Mapping[int, CodedTiles]

    def of_matrix(self, index: str, size: int) -> CodedRows:
        """Return the rows of one of several matrices, whose number is a C expression."""
        return CodedRows({rows: tiles.of_matrix(index, size) for rows, tiles in self.blocks.items()})


FactorRows = ScratchArray | CodedRows
"""Rows of weights, as `block_rows` has them."""
FactorPlanes = ScratchArray | CodedTiles
"""Planes, or tiles of the columns of one matrix."""


@dataclass(frozen=True)
class ProductSums:
    """The arguments of a call of `BS_PRODUCT`: rows of weights, planes, and the places of sums.

    Args:
        body: Where it is done.
        rows: Rows of weights.
        channels: Planes.
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
        body.stage(edge, moved, own, centred=True, begin=tuple(begin), shape=tuple(shape))


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


@dataclass(frozen=True)
class _Factor:
    """A factor with axes (..., rows or columns, depth), whatever their order in memory.

    Args:
        edge: It.
        side: Its axis of rows or columns; None if it has one axis.
        depth: Its axis along which sums are.
    """

    edge: Edge
    side: int | None
    depth: int

    @property
    def count(self) -> int:
        """The number of rows or columns."""
        return 1 if self.side is None else self.edge.shape[self.side]

    @property
    def outer(self) -> Shape:
        """The axes of separate matrices."""
        return self.edge.shape[:-2]

    @property
    def size(self) -> int:
        """The elements of a matrix."""
        return self.count * self.edge.shape[self.depth]

    def arrange(self, array: Tensor) -> Tensor:
        """Return an array that broadcasts to the factor, as (..., count, depth)."""
        whole = np.broadcast_to(array, self.edge.shape)
        if self.side is None:
            return whole[None]
        return whole if self.side < self.depth else whole.swapaxes(-1, -2)


def matmul(body: NodeBody) -> None:
    """Write a product of matrices."""
    a, b = body.edges
    first = _Factor(a, len(a.shape) - 2 if len(a.shape) > 1 else None, len(a.shape) - 1)
    second = _Factor(b, *((len(b.shape) - 1, len(b.shape) - 2) if len(b.shape) > 1 else (None, 0)))
    turned = second.count < MIN_ROW_PIXELS and second.count < first.count
    rows, columns = (second, first) if turned else (first, second)
    depth = a.shape[-1]
    sums = ProductSums(body, rows.count, depth, columns.count, [0], columns.count)
    outer = np.broadcast_shapes(first.outer, second.outer)
    products = math.prod(outer)
    weights, planes, totals = _rows(body, rows), _columns(body, columns), sums.array(products)
    code = sums.code(
        weights.of_matrix(_matrix(body, rows, outer), rows.size),
        planes.of_matrix(_matrix(body, columns, outer), columns.size),
        totals.from_place(f"g * {sums.rows * sums.apart}"),
    )
    body.do(f"for (size_t g = 0; g < {products}; ++g) {{\n{code}\n}}")
    sides = (1, sums.apart) if turned else (sums.apart, 1)
    inner = [step for step, factor in zip(sides, (first, second), strict=True) if factor.side is not None]
    deliver_array(body, totals, [*(s * sums.rows * sums.apart for s in dense_steps(outer)), *inner])


def _matrix(body: NodeBody, factor: _Factor, outer: Shape) -> str:
    """Return C for the number of a factor's matrix in product g."""
    count = math.prod(factor.outer)
    if count == 1:
        return "0"
    if factor.outer == outer:
        return "g"
    places = np.broadcast_to(np.arange(count).reshape(factor.outer), outer)
    return f"{body.constants.add(places.astype(np.uint32))}[g]"


def _rows(body: NodeBody, factor: _Factor) -> FactorRows:
    """Return a factor as blocks of rows, matrix by matrix."""
    edge = factor.edge
    if edge.name in body.graph.constants:
        return constant_rows(body, edge, factor.arrange)
    array = body.array(sums_type(body), math.prod(edge.shape))
    steps = [s * factor.size for s in dense_steps(factor.outer)] + [1] * min(2, len(edge.shape))
    stage_blocked(body, edge, array, factor.side, steps, [factor.depth])
    return array


def _columns(body: NodeBody, factor: _Factor) -> FactorPlanes:
    """Return a factor with its columns contiguous, matrix by matrix."""
    edge = factor.edge
    if edge.name in body.graph.constants:
        return constant_columns(body, edge, lambda x: factor.arrange(x).swapaxes(-1, -2))
    array = body.array(sums_type(body), math.prod(edge.shape))
    steps = [s * factor.size for s in dense_steps(factor.outer)] + [1] * min(2, len(edge.shape))
    steps[factor.depth] = factor.count
    body.stage(edge, array, steps, centred=True)
    return array


def conv(body: NodeBody) -> None:
    """Write a convolution."""
    x, w = body.edges
    groups, planes = body.node.attributes["groups"], ImagePlanes(body.node.attributes["window"], x.shape[2:])
    image = body.array(sums_type(body), math.prod(x.shape[:2]) * planes.size)
    planes.fill(body, x, image, "0", centred=True)
    if math.prod(planes.out) < MIN_ROW_PIXELS <= w.shape[0] // groups:
        _few_pixels(body, image, planes, groups)
    else:
        _many_pixels(body, image, planes, groups)


def _many_pixels(body: NodeBody, image: ScratchArray, planes: ImagePlanes, groups: int) -> None:
    x, w = body.edges
    channels, rows = w.shape[1], w.shape[0] // groups
    sums = ProductSums(body, rows, channels, planes.size, planes.taps, planes.pixels)
    weights, totals = _weights(body, w, groups), sums.array(x.shape[0] * groups)
    code = sums.code(
        weights.of_matrix(f"g % {groups}", rows * sums.depth),
        image.from_place(f"g * {channels * planes.size}"),
        totals.from_place(f"g * {rows * sums.apart}"),
    )
    body.do(f"for (size_t g = 0; g < {x.shape[0] * groups}; ++g) {{\n{code}\n}}")
    deliver_array(body, totals, [groups * rows * sums.apart, sums.apart, *planes.steps])


def _weights(body: NodeBody, edge: Edge, groups: int) -> FactorRows:
    """Return weights as blocks of rows, group by group."""
    rows, depth = edge.shape[0] // groups, math.prod(edge.shape[1:])
    if edge.name in body.graph.constants:
        return constant_rows(body, edge, lambda x: np.broadcast_to(x, edge.shape).reshape(groups, rows, depth))
    array = body.array(sums_type(body), groups * rows * depth)
    if groups == 1 or rows == 1:
        whole = [depth, *dense_steps(edge.shape[1:])] if rows == 1 else [0, *dense_steps(edge.shape[1:])]
        stage_blocked(body, edge, array, None if rows == 1 else 0, whole, range(1, len(edge.shape)))
        return array
    plain = body.array(sums_type(body), groups * rows * depth)
    body.stage(edge, plain, dense_steps(edge.shape), centred=True)
    for block, first, count in blocks(rows):
        shape = (groups, count // block, block, depth)
        writer = body.writer(shape)
        term = plain.at(writer, (rows * depth, block * depth, depth, 1), first * depth)
        array.keep(writer, term, (rows * depth, block * depth, 1, block), first * depth)
        body.close(writer)
    return array


def _few_pixels(body: NodeBody, image: ScratchArray, planes: ImagePlanes, groups: int) -> None:
    x, w = body.edges
    channels, columns, pairs = w.shape[1], w.shape[0] // groups, x.shape[0] * groups
    pixels = [int(np.dot(at, planes.steps)) for at in np.ndindex(*planes.out)]
    depth = channels * len(planes.taps)
    sums = ProductSums(body, len(pixels), depth, columns, [0], columns)
    rows = _pixel_rows(body, image, planes, (pairs, channels), pixels)
    weights, totals = _pixel_columns(body, w, groups), sums.array(pairs)
    code = sums.code(
        rows.from_place(f"g * {len(pixels) * depth}"),
        weights.of_matrix(f"g % {groups}", columns * depth),
        totals.from_place(f"g * {len(pixels) * sums.apart}"),
    )
    body.do(f"for (size_t g = 0; g < {pairs}; ++g) {{\n{code}\n}}")
    group = len(pixels) * sums.apart
    across = 1 if groups == 1 else f"{{i}} / {columns} * {group} + {{i}} % {columns}"
    deliver_array(body, totals, [groups * group, across, *(s * sums.apart for s in dense_steps(planes.out))])


def _pixel_rows(
    body: NodeBody, image: ScratchArray, planes: ImagePlanes, images: tuple[int, int], pixels: Sequence[int]
) -> ScratchArray:
    """Return the window of each pixel, as blocks of rows."""
    (groups, channels), taps = images, planes.taps
    depth = channels * len(taps)
    rows = body.array(image.dtype, groups * len(pixels) * depth)
    table = body.constants.add(np.asarray(taps, np.uint32))
    for block, first, count in blocks(len(pixels)):
        places = body.constants.add(np.asarray(pixels[first : first + count], np.uint32))
        writer = body.writer((groups, count, channels, len(taps)))
        from_steps = (channels * planes.size, f"{places}[{{i}}]", planes.size, f"{table}[{{i}}]")
        row = depth if block == 1 else f"{{i}} / {block} * {block * depth} + {{i}} % {block}"
        to_steps = (len(pixels) * depth, row, len(taps) * block, block)
        rows.keep(writer, image.at(writer, from_steps), to_steps, first * depth)
        body.close(writer)
    return rows


def _pixel_columns(body: NodeBody, edge: Edge, groups: int) -> FactorPlanes:
    """Return weights with output channels last, group by group."""
    columns, depth = edge.shape[0] // groups, math.prod(edge.shape[1:])
    if edge.name in body.graph.constants:
        whole = groups, columns, depth
        return constant_columns(body, edge, lambda x: np.broadcast_to(x, edge.shape).reshape(whole).swapaxes(1, 2))
    array = body.array(sums_type(body), groups * columns * depth)
    across = 1 if groups == 1 else f"{{i}} / {columns} * {columns * depth} + {{i}} % {columns}"
    body.stage(edge, array, [across, *(s * columns for s in dense_steps(edge.shape[1:]))], centred=True)
    return array
