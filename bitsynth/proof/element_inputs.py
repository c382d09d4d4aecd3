"""Inputs that tell an elementwise program from others: as its spec assumes, and where its meaning changes.

Elements are drawn of the spec alone: numbers around each other, ties among them, ends of ranges, small ones, floats of
every kind. Most then move: one value goes as near as it can to where the meaning becomes another one, such as
the last sum below a threshold and the first above, a product half way between two codes, the end of a range of codes.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
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
_FLOATS = ("fmul", "fadd", "flt", "fmin", "fmax", "nearest")
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


def _drawn(spec: ElementwiseSpec, columns: int, rng: np.random.Generator) -> Elements:
    """Elements; what they share is as the spec assumes, if that can be found."""
    floats, middle = _floats(spec), _middles((columns, VARIANTS), rng)
    shared = tuple(x for x in spec.inputs if x.is_shared)
    out = {x.name: _values(x, None, (_CANDIDATES * columns, 1), x.name in floats, rng) for x in shared}
    only = msgspec.structs.replace(spec, inputs=shared)
    for text in spec.assumes:
        if (read := _read(text, spec)) <= out.keys():
            good = np.flatnonzero(_hold(only, [text], out, (_CANDIDATES * columns, 1)))
            places = rng.choice(good, _CANDIDATES * columns) if good.size else np.arange(_CANDIDATES * columns)
            out |= {name: out[name][:, places] for name in read}
    out = {name: values[:, :columns] for name, values in out.items()}
    own = [x for x in spec.inputs if not x.is_shared]
    return out | {x.name: _values(x, middle, middle.shape, x.name in floats, rng) for x in own}


def _read(text: str, spec: ElementwiseSpec) -> set[str]:
    """The inputs that an expression reads."""
    return {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)} & {x.name for x in spec.inputs}


def _floats(spec: ElementwiseSpec) -> set[str]:
    """The inputs that are float32: those on which the meaning does such arithmetic."""
    calls = [n for n in ast.walk(ast.parse(spec.meaning)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return {a.id for n in calls if getattr(n.func, "id", "") in _FLOATS for a in n.args if isinstance(a, ast.Name)}


def _middles(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """Where the numbers of an element lie: at the ends of ranges, or anywhere."""
    ends = np.array([0, *(sign * (1 << b) for b in (7, 8, 15, 16, 31, 32) for sign in (1, -1))])
    anywhere = rng.integers(-(1 << 31), 1 << 31, shape) >> rng.integers(0, 28, shape)
    return np.where(rng.random(shape) < 0.5, rng.choice(ends, shape), anywhere)


def _values(
    one: ElementInput,
    around: NDArray[np.int64] | None,
    shape: tuple[int, ...],
    is_float: bool,
    rng: np.random.Generator,
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


def _float_values(shape: tuple[int, ...], rng: np.random.Generator) -> U64:
    """Float32 numbers of all sizes: of few bits, whose products are exact, of many, zeros, infinities, subnormals."""
    bits = rng.integers(0, 1 << 23, shape) & -(1 << rng.integers(0, 24, shape))
    exponent = np.where(rng.random(shape) < 0.8, rng.integers(127 - 40, 127 + 12, shape), rng.integers(0, 256, shape))
    return (rng.integers(0, 2, shape) << 31 | exponent << 23 | bits).astype(np.uint64)


def _move(spec: ElementwiseSpec, drawn: Elements, rng: np.random.Generator) -> None:
    """Move elements of most columns to both sides of where the meaning changes, each by one value of its own."""
    line = _line(spec, drawn, rng)
    low, high = np.minimum(line.one, line.other), np.maximum(line.one, line.other)
    steps = np.arange(_POINTS + np.uint64(1), dtype=np.uint64)
    while (high - low).max() > 1:
        apart = (high - low)[..., None]
        places = low[..., None] + apart // _POINTS * steps + apart % _POINTS * steps // _POINTS
        found = np.broadcast_to(spec.value(_DOMAIN, line.at(places)), places.shape)
        changes = (found[..., 1:] != found[..., :-1]) + rng.random((*low.shape, int(_POINTS))) / 2
        chosen = changes.argmax(axis=-1)[..., None]
        low, high = (np.take_along_axis(places, chosen + k, -1)[..., 0] for k in (0, 1))
    ends = line.at(np.stack([low, high], -1))
    for x in line.own:
        drawn[x.name][:, : len(low)] = np.concatenate([ends[x.name][..., 0], ends[x.name][..., 1]], axis=-1)


@dataclass(frozen=True, eq=False)
class _Line:
    """Elements (columns, pairs), and for each two values, as places in order, that one of its own inputs may have."""

    own: Sequence[ElementInput]
    elements: Elements
    masks: Mapping[str, NDArray[np.bool_]]
    one: U64
    other: U64

    def at(self, places: U64) -> Elements:
        """The elements with values at `places` (columns, pairs, any number) in the place of theirs."""
        found = {name: values[..., None] for name, values in self.elements.items()}
        for x in self.own:
            found[x.name] = np.where(self.masks[x.name], places ^ _flip(x), found[x.name])
        return found


def _flip(one: ElementInput) -> np.uint64:
    """What takes payloads to places in order, and back."""
    return np.uint64(1 << one.lane.bits - 1 if one.lane.sign == "s" else 0)


def _line(spec: ElementwiseSpec, drawn: Elements, rng: np.random.Generator) -> _Line:
    """Elements of three quarters of the columns: each with the one of several values that changes most."""
    own, pairs, floats = [x for x in spec.inputs if not x.is_shared], VARIANTS // 2, _floats(spec)
    columns = drawn[own[0].name].shape[1] * 3 // 4
    elements = {name: values[:, :columns, :pairs] for name, values in drawn.items()}
    shape = (columns, pairs, _TRIES)
    moved, masks = rng.integers(0, len(own), shape), {}
    one, other = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
    for n, x in enumerate(own):
        value = np.where(moved == n, rng.integers(0, x.values, shape), -1)
        masks[x.name] = value == np.arange(x.values)[:, None, None, None]
        mine, its = elements[x.name][..., None], drawn[x.name][:, :columns, pairs:][:, :, rng.permutation(pairs), None]
        if x.name in floats:
            its = its & np.uint64(0x7FFF_FFFF) | mine & np.uint64(0x8000_0000)
        one += ((mine ^ _flip(x)) * masks[x.name]).sum(axis=0, dtype=np.uint64)
        other += ((its ^ _flip(x)) * masks[x.name]).sum(axis=0, dtype=np.uint64)
    tried = _Line(own, elements, masks, one, other)
    ends = [np.broadcast_to(spec.value(_DOMAIN, tried.at(x)), shape) for x in (one, other)]
    best = ((ends[0] != ends[1]) + rng.random(shape) / 2).argmax(axis=-1)[..., None]
    masks = {n: np.take_along_axis(m, best[None], -1) for n, m in masks.items()}
    one, other = (np.take_along_axis(x, best, -1)[..., 0] for x in (one, other))
    return _Line(own, elements, masks, one, other)
