"""Nodes around products in a pre-quantized file: pools and moves of codes, and floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitsynth.graph.ir import Node
from bitsynth.graph.types import Integers
from bitsynth.network.def_use import DefUse
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.patterns import floats
from bitsynth.network.patterns.writer import PatternWriter, refusal

Write = Callable[[PatternWriter], None]


def writer_of(def_use: DefUse, node: Node) -> Write | None:
    """Return the function that writes a single node; None if there is none."""
    writers = (write for fits, write in _WRITERS if fits(def_use, node))
    write = next(writers, None)
    return None if write is None else lambda writer: write(writer, def_use, node)


def keeps(def_use: DefUse, node: Node) -> bool:
    """Return whether a node keeps integers and changes scale or zero point alone."""
    source = def_use.only_source(node)
    if not source or node.op not in ("mul", "div", "view", "cast"):
        return False
    before, after = def_use.graph.edges_of((source, node.outputs[0]))
    if not isinstance(before.type, Integers) or not isinstance(after.type, Integers) or before.shape != after.shape:
        return False
    factors = [def_use.graph.constants.get(e) for e in node.inputs if e != source or node.inputs.count(e) > 1]
    if not all(factor is not None and (factor > 0).all() for factor in factors):
        return False  # integers times -1 may have the range they had
    (low, high), (new_low, new_high) = ((kind.low, kind.high) for kind in (before.type, after.type))
    return bool(np.array_equal(low, new_low) and np.array_equal(high, new_high))


def _same(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    (given, *_) = (name for name in node.inputs if name in writer.held)
    writer.held[writer.node("Identity", [given], node.outputs[0])] = writer.held[given]


def _move(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    (given,), (result,) = node.inputs, node.outputs
    if node.op == "reshape":
        sizes = writer.constant(def_use.graph.edges[result].shape, "int64")
        writer.node("Reshape", [given, sizes], result)
    else:
        writer.node("Transpose", [given], result, perm=list(node.attributes["order"]))
    writer.held[result] = writer.held.get(given)


def _max_pool(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    window, (given,), (result,) = node.attributes["window"], node.inputs, node.outputs
    if writer.held[given] is None:
        raise refusal(node, "its integers are no codes")
    ends = window.ends
    if window.ceil:  # the rule for the last window is not the same in all versions of ONNX
        image, count = (def_use.graph.edges[name].shape[2:] for name in (given, result))
        reach = [(n - 1) * s + r for n, s, r in zip(count, window.strides, window.reach, strict=True)]
        ends = [max(0, r - n - b) for r, n, b in zip(reach, image, window.begins, strict=True)]
    sizes = {"kernel_shape": window.kernel, "strides": window.strides, "dilations": window.dilations}
    writer.node("MaxPool", [given], result, **sizes, pads=[*window.begins, *ends])
    writer.held[result] = writer.held[given]


def _sum(writer: PatternWriter, def_use: DefUse, node: Node) -> None:
    """Write a sum of integers less their zero point; as codes, if the result is unsigned and narrow enough."""
    given, result = def_use.graph.edges[node.inputs[0]], def_use.graph.edges[node.outputs[0]]
    operand = operand_of(result)
    narrow = operand is not None and operand.offset == 0 and operand.scale == 1
    axes = writer.constant(node.attributes["axes"], "int64")
    terms = writer.integers(given)
    if given.integers.zero.any():
        terms = writer.node("Sub", [terms, writer.constant(given.integers.zero, "int32")])
    sums = writer.node("ReduceSum", [terms, axes], "" if narrow else result.name, keepdims=1)
    if narrow:
        writer.cast(sums, "uint8", result.name)
    writer.held[result.name] = operand if narrow else None


def _is_move(def_use: DefUse, node: Node) -> bool:
    return node.op in ("reshape", "transpose")


def _is_pool_of_codes(def_use: DefUse, node: Node) -> bool:
    return node.op == "max_pool" and _is_whole(def_use, node) and bool(operand_of(def_use.graph.edges[node.inputs[0]]))


def _is_sum(def_use: DefUse, node: Node) -> bool:
    return node.op == "reduce_sum" and _is_whole(def_use, node)


def _is_whole(def_use: DefUse, node: Node) -> bool:
    return isinstance(def_use.graph.edges[node.outputs[0]].type, Integers)


_WRITERS: tuple[tuple[Callable[[DefUse, Node], bool], Callable[[PatternWriter, DefUse, Node], None]], ...] = (
    (_is_move, _move),
    (_is_pool_of_codes, _max_pool),
    (_is_sum, _sum),
    (keeps, _same),
    (floats.is_function, floats.write_function),
    (floats.is_cast, floats.write_cast),
    (floats.is_quantizer, floats.write_quantizer),
)
