"""What certificates say of edges: shapes, and integers with their ranges and scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.types import Edge, Integers, Reals, Tensor
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.arrays import JsonValue, scalar_or_stored
from bitsynth.network.stairs.staircase import INFINITE

MOST_PLACE = INFINITE - 1
"""The place of the greatest float32 in the order of these, counted from 0."""


def range_of(edge: Edge) -> tuple[Tensor, Tensor]:
    """The least and greatest integer, for each channel along axis 1 if limits differ along that alone, else for all."""
    kind = edge.integers
    shape = tuple(n if k == 1 else 1 for k, n in enumerate(edge.shape))
    if all(b.size == 1 for b in (kind.low, kind.high)) or len(edge.shape) < 2:
        return np.asarray(kind.least), np.asarray(kind.most)
    try:
        low, high = (np.broadcast_to(b, shape).reshape(-1) for b in (kind.low, kind.high))
    except ValueError:
        return np.asarray(kind.least), np.asarray(kind.most)
    return low, high


def edge_facts(edge: Edge, is_input: bool) -> JsonValue:
    """What an edge carries: integers, or numbers; an input's are told by their places in the order of float32."""
    shown: dict[str, Any] = {"shape": list(edge.shape), "type": edge.dtype}
    if not isinstance(edge.type, Integers):
        return {**shown, "low": -MOST_PLACE, "high": MOST_PLACE} if is_input else shown
    low, high = range_of(edge)
    kind = edge.type
    grid = {"scale": kind.scale, "zero": kind.zero}
    columns = {k: x if x.size == 1 else _along(x, edge) for k, x in grid.items()}
    return {
        **shown,
        "low": scalar_or_stored(low if low.size == 1 else low[:, None]),
        "high": scalar_or_stored(high if high.size == 1 else high[:, None]),
        **{k: scalar_or_stored(x) for k, x in columns.items()},
        **({"step": kind.step} if kind.step > 1 else {}),
    }


def edge_of(name: str, facts: JsonValue) -> Edge:
    """Return the edge that `edge_facts` said this of; numbers that differ along one axis differ along channels."""
    shape = tuple(facts["shape"])
    if "scale" not in facts:
        return Edge(name, shape, facts["type"], Reals())
    low, high, scale, zero = (_spread(checker.array(facts[k]), len(shape)) for k in ("low", "high", "scale", "zero"))
    kind = Integers(low, high, scale.astype(np.float64), zero.astype(np.float64), facts.get("step", 1))
    return Edge(name, shape, facts["type"], kind)


def _spread(numbers: Tensor, rank: int) -> Tensor:
    """Return one number without axes, or a column (channels, 1) along axis 1 of so many."""
    if numbers.size == 1:
        return numbers.reshape(())
    is_column = numbers.ndim == 2 and numbers.shape[1] == 1 and rank > 1
    return numbers.reshape(1, -1, *[1] * (rank - 2)) if is_column else numbers


def _along(array: Tensor, edge: Edge) -> Tensor:
    """Numbers that differ along one axis as a column; as they are if they differ along several."""
    return array.reshape(-1, 1) if sum(n > 1 for n in array.shape) == 1 else array
