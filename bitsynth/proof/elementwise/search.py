"""Searches for elements where a result changes, by 16-ary search along one of an element's values.

Given two elements on which the result differs, one value moves from its number in the first to that in the second:
17 evenly spaced numbers are tried, and the search goes on in an interval at whose ends the result differs, until both
ends are neighbours. Programs that round or compare off by one are wrong just there.
"""

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
"""Payloads (values, columns, variants) by name of input; a shared input has one variant."""
Watched = Callable[[Elements], U64]
"""The result of elements whose changes are searched for."""

_TRIED_VALUES = 6
_INTERVALS = np.uint64(16)
_FLOATS = ("fmul", "fadd", "fdiv", "flt", "fmin", "fmax", "nearest")


def float_inputs(spec: ElementwiseSpec) -> set[str]:
    """Return the inputs that are float32: operands of float arithmetic in the meaning."""
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
    """Return elements (values, any number) just before and just behind a change of `watched`.

    One of the `movable` values of each moves between `one` and `other`.
    """
    path = _choose_path(spec, one, other, movable, rng, watched)
    low, high = np.minimum(path.one, path.other), np.maximum(path.one, path.other)
    steps = np.arange(_INTERVALS + np.uint64(1), dtype=np.uint64)
    while (high - low).max() > 1:
        apart = (high - low)[:, None]
        places = low[:, None] + apart // _INTERVALS * steps + apart % _INTERVALS * steps // _INTERVALS
        results = np.broadcast_to(watched(path.at(places)), places.shape)
        changes = (results[:, 1:] != results[:, :-1]) + rng.random((len(low), int(_INTERVALS))) / 2
        chosen = changes.argmax(axis=1)[:, None]
        low, high = (np.take_along_axis(places, chosen + k, 1)[:, 0] for k in (0, 1))
    at_low, at_high = ({n: v[..., 0] for n, v in path.at(side[:, None]).items()} for side in (low, high))
    return at_low, at_high


@dataclass(frozen=True, eq=False)
class _Path:
    """Elements (values, n), the value of each that moves, and its two ends (n), as unsigned numbers in order."""

    spec: ElementwiseSpec
    elements: Elements
    masks: Mapping[str, NDArray[np.bool_]]
    one: U64
    other: U64

    def at(self, places: U64) -> Elements:
        """Return the elements with the moving values at `places` (n, any number)."""
        moved = {name: values[..., None] for name, values in self.elements.items()}
        for x in self.spec.inputs:
            if x.name in self.masks:
                moved[x.name] = np.where(self.masks[x.name], places ^ _flip(x), moved[x.name])
        return moved


def _flip(input_: ElementInput) -> np.uint64:
    """Return the mask whose exclusive or brings payloads to the order of their numbers, and back."""
    return np.uint64(1 << input_.lane.bits - 1 if input_.lane.sign == "s" else 0)


def _choose_path(
    spec: ElementwiseSpec,
    one: Elements,
    other: Elements,
    movable: Mapping[str, NDArray[np.bool_]],
    rng: Generator,
    watched: Watched,
) -> _Path:
    """Choose, for each element, a value along which `watched` changes from `one` to `other`, if a tried one does."""
    inputs = [x for x in spec.inputs if x.name in movable]
    count, floats = len(movable[inputs[0].name]), float_inputs(spec)
    weights = rng.random((len(inputs), count, _TRIED_VALUES)) * np.array([movable[x.name] for x in inputs])[..., None]
    moved, masks = weights.argmax(axis=0), {}
    start, end = np.zeros((count, _TRIED_VALUES), np.uint64), np.zeros((count, _TRIED_VALUES), np.uint64)
    for n, x in enumerate(inputs):
        value = np.where(moved == n, rng.integers(0, x.values, moved.shape), -1)
        masks[x.name] = value == np.arange(x.values)[:, None, None]
        mine, its = one[x.name][..., None], other[x.name][..., None]
        if x.name in floats:
            its = its & np.uint64(0x7FFF_FFFF) | mine & np.uint64(0x8000_0000)
        start += ((mine ^ _flip(x)) * masks[x.name]).sum(axis=0, dtype=np.uint64)
        end += ((its ^ _flip(x)) * masks[x.name]).sum(axis=0, dtype=np.uint64)
    tried = _Path(spec, one, masks, start, end)
    ends = [np.broadcast_to(watched(tried.at(x)), moved.shape) for x in (start, end)]
    best = ((ends[0] != ends[1]) + rng.random(moved.shape) / 2).argmax(axis=1)[:, None]
    masks = {n: np.take_along_axis(m, best[None], 2) for n, m in masks.items()}
    return _Path(spec, one, masks, *(np.take_along_axis(x, best, 1)[:, 0] for x in (start, end)))
