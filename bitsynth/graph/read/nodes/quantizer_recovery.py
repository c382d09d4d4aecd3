"""Quantizers and weight codes that a file holds as other nodes or as floats.

Three kinds are recovered, the last two in exact arithmetic alone:

* Rounded numbers that are scaled and clipped. max(min(round(x) * s, h), l) is round(x), clipped to l / s and h / s,
  times s, if l / s and h / s are whole numbers. QKeras writes quantizers so.
* Idioms of trainers: straight-through estimators, (q - x) + x; PACT's clip, |x| - |x - c|; a sign that is never 0.
* Weights that an exporter folded to floats, perhaps with the scale of a batch norm: they are whole multiples of one
  number a channel, each off by a few roundings.
"""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from fractions import Fraction
from typing import TypeGuard

import numpy as np

from bitsynth.graph.arithmetic.intervals import Interval, Intervals, interval
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.read.file_node import MAX_FOLDING_ERROR, FileNode, Quantizer
from bitsynth.graph.read.nodes.comparisons import add_bipolar, match_threshold_sum, match_twice_less_one
from bitsynth.graph.types import Integers, Reals, Tensor, cast

MAX_LIMIT = 1 << 31
"""The greatest size of a limit: a rounding within larger limits stays a rounding."""
_MAX_NODES_BETWEEN = 32
"""The most nodes from a clip back to the rounding: exporters write a few, and the search must end in long chains."""
_INVERSES = {"mul": operator.truediv, "div": operator.mul, "add": operator.sub, "sub": operator.add}
Limit = Fraction | None
"""A least or greatest number; None where there is no limit."""


def match_cut_rounding(node: FileNode, edge: str, low: float | None, high: float | None) -> str | None:
    """Return the edge of codes for `edge` clipped to limits, if it is rounded numbers that are scaled; else None.

    Example, in exact arithmetic: clip(round(x) * 0.5, 0, 3.5) is clip(round(x), 0, 7) * 0.5, so a quantizer of x with
    codes 0 to 7, and a product.
    """
    graph, steps = node.graph, list[Node]()
    limits = _as_fraction(low), _as_fraction(high)
    for _ in range(_MAX_NODES_BETWEEN):
        if _carries_whole_numbers(graph, edge):
            break
        maker = graph.maker(edge)
        if maker is None:
            return None
        if (inner := _limits_of_cut(graph, maker)) is not None:
            limits = _combine_limits(inner, limits)
        elif (before := _limits_before(graph, maker, limits)) is not None:
            steps, limits = [*steps, maker], before
        else:
            return None
        edge = maker.inputs[0]
    else:
        return None
    codes = _add_cut(node, edge, limits)
    for step in reversed(steps if codes else []):
        codes = node.add(step.op, str(codes), step.inputs[1])
    return codes


def _carries_whole_numbers(graph: GraphBuilder, edge: str) -> bool:
    """Return whether an edge carries integers, or is the result of rounding."""
    kind = graph.edges[edge].type
    return kind.is_plain if isinstance(kind, Integers) else bool(graph.maker(edge, "round"))


def _add_cut(node: FileNode, edge: str, limits: tuple[Limit, Limit]) -> str | None:
    """Return whole numbers clipped to limits, as a clip of integers or by the quantizer that rounds; None of others."""
    low, high = (None if limit is None else float(limit) for limit in limits)
    whole = all(limit is None or (limit.denominator == 1 and abs(limit) <= MAX_LIMIT) for limit in limits)
    if not whole or (low is not None and high is not None and low > high):
        return None
    rounded = node.graph.maker(edge, "round")
    if rounded is None or isinstance(node.graph.edges[rounded.inputs[0]].type, Integers):
        return node.add("clip", edge, low=low, high=high)
    if low is None or high is None:
        return None
    return add_quantizer_within(node, rounded.inputs[0], rounded.attributes["rounding"], (low, high))


def constant_number(graph: GraphBuilder, edge: str) -> float | None:
    """Return a constant that is one finite float; None of other edges."""
    value = graph.value(edge) if graph.edges[edge].is_float else None
    number = float(value.reshape(())) if value is not None and value.size == 1 else np.inf
    return number if np.isfinite(number) else None


def _limits_of_cut(graph: GraphBuilder, maker: Node) -> tuple[Limit, Limit] | None:
    """Return the limits of a clip, a relu, or a min or max with a constant; None of other nodes."""
    if maker.op == "clip":
        return _as_fraction(maker.attributes["low"]), _as_fraction(maker.attributes["high"])
    if maker.op == "relu":
        return Fraction(0), None
    number = (
        constant_number(graph, maker.inputs[1]) if maker.op in ("min", "max") and _keeps_shape(graph, maker) else None
    )
    if number is None:
        return None
    return (None, Fraction(number)) if maker.op == "min" else (Fraction(number), None)


def _limits_before(graph: GraphBuilder, maker: Node, limits: tuple[Limit, Limit]) -> tuple[Limit, Limit] | None:
    """Return the limits of a scaling's or shift's input, given its output's limits; exact arithmetic alone."""
    if graph.reference != "exact" or maker.op not in ("mul", "div", "add", "sub") or not _keeps_shape(graph, maker):
        return None
    number = constant_number(graph, maker.inputs[1])
    if number is None or (maker.op in ("mul", "div") and number <= 0):
        return None
    by, undo = Fraction(number), _INVERSES[maker.op]
    low, high = (None if limit is None else undo(limit, by) for limit in limits)
    return low, high


def _keeps_shape(graph: GraphBuilder, maker: Node) -> bool:
    """Return whether the output of a node has the shape of its first input."""
    return graph.edges[maker.inputs[0]].shape == graph.edges[maker.outputs[0]].shape


def _combine_limits(inner: tuple[Limit, Limit], outer: tuple[Limit, Limit]) -> tuple[Limit, Limit]:
    """Return the limits that two clips have together: first to `inner`, then to `outer`."""
    low, high = (_clamp(limit, *outer) for limit in inner)
    return (outer[0] if low is None else low), (outer[1] if high is None else high)


def _clamp(limit: Limit, low: Limit, high: Limit) -> Limit:
    """Return a limit clipped to two others."""
    if limit is None:
        return None
    limit = limit if low is None else max(limit, low)
    return limit if high is None else min(limit, high)


def _as_fraction(limit: float | None) -> Limit:
    """Return a limit as a fraction; None if it is infinite or left out."""
    return None if limit is None or not np.isfinite(limit) else Fraction(limit)


def add_quantizer_within(node: FileNode, edge: str, mode: str, limits: tuple[float, float]) -> str:
    """Return the edge of a quantizer that rounds an edge to whole numbers within limits.

    A Clip to whole numbers before it becomes its limits, a division before that its scale.
    """
    source, scale = edge, np.ones(())
    low, high = limits
    if (clip := node.graph.maker(source, "clip")) and (cut := _whole_limits(clip)):
        source, low, high = clip.inputs[0], *(min(max(end, low), high) for end in cut)
    if (division := node.graph.maker(source, "div")) and (
        divisor := _divisor_as_scale(node.graph, division)
    ) is not None:
        source, scale = division.inputs[0], divisor
    return Quantizer(mode, (int(low), int(high)), scale, 0.0).add(node, source, real=node.input(0).dtype)


def _whole_limits(clip: Node) -> tuple[float, float] | None:
    """Return the limits of a clip, if both are whole numbers; else None."""
    limits = clip.attributes["low"], clip.attributes["high"]
    return limits if all(map(_is_whole, limits)) else None


def _divisor_as_scale(graph: GraphBuilder, division: Node) -> Tensor | None:
    """Return the divisor as the scale of a quantizer of the dividend; None unless it is constant and above 0."""
    dividend, quotient = (graph.edges[name] for name in (division.inputs[0], division.outputs[0]))
    value = graph.value(division.inputs[1])
    if value is None or dividend.shape != quotient.shape or not ((value > 0) & np.isfinite(value)).all():
        return None
    rank = len(dividend.shape)
    return value.reshape(()) if value.size == 1 else value.reshape((1,) * (rank - value.ndim) + value.shape)


def _is_whole(limit: float | None) -> TypeGuard[float]:
    """Return whether a limit is a whole number."""
    return limit is not None and limit == np.rint(limit) and abs(limit) <= MAX_LIMIT


def match_sum_idiom(node: FileNode, op: str, a: str, b: str) -> str | None:
    """Return the edge that a sum or difference means in quantizers of trainers; None of ordinary sums."""
    if node.graph.reference != "exact":
        return None
    if op == "add":
        through = _match_straight_through(node, a, b) or _match_straight_through(node, b, a)
        signs = _match_sign_without_zero(node, a, b) or _match_sign_without_zero(node, b, a)
        return through or signs or match_twice_less_one(node, op, a, b) or match_threshold_sum(node, a, b)
    return (_match_pact_clip(node, a, b) or match_twice_less_one(node, op, a, b)) if op == "sub" else None


def _match_straight_through(node: FileNode, rest: str, x: str) -> str | None:
    """Return q if the sum is (q - x) + x, or 1 * (-x + q) + x: a straight-through estimator of gradients."""
    graph = node.graph
    while (scaled := graph.maker(rest, "mul")) and constant_number(graph, scaled.inputs[1]) == 1:
        rest = scaled.inputs[0]
    minuend = _find_minuend(graph, rest, x)
    return minuend if minuend and graph.edges[minuend].shape == node.shape() else None


def _find_minuend(graph: GraphBuilder, rest: str, x: str) -> str | None:
    """Return q if an edge is q - x or -x + q; else None."""
    if difference := graph.maker(rest, "sub"):
        return difference.inputs[0] if difference.inputs[1] == x else None
    if addition := graph.maker(rest, "add"):
        a, b = addition.inputs
        return b if _is_negative(graph, a, x) else a if _is_negative(graph, b, x) else None
    return None


def _is_negative(graph: GraphBuilder, edge: str, x: str) -> bool:
    """Return whether an edge is -x; both may be transposed alike."""
    if negation := graph.maker(edge, "neg"):
        return negation.inputs[0] == x
    moved, other = graph.maker(edge, "transpose"), graph.maker(x, "transpose")
    if moved is None or other is None or moved.attributes["order"] != other.attributes["order"]:
        return False
    return _is_negative(graph, moved.inputs[0], other.inputs[0])


def _match_sign_without_zero(node: FileNode, sign: str, rest: str) -> str | None:
    """Return the edge of bipolar codes for s + (1 - |s|), with a sign s: QKeras writes so to have 1 for 0."""
    graph = node.graph
    quantizer, difference = graph.maker(sign, "quantize"), graph.maker(rest, "sub")
    size = graph.maker(difference.inputs[1], "abs") if difference else None
    if quantizer is None or difference is None or size is None:
        return None
    if size.inputs[0] != sign or constant_number(graph, difference.inputs[0]) != 1:
        return None
    kind, limits = graph.edges[sign].type, (quantizer.attributes["low"], quantizer.attributes["high"])
    is_sign = (
        quantizer.attributes["rounding"] == "UP" and limits == (-1, 1) and not np.any(quantizer.attributes["zero"])
    )
    plain = isinstance(kind, Integers) and kind.is_plain
    return add_bipolar(node, quantizer.inputs[0], node.input(0).dtype) if is_sign and plain else None


def _match_pact_clip(node: FileNode, size: str, other: str) -> str | None:
    """Return 2 * clip(x, 0, c) - c for |x| - |x - c| with c > 0: PACT writes its clip so."""
    graph = node.graph
    first, second = (graph.maker(edge, "abs") for edge in (size, other))
    shifted = graph.maker(second.inputs[0], "sub") if second else None
    if first is None or shifted is None or shifted.inputs[0] != first.inputs[0]:
        return None
    limit = constant_number(graph, shifted.inputs[1])
    if limit is None or limit <= 0:
        return None
    cut = node.add("clip", first.inputs[0], low=0.0, high=limit)
    return node.add("sub", node.add("mul", cut, node.constant_like(2.0)), node.constant_like(limit))


def fold_constant_scale(node: FileNode, op: str, a: str, b: str) -> tuple[str, str]:
    """Return both factors, a scale that is computed from constants folded in the floats of the file."""
    if op == "mul" and (scale := _scale_as_written(node, a, b)) != a:
        return b, scale
    return a, (_scale_as_written(node, b, a) if op in ("mul", "div") else b)


def _scale_as_written(node: FileNode, scale: str, of: str) -> str:
    """Return the constant of a scale in the floats of the file, if it is computed from constants; else the edge."""
    graph = node.graph
    if scale in graph.constants:
        return scale
    edge, sizes = graph.edges[of], [math.prod(graph.edges[name].shape) for name in (of, scale)]
    if of in graph.constants:
        scales = sizes[0] > sizes[1] and isinstance(edge.type, Integers)
    else:
        scales = sizes[1] == 1 and graph.reference == "exact" and graph.in_floats(of) is None
    value = graph.in_floats(scale) if scales else None
    return scale if value is None else graph.constant(value)


MAX_CODE = 128
"""The greatest absolute code that is tried, the greatest of 8 bits."""


def recover_weight_codes(node: FileNode, index: int, axis: int) -> str:
    """Return the edge of weights as codes with one scale for all or for each channel; the edge itself if there is none.

    Args:
        node: A product in exact arithmetic; others compute with the file's floats.
        index: The input.
        axis: The axis of output channels.
    """
    edge = node.input(index)
    # Weights that are computed from constants, such as a loop's state, are float64 in exact arithmetic.
    is_wide = edge.dtype in ("float32", "float64")
    if node.graph.reference != "exact" or not is_wide or isinstance(edge.type, Integers):
        return edge.name
    weights = node.graph.in_floats(edge.name)
    if weights is None or weights.ndim < 2 or not weights.size or not np.isfinite(weights).all():
        return edge.name
    scale = _find_scale(weights.astype(np.float64), axis % weights.ndim)
    return edge.name if scale is None else _add_weight_codes(node, weights, scale)


def _add_weight_codes(node: FileNode, weights: Tensor, scale: Tensor) -> str:
    """Return the edge of a quantizer that gives the codes of weights."""
    sizes = np.rint(np.abs(weights / scale))
    most = int(sizes.max())
    rounding = "BIPOLAR" if (sizes == 1).all() else "ROUND"
    return Quantizer(rounding, (-most, most), scale, 0.0).add(node, node.constant(weights), grid=(scale, np.zeros(())))


def _find_scale(weights: Tensor, axis: int) -> Tensor | None:
    """Return one scale for all weights, or else one for each channel; None if a channel has none."""
    whole = _find_row_scales(weights.reshape(1, -1))
    if whole is not None:
        return whole.reshape(())
    rows = _find_row_scales(np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1))
    return None if rows is None else rows.reshape([-1 if k == axis else 1 for k in range(weights.ndim)])


def _find_row_scales(rows: Tensor) -> Tensor | None:
    """Return for each row the greatest scale whose multiples are all its numbers; None unless each row has one.

    Numbers that are small compared with the greatest of the row are not zero: other channels' weights may be as small,
    and an exporter's zeros are exact.
    """
    most = np.abs(rows).max(1)
    scales = np.where(most > 0, 0.0, 1.0)
    for code in range(1, MAX_CODE + 1):
        left = np.flatnonzero(scales == 0)
        if not left.size:
            return scales
        scale = cast(most[left] / code, "float32").astype(np.float64)
        if not (scale > 0).all():
            return None
        steps = rows[left] / scale[:, None]
        codes = np.rint(steps)
        off = np.abs(rows[left] - codes * scale[:, None]).max(1)
        fits = (off <= MAX_FOLDING_ERROR * most[left]) & ((codes == 0) == (rows[left] == 0)).all(1)
        scales[left[fits]] = scale[fits]
    return None if (scales == 0).any() else scales


_MAX_DEPTH = 8
"""How many nodes back bounds are looked for: fake quantization is written in few nodes."""
_MOVES = ("reshape", "transpose", "slice", "gather", "expand", "max_pool", "reduce_max", "reduce_min")
"""Operators whose outputs are among their inputs."""


def find_bounds(graph: GraphBuilder, name: str, deep: int = _MAX_DEPTH) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest number that an edge may carry, infinite if unknown; they broadcast to it."""
    kind = graph.edges[name].type
    if isinstance(kind, Integers):
        ends = [(end - kind.zero) * kind.scale for end in (kind.low, kind.high)]
        return np.asarray(ends[0]), np.asarray(ends[1])
    if name in graph.constants:
        value = graph.constants[name].astype(np.float64)
        return value, value
    maker = graph.maker(name)
    if maker is None or not deep:
        return _make_widest_bounds()
    if maker.op in _MOVES:
        low, high = find_bounds(graph, maker.inputs[0], deep - 1)
        return np.asarray(low.min()), np.asarray(high.max())
    return _bound_elementwise(graph, maker, deep) if TABLE[maker.op].kind == "elementwise" else _make_widest_bounds()


def _make_widest_bounds() -> tuple[Tensor, Tensor]:
    """Return the bounds of an edge whose numbers are unknown."""
    return np.asarray(-np.inf), np.asarray(np.inf)


def _bound_elementwise(graph: GraphBuilder, node: Node, deep: int) -> tuple[Tensor, Tensor]:
    """Return bounds of the output of an elementwise node: its meaning is run on intervals."""
    inputs, outputs = (
        tuple(replace(graph.edges[name], type=Reals()) for name in names) for names in (node.inputs, node.outputs)
    )
    site = Site(node, inputs, (), "exact", outputs, Intervals())
    with np.errstate(all="ignore"):
        output: Interval = interval(
            TABLE[node.op].run(site, *(Interval(*find_bounds(graph, n, deep - 1)) for n in node.inputs))[0]
        )
    low, high = np.asarray(output.low, np.float64), np.asarray(output.high, np.float64)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
