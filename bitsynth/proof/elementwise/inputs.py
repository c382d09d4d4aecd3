"""Searches for elements where a result changes, by 16-ary search along one of an element's values.

Given two elements on which the result differs, one value moves from its number in the first to that in the second:
17 evenly spaced numbers are tried, and the search goes on in an interval at whose ends the result differs, until both
ends are neighbours. Programs that round or compare off by one are wrong just there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.floats import INFINITY
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec

U64 = NDArray[np.uint64]
Elements = dict[str, U64]
"""Payloads (values, columns, variants) by name of input; a shared input has one variant."""
Watched = Callable[[Elements], U64]
"""A function of elements; the search looks for changes of its result."""

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


VARIANTS = 16
"""Elements of a column: what all elements share is the same in a column."""
_CANDIDATES, _STEPS = 32, 6
_DOMAIN = ConcreteDomain()
_FLOAT_ENDS = (0, 1, (1 << 23) - 1, 1 << 23, INFINITY - 1, INFINITY, INFINITY | 1 << 22)
"""Float32 without signs: 0, subnormals and normal numbers at their ends, infinity, and no number."""


@dataclass(frozen=True, eq=False)
class ElementSamples:
    """Elements, what the spec wants of them, and which of them may come, both (columns, variants)."""

    elements: Elements
    wanted: U64
    reachable: NDArray[np.bool_]


@lru_cache(maxsize=64)
def samples(spec: ElementwiseSpec, columns: int) -> ElementSamples:
    """Return `count` columns of elements, the same for every program of `spec`."""
    rng = np.random.default_rng(columns)
    with np.errstate(over="ignore"):
        drawn = _draw(spec, columns, rng)
        _move(spec, drawn, rng)
        _meet(spec, drawn, rng)
        shape = (columns, VARIANTS)
        return ElementSamples(
            drawn, np.broadcast_to(spec.value(_DOMAIN, drawn), shape), _hold(spec, spec.assumes, drawn, shape)
        )


def _hold(spec: ElementwiseSpec, texts: Sequence[str], given: Elements, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return where all `texts` hold."""
    out = np.ones(shape, bool)
    for bit in spec.bits(texts, _DOMAIN, given):
        out &= bit == 1
    return out


def _draw(spec: ElementwiseSpec, columns: int, rng: Generator) -> Elements:
    """Draw elements as the spec assumes them, where either shared or other inputs alone decide that."""
    floats, middle = float_inputs(spec), _middles((columns, VARIANTS), rng)
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
    """Replace values that the spec does not assume by values of other elements."""
    places = np.arange(fits.size)
    if fits.any():
        places[~fits] = rng.choice(np.flatnonzero(fits), int((~fits).sum()))
    for name in names:
        shape = drawn[name].shape
        drawn[name] = drawn[name].reshape(shape[0], -1)[:, places].reshape(shape)


def _read(text: str, spec: ElementwiseSpec) -> set[str]:
    """Return the inputs that an expression reads."""
    return {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)} & {x.name for x in spec.inputs}


def _middles(shape: tuple[int, ...], rng: Generator) -> NDArray[np.int64]:
    """Return the middles of the numbers of an element: at the ends of ranges, or anywhere."""
    ends = np.array([0, *(sign * (1 << b) for b in (7, 8, 15, 16, 31, 32) for sign in (1, -1))])
    anywhere = rng.integers(-(1 << 31), 1 << 31, shape) >> rng.integers(0, 28, shape)
    return np.where(rng.random(shape) < 0.5, rng.choice(ends, shape), anywhere)


def _values(
    input_: ElementInput,
    around: NDArray[np.int64] | None,
    shape: tuple[int, ...],
    is_float: bool,
    rng: Generator,
) -> U64:
    """Return values of one input, near `around` if that is known, or of any size; most ascend, as thresholds do."""
    shape, bits = (input_.values, *shape), input_.lane.bits
    if is_float:
        return _float_values(shape, rng)
    small = np.where(rng.random(shape) < 0.5, 0, rng.integers(0, bits, shape))
    values = rng.integers(-(1 << 63), 1 << 63, shape) >> 64 - bits + small
    if around is not None:
        values = np.where(rng.random(shape) < 0.6, around + rng.integers(-3, 4, shape), values)
    signed = values << (64 - bits) >> (64 - bits)
    ascending = np.where(rng.random(shape[1:]) < 0.9, np.sort(signed, axis=0), signed)
    return ascending.view(np.uint64) & np.uint64((1 << bits) - 1)


def _float_values(shape: tuple[int, ...], rng: Generator) -> U64:
    """Return float32 numbers of all sizes: with few bits and exact products, with many, zeros, infinities."""
    bits = rng.integers(0, 1 << 23, shape) & -(1 << rng.integers(0, 24, shape))
    exponent = np.where(rng.random(shape) < 0.8, rng.integers(127 - 40, 127 + 12, shape), rng.integers(0, 256, shape))
    sized = np.where(rng.random(shape) < 0.1, rng.choice(_FLOAT_ENDS, shape), exponent << 23 | bits)
    return (rng.integers(0, 2, shape) << 31 | sized).astype(np.uint64)


def _move(spec: ElementwiseSpec, drawn: Elements, rng: Generator) -> None:
    """Move most elements to both sides of where the meaning changes, each by one value.

    In the first columns the moved value is an element's own: pairs of variants are the two sides. In later columns the
    moved value is shared by all elements: two columns are the two sides, and the element is half of the variants of
    each.
    """
    pairs, columns = VARIANTS // 2, next(iter(drawn.values())).shape[1]
    shared = {x.name for x in spec.inputs if x.per in ("row", "all")}
    both = columns * 3 // 16 if shared else 0
    first = columns * 7 // 8 - 2 * both
    one, other = ({n: _flat(v, first, both, k) for n, v in drawn.items()} for k in (0, 1))
    behind = np.arange(first * pairs + both) >= first * pairs
    movable = {x.name: behind == x.is_shared for x in spec.inputs if x.per != "table"}
    low, high = sides(spec, one, other, movable, rng, partial(spec.value, _DOMAIN))
    for x in spec.inputs:
        values, both_sides = drawn[x.name], (low[x.name], high[x.name])
        if not x.is_shared:
            near = [side[:, : first * pairs].reshape(-1, first, pairs) for side in both_sides]
            values[:, :first] = np.concatenate(near, axis=2)
        for k, side in enumerate(both_sides):
            values[:, first + k * both : first + (k + 1) * both, :pairs] = side[:, first * pairs :, None]


def _flat(values: U64, first: int, both: int, side: int) -> U64:
    """Return one side of the pairs: half of the first columns' variants, and an element of half of the others."""
    pairs = VARIANTS // 2
    near = values[:, :first, side * pairs : (side + 1) * pairs] if values.shape[2] > 1 else values[:, :first]
    near = np.broadcast_to(near, (len(values), first, pairs)).reshape(len(values), -1)
    return np.concatenate([near, values[:, first + side * both : first + (side + 1) * both, 0]], axis=1)


def _meet(spec: ElementwiseSpec, drawn: Elements, rng: Generator) -> None:
    """Make equal what the meaning asks to be equal: in columns where that can be, half of the variants are so.

    Near each element, whose first value goes up to `_STEPS` up or down, the equation is solved for the input that all
    share. Each column takes one for which it holds exactly; of every other column it shows in the meaning.
    """
    for factor, name, other in _equations(spec):
        first, near = spec.inputs[0].name, {n: values[..., None] for n, values in drawn.items()}
        near[first] = near[first] + np.arange(-_STEPS, _STEPS).astype(np.uint64) & np.uint64(0xFFFF_FFFF)
        quotient = np.array(spec.evaluate([f"udiv({other}, {factor})"], _DOMAIN, near, 32))
        solved, neighbour = near | {name: quotient}, near | {name: quotient ^ np.uint64(1)}
        met = _hold(spec, [f"bit(eq({factor} * {name}, {other}))", *spec.assumes], solved, quotient.shape[1:])
        shown = met & (spec.value(_DOMAIN, solved) != spec.value(_DOMAIN, neighbour))
        shown[1::2] = met[1::2]
        for column in np.flatnonzero(shown.any(axis=(1, 2))):
            variant, step = rng.choice(np.argwhere(shown[column]))
            drawn[name][:, column] = quotient[:, column, variant, step, None]
            drawn[first][:, column, : VARIANTS // 2] = near[first][:, column, variant, step, None]


def _equations(spec: ElementwiseSpec) -> list[tuple[str, str, str]]:
    """Return the equations between a product with an input and an expression, of 32 bits: factor, input, expression."""
    equations = [
        n for n in ast.walk(ast.parse(spec.meaning)) if isinstance(n, ast.Call) and ast.unparse(n.func) == "eq"
    ]
    out = []
    for one, other in (n.args for n in equations):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult) and isinstance(one.right, ast.Name):
            out.append((ast.unparse(one.left), one.right.id, ast.unparse(other)))
    return list(dict.fromkeys(out))
