"""Edges in certificates: shapes, and integers with their ranges and scales."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import UNSET

from bitsynth.graph.types import Edge, Integers, Reals, Tensor
from bitsynth.network.certificate.arrays import decode_array, encode_number
from bitsynth.network.certificate.records import EdgeRecord
from bitsynth.network.formulas.step_functions import INFINITE_PLACE

MAX_PLACE = INFINITE_PLACE - 1
"""The place of the greatest float32 in the order of these, counted from 0."""


def range_of(edge: Edge) -> tuple[Tensor, Tensor]:
    """Return the least and greatest integer: for each channel if they differ along axis 1 alone, else for all."""
    kind = edge.integers
    shape = tuple(n if k == 1 else 1 for k, n in enumerate(edge.shape))
    if all(b.size == 1 for b in (kind.low, kind.high)) or len(edge.shape) < 2:
        return np.asarray(kind.least), np.asarray(kind.most)
    try:
        low, high = (np.broadcast_to(b, shape).reshape(-1) for b in (kind.low, kind.high))
    except ValueError:
        return np.asarray(kind.least), np.asarray(kind.most)
    return low, high


def edge_record(edge: Edge, is_input: bool) -> EdgeRecord:
    """Return what an edge carries: integers, in arrays that broadcast to its shape, or real numbers.

    The range of an input of real numbers is given by their places in the order of float32.
    """
    shape, kind = list(edge.shape), edge.type
    if not isinstance(kind, Integers):
        record = EdgeRecord(shape=shape, type=edge.dtype)
        return msgspec.structs.replace(record, low=-MAX_PLACE, high=MAX_PLACE) if is_input else record
    return EdgeRecord(
        shape=shape,
        type=edge.dtype,
        low=encode_number(kind.low),
        high=encode_number(kind.high),
        scale=encode_number(kind.scale),
        zero=encode_number(kind.zero),
        step=kind.step if kind.step > 1 else UNSET,
    )


def edge_of(name: str, record: EdgeRecord) -> Edge:
    """Return the edge that a record describes."""
    shape = tuple(record.shape)
    if record.scale is UNSET:
        return Edge(name, shape, record.type, Reals())
    given = (decode_array(numbers) for numbers in (record.low, record.high, record.scale, record.zero))
    low, high, scale, zero = (x.reshape(()) if x.size == 1 else x for x in given)
    step = 1 if record.step is UNSET else record.step
    kind = Integers(low, high, scale.astype(np.float64), zero.astype(np.float64), step)
    return Edge(name, shape, record.type, kind)
