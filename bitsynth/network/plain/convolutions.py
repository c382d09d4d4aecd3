"""Plain C of convolutions: rows of weights times vectors of pixels; for few pixels, rows of pixels times channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bitsynth.graph.types import Edge
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.loops import dense_steps
from bitsynth.network.plain.planes import ImagePlanes
from bitsynth.network.plain.products import (
    MIN_ROW_PIXELS,
    FactorPlanes,
    FactorRows,
    ProductSums,
    blocks,
    constant_columns,
    constant_rows,
    deliver_sums,
    stage_blocked,
    sums_type,
)


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
    deliver_sums(body, totals, [groups * rows * sums.apart, sums.apart, *planes.steps])


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
    body.staged(edge, plain, dense_steps(edge.shape), centred=True)
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
    weights, totals = _columns(body, w, groups), sums.array(pairs)
    code = sums.code(
        rows.from_place(f"g * {len(pixels) * depth}"),
        weights.of_matrix(f"g % {groups}", columns * depth),
        totals.from_place(f"g * {len(pixels) * sums.apart}"),
    )
    body.do(f"for (size_t g = 0; g < {pairs}; ++g) {{\n{code}\n}}")
    group = len(pixels) * sums.apart
    across = 1 if groups == 1 else f"{{i}} / {columns} * {group} + {{i}} % {columns}"
    deliver_sums(body, totals, [groups * group, across, *(s * sums.apart for s in dense_steps(planes.out))])


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


def _columns(body: NodeBody, edge: Edge, groups: int) -> FactorPlanes:
    """Return weights with output channels last, group by group."""
    columns, depth = edge.shape[0] // groups, math.prod(edge.shape[1:])
    if edge.name in body.graph.constants:
        whole = groups, columns, depth
        return constant_columns(body, edge, lambda x: np.broadcast_to(x, edge.shape).reshape(whole).swapaxes(1, 2))
    array = body.array(sums_type(body), groups * columns * depth)
    across = 1 if groups == 1 else f"{{i}} / {columns} * {columns * depth} + {{i}} % {columns}"
    body.staged(edge, array, [across, *(s * columns for s in dense_steps(edge.shape[1:]))], centred=True)
    return array
