"""Thresholds of a chain in float64, between those that it has in float32."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Tensor
from bitsynth.network.stairs.oracle import Oracle
from bitsynth.network.stairs.staircase import Staircase, float_of


def double_thresholds(graph: Graph, stairs: Staircase) -> Tensor:
    """The least float64 (channels, levels) at which each level of a staircase of reals is reached, or lost.

    Found by bisection down to neighbours, at both of which the chain was evaluated. Levels that no float32 reaches are
    never reached: infinity; those that every one does, always.
    """
    chain = stairs.chain
    start = replace(graph.edges[chain.start], dtype="float64")
    oracle = Oracle(replace(graph, edges=MappingProxyType({**graph.edges, chain.start: start})), chain)
    turns = stairs.thresholds.T
    inside = (turns > stairs.low) & (turns <= stairs.high)
    wanted = stairs.least + stairs.step * np.arange(1, stairs.levels + 1)[:, None]
    ends = [float_of(np.clip(t, stairs.low, stairs.high)).astype(np.float64) for t in (turns - 1, turns)]
    below, above = (_places(end) for end in ends)
    while (open_ones := inside & (above - below > 1)).any():
        middle = np.where(open_ones, below + (above - below) // 2, above)
        reached = (oracle(_number(middle)) >= wanted) == stairs.rising
        above, below = np.where(open_ones & reached, middle, above), np.where(open_ones & ~reached, middle, below)
    made = np.where(inside, _number(above), np.where(turns > stairs.high, np.inf, -np.inf))
    return np.ascontiguousarray(made.T)


def _places(numbers: Tensor) -> Tensor:
    """The places of float64 in the order of these numbers."""
    bits = numbers.view(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFF_FFFF_FFFF_FFFF), bits)


def _number(places: Tensor) -> Tensor:
    bits = np.where(places < 0, -places | np.int64(-(1 << 63)), places)
    made: Tensor = bits.view(np.float64)
    return made
