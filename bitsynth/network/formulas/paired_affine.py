"""Affine formulas in float64 for chains of two operands that have too many pairs to ask the reference about each.

Before the quantizer such a chain is affine, in real arithmetic, and float64 is off by 1e-13. Codes can differ from the
exact ones only where values lie that near to a half, which integers hit rarely: the reference is asked about these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.arithmetic.intervals import Intervals, interval
from bitsynth.graph.ir import Node
from bitsynth.graph.types import Tensor
from bitsynth.network.formulas.affine import AffineFormula
from bitsynth.network.formulas.pairs import Paired, PairProof

_AFFINE = ("add", "sub", "mul", "div", "batch_norm", "neg", "cast", "view")
_MAX_VALUE_ERROR = 1e-9
"""Codes by which a value may be off before the reference is asked: far more than float64 is."""
_MAX_GUARDED_PART = 2.0**17
"""Codes that a part of a value may stand for where float64 is off by less than the guard."""
GUARD = 1e-8
"""How near to a half a guarded line does not decide."""
_MAX_PAIRS = 1 << 26
_MAX_ASKED = 1 << 14
_PAIRS_AT_ONCE = 1 << 22
_RANDOM_POINTS = 64


def find_paired_affine(paired: Paired) -> AffineFormula | None:
    """The line that is the same as a chain on all sums and elements of the second edge; None if none is proved."""
    ends = _find_quantizer(paired)
    if ends is None or paired.graph.reference != "exact" or paired.operand.scale != 1:
        return None
    proof = PairProof(paired)
    affine = _fit_paired(proof, *ends)
    if affine is None or (asked := _find_points_near_halves(proof, affine)) is None:
        return None
    sums, elements = asked
    same = affine.codes(sums, elements) == proof.codes(sums, elements)
    return affine if same.all() else None


def find_guarded_affine(paired: Paired) -> AffineFormula | None:
    """Find the affine formula that decides all codes but those of values within `GUARD` of a half; None if none does.

    It is the chain's at three corners of the range, so it is off by 4 * _MAX_VALUE_ERROR / 64 at most everywhere
    between; float64 is off by as much at most.
    """
    ends = _find_quantizer(paired)
    if ends is None or paired.graph.reference != "exact" or paired.operand.scale != 1:
        return None
    proof = PairProof(paired)
    affine = _fit_paired(proof, *ends)
    if affine is None or affine.ratio is None:
        return None
    sums, seconds = (np.abs(np.stack(pair)).max(0) for pair in ((proof.low, proof.high), (proof.least, proof.most)))
    parts = np.abs(affine.factor) * sums, np.abs(affine.summand), np.abs(affine.ratio) * seconds
    return affine if max(part.max() for part in parts) < _MAX_GUARDED_PART else None


def _find_quantizer(paired: Paired) -> tuple[str, Node, bool] | None:
    """The edge of values before they are rounded, the node that rounds, and whether a ReLU is between."""
    nodes = list(paired.chain.nodes)
    before = [n for n in (*paired.chain.second_path, *nodes[:-1]) if n.op not in _AFFINE]
    last = nodes[-1]
    if last.op != "quantize" or last.attributes["rounding"] not in ("ROUND", "HALF_EVEN"):
        return None
    if before and (before != [nodes[-2]] or before[0].op != "relu"):
        return None
    if any(np.size(last.attributes[key]) != 1 for key in ("scale", "zero")):
        return None
    return (nodes[-2] if before else last).inputs[0], last, bool(before)


def _fit_paired(proof: PairProof, edge: str, node: Node, relu: bool) -> AffineFormula | None:
    """The line by the numbers at three corners of the range."""
    zero, scale = (float(np.asarray(node.attributes[key]).reshape(())) for key in ("zero", "scale"))
    low, high, first, last = proof.low, proof.high, proof.least, proof.most
    if zero != round(zero) or not ((high > low).all() and (last > first).all()):
        return None
    seconds = proof.paired.integers(np.stack([first, first, last]))
    values = proof.oracle.values([np.stack([low, high, low]), seconds])
    numbers = interval(Intervals().number(values[edge], values.graph.edges[edge]))
    if (numbers.high - numbers.low).max() > scale * _MAX_VALUE_ERROR / 64:
        return None
    start, by_sum, by_element = ((numbers.low + numbers.high) / 2 / scale).reshape(3, -1)
    factor, ratio = (by_sum - start) / (high - low), (by_element - start) / (last - first)
    if np.abs(factor).min() < 4 * _MAX_VALUE_ERROR:
        return None
    offset = proof.paired.operand.offset
    least = max(int(node.attributes["low"]), round(zero)) if relu else int(node.attributes["low"])
    limits = least - offset, int(node.attributes["high"]) - offset
    return AffineFormula(factor, start - factor * low - ratio * first, round(zero) - offset, limits, ratio)


def _find_points_near_halves(proof: PairProof, affine: AffineFormula) -> tuple[Tensor, Tensor] | None:
    """Sums and elements (points, channels) whose values are near a half, and some others; None if they are too many."""
    elements, channels = proof.paired.elements, len(proof.low)
    halves = np.arange(*affine.limits) + 0.5 - affine.zero
    if len(elements) * len(halves) * channels > _MAX_PAIRS:
        return None
    found = [list[_Point]() for _ in range(channels)]
    for channel, point in _points_near_halves(proof, affine, elements, halves):
        found[channel].append(point)
        if len(found[channel]) > _MAX_ASKED:
            return None
    rng = np.random.default_rng(0)
    sums = rng.integers(proof.low, proof.high + 1, (max(map(len, found)) + _RANDOM_POINTS, channels))
    seconds = np.clip(rng.choice(elements, sums.shape), proof.least, proof.most)
    for channel, points in enumerate(found):
        for k, point in enumerate(points):
            sums[k, channel], seconds[k, channel] = point.sum, point.element
    return sums, seconds


@dataclass(frozen=True)
class _Point:
    """A sum and an element of the second edge."""

    sum: int
    element: int


def _points_near_halves(
    proof: PairProof, affine: AffineFormula, elements: Tensor, halves: Tensor
) -> Iterator[tuple[int, _Point]]:
    """Points whose values are near halves, with their channel."""
    assert affine.ratio is not None
    many = max(1, _PAIRS_AT_ONCE // (len(halves) * len(proof.low)))
    for k in range(0, len(elements), many):
        some = elements[k : k + many][:, None, None]
        exact = (halves[:, None] - affine.summand - affine.ratio * some) / affine.factor
        sums = np.rint(exact)
        near = (
            (np.abs(exact - sums) * np.abs(affine.factor) < _MAX_VALUE_ERROR)
            & (sums >= proof.low)
            & (sums <= proof.high)
        )
        near &= (some >= proof.least) & (some <= proof.most)
        for e, h, c in np.argwhere(near):
            yield int(c), _Point(int(sums[e, h, c]), int(some[e, 0, 0]))
