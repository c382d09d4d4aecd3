"""Chooses inputs that expose wrong elementwise programs: within the assumptions, and where the result changes.

Elements are drawn of the spec alone: numbers around each other, ties among them, ends of ranges, small ones, floats of
every kind. Most then move: one value goes as near as it can to where the meaning becomes another one, such as
the last sum below a threshold and the first above, a product half way between two codes, the end of a range of codes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.floats import INFINITY
from bitsynth.proof.elementwise.search import U64, Elements, float_inputs, sides
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec

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
        drawn = _drawn(spec, columns, rng)
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


def _drawn(spec: ElementwiseSpec, columns: int, rng: Generator) -> Elements:
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
    """Put values of other elements in the place of those that do not fit."""
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

    In the first columns that is a value of its own: pairs of variants are the two sides. In those behind it is one that
    all share, in two columns half of whose variants are that element.
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
