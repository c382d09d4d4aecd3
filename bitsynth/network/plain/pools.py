"""Plain C of pools, reductions and softmax, and of the greatest or least elements along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Edge, Shape
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.elements import deliver, deliver_array
from bitsynth.network.plain.loops import AxisStep, dense_steps
from bitsynth.network.plain.planes import ChannelsLast, ImagePlanes
from bitsynth.network.plain.terms import LoopTerm
from bitsynth.network.plain.writer import WHOLE, Writer
from bitsynth.spec.layout import Layout

_MAX_UNROLLED = 32


@dataclass(frozen=True)
class Fold:
    """A fold of many numbers: the statement that adds `x` to `t`, and the number in padding.

    A function of the runtime folds contiguous real numbers whose order does not matter.
    """

    integers: str
    reals: str
    padding: dict[str, str]
    function: str = ""


_LEAST = (
    {"int32": "INT32_MIN", "int64": "INT64_MIN"}
    | dict.fromkeys(("float16", "bfloat16", "float32"), "-__builtin_inff()")
    | {"float64": "-__builtin_inf()"}
)
MAX = Fold("{t} = {x} > {t} ? {x} : {t};", "{t} = (({x} > {t}) | ({x} != {x})) ? {x} : {t};", _LEAST, "bs_greatest")
MIN = Fold("{t} = {x} < {t} ? {x} : {t};", "{t} = (({x} < {t}) | ({x} != {x})) ? {x} : {t};", {}, "bs_least")
SUM = Fold("{t} += {x};", "{t} += {x};", dict.fromkeys(_LEAST, "0"))


def _result_type(body: NodeBody, array: ScratchArray, fold: Fold) -> str:
    """Return the type of a fold's result: float64 for sums of real numbers, the edge's own type for integers."""
    if fold is not SUM:
        return array.dtype
    return body.numbers_type(body.outs[0]) if body.gives_integers else "float64"


def fold_elements(
    body: NodeBody, writer: Writer, array: ScratchArray, steps: Sequence[AxisStep], offsets: Sequence[int], fold: Fold
) -> LoopTerm:
    """Return the fold of the elements at `offsets` from a place of the loop, in this order."""
    total = ScratchArray("", _result_type(body, array, fold))
    step = fold.integers if "int" in total.dtype else fold.reals
    if len(offsets) <= _MAX_UNROLLED:
        places = [writer.loops.at(array.name, steps, k) for k in offsets]
        lines = [f"{total.c_type} {{0}} = {places[0]};", *(step.format(t="{0}", x=at) for at in places[1:])]
    else:
        first = writer.loops.value("size_t", writer.loops.place(steps))
        is_contiguous = [*offsets] == [*range(len(offsets))]
        if is_contiguous and fold.function and "int" not in total.dtype:
            suffix = "" if total.c_type == "double" else "_f"
            lines = [f"const {total.c_type} {{0}} = {fold.function}{suffix}({array.name} + {first}, {len(offsets)});"]
        else:
            place = "{j}" if is_contiguous else f"{writer.constants.add(np.asarray(offsets, np.uint32))}[{{j}}]"
            start, at = (f"{array.name}[{first} + {place.format(j=j)}]" for j in ("0", "j"))
            inner = step.format(t="{0}", x=at)
            lines = [f"{total.c_type} {{0}} = {start};", f"for (size_t j = 1; j < {len(offsets)}; ++j) {inner}"]
    code = writer.loops.name_value("\n".join(lines))
    dtype = WHOLE if "int" in total.dtype else np.dtype(total.dtype)
    kind = body.outs[0].integers if body.gives_integers else None
    return LoopTerm(writer, dtype, code, (kind.least, kind.most) if kind else None)


def pool(fold: Fold) -> Callable[[NodeBody], None]:
    """Return the generator of a fold of each window."""

    def generate(body: NodeBody) -> None:
        (edge,) = body.edges
        window, outer = body.node.attributes["window"], edge.shape[:2]
        if body.memories[body.nodes[-1].outputs[0]].format.layout == Layout.NHWC:
            last = ChannelsLast(window, edge.shape[2:], outer[1])
            array = body.array(body.numbers_type(edge), outer[0] * last.size)
            last.fill(body, edge, array, fold.padding[array.dtype], centred=fold is SUM)
            _deliver_folds(body, array, last.steps, last.taps, fold)
            return
        planes = ImagePlanes(window, edge.shape[2:])
        array = body.array(body.numbers_type(edge), int(np.prod(outer)) * planes.size)
        planes.fill(body, edge, array, fold.padding[array.dtype], centred=fold is SUM)
        steps = [outer[1] * planes.size, planes.size, *planes.steps]
        _deliver_folds(body, array, steps, planes.taps, fold)

    return generate


def reduction(fold: Fold) -> Callable[[NodeBody], None]:
    """Return the generator of a fold along axes."""

    def generate(body: NodeBody) -> None:
        (edge,) = body.edges
        axes = body.node.attributes["axes"]
        if _is_in_memory_order(body, edge, axes, fold):
            _fold_in_memory_order(body, edge, axes, fold)
            return
        array = body.line_up(edge, axes, centred=fold is SUM)
        count = int(np.prod([edge.shape[k] for k in axes]))
        _deliver_folds(body, array, _outer_steps(edge, axes, count), range(count), fold)

    return generate


def _memory_strides(body: NodeBody, edge: Edge) -> Sequence[int]:
    memory = body.memories.get(edge.name)
    return memory.format.strides(edge.shape) if memory else dense_steps(edge.shape)


def _is_in_memory_order(body: NodeBody, edge: Edge, axes: Sequence[int], fold: Fold) -> bool:
    """Return whether elements are folded in the order of memory: if it makes no difference, and loops are vectorized.

    Real numbers are summed in the order of the axes. Folds of neighbours in memory are sequences of dependent
    operations, except of integers.
    """
    if fold is SUM and body.gives_integers:
        return True
    strides = _memory_strides(body, edge)
    lengths = {k: strides[k] for k, n in enumerate(edge.shape) if n > 1}
    folded = [lengths[k] for k in axes if k in lengths]
    is_ordered = [*axes] == sorted(axes) and folded == sorted(folded, reverse=True)
    has_start = fold is SUM or body.numbers_type(edge) in fold.padding
    return bool(lengths) and min(lengths.values()) not in folded and is_ordered and has_start


def _fold_in_memory_order(body: NodeBody, edge: Edge, axes: Sequence[int], fold: Fold) -> None:
    """Write the fold of integers or numbers along axes, each element folded into its result in the order of memory."""
    out, steps = body.outs[0], _outer_steps(edge, axes, 1)
    count = math.prod(out.shape)
    dtype = body.numbers_type(edge)
    total = dtype if fold is not SUM else body.numbers_type(out) if body.gives_integers else "float64"
    totals = body.array(total, count)
    start = "0" if fold is SUM else fold.padding[dtype]
    body.do(f"for (size_t i = 0; i < {count}; ++i)\n{totals.name}[i] = {start};")
    writer = body.writer(edge.shape, _memory_strides(body, edge))
    number = body.number(body.element(edge, writer), edge, centred=fold is SUM)
    term = writer.hold(writer.cast(number, WHOLE if body.gives_integers else np.dtype(totals.held)))
    step = fold.integers if body.gives_integers else fold.reals
    writer.loops.do(step.format(t=writer.loops.at(totals.name, steps), x=term.code))
    body.close(writer)
    deliver_array(body, totals, steps)


def _outer_steps(edge: Edge, axes: Sequence[int], count: int) -> list[int]:
    """Return the strides of the rows of an array whose `axes`, `count` elements, are last."""
    steps = dense_steps(tuple(1 if k in axes else n for k, n in enumerate(edge.shape)))
    return [0 if k in axes else step * count for k, step in enumerate(steps)]


def _steps_of_rows(edge: Edge, axes: Sequence[int], count: int) -> list[int]:
    """Return the strides, along the edge's axes, of an array whose rows are its `count` elements along `axes`."""
    inner = dense_steps(tuple(edge.shape[k] for k in axes))
    return [inner[axes.index(k)] if k in axes else step for k, step in enumerate(_outer_steps(edge, axes, count))]


def _deliver_folds(
    body: NodeBody, array: ScratchArray, steps: Sequence[AxisStep], offsets: Sequence[int], fold: Fold
) -> None:
    deliver(body, lambda writer: fold_elements(body, writer, array, steps, offsets, fold))


def softmax(body: NodeBody) -> None:
    """Write a softmax: exponentials of numbers less their greatest, over their sum."""
    (edge,) = body.edges
    axes = list(body.node.attributes["axes"])
    count = int(np.prod([edge.shape[k] for k in axes]))
    lines = int(np.prod(edge.shape)) // count
    numbers = body.line_up(edge, axes, centred=False)
    powers, most, sums = (body.array(numbers.dtype, n) for n in (lines * count, lines, lines))
    _fold_lines(body, numbers, most, (lines, count), MAX)
    writer = body.writer((lines, count))
    less = numbers.at(writer, (count, 1)) - most.at(writer, (1, 0))
    powers.keep(writer, writer.call("exp", less), (count, 1))
    body.close(writer)
    _fold_lines(body, powers, sums, (lines, count), SUM)
    steps = _steps_of_rows(edge, axes, count)
    deliver(body, lambda writer: powers.at(writer, steps) / sums.at(writer, _outer_steps(edge, axes, 1)))


_SOFTMAX_OF_CODES = """\
for (size_t i = 0; i < {lines}; ++i) {{
  const {number} *x = {codes} + i * {count};
  {number} *y = {made} + i * {count};
  {number} most = x[0];
  for (size_t j = 1; j < {count}; ++j) most = x[j] > most ? x[j] : most;
  int64_t total = 0;
  for (size_t j = 0; j < {count}; ++j) total += ((int64_t){powers}[most - x[j]] + 2048) >> 12;
  int zeros = 0;
  while (!(total << zeros >> 31)) ++zeros;
  const int64_t half = total << zeros >> 1;
  int64_t found = 1515870810 + ((half * -1010580540 + (1 << 30)) >> 31);
  for (int k = 0; k < 3; ++k) {{
    const int64_t rest = (1 << 29) - ((half * found + (1 << 30)) >> 31);
    const int64_t step = 4 * ((found * rest + (1 << 30)) >> 31);
    found += step < INT32_MIN ? INT32_MIN : step > INT32_MAX ? INT32_MAX : step;
  }}
  found = 2 * found < INT32_MIN ? INT32_MIN : 2 * found > INT32_MAX ? INT32_MAX : 2 * found;
  const int shift = 35 - zeros;
  for (size_t j = 0; j < {count}; ++j) {{
    const int64_t part = (found * {powers}[most - x[j]] + (1 << 30)) >> 31;
    const int64_t code = ((part + (INT64_C(1) << (shift - 1))) >> shift) + {low};
    y[j] = ({number})(code < {low} ? {low} : code > {high} ? {high} : code);
  }}
}}"""


def softmax_codes(body: NodeBody) -> None:
    """Write a softmax of codes: each row's powers from a table, the reciprocal of their sum by Newton's method."""
    (edge,), at = body.edges, body.node.attributes
    axes = list(at["axes"])
    count = int(np.prod([edge.shape[k] for k in axes]))
    lines = int(np.prod(edge.shape)) // count
    codes = body.line_up(edge, axes, centred=False)
    results = body.array(codes.dtype, lines * count)
    powers = body.constants.add(at["powers"].astype(np.int32))
    names = {"codes": codes.name, "made": results.name, "number": codes.c_type, "powers": powers}
    body.do(_SOFTMAX_OF_CODES.format(**names, lines=lines, count=count, low=at["low"], high=at["high"]))
    deliver_array(body, results, _steps_of_rows(edge, axes, count))


def _fold_lines(body: NodeBody, array: ScratchArray, to: ScratchArray, lines: Shape, fold: Fold) -> None:
    """Write the fold of each row of an array."""
    writer = body.writer(lines[:1])
    to.keep(writer, fold_elements(body, writer, array, lines[1:], range(lines[1]), fold), (1,))
    body.close(writer)


def rank(body: NodeBody) -> None:
    """Write repeated searches for the next element after the last one found; of equals the first, or the last."""
    (edge,), axis = body.edges, body.node.attributes["axis"]
    length, count = edge.shape[axis], body.node.attributes["k"]
    numbers = body.line_up(edge, [axis], centred=False)
    places = _search(body, numbers, int(np.prod(edge.shape)) // length, length)
    dense = dense_steps(tuple(1 if k == axis else n for k, n in enumerate(edge.shape)))
    steps = [1 if k == axis else step * count for k, step in enumerate(dense)]
    from_steps = [0 if k == axis else step * length for k, step in enumerate(dense)]
    for output, out in enumerate(body.outs):
        if out.name in body.memories:
            writer = body.writer(out.shape)
            winner = places.at(writer, steps)
            if output == 0:
                first = writer.loops.value("size_t", writer.loops.place(from_steps))
                code = writer.loops.value(numbers.c_type, f"{numbers.name}[{first} + (size_t){winner.code}]")
                zero = numbers.at(writer, from_steps)
                winner = LoopTerm(writer, zero.dtype, code, zero.bounds)
            body.memories[out.name].store(writer, winner)
            body.close(writer)


def _search(body: NodeBody, numbers: ScratchArray, lines: int, length: int) -> ScratchArray:
    """Return the indices of the wanted numbers in each row."""
    attributes = body.node.attributes
    places = body.array("int32", lines * attributes["k"])
    values = {"lines": lines, "length": length, "count": attributes["k"], "x": numbers.name, "to": places.name}
    sign, tie = (">" if attributes[name] else "<" for name in ("largest", "last"))
    body.do(_SEARCH.format(**values, kind=numbers.c_type, sign=sign, tie=tie))
    return places


_SEARCH = """\
for (size_t i = 0; i < {lines}; ++i) {{
const {kind} *x = {x} + i * {length};
int32_t *const to = {to} + i * {count};
for (size_t j = 0; j < {count}; ++j) {{
int32_t best = -1;
for (int32_t n = 0; n < {length}; ++n) {{
const int later = j == 0 || x[to[j - 1]] {sign} x[n] || (x[to[j - 1]] == x[n] && to[j - 1] {tie} n);
const int better = best < 0 || x[n] {sign} x[best] || (x[n] == x[best] && n {tie} best);
if (later && better)
best = n;
}}
to[j] = best < 0 ? 0 : best;
}}
}}"""
"""`tie` says which of two equals comes first."""
