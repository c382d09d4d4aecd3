"""Exports a quantized network as an ONNX file of pre-quantized patterns with the same codes on every edge between them.

Activations are uint8: codes, whose integers are what the network has there. What lies between sums and codes becomes
one factor of float32 and a bias, proved for every sum, as a layer's factors are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

import numpy as np
from onnx import ModelProto

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Graph, Names, Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import INT32, Edge, Tensor
from bitsynth.isa.load import names
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.formulas import (
    Chain,
    Paired,
    StepFunction,
    find_chain,
    find_joined_chain,
    find_paired_form,
    find_step_function,
)
from bitsynth.network.formulas.rescaling import find_integer_rescaling, find_rescaling, find_wanted_codes
from bitsynth.network.fusion.affine import residual_operand
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.fusion.layer_maker import Product, find_product
from bitsynth.network.patterns import nodes
from bitsynth.network.patterns.nodes import PatternForm
from bitsynth.network.patterns.writer import PatternWriter, refusal


@dataclass(frozen=True, eq=False)
class _Part:
    """Nodes that are written together, with the edges that they read and compute, and the function that writes them."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    output: str
    write: Callable[[PatternWriter], None]


def export_integers(graph: Graph, *, shifts: bool = False) -> ModelProto:
    """Return the ONNX file of a network; SpecError names a node that has no pattern.

    Its inputs are the codes of the network's first quantizers. With `shifts` factors are an integer and a power of two.
    """
    def_use = DefUse(graph, _any_target())
    writer = PatternWriter(Names(graph.edges, graph.file_names), shifts=shifts)
    given = [_find_given(def_use, name) for name in graph.inputs]
    constants = nodes.find_constant_nodes(graph)
    taken = {node.name for node in constants} | {node.name for _, nodes in given for node in nodes}
    parts: list[_Part] = []
    for node in graph.nodes:
        if node.name not in taken:
            parts.append(_part(def_use, node, taken))
            taken |= {n.name for n in parts[-1].nodes}
    inputs = [edge for edge, _ in given]
    for edge in inputs:
        writer.codes(edge)
    for part in _order(parts):
        part.write(writer)
    return writer.model(graph.name, inputs, list(graph.edges_of(graph.outputs)))


def _any_target() -> NetworkTarget:
    """Return any target: the file does not depend on it."""
    return NetworkTarget(names()[0])


def _order(parts: Sequence[_Part]) -> list[_Part]:
    """Return the parts in an order in which each comes after those whose edges it reads."""
    number_of_output = {part.output: k for k, part in enumerate(parts)}
    before = {k: [number_of_output[e] for e in part.inputs if e in number_of_output] for k, part in enumerate(parts)}
    return [parts[k] for k in TopologicalSorter(before).static_order()]


def _find_given(def_use: DefUse, name: str) -> tuple[Edge, tuple[Node, ...]]:
    """Return the edge of codes that an input of the network becomes, and the nodes in between."""
    nodes = list[Node]()
    while operand_of(def_use.graph.edges[name]) is None:
        node = def_use.only_reader(name)
        if node is None or def_use.only_source(node) != name or TABLE[node.op].kind == "product":
            (reader, *_) = (*def_use.readers[name], *nodes[-1:], None)
            if reader is None:
                raise SpecError(f"no node reads the input {name}, so it has no pre-quantized pattern")
            raise refusal(reader, f"{name} comes to it without a quantizer")
        nodes.append(node)
        name = node.outputs[0]
    return def_use.graph.edges[name], tuple(nodes)


def _part(def_use: DefUse, node: Node, taken: set[str]) -> _Part:
    """Return the part that begins with a node; SpecError if the node has no pattern."""
    product = find_product(def_use, node)
    if product is not None and (product.flatten is not None or product.factors is not None):
        product = None  # the reshape by itself, then the product; products of two edges have no pattern
    if product is not None:
        return _codes(def_use, product, taken) or _sums(def_use, product)
    (first, *_) = (*(e for e in node.inputs if not def_use.is_constant(e)), "")
    chain = find_chain(def_use, first) if first and def_use.carries_integers(first) else None
    stays = chain is not None and all(nodes.keeps(def_use, n) for n in chain.nodes)
    if chain and not stays and chain.nodes[0] is node and (form := _form(def_use, chain)):
        return _rescale(def_use, chain, form)
    write = nodes.writer_of(def_use, node)
    if write is None:
        raise refusal(node, f"{node.op} is none of its operators, or not on these operands")
    return _Part((node,), node.inputs, node.outputs[0], write)


def _form(def_use: DefUse, chain: Chain, weights: Tensor | None = None) -> PatternForm | None:
    """Return the proved factor and bias that equal a chain after a product; None if there are none.

    Sums of small weights are too coarse for a bias of integers: weights become multiples, as far as int8 goes, before
    a float is added.
    """
    edge = def_use.graph.edges[chain.end]
    operand, step_function = operand_of(edge), find_step_function(def_use.graph, chain)
    if operand is None or step_function is None or any(node.op == "transpose" for node in chain.nodes):
        return None
    wanted = find_wanted_codes(step_function, operand, edge.integers)
    for gain in dict.fromkeys((1, _most_gain(step_function, weights))):
        multiple = replace(wanted, sums=wanted.sums * gain)
        if (rescaling := find_integer_rescaling(multiple)) is not None:
            return PatternForm(rescaling.epilogue(multiple), rescaling.shift, gain)
    rescaling = find_rescaling(wanted)
    return PatternForm(rescaling.epilogue(wanted), rescaling.shift) if rescaling else None


def _most_gain(step_function: StepFunction, weights: Tensor | None) -> int:
    """Return the greatest multiplier for which weights (doubled if bipolar) fit int8 and accumulators int32."""
    if weights is None:
        return 1
    sums = max(int(np.abs(end).max()) for end in (step_function.low, step_function.high))
    return max(1, min(127 // max(1, 2 * int(np.abs(weights).max())), INT32[1] // max(1, 4 * sums)))


def _codes(def_use: DefUse, product: Product, taken: set[str]) -> _Part | None:
    """Return the part of a product and its chain to codes, with a residual if there is one; None without a form."""
    edges, second = def_use.graph.edges, ""
    chain = find_chain(def_use, product.end, product.axis)
    form = _form(def_use, chain, product.weight) if chain else None
    if form is None:
        chain = find_joined_chain(def_use, product.end, product.axis, product.nodes[0])
        if chain is None or taken & {*chain.names} or (operand := operand_of(edges[chain.end])) is None:
            return None
        second = chain.second
        paired = Paired(def_use.graph, chain, operand, residual_operand(def_use, second))
        joined = find_paired_form(paired, floats=True)
        form = PatternForm.of(joined) if joined else None
    if chain is None or form is None:
        return None
    end, held = edges[chain.end], form

    def write(writer: PatternWriter) -> None:
        sums = nodes.write_sums(writer, def_use, product, held)
        ends, residual = (edges[product.end], end), edges[second] if second else None
        nodes.write_codes(writer, sums, ends, held, product.axis, residual)

    inputs = (product.start, *([second] if second else []))
    return _Part((*product.nodes, *chain.second_path, *chain.nodes), inputs, end.name, write)


def _sums(def_use: DefUse, product: Product) -> _Part:
    """Return the part of a product whose accumulators other nodes read."""

    def write(writer: PatternWriter) -> None:
        nodes.write_sums(writer, def_use, product, None)
        writer.held[product.end] = None

    return _Part(product.nodes, (product.start,), product.end, write)


def _rescale(def_use: DefUse, chain: Chain, form: PatternForm) -> _Part:
    """Return the part of a chain from integers to codes."""
    start, end = def_use.graph.edges[chain.start], def_use.graph.edges[chain.end]

    def write(writer: PatternWriter) -> None:
        axis, sums = chain.axes[0], writer.integers(start)
        if form.bias.any():
            bias = nodes.along(form.bias, axis, len(start.shape))
            sums = writer.node("Add", [sums, writer.constant(bias, "int32")])
        nodes.write_codes(writer, sums, (start, end), form, axis, None)

    return _Part(chain.nodes, (start.name,), end.name, write)
