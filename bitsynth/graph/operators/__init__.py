"""The table of operators, which is closed: each row has an inference of shapes and types, and a definition."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bitsynth.graph.operators import elementwise, moves, pools, products, steps
from bitsynth.graph.operators.site import Operator, Site

_ROWS = (*elementwise.ROWS, *steps.ROWS, *products.ROWS, *pools.ROWS, *moves.ROWS)
TABLE: Mapping[str, Operator] = MappingProxyType({row.name: row for row in _ROWS})
"""Every operator by name."""
PRODUCTS = tuple(row.name for row in _ROWS if row.kind == "product")
"""The operators that are sums of products."""

__all__ = ["PRODUCTS", "TABLE", "Operator", "Site"]
