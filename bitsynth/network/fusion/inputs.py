"""The caller's float32 numbers as codes: moves and a monotone chain up to a quantizer, in one step of plain C.

The chain is a step function of float32. C counts the thresholds that a number reaches, searches them, or computes the
level by one multiplication or division and a rounding, where that is proved equal: `RoundedLevels`. Its numbers are
constructed from the affine function with the most room between the thresholds, rounded in a few ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from bitsynth.emit import plain
from bitsynth.emit.element_loops import CInput, ElementLoops
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Edge, Reals, Tensor
from bitsynth.isa import doubles, floats, lane
from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.network.declines import Stage
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import Chain, find_links, find_step_function, make_chain
from bitsynth.network.formulas.chain import explain_no_chain
from bitsynth.network.formulas.step_functions import StepFunction, float_of
from bitsynth.network.fusion.codes import code_formats, codes_of, count_text, operand_of
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.program import Buffer, Format, PlainStep, caller_format
from bitsynth.spec.layout import Layout

_SCALE_NEIGHBOURS = 2
"""Neighbours of a scale that are tried, on each side."""
_SLOPE_SPAN, _SLOPE_STEPS = 1e-5, 80
"""The relative width of the search for a slope, and its steps."""
_MAX_VALUE = 1 << 21
"""Values that are rounded are below it: half of 2^22, up to which `ROUND_TO_UNITS` rounds a float32."""


@dataclass(frozen=True)
class RoundedLevels:
    """The level round((x - origin) * factor) - low, or round((x - origin) / factor) - low, of x clipped to two ends.

    All operations are in one type, in this order, and not contracted; ties round to even. NaN is clipped to the first
    end.

    Args:
        ctype: float or double.
        origin: The number that is subtracted first.
        factor: The factor, or divisor.
        divides: Whether it is a divisor.
        low: The rounded value that is level 0.
        ends: The greatest float32 number of level 0, and the least of the last level.
    """

    ctype: str
    origin: float
    factor: float
    divides: bool
    low: int
    ends: tuple[float, float]

    @property
    def is_bounded(self) -> bool:
        """Whether values are so small that they are rounded as `text` does it; values between the ends are, too."""
        values = [x - self.origin for x in self.ends]
        return all(abs(v / self.factor if self.divides else v * self.factor) < _MAX_VALUE for v in values)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the levels of float32 numbers."""
        given = {"x": Bits(ConcreteDomain(), floats.WIDTH, x.view(np.uint32).astype(np.uint64))}
        level = lane.compile_lane(lane.parse("level", self.text, given), [*given])(*given.values(), 0)
        return np.asarray(level.v).astype(np.int64)

    @property
    def text(self) -> str:
        """Return the level of the float32 `x`, in the lane language."""
        first, last = map(floats.bits_of, self.ends)
        value, prefix, bits_of = f"fclip(x, {first}, {last})", "f", floats.bits_of
        if self.ctype == "double":
            value, prefix, bits_of = f"double_of_float({value})", "d", doubles.bits_of
        if self.origin:
            value = f"{prefix}add({value}, {bits_of(-self.origin)})"
        value = f"{prefix}{'div' if self.divides else 'mul'}({value}, {bits_of(self.factor)})"
        # The last bits of the sum are the rounded number. No conversion to an integer takes as few operations.
        if self.ctype == "double":
            return f"trunc(dadd({value}, {doubles.ROUND_TO_UNITS}), 32) - ({self.low})"
        return f"fadd({value}, {floats.ROUND_TO_UNITS}) - {floats.ROUND_TO_UNITS} - ({self.low})"


def fit_rounded_levels(step_function: StepFunction) -> tuple[RoundedLevels, ...]:
    """Return a formula for each channel that is equal to a step function; none if a channel has none.

    A formula is monotone, as each of its operations is: if it is right at each threshold and just before it, it is
    right everywhere. Where levels fall, the formula counts the levels that are lost. NaN has level 0,
    and infinity the last one, as if thresholds were counted.
    """
    points = step_function.points()
    numbers, levels = float_of(points), (step_function.at(points) - step_function.least) // step_function.step
    levels = np.where(step_function.rising, levels, step_function.levels - levels)
    formulas = []
    for channel in range(len(step_function.low)):
        x = np.append(numbers[:, channel], np.array([np.nan, np.inf], np.float32))
        want = np.append(levels[:, channel], [0, step_function.levels])
        candidates = (c for c in _candidates(step_function, channel) if c.is_bounded)
        formula = next((candidate for candidate in candidates if (candidate(x) == want).all()), None)
        if formula is None:
            return ()
        formulas.append(formula)
    return tuple(formulas)


def _candidates(step_function: StepFunction, channel: int) -> Iterator[RoundedLevels]:
    """Yield formulas whose levels are about as far apart as the thresholds, the cheapest first."""
    thresholds = np.sort(step_function.thresholds[channel])
    inside = (thresholds > step_function.low[channel]) & (thresholds <= step_function.high[channel])
    (levels,) = inside.nonzero()
    if len(levels) < 2:
        return
    breakpoints = thresholds[inside]
    first, last = float_of(breakpoints[[0, -1]] - [1, 0]).tolist()
    apart, origin = _fit_line(levels + 0.5, *(float_of(t).astype(np.float64) for t in (breakpoints - 1, breakpoints)))
    if not apart > 0:
        return
    scales, low = _float32_neighbours(np.float32(apart)), round(origin / apart)
    for ctype, scale in product(("float", "double"), scales):
        yield RoundedLevels(ctype, 0.0, _reciprocal(scale, ctype), False, low, (first, last))
    for ctype, scale in product(("float", "double"), scales):
        yield RoundedLevels(ctype, 0.0, scale, True, low, (first, last))
    half = apart / 2
    for start, parity in product((origin, float(np.float32(origin)), round(origin / half) * half), (0, 1)):
        yield RoundedLevels("double", start - parity * apart, 1 / apart, False, parity, (first, last))


def _fit_line(at: Tensor, below: Tensor, above: Tensor) -> tuple[float, float]:
    """Return slope and start of the affine function with the most room between two bounds.

    The room is a concave function of the slope, so that ternary search finds its maximum.
    """

    def room(slope: float) -> float:
        return float((above - slope * at).min() - (below - slope * at).max())

    slope = (above[-1] - above[0]) / (at[-1] - at[0])
    low, high = slope * (1 - _SLOPE_SPAN), slope * (1 + _SLOPE_SPAN)
    for _ in range(_SLOPE_STEPS):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, other) if room(one) > room(other) else (one, high)
    slope = (low + high) / 2
    return slope, float((above - slope * at).min() + (below - slope * at).max()) / 2


def _float32_neighbours(value: np.float32) -> list[float]:
    """Return a float32 and its neighbours, the nearest first, without subnormal ones: their reciprocals overflow."""
    neighbours = [value]
    for way in (np.float32(np.inf), np.float32(0)):
        at = value
        for _ in range(_SCALE_NEIGHBOURS):
            at = np.nextafter(at, way)
            neighbours.append(at)
    return sorted((float(n) for n in neighbours if n >= np.finfo(np.float32).tiny), key=lambda n: abs(n - float(value)))


def _reciprocal(scale: float, ctype: str) -> float:
    return float(np.float32(1 / scale)) if ctype == "float" else 1 / scale


_MAX_COUNTED, _MAX_COUNTED_ALONE = 3, 16
"""The numbers of thresholds up to which all are compared: always, and where no formula is known."""


@dataclass(frozen=True, eq=False)
class LevelCodes:
    """Codes by levels, as lane expressions of a float32 `x` and a table `t` of thresholds.

    Args:
        first: The code of level 0.
        last: The code of the greatest level.
        thresholds: float32, ascending (channels, levels).
        formulas: One for each channel, or none.
    """

    first: int
    last: int
    thresholds: Tensor
    formulas: tuple[RoundedLevels, ...] = ()

    @classmethod
    def of(cls, step_function: StepFunction, first: int, formulas: tuple[RoundedLevels, ...] = ()) -> LevelCodes:
        """Return the codes of a step function that rises or falls in all channels; `first` is its least integer's."""
        rising, numbers = bool(step_function.rising[0]), float_of(step_function.thresholds)
        reached = np.where(step_function.thresholds == step_function.low[:, None], -np.inf, numbers).astype(np.float32)
        ends = (first, first + step_function.levels)
        return cls(*(ends if rising else ends[::-1]), np.sort(reached, axis=1), formulas)

    @property
    def levels(self) -> int:
        """The number of levels above the least."""
        return int(self.thresholds.shape[1])

    @property
    def counts(self) -> bool:
        """Whether all thresholds are compared, not searched."""
        return self.levels <= (_MAX_COUNTED if self.formulas else _MAX_COUNTED_ALONE)

    @property
    def table(self) -> Tensor:
        """The bits of thresholds; for a binary search the last is repeated up to one less than a power of two."""
        room = self.levels if self.counts else (1 << self.levels.bit_length()) - 1
        padded = np.pad(self.thresholds, ((0, 0), (0, room - self.levels)), mode="edge")
        return np.ascontiguousarray(padded).view(np.uint32)

    @property
    def texts(self) -> tuple[str, ...]:
        """The code in the lane language: one for all channels, or one for each."""
        if self.counts:
            levels = [count_text("fle(t[k], x)", self.levels)]
        else:
            levels = [formula.text for formula in self.formulas] or [f"smin(reached(t, x), {self.levels})"]
        sign = "+" if self.last >= self.first else "-"
        return tuple(f"{self.first} {sign} ({level})" for level in levels)

    def loops(self, shape: tuple[int, int, int], *, planes: bool) -> ElementLoops:
        """Return C for floats in0 (batch, pixels, channels), in this order or in planes of channels."""
        batch, pixels, channels = shape
        kinds, entries = self.table.shape
        interleaves = planes and channels > 1 and (pixels > 1 or len(self.texts) > 1)
        table = f"(k0 + c * {entries})" if kinds > 1 else "k0"
        inputs = {"x": CInput("in0[at]", floats.WIDTH, kind="float"), "t": CInput(table, floats.WIDTH, entries)}
        rows, columns = (1, math.prod(shape)) if kinds == 1 and not interleaves else (batch * pixels, channels)
        code = self.texts if len(self.texts) > 1 else self.texts[0]
        return ElementLoops(rows, columns, inputs, code, plane=pixels if interleaves else 0)


_MOVES = ("reshape", "transpose")
_MAX_LOOPS = 8
"""Planes of a formula each."""


def match_input(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match moves of an input of the network and the monotone chain to codes after them.

    Given:   %t = transpose(%input); %codes = quantize(div(sub(%t, mean), deviation))    %input of float32
    Result:  %codes = levels(%input)    one multiplication and rounding, or a count of thresholds reached
    """
    graph = def_use.graph
    source = def_use.only_source(node)
    if source not in graph.inputs or graph.edges[source].dtype != "float32":
        return None
    if not isinstance(graph.edges[source].type, Reals):
        return None
    moves = _collect_moves(def_use, node)
    start = moves[-1].outputs[0] if moves else source
    links = find_links(def_use, start, 1, None if moves else node, mixing=True)
    for count in range(len(links), 0, -1):
        if operand_of(graph.edges[links[count - 1].node.outputs[0]]):
            chain = make_chain(def_use, start, links[:count])
            if chain.axes[-1] == 1 or not chain.varies:
                return _make_group(def_use, node, moves, chain)
    if moves or TABLE[node.op].kind in ("elementwise", "step"):
        def_use.decline(node, Stage.CHAIN, partial(explain_no_chain, def_use, start, 1, None if moves else node))
    return None


def _collect_moves(def_use: DefUse, node: Node | None) -> tuple[Node, ...]:
    """Return a node and the moves that follow it, as long as it and they are moves."""
    moves: list[Node] = []
    while node is not None and node.op in _MOVES:
        moves.append(node)
        node = def_use.only_reader(node.outputs[0])
    return tuple(moves)


def _make_group(def_use: DefUse, node: Node, moves: tuple[Node, ...], chain: Chain) -> FusionGroup | None:
    source = moves[0].inputs[0] if moves else chain.start
    order = _find_order(def_use, source, moves, chain.end)
    step_function = find_step_function(def_use.graph, chain) if order and chain.is_limited else None
    if order is None or step_function is None or len(set(step_function.rising.tolist())) > 1:
        why = "no step function is proved for the nodes up to the next codes"
        def_use.decline(node, Stage.FORMULA, why if order else "moves leave numbers in an order that codes do not have")
        return None
    return InputGroup(def_use, source, (*moves, *chain.nodes), step_function, order)


def _find_order(def_use: DefUse, source: str, moves: tuple[Node, ...], end: str) -> Layout | None:
    """Return the layout of the caller's numbers: channels last or in planes of channels; None for another order."""
    graph = def_use.graph
    given, shape = graph.edges[source].shape, graph.edges[end].shape
    places = np.arange(math.prod(given), dtype=np.int32).reshape(given)
    for node in moves:
        attributes = node.attributes
        places = places.reshape(attributes["sizes"]) if node.op == "reshape" else places.transpose(attributes["order"])
    if len(shape) < 2:
        return None
    places = places.reshape(shape)
    return Layout.NHWC if _is_rising(np.moveaxis(places, 1, -1)) else Layout.PLAIN if _is_rising(places) else None


def _is_rising(places: Tensor) -> bool:
    """Return whether each of some different numbers is greater than the one before it."""
    row = places.reshape(-1)
    return bool((row[:-1] < row[1:]).all())


class InputGroup(FusionGroup):
    """Codes of the caller's numbers, by the step function of the nodes up to a quantizer.

    Args:
        def_use: The graph.
        source: The input.
        nodes: Moves and the chain.
        step_function: The codes that the chain gives.
        order: How numbers lie: channels last, or plain as the result's axes are.
    """

    def __init__(
        self, def_use: DefUse, source: str, nodes: tuple[Node, ...], step_function: StepFunction, order: Layout
    ) -> None:
        self.def_use, self.nodes, self.inputs, self.outputs = def_use, nodes, (source,), nodes[-1].outputs
        self.step_function, self.order = step_function, order

    def reads(self, edge: str) -> tuple[Format, ...]:
        return (caller_format(self.def_use.graph.edges[edge]),)

    def writes(self, edge: str) -> tuple[Format, ...]:
        return code_formats(self.def_use.graph.edges[edge], (Layout.NHWC,))

    def step(self, buffers: Mapping[str, Buffer]) -> PlainStep:
        given, result = (buffers[e].name for e in (*self.inputs, *self.outputs))
        edge = self.def_use.graph.edges[self.outputs[0]]
        return replace(
            input_step(self.step_function, edge, self.order), nodes=self.names, inputs=(given,), outputs=(result,)
        )


def input_step(step_function: StepFunction, edge: Edge, order: Layout) -> PlainStep:
    """Return the step that turns float32 numbers in an `order` into codes of `edge`; its buffers are named later."""
    (first,) = codes_of(np.array([step_function.least]), edge).tolist()
    codes = LevelCodes.of(step_function, first, _find_formulas(step_function, order))
    batch, channels, *image = edge.shape
    loops = codes.loops((batch, math.prod(image), channels), planes=order == Layout.PLAIN)
    return PlainStep((), (), (), loops.text(), (codes.table,), headers=(plain.HEADER,), formula=step_function)


def _find_formulas(step_function: StepFunction, order: Layout) -> tuple[RoundedLevels, ...]:
    """Return a formula for each channel; none if there are too many channels for a loop each."""
    if len(step_function.low) > (_MAX_LOOPS if order == Layout.PLAIN else 1):
        return ()
    return fit_rounded_levels(step_function)
