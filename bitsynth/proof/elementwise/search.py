"""The search for elements where something changes: one value of each moves, by sixteenths of what is left."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec

U64 = NDArray[np.uint64]
Elements = dict[str, U64]
"""Payloads (values, columns, variants) by name of input: what elements share has one variant."""
Watched = Callable[[Elements], U64]
"""What is wanted of elements."""

_TRIES = 6
_POINTS = np.uint64(16)
_FLOATS = ("fmul", "fadd", "fdiv", "flt", "fmin", "fmax", "nearest")


def float_inputs(spec: ElementwiseSpec) -> set[str]:
    """The inputs that are float32: those on which the meaning does such arithmetic."""
    calls = [n for n in ast.walk(ast.parse(spec.meaning)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return {a.id for n in calls if getattr(n.func, "id", "") in _FLOATS for a in n.args if isinstance(a, ast.Name)}


def sides(
    spec: ElementwiseSpec,
    one: Elements,
    other: Elements,
    movable: Mapping[str, NDArray[np.bool_]],
    rng: Generator,
    watched: Watched,
) -> tuple[Elements, Elements]:
    """Elements (values, any number) with one of the `movable` values on this side and on that of a change.

    It lies between those of `one` and of `other`; what changes is `watched`.
    """
    line = _line(spec, one, other, movable, rng, watched)
    low, high = np.minimum(line.one, line.other), np.maximum(line.one, line.other)
    steps = np.arange(_POINTS + np.uint64(1), dtype=np.uint64)
    while (high - low).max() > 1:
        apart = (high - low)[:, None]
        places = low[:, None] + apart // _POINTS * steps + apart % _POINTS * steps // _POINTS
        found = np.broadcast_to(watched(line.at(places)), places.shape)
        changes = (found[:, 1:] != found[:, :-1]) + rng.random((len(low), int(_POINTS))) / 2
        chosen = changes.argmax(axis=1)[:, None]
        low, high = (np.take_along_axis(places, chosen + k, 1)[:, 0] for k in (0, 1))
    at_low, at_high = ({n: v[..., 0] for n, v in line.at(side[:, None]).items()} for side in (low, high))
    return at_low, at_high


@dataclass(frozen=True, eq=False)
class _Line:
    """Elements (values, n), the value of each that moves, and two that it may have (n), as places in order."""

    spec: ElementwiseSpec
    elements: Elements
    masks: Mapping[str, NDArray[np.bool_]]
    one: U64
    other: U64

    def at(self, places: U64) -> Elements:
        """The elements with values at `places` (n, any number) in the place of theirs."""
        found = {name: values[..., None] for name, values in self.elements.items()}
        for x in self.spec.inputs:
            if x.name in self.masks:
                found[x.name] = np.where(self.masks[x.name], places ^ _flip(x), found[x.name])
        return found


def _flip(one: ElementInput) -> np.uint64:
    """What takes payloads to places in order, and back."""
    return np.uint64(1 << one.lane.bits - 1 if one.lane.sign == "s" else 0)


def _line(
    spec: ElementwiseSpec,
    one: Elements,
    other: Elements,
    movable: Mapping[str, NDArray[np.bool_]],
    rng: Generator,
    watched: Watched,
) -> _Line:
    """Of several values of each element, one by which what is `watched` changes from `one` to `other`, if any does."""
    inputs = [x for x in spec.inputs if x.name in movable]
    count, floats = len(movable[inputs[0].name]), float_inputs(spec)
    weights = rng.random((len(inputs), count, _TRIES)) * np.array([movable[x.name] for x in inputs])[..., None]
    moved, masks = weights.argmax(axis=0), {}
    start, end = np.zeros((count, _TRIES), np.uint64), np.zeros((count, _TRIES), np.uint64)
    for n, x in enumerate(inputs):
        value = np.where(moved == n, rng.integers(0, x.values, moved.shape), -1)
        masks[x.name] = value == np.arange(x.values)[:, None, None]
        mine, its = one[x.name][..., None], other[x.name][..., None]
        if x.name in floats:
            its = its & np.uint64(0x7FFF_FFFF) | mine & np.uint64(0x8000_0000)
        start += ((mine ^ _flip(x)) * masks[x.name]).sum(axis=0, dtype=np.uint64)
        end += ((its ^ _flip(x)) * masks[x.name]).sum(axis=0, dtype=np.uint64)
    tried = _Line(spec, one, masks, start, end)
    ends = [np.broadcast_to(watched(tried.at(x)), moved.shape) for x in (start, end)]
    best = ((ends[0] != ends[1]) + rng.random(moved.shape) / 2).argmax(axis=1)[:, None]
    masks = {n: np.take_along_axis(m, best[None], 2) for n, m in masks.items()}
    return _Line(spec, one, masks, *(np.take_along_axis(x, best, 1)[:, 0] for x in (start, end)))
