"""The caller's float32 numbers as codes: moves and a monotone chain up to a quantizer, in one step of plain C.

The chain is a step function of float32. C counts the thresholds that a number reaches, searches them, or computes the
level by one multiplication or division and a rounding, where that is proved equal: `RoundedLevels`. Its numbers are
constructed from the line with the most room between the thresholds, rounded in a few ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Edge, Reals, Tensor
from bitsynth.network.declines import Stage
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import Chain, find_links, find_step_function, make_chain
from bitsynth.network.formulas.chain import explain_no_chain
from bitsynth.network.formulas.step_functions import StepFunction, float_of
from bitsynth.network.fusion.codes import code_formats, codes_of, operand_of
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.program import Buffer, Format, PlainStep, caller_format
from bitsynth.spec.layout import Layout

_MAGIC = {"float": 1.5 * 2**23, "double": 1.5 * 2**52}
"""Numbers with a last place of 1: adding and subtracting one rounds to an integer, ties to even."""
_SCALE_NEIGHBOURS = 2
"""Neighbours of a scale that are tried, on each side."""
_SLOPE_SPAN, _SLOPE_STEPS = 1e-5, 80
"""The relative width of the search for a slope, and its steps."""
_MAX_LOW = 1 << 20
"""Rounded values of level 0 are below it: far below 2^22, up to which `_MAGIC` rounds a float32."""


@dataclass(frozen=True)
class RoundedLevels:
    """The level round((x - origin) * factor) - low, or round((x - origin) / factor) - low, clipped to 0 .. `last`.

    All operations are in one type, in this order, and not contracted; ties round to even. The level of NaN is 0.

    Args:
        ctype: float or double.
        origin: The number that is subtracted first.
        factor: The factor, or divisor.
        divides: Whether it is a divisor.
        low: The rounded value that is level 0.
        last: The greatest level.
    """

    ctype: str
    origin: float
    factor: float
    divides: bool
    low: int
    last: int

    def __call__(self, x: Tensor) -> Tensor:
        """Return the levels of float32 numbers."""
        real: Any = np.float32 if self.ctype == "float" else np.float64
        with np.errstate(over="ignore", invalid="ignore"):
            t = x.astype(real) - real(self.origin) if self.origin else x.astype(real)
            t = t / real(self.factor) if self.divides else t * real(self.factor)
        low, high, magic = real(self.low), real(self.low + self.last), real(_MAGIC[self.ctype])
        t = np.where(t > low, t, low)
        t = np.where(t < high, t, high)
        levels: Tensor = ((t + magic) - magic).astype(np.int64) - self.low
        return levels

    def text(self, x: str, level: str) -> str:
        """Return C that declares `level`, the level of the float `x`."""
        kind, number = self.ctype, f"({self.ctype}){x}"
        if self.origin:
            number = f"({number} - {self._literal(self.origin)})"
        low, high, magic = (self._literal(n) for n in (self.low, self.low + self.last, _MAGIC[kind]))
        return "\n".join(
            (
                f"{kind} t = {number} {'/' if self.divides else '*'} {self._literal(self.factor)};",
                f"t = t > {low} ? t : {low};",
                f"t = t < {high} ? t : {high};",
                f"const int32_t {level} = (int32_t)((t + {magic}) - {magic}) - ({self.low});",
            )
        )

    def _literal(self, value: float) -> str:
        """Return a number of its type as a C literal in parentheses."""
        return f"({float(value).hex()}{'f' if self.ctype == 'float' else ''})"


def fit_rounded_levels(step_function: StepFunction) -> tuple[RoundedLevels, ...]:
    """Return a formula for each channel that is equal to a step function; none if a channel has none.

    A formula is monotone, as each of its operations is: if it is right at each threshold and just before it, it is
    right everywhere. Where levels fall, the formula counts the levels that are lost.
    """
    points = step_function.points()
    numbers, levels = float_of(points), (step_function.at(points) - step_function.least) // step_function.step
    levels = np.where(step_function.rising, levels, step_function.levels - levels)
    formulas = []
    for channel in range(len(step_function.low)):
        x, want = numbers[:, channel], levels[:, channel]
        formula = next(
            (candidate for candidate in _candidates(step_function, channel) if (candidate(x) == want).all()), None
        )
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
    apart, origin = _fit_line(levels + 0.5, *(float_of(t).astype(np.float64) for t in (breakpoints - 1, breakpoints)))
    if not apart > 0:
        return
    scales, low = _float32_neighbours(np.float32(apart)), round(origin / apart)
    if abs(low) < _MAX_LOW:
        for ctype, scale in product(("float", "double"), scales):
            yield RoundedLevels(ctype, 0.0, _reciprocal(scale, ctype), False, low, step_function.levels)
        for ctype, scale in product(("float", "double"), scales):
            yield RoundedLevels(ctype, 0.0, scale, True, low, step_function.levels)
    half = apart / 2
    for start, parity in product((origin, float(np.float32(origin)), round(origin / half) * half), (0, 1)):
        yield RoundedLevels("double", start - parity * apart, 1 / apart, False, parity, step_function.levels)


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
_BLOCK_BYTES = 2048
"""Bytes of planes that are interleaved at a time."""


@dataclass(frozen=True, eq=False)
class LevelCodes:
    """Codes by levels: C that finds the code of a float, and the thresholds that it reads.

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
        """Whether C compares all thresholds, and does not search."""
        return self.levels <= (_MAX_COUNTED if self.formulas else _MAX_COUNTED_ALONE)

    @property
    def table(self) -> Tensor:
        """The thresholds as C reads them; for a binary search they are padded to one less than a power of two."""
        room = (1 << self.levels.bit_length()) - 1
        short = 0 if self.counts else room - self.levels
        return np.ascontiguousarray(np.pad(self.thresholds, ((0, 0), (0, short)), mode="edge"))

    def text(self, x: str, to: str, table: str, channel: int) -> str:
        """Return statements that set `to` to the code of the float `x` of a channel with a `table`."""
        sign = "+" if self.last >= self.first else "-"
        return f"{self._level(x, table, channel)}\n{to} = (uint8_t)({self.first} {sign} level);"

    def _level(self, x: str, table: str, channel: int) -> str:
        """Return statements that declare the level."""
        if self.counts:
            count = " + ".join(f"({x} >= {table}[{k}])" for k in range(self.levels))
            return f"const int32_t level = {count};"
        if self.formulas:
            return self.formulas[channel].text(x, "level")
        lines, most = ["int32_t level = 0;"], self.levels
        for half in (1 << bit for bit in reversed(range(most.bit_length()))):
            lines.append(f"level += ({x} >= {table}[level + {half - 1}]) * {half};")
        return "\n".join((*lines, f"level = level < {most} ? level : {most};"))


def input_body(codes: LevelCodes, shape: tuple[int, int, int], *, planes: bool) -> str:
    """Return the body that makes codes of floats (batch, pixels, channels), in this order or in planes of channels."""
    batch, pixels, channels = shape
    apart = len(codes.thresholds) > 1
    if planes and channels > 1 and pixels > 1:
        return _planes_body(codes, batch, pixels, channels)
    if not apart:
        return _loop("i", math.prod(shape), codes.text("in0[i]", "out0[i]", "k0", 0))
    inner = codes.text("in0[at]", "out0[at]", f"(k0 + c * {codes.table.shape[1]})", 0)
    row = f"const size_t at = row * {channels} + c;\n{inner}"
    return _loop("row", batch * pixels, _loop("c", channels, row))


def _planes_body(codes: LevelCodes, batch: int, pixels: int, channels: int) -> str:
    """Return the body for planes: codes of a block of each plane, then the pixels of the block interleaved."""
    block = min(pixels, max(16, _BLOCK_BYTES // channels // 16 * 16))
    apart = codes.table.shape[1] if len(codes.thresholds) > 1 else 0
    by_channel = bool(codes.formulas) and apart > 0 and not codes.counts
    planes = [
        _loop("i", "count", codes.text("x[i]", f"made[{c}][i]", "t", k)).join(
            (f"{{\n    const float *x = from + {c} * (size_t){pixels}, *t = k0 + {c} * {apart};\n    (void)t;\n", "\n}")
        )
        for k, c in (enumerate(map(str, range(channels))) if by_channel else [(0, "c")])
    ]
    loops = "\n".join(planes) if by_channel else _loop("c", channels, planes[0])
    return f"""uint8_t made[{channels}][{block}];
for (size_t n = 0; n < {batch}; ++n)
    for (size_t start = 0; start < {pixels}; start += {block}) {{
        const size_t count = {pixels} - start < {block} ? {pixels} - start : {block};
        const float *from = in0 + n * {channels * pixels} + start;
        uint8_t *to = out0 + (n * {pixels} + start) * {channels};
{_indent(loops, 2)}
{_indent(_loop("i", "count", _loop("c", channels, f"to[i * {channels} + c] = made[c][i];")), 2)}
    }}"""


def _loop(name: str, count: int | str, body: str) -> str:
    return f"for (size_t {name} = 0; {name} < {count}; ++{name}) {{\n{_indent(body)}\n}}"


def _indent(text: str, deep: int = 1) -> str:
    return "\n".join("    " * deep + line for line in text.split("\n"))


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
    body = input_body(codes, (batch, math.prod(image), channels), planes=order == Layout.PLAIN)
    return PlainStep((), (), (), body, (codes.table,), headers=("bs_exact.h",), formula=step_function)


def _find_formulas(step_function: StepFunction, order: Layout) -> tuple[RoundedLevels, ...]:
    """Return a formula for each channel; none if there are too many channels for a loop each."""
    if len(step_function.low) > (_MAX_LOOPS if order == Layout.PLAIN else 1):
        return ()
    return fit_rounded_levels(step_function)
