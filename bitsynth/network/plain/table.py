"""The generator of plain C for each operator of the graph's table, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bitsynth.graph.operators import TABLE
from bitsynth.network.plain.body import NodeBody
from bitsynth.network.plain.convolutions import conv
from bitsynth.network.plain.elements import elements
from bitsynth.network.plain.matrices import matmul
from bitsynth.network.plain.moves import move
from bitsynth.network.plain.pools import MAX, MIN, SUM, pool, reduction, softmax, softmax_codes
from bitsynth.network.plain.ranks import rank

Generator = Callable[[NodeBody], None]

_BY_KIND: Mapping[str, Generator] = {"elementwise": elements, "step": elements, "move": move}
_BY_NAME: Mapping[str, Generator] = {
    "conv": conv,
    "matmul": matmul,
    "max_pool": pool(MAX),
    "sum_pool": pool(SUM),
    "reduce_sum": reduction(SUM),
    "reduce_max": reduction(MAX),
    "reduce_min": reduction(MIN),
    "softmax": softmax,
    "softmax_codes": softmax_codes,
    "rank": rank,
}
GENERATORS: Mapping[str, Generator] = {
    name: _BY_NAME[name] if name in _BY_NAME else _BY_KIND[row.kind] for name, row in TABLE.items()
}
"""Adds the C of a node to a body."""
