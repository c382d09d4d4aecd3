"""Inputs that tell an elementwise program from others: as its spec assumes, and where its meaning changes.

Elements are drawn of the spec alone: numbers around each other, ties among them, ends of ranges, small ones, floats of
every kind. Most then move: one value goes as near as it can to where the meaning becomes another one, such as
the last sum below a threshold and the first above, a product half way between two codes, the end of a range of codes.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec

U64 = NDArray[np.uint64]
Elements = dict[str, U64]
"""Payloads (values, columns, variants) by name of input: what elements share has one variant."""

VARIANTS = 16
"""Elements of a column: what all elements share is the same in a column."""
_CANDIDATES, _TRIES = 32, 6
_POINTS = np.uint64(16)
_FLOATS = ("fmul", "fadd", "fdiv", "flt", "fmin", "fmax", "nearest")
_DOMAIN = ConcreteDomain()


@dataclass(frozen=True, eq=False)
class ElementSamples:
    """Elements, what the spec wants of them, and which of them may come, both (columns, variants)."""

    elements: Elements
    wanted: U64
    may_come: NDArray[np.bool_]


@lru_cache(maxsize=64)
def samples(spec: ElementwiseSpec, columns: int) -> ElementSamples:
    """So many columns of elements, the same for every program of `spec`."""
    rng = np.random.default_rng(columns)
    with np.errstate(over="ignore"):
        drawn = _drawn(spec, columns, rng)
        _move(spec, drawn, rng)
        shape = (columns, VARIANTS)
        return ElementSamples(
            drawn, np.broadcast_to(spec.value(_DOMAIN, drawn), shape), _hold(spec, spec.assumes, drawn, shape)
        )


def _hold(spec: ElementwiseSpec, texts: Sequence[str], given: Elements, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Where all `texts` hold."""
    out = np.ones(shape, bool)
    for bit in spec.bits(texts, _DOMAIN, given):
        out &= bit == 1
    return out


def _drawn(spec: ElementwiseSpec, columns: int, rng: Generator) -> Elements:
    """Elements, as the spec assumes where one alone of what is shared and what is not decides."""
    floats, middle = _floats(spec), _middles((columns, VARIANTS), rng)
    out: Elements = {}
    for shared in (True, False):
        inputs = tuple(x for x in spec.inputs if x.is_shared == shared)
        shape = (_CANDIDATES * columns, 1) if shared else middle.shape
        drawn = {x.name: _values(x, None if shared else middle, shape, x.name in floats, rng) for x in inputs}
        others = {x.name: np.zeros((x.values, 1, 1), np.uint64) for x in spec.inputs}
        for text in spec.assumes:
            if (read := _read(text, spec)) <= drawn.keys():
                _make_fit(drawn, read, _hold(spec, [text], others | drawn, shape).reshape(-1), rng)
        out |= {name: values[:, :columns] for name, values in drawn.items()}
    return out


def _make_fit(drawn: Elements, names: Set[str], fits: NDArray[np.bool_], rng: Generator) -> None:
    """Put values of other elements in the place of those that do not fit."""
    places = np.arange(fits.size)
    if fits.any():
        places[~fits] = rng.choice(np.flatnonzero(fits), int((~fits).sum()))
    for name in names:
        shape = drawn[name].shape
        drawn[name] = drawn[name].reshape(shape[0], -1)[:, places].reshape(shape)


def _read(text: str, spec: ElementwiseSpec) -> set[str]:
    """The inputs that an expression reads."""
    return {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)} & {x.name for x in spec.inputs}


def _floats(spec: ElementwiseSpec) -> set[str]:
    """The inputs that are float32: those on which the meaning does such arithmetic."""
    calls = [n for n in ast.walk(ast.parse(spec.meaning)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return {a.id for n in calls if getattr(n.func, "id", "") in _FLOATS for a in n.args if isinstance(a, ast.Name)}


def _middles(shape: tuple[int, ...], rng: Generator) -> NDArray[np.int64]:
    """Where the numbers of an element lie: at the ends of ranges, or anywhere."""
    ends = np.array([0, *(sign * (1 << b) for b in (7, 8, 15, 16, 31, 32) for sign in (1, -1))])
    anywhere = rng.integers(-(1 << 31), 1 << 31, shape) >> rng.integers(0, 28, shape)
    return np.where(rng.random(shape) < 0.5, rng.choice(ends, shape), anywhere)


def _values(
    one: ElementInput,
    around: NDArray[np.int64] | None,
    shape: tuple[int, ...],
    is_float: bool,
    rng: Generator,
) -> U64:
    """Values of one input, near `around` if that is known, or of any size; most ascend, as thresholds do."""
    shape, bits = (one.values, *shape), one.lane.bits
    if is_float:
        return _float_values(shape, rng)
    small = np.where(rng.random(shape) < 0.5, 0, rng.integers(0, bits, shape))
    values = rng.integers(-(1 << 63), 1 << 63, shape) >> 64 - bits + small
    if around is not None:
        values = np.where(rng.random(shape) < 0.6, around + rng.integers(-3, 4, shape), values)
    signed = values << (64 - bits) >> (64 - bits)
    kept = np.where(rng.random(shape[1:]) < 0.9, np.sort(signed, axis=0), signed)
    return kept.view(np.uint64) & np.uint64((1 << bits) - 1)


def _float_values(shape: tuple[int, ...], rng: Generator) -> U64:
    """Float32 numbers of all sizes: of few bits, whose products are exact, of many, zeros, infinities, subnormals."""
    bits = rng.integers(0, 1 << 23, shape) & -(1 << rng.integers(0, 24, shape))
    exponent = np.where(rng.random(shape) < 0.8, rng.integers(127 - 40, 127 + 12, shape), rng.integers(0, 256, shape))
    return (rng.integers(0, 2, shape) << 31 | exponent << 23 | bits).astype(np.uint64)


def _move(spec: ElementwiseSpec, drawn: Elements, rng: Generator) -> None:
    """Move most elements to both sides of where the meaning changes, each by one value.

    In the first columns that is a value of its own: pairs of variants are the two sides. In those behind it is one that
    all share, in two columns half of whose variants are that element.
    """
    pairs, columns = VARIANTS // 2, next(iter(drawn.values())).shape[1]
    shared = {x.name for x in spec.inputs if x.per in ("row", "all")}
    both = columns * 3 // 16 if shared else 0
    first = columns * 7 // 8 - 2 * both
    one, other = ({n: _flat(v, first, both, k) for n, v in drawn.items()} for k in (0, 1))
    behind = np.arange(first * pairs + both) >= first * pairs
    low, high = _sides(spec, one, other, {x.name: behind == x.is_shared for x in spec.inputs if x.per != "table"}, rng)
    for x in spec.inputs:
        values, sides = drawn[x.name], (low[x.name], high[x.name])
        if not x.is_shared:
            near = [side[:, : first * pairs].reshape(-1, first, pairs) for side in sides]
            values[:, :first] = np.concatenate(near, axis=2)
        for k, side in enumerate(sides):
            values[:, first + k * both : first + (k + 1) * both, :pairs] = side[:, first * pairs :, None]


def _flat(values: U64, first: int, both: int, side: int) -> U64:
    """Half of the variants of the first columns, and an element of each of half of the columns behind, side by side."""
    pairs = VARIANTS // 2
    near = values[:, :first, side * pairs : (side + 1) * pairs] if values.shape[2] > 1 else values[:, :first]
    near = np.broadcast_to(near, (len(values), first, pairs)).reshape(len(values), -1)
    return np.concatenate([near, values[:, first + side * both : first + (side + 1) * both, 0]], axis=1)


def _sides(
    spec: ElementwiseSpec, one: Elements, other: Elements, movable: Mapping[str, NDArray[np.bool_]], rng: Generator
) -> tuple[Elements, Elements]:
    """Elements (values, any number) with one of the `movable` values on this side and on that of a change.

    It lies between those of `one` and of `other`.
    """
    line = _line(spec, one, other, movable, rng)
    low, high = np.minimum(line.one, line.other), np.maximum(line.one, line.other)
    steps = np.arange(_POINTS + np.uint64(1), dtype=np.uint64)
    while (high - low).max() > 1:
        apart = (high - low)[:, None]
        places = low[:, None] + apart // _POINTS * steps + apart % _POINTS * steps // _POINTS
        found = np.broadcast_to(spec.value(_DOMAIN, line.at(places)), places.shape)
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
    spec: ElementwiseSpec, one: Elements, other: Elements, movable: Mapping[str, NDArray[np.bool_]], rng: Generator
) -> _Line:
    """Of several values of each element, one by which its meaning changes from `one` to `other`, if any does."""
    inputs = [x for x in spec.inputs if x.name in movable]
    count, floats = len(movable[inputs[0].name]), _floats(spec)
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
    ends = [np.broadcast_to(spec.value(_DOMAIN, tried.at(x)), moved.shape) for x in (start, end)]
    best = ((ends[0] != ends[1]) + rng.random(moved.shape) / 2).argmax(axis=1)[:, None]
    masks = {n: np.take_along_axis(m, best[None], 2) for n, m in masks.items()}
    return _Line(spec, one, masks, *(np.take_along_axis(x, best, 1)[:, 0] for x in (start, end)))
