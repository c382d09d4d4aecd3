"""Plain C of moves and copies: the operator's own meaning gives the source of each element, and loops copy them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Floats
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.types import Edge, Integers, Tensor, full_range
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.loops import AxisStep, ConstantArrays, dense_steps
from bitsynth.network.plain.maths import InC
from bitsynth.network.plain.memory import BufferAccess


def move(body: NodeBody) -> None:
    """Write a move: copy the elements of each input to their places; places without a source get 0."""
    sources = _sources(body)
    to = body.memories[body.outs[0].name]
    places = _lies(to)
    if (sources == 0).any():
        _copy(body, None, to, np.stack([places, places]))
    start = 1
    for edge in body.edges:
        count = int(np.prod(edge.shape))
        here = (sources >= start) & (sources < start + count)
        if here.any():
            source, lies = _readable(body, edge)
            _copy(body, source, to, np.stack([places[here], lies[sources[here] - start]]))
        start += count


def _sources(body: NodeBody) -> Tensor:
    """Return the source of each element of the result, numbered from 1 through all inputs; 0 for none."""
    marks, start = [], 1
    for edge in body.edges:
        count = int(np.prod(edge.shape))
        marks.append(np.arange(start, start + count).reshape(edge.shape))
        start += count
    edges = tuple(replace(e, type=full_range("int64")) for e in body.edges)
    outs = tuple(replace(e, type=full_range("int64")) for e in body.outs)
    site = Site(body.node, edges, (), body.graph.reference, outs, Floats("onnx"))
    return np.asarray(TABLE[body.node.op].run(site, *marks)[0]).reshape(-1)


def _lies(memory: BufferAccess) -> Tensor:
    """Return the place of each element in memory, in the order of the edge's axes."""
    shape = memory.edge.shape
    steps = memory.format.strides(shape)
    places: Any = np.zeros(shape, np.int64)
    for axis, (n, step) in enumerate(zip(shape, steps, strict=True)):
        places = places + (np.arange(n) * step).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.asarray(places).reshape(-1)


def _readable(body: NodeBody, edge: Edge) -> tuple[BufferAccess | ScratchArray, Tensor]:
    """Return the memory of an input's elements, and their places; elements of another grid become numbers first."""
    kind = edge.type
    same = not isinstance(kind, Integers) or kind.has_one_grid
    if edge.name not in body.graph.constants and (same or body.gives_integers):
        return body.memories[edge.name], _lies(body.memories[edge.name])
    array = body.array(body.numbers_type(edge), int(np.prod(edge.shape)))
    body.stage(edge, array, dense_steps(edge.shape), centred=False)
    return array, np.arange(int(np.prod(edge.shape)))


def _copy(body: NodeBody, source: BufferAccess | ScratchArray | None, to: BufferAccess, pairs: Tensor) -> None:
    """Write loops that copy elements between pairs of places (to, from); without a source they write zeros."""
    order = np.argsort(pairs[0], kind="stable")
    (first, second), levels = nest_loops(pairs[:, order].T)
    writer = body.writer(tuple(count for count, _ in levels))
    steps = [list(_steps(body.constants, [step[:, k] for _, step in levels])) for k in range(2)]
    if source is None:
        term = writer.constant(np.zeros((), np.int64))
    elif isinstance(source, ScratchArray):
        term = source.at(writer, steps[1], int(second))
    else:
        term = source.load(writer, steps[1], int(second))
        if not body.gives_integers:
            term = InC(writer, body.graph.reference).number(term, source.edge)
    to.store(writer, term, steps[0], int(first))
    body.close(writer)


def _steps(constants: ConstantArrays, steps: list[Tensor]) -> Iterator[AxisStep]:
    """Return the strides of an array: a number where they are constant, else a table."""
    for places in steps:
        even = int(places[1] - places[0]) if len(places) > 1 else 0
        if (places == np.arange(len(places)) * even).all():
            yield even
        else:
            yield f"(ptrdiff_t){constants.add(places.astype(np.int32))}[{{i}}]"


Level = tuple[int, Tensor]
"""A loop: how often, and where each turn begins, as (count, arrays) from the first."""


def nest_loops(places: Tensor) -> tuple[Tensor, list[Level]]:
    """Return the first of a list of places (count, arrays), and the loops, outermost first, that give all in order."""
    levels: list[Level] = []
    while len(places) > 1:
        count = _run(places)
        if count == 1:
            count = _table(places)
        levels.append((count, places[:count] - places[0]))
        places = places[::count]
    return places[0], levels[::-1]


def _run(places: Tensor) -> int:
    """Return the longest run length for which all parts of the list are the same constant strides."""
    even = np.append((np.diff(places, axis=0) == places[1] - places[0]).all(1), True)
    length = int(np.argmin(even)) + 1 if not even.all() else len(places)
    for count in _divisors(len(places))[::-1]:
        if count <= length and even.reshape(-1, count)[:, :-1].all():
            return count
    return 1


def _table(places: Tensor) -> int:
    """Return the least length for which all parts of the list have the same strides, constant or not."""
    for count in _divisors(len(places))[1:]:
        parts = places.reshape(-1, count, places.shape[1])
        if (parts[-1] - parts[-1][0] == parts[0] - parts[0][0]).all() and (
            (parts - parts[:, :1]) == parts[0] - parts[0][0]
        ).all():
            return count
    return len(places)


def _divisors(n: int) -> list[int]:
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return sorted({*small, *(n // k for k in small)})
