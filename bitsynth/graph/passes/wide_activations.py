"""Products read activations of more than 8 bits as two digits, since layers take codes of up to 8 bits.

A dense layer after a global average pool reads such activations: sums over all pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.passes.driver import rewrite
from bitsynth.graph.types import INT32, Integers, Tensor
from bitsynth.spec.matmul import MAX_BITS


def split_wide_activations(graph: Graph) -> Graph:
    """Multiply two digits of wide activations by the same weights, as two batches, and add the results.

    Given:
        %y = matmul(%x, %w)           # (M, K) @ (K, N), %x from 0 to 735
    Result:
        %low = lookup(%x, n % 32)
        %high = lookup(%x, n // 32)
        %p = matmul(concatenate(%low, %high), %w)       # (2 * M, K) @ (K, N)
        %y = add(rows 0 to M - 1 of %p, mul(rows M to 2 * M - 1 of %p, 32))
    """
    digits_of = {node.name: digits for node in graph.nodes if (digits := _find_digits(graph, node))}
    if not digits_of:
        return graph

    def replace_node(builder: GraphBuilder, node: Node) -> bool:
        if node.name in digits_of:
            _add_product_of_digits(builder, graph, node, digits_of[node.name])
        return node.name in digits_of

    return rewrite(graph, replace_node)


@dataclass(frozen=True)
class Digits:
    """The digits of integers: `first` + k, less the zero point, is low[k] + base * high[k]."""

    first: int
    low: Tensor
    high: Tensor
    base: int

    @property
    def bits(self) -> int:
        """The bits of codes that hold digits of both kinds."""
        return _bits_of(np.concatenate((self.low, self.high)))

    @property
    def largest(self) -> int:
        """A bound of the size of the integers, however the digits are combined."""
        low, high = (int(np.abs(digits).max()) for digits in (self.low, self.high))
        return low + self.base * high


def _split(kind: Integers) -> Digits:
    """Return digits of about half the bits; digits of signed integers are signed too."""
    numbers = np.arange(kind.least, kind.most + 1) - int(kind.zero.reshape(-1)[0])
    base = 1 << (_bits_of(numbers) + 1) // 2
    high = (numbers + (base // 2 if numbers[0] < 0 else 0)) // base
    return Digits(kind.least, numbers - base * high, high, base)


def _find_digits(graph: Graph, node: Node) -> Digits | None:
    """Return the digits of a product's activations; None if these fit 8 bits, or no layer would take the digits.

    Convolutions in groups, whose sums have few products, are left as they are, and small layers, whose weights take
    less memory than the tables of digits.
    """
    if node.op not in ("conv", "matmul") or node.inputs[1] not in graph.constants or node.inputs[0] in graph.constants:
        return None
    x, w, y = graph.edges_of((*node.inputs, *node.outputs))
    if not (isinstance(x.type, Integers) and isinstance(w.type, Integers) and isinstance(y.type, Integers)):
        return None
    has_form = node.attributes["groups"] == 1 if node.op == "conv" else len(x.shape) == len(w.shape) == 2
    if not (has_form and MAX_BITS < x.type.bits <= 2 * MAX_BITS and x.type.has_one_grid):
        return None
    weights = _weights_of(graph, w.name)
    if _bits_of(weights) > MAX_BITS or not outweighs_tables(weights, x.type):
        return None
    digits = _split(x.type)
    of_one_sum = tuple(range(1, weights.ndim)) if node.op == "conv" else 0
    largest_sum = digits.largest * int(np.abs(weights).sum(of_one_sum).max())
    return digits if digits.bits <= MAX_BITS and largest_sum <= INT32[1] else None


def outweighs_tables(weights: Tensor, kind: Integers) -> bool:
    """Return whether weights outnumber the entries of both tables of digits, so that a layer is worth the tables."""
    return weights.size > 2 * (kind.most - kind.least + 1)


def _weights_of(graph: Graph, name: str) -> Tensor:
    """Return the integers of a constant less their zero points."""
    weights: Tensor = (graph.constants[name] - graph.edges[name].integers.zero).astype(np.int64)
    return weights


def _bits_of(values: Tensor) -> int:
    """Return the bits of codes that hold integers."""
    return Integers.between(values.min(), values.max()).bits


def _add_product_of_digits(builder: GraphBuilder, graph: Graph, node: Node, digits: Digits) -> None:
    """Add the product of both digits, and the nodes that make the same integers of it as the node gave."""
    x, y = graph.edges_of((node.inputs[0], *node.outputs))
    source = node.source
    plain = builder.add("view", x.name, source=source, scale=1.0, zero=0.0, dtype="int32")
    both = [
        builder.add("lookup", plain, source=source, table=table, first=digits.first, dtype="int32")
        for table in (digits.low, digits.high)
    ]
    weights = builder.constant(_weights_of(graph, node.inputs[1]).astype(np.int32))
    batches = builder.add("concatenate", *both, source=source, axis=0)
    name = builder.fresh(f"{y.name}.digits")
    sums = builder.add(node.op, batches, weights, name=name, source=source, **node.attributes)
    rows, rest = x.shape[0], [(None, None, 1)] * (len(y.shape) - 1)
    low, high = (
        builder.add("slice", sums, source=source, slices=((first, first + rows, 1), *rest)) for first in (0, rows)
    )
    scaled = builder.add("mul", high, builder.constant(np.int32(digits.base)), source=source)
    whole = builder.add("add", low, scaled, source=source)
    scale, zero = y.integers.scale, y.integers.zero
    builder.add("view", whole, name=y.name, source=source, scale=scale, zero=zero, dtype=y.dtype)
