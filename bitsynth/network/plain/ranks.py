"""Plain C of the greatest or least elements along an axis, in order, and their indices."""

from __future__ import annotations

import numpy as np

from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.loops import dense_steps
from bitsynth.network.plain.terms import LoopTerm


def rank(body: NodeBody) -> None:
    """Write repeated searches for the next element after the last one found; of equals the first, or the last."""
    (edge,), axis = body.edges, body.node.attributes["axis"]
    length, count = edge.shape[axis], body.node.attributes["k"]
    numbers = body.lined_up(edge, [axis], centred=False)
    places = _searched(body, numbers, int(np.prod(edge.shape)) // length, length)
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


def _searched(body: NodeBody, numbers: ScratchArray, lines: int, length: int) -> ScratchArray:
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
