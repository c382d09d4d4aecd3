"""Edges in certificates: shapes, and integers with their ranges and scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.types import Edge, Integers, Reals, Tensor
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.arrays import JsonValue, encode_number
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


def edge_facts(edge: Edge, is_input: bool) -> JsonValue:
    """Return what an edge carries: integers, in arrays that broadcast to its shape, or real numbers.

    The range of an input of real numbers is given by their places in the order of float32.
    """
    shown: dict[str, Any] = {"shape": list(edge.shape), "type": edge.dtype}
    if not isinstance(edge.type, Integers):
        return {**shown, "low": -MAX_PLACE, "high": MAX_PLACE} if is_input else shown
    kind = edge.type
    arrays = {"low": kind.low, "high": kind.high, "scale": kind.scale, "zero": kind.zero}
    step = {"step": kind.step} if kind.step > 1 else {}
    return {**shown, **{name: encode_number(x) for name, x in arrays.items()}, **step}


def edge_of(name: str, facts: JsonValue) -> Edge:
    """Return the edge that `edge_facts` described."""
    shape = tuple(facts["shape"])
    if "scale" not in facts:
        return Edge(name, shape, facts["type"], Reals())
    given = (checker.array(facts[key]) for key in ("low", "high", "scale", "zero"))
    low, high, scale, zero = (x.reshape(()) if x.size == 1 else x for x in given)
    kind = Integers(low, high, scale.astype(np.float64), zero.astype(np.float64), facts.get("step", 1))
    return Edge(name, shape, facts["type"], kind)
