"""Exact numbers as fractions, for the single elements of a run that intervals do not determine."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.arithmetic import Fractions, Interval
from bitsynth.graph.arithmetic.fractions import TooLong, count_bits, require_short
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.operators.products import find_factors
from bitsynth.graph.types import Edge, Integers, Reals, Tensor, full_range

_FRACTIONS = Fractions()
_MAX_DENOMINATOR = 1 << 128
"""The largest common denominator for which factors are computed as integers, and not as fractions."""
_MAX_SHORT = 1 << 30
"""The largest factor, times the root of the number of terms, for which sums of products stay in int64."""
_MAX_REMEMBERED = 1 << 20
"""The most numbers that are kept between calls, of about 200 bytes each."""
_LONG_BITS = 1 << 10
"""Up to this many bits the time of an operation on fractions hardly depends on them."""
_MAX_WORK = 1 << 22
"""The most time for longer fractions in a run, in units of the time for `_LONG_BITS`.

An operation on n bits counts as (n / `_LONG_BITS`) ** 2, as a greatest common divisor takes that time. The limit is
1,024 numbers of the most bits, about 10 seconds.
"""
_ADVICE = "put a quantizer before it, or name another reference, such as onnxruntime"

_Needs = list[tuple[str, Tensor]]
"""Edges, and the places of the elements that are needed."""


class ExactNumbers:
    """Exact numbers of the edges of a run, as fractions.

    A number that intervals do not determine is computed from the inputs of its node, and so on, back to integers and
    known numbers. Each is computed once and kept, without recursion, so that the time grows with the number of nodes
    before a number and not with the number of paths. Fractions have at most `arithmetic.fractions.MAX_BITS` bits.

    Example: in `x -> Div 3 -> Mul 1.5 -> Round` with x = 1, the interval of the product has the tie 0.5 inside, so that
    it does not say how to round. The fraction 1 / 3 * 3 / 2 is the tie.

    Args:
        graph: The network.
        values: The values so far, by edge; the inputs of a node have values when the node asks.
        makers: The node that makes each edge, in an order in which they can run.
    """

    def __init__(self, graph: Graph, values: Mapping[str, Any], makers: Mapping[str, Node]) -> None:
        self._graph, self._values, self._makers = graph, values, makers
        self._computed: dict[str, dict[int, Fraction]] = {}
        self._work = 0

    def numbers(self, name: str, places: Tensor | None = None) -> Tensor:
        """Return the numbers at `places` of an edge, in the shape of `places`; without these, all numbers.

        Places count elements in memory order. SpecError names a node whose fractions become too long.
        """
        edge = self._graph.edges[name]
        if places is None:
            places = _number_places(edge, 0)
        asked, back = np.unique(places, return_inverse=True)
        if sum(len(known) for known in self._computed.values()) > _MAX_REMEMBERED:
            self._computed.clear()
        self._compute(name, asked)
        numbers: Tensor = self._at(edge, asked)[back].reshape(places.shape)
        return numbers

    def where(self, name: str, mask: Tensor) -> Tensor:
        """Return the numbers of an edge, broadcast to the shape of `mask`, where the mask is set, in one axis."""
        return self.numbers(name, np.broadcast_to(_number_places(self._graph.edges[name], 0), mask.shape)[mask])

    @cached_property
    def _order(self) -> dict[str, int]:
        """The place of each node, by name, in an order in which nodes can run."""
        return {name: k for k, name in enumerate(dict.fromkeys(node.name for node in self._makers.values()))}

    def _compute(self, name: str, places: Tensor) -> None:
        """Compute the unknown numbers at `places` of an edge, and all numbers that they depend on.

        First the needed places are collected, from the last node to the first: before a node is visited, all readers of
        its outputs have asked for places. Then the nodes are computed in the opposite order.
        """
        asked: dict[str, list[Tensor]] = {}
        waiting: list[tuple[int, str]] = []
        steps: list[tuple[str, Tensor, Callable[[], Tensor]]] = []

        def ask(name: str, places: Tensor) -> None:
            """Ask for the numbers at `places` of an edge that are unknown yet."""
            missing = self._missing(name, places)
            if missing.size:
                asked.setdefault(name, []).append(missing)
                heapq.heappush(waiting, (-self._order[self._makers[name].name], name))

        ask(name, places)
        while waiting:
            _, name = heapq.heappop(waiting)
            if name not in asked:  # It was asked for several times.
                continue
            missing = np.unique(np.concatenate(asked.pop(name)))
            needs, compute = self._step(self._graph.edges[name], missing)
            steps.append((name, missing, compute))
            for other, there in needs:
                ask(other, there)
        for name, missing, compute in reversed(steps):
            numbers = self._check_size(self._makers[name], compute)
            self._computed.setdefault(name, {}).update(zip(missing.tolist(), numbers.tolist(), strict=True))

    def _missing(self, name: str, places: Tensor) -> Tensor:
        """Return the places of an edge whose numbers intervals do not determine, and that were not computed yet."""
        value = self._values[name]
        if isinstance(self._graph.edges[name].type, Integers) or not isinstance(value, Interval):
            return places[:0]
        low, high = (x.reshape(-1)[places] for x in (value.low, value.high))
        known = self._computed.get(name, {})
        return np.array([k for k in places[low != high].tolist() if k not in known], np.int64)

    def _check_size(self, node: Node, compute: Callable[[], Tensor]) -> Tensor:
        """Return the result of `compute`; SpecError that names the node if fractions are too long."""
        try:
            numbers = np.asarray(compute(), object)
            for number in numbers.tolist():
                require_short(number)
        except TooLong as error:
            raise SpecError(f"{node}: {error}; {_ADVICE}") from None
        except ArithmeticError as error:
            raise ArithmeticError(f"{error} in {node}") from None
        self._work += sum((size // _LONG_BITS) ** 2 for size in map(count_bits, numbers.tolist()) if size > _LONG_BITS)
        if self._work > _MAX_WORK:
            raise SpecError(f"{node}: too many exact values are fractions of more than {_LONG_BITS:,} bits; {_ADVICE}")
        return numbers

    def _at(self, edge: Edge, places: Tensor) -> Tensor:
        """Return the numbers at `places`, which are all known or computed."""
        value = self._values[edge.name]
        if isinstance(edge.type, Integers):
            grid = (np.broadcast_to(p, edge.shape).flat[places] for p in (edge.type.scale, edge.type.zero))
            scale, zero = (_FRACTIONS.constant(p) for p in grid)
            dequantized: Tensor = scale * (_FRACTIONS.constant(value.reshape(-1)[places]) - zero)
            return dequantized
        if not isinstance(value, Interval):
            return np.asarray(_FRACTIONS.constant(np.asarray(value).reshape(-1)[places]))
        low, high = (x.reshape(-1)[places] for x in (value.low, value.high))
        numbers: Tensor = _FRACTIONS.constant(np.nan_to_num(low))
        for k in (low != high).nonzero()[0].tolist():
            numbers[k] = self._computed[edge.name][int(places[k])]
        return numbers

    def _step(self, edge: Edge, places: Tensor) -> tuple[_Needs, Callable[[], Tensor]]:
        """Return the edges and places that numbers depend on, and a function that computes the numbers from them."""
        node = self._makers[edge.name]
        site = self._site(node)
        kind = TABLE[node.op].kind
        if kind == "elementwise":
            needs = [(e.name, _broadcast(e, edge)[places]) for e in site.inputs]
            return needs, lambda: np.asarray(TABLE[node.op].run(site, *self._all(needs))[0])
        if kind == "move":
            return self._trace_move(site, places)
        if kind == "product":
            return self._trace_product(site, places)
        needs = [(e.name, _number_places(e, 0)) for e in site.inputs]
        which = node.outputs.index(edge.name)
        return needs, lambda: np.asarray(TABLE[node.op].run(site, *self._all(needs))[which]).reshape(-1)[places]

    def _all(self, needs: _Needs) -> Iterable[Tensor]:
        """Return the numbers that a step depends on, in the shapes of their places."""
        return [self._at(self._graph.edges[n], places.reshape(-1)).reshape(places.shape) for n, places in needs]

    def _site(self, node: Node) -> Site:
        """Return the site of a node whose edges carry real numbers."""
        inputs = tuple(replace(e, type=Reals()) for e in self._graph.edges_of(node.inputs))
        outputs = tuple(replace(e, type=Reals()) for e in self._graph.edges_of(node.outputs))
        return Site(node, inputs, (), self._graph.reference, outputs, _FRACTIONS)

    def _trace_move(self, site: Site, places: Tensor) -> tuple[_Needs, Callable[[], Tensor]]:
        """Return the dependences of a move: it is run on the places of the inputs' elements, where 0 marks padding."""
        starts = np.cumsum([1, *(int(np.prod(e.shape)) for e in site.inputs)])
        marks = [_number_places(e, start) for e, start in zip(site.inputs, starts[:-1], strict=True)]
        outputs = tuple(replace(e, type=full_range("int64")) for e in site.outputs)
        sources = TABLE[site.node.op].run(replace(site, outputs=outputs), *marks)[0].reshape(-1)[places]
        of = np.searchsorted(starts, sources, side="right") - 1
        which = np.unique(of[of >= 0]).tolist()
        needs = [(site.inputs[k].name, sources[of == k] - starts[k]) for k in which]

        def compute() -> Tensor:
            numbers: Tensor = _FRACTIONS.constant(np.zeros(places.shape))
            for k, moved in zip(which, self._all(needs), strict=True):
                numbers[of == k] = moved
            return numbers

        return needs, compute

    def _trace_product(self, site: Site, places: Tensor) -> tuple[_Needs, Callable[[], Tensor]]:
        """Return the dependences of a product, and the function that sums the products of both factors."""
        marks = find_factors(site, places)
        # Of each factor the element, counted from 0, and where it is used: at 0 padding is.
        asked = [np.unique(m, return_inverse=True) for m in marks]
        needs = [(e.name, np.maximum(a - 1, 0)) for e, (a, _) in zip(site.inputs, asked, strict=True)]

        def compute() -> Tensor:
            factors = [
                _as_integers(numbers, m, back.reshape(m.shape))
                for numbers, m, (_, back) in zip(self._all(needs), marks, asked, strict=True)
            ]
            (a, of_a), (b, of_b) = factors
            return np.asarray((a * b).sum(-1).astype(object) * (of_a * of_b))

        return needs, compute


def _as_integers(numbers: Tensor, marks: Tensor, back: Tensor) -> tuple[Tensor, Fraction]:
    """Return factors as whole multiples of one fraction, and that fraction; as fractions if its denominator is large.

    Args:
        numbers: The numbers, each once.
        marks: For each term of a sum the place of its factor, or 0 for padding.
        back: For each term the index of its factor in `numbers`.
    """
    factors = np.concatenate([_FRACTIONS.constant(np.zeros(1)), numbers])
    finest = _common_denominator(factors)
    if finest >= _MAX_DENOMINATOR:
        return factors[np.where(marks > 0, 1 + back, 0)], Fraction(1)
    whole = np.array([x.numerator * (finest // x.denominator) for x in factors], object)
    short = whole.astype(np.int64) if abs(whole).max() * math.isqrt(marks.shape[-1]) < _MAX_SHORT else whole
    return short[np.where(marks > 0, 1 + back, 0)], Fraction(1, finest)


def _common_denominator(numbers: Tensor) -> int:
    """Return the least common denominator; TooLong if sums of the numbers could have too many bits."""
    finest = 1
    for number in numbers:
        finest = math.lcm(finest, number.denominator)
        require_short(Fraction(1, finest))
    return finest


def _number_places(edge: Edge, start: int = 1) -> Tensor:
    """Return the elements of an edge numbered from `start`, in its shape."""
    return np.arange(start, start + int(np.prod(edge.shape))).reshape(edge.shape)


def _broadcast(edge: Edge, to: Edge) -> Tensor:
    """Return for each element of `to` the place of the element that is broadcast to it."""
    return np.broadcast_to(_number_places(edge, 0), to.shape).reshape(-1)
