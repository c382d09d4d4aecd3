"""Layers: a product and the chain to codes after it, in one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bitsynth.graph.ir import Node
from bitsynth.graph.types import INT32, Edge, Integers
from bitsynth.layers.epilogues import Epilogue
from bitsynth.layers.packed import PackedLayer
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import (
    Chain,
    EpilogueForm,
    Paired,
    find_chain,
    find_cheapest_form,
    find_fixed_point,
    find_gated_rescale,
    find_joined_chain,
    find_multiply_shift,
    find_paired_form,
    split_at_codes,
    step_function_of,
)
from bitsynth.network.formulas.epilogues import is_long
from bitsynth.network.fusion.affine import residual_operand
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.layer_maker import LayerMaker, Product, find_layer_maker, find_product
from bitsynth.network.program import Buffer, Format, LayerStep, Matrices, NetworkStep
from bitsynth.spec.layout import Layout


def match_product_to_codes(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a product and the monotone chain to codes after it.

    Given:   %acc = conv(%x, weights); %codes = quantize(relu(batch_norm(%acc)))
    Result:  %codes = layer(%x, weights, thresholds | rescale | fixed point | multiply shift)
    """
    product_and_form = find_product_and_form(def_use, node)
    return (
        None
        if product_and_form is None or is_long(product_and_form[2])
        else _make_group_to_codes(def_use, *product_and_form)
    )


def match_product_to_many_levels(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a product and the monotone chain to codes of many levels after it, for which no formula is proved.

    Given:   %acc = conv(%x, weights); %codes = quantize(relu(batch_norm(%acc)))    %codes of more than 15 levels
    Result:  %codes = layer(%x, weights, thresholds)
    """
    product_and_form = find_product_and_form(def_use, node)
    if (
        product_and_form is None
        or not is_long(product_and_form[2])
        or any(n.op == "multiply_shift" for n in product_and_form[1].nodes)
    ):
        return None  # fixed point after the layer is faster than many thresholds
    return _make_group_to_codes(def_use, *product_and_form)


def find_product_and_form(def_use: DefUse, node: Node) -> tuple[Product, Chain, EpilogueForm] | None:
    """Return the product that begins with a node, a monotone chain after it and the chain's epilogue. Found once."""
    memo = def_use.memo.epilogue_forms
    if node.name not in memo:
        product = find_product(def_use, node)
        whole = find_chain(def_use, product.end, product.axis) if product else None
        chain, form = _find_form_of_part(def_use, product, whole) if product and whole else (None, None)
        memo[node.name] = (product, chain, form) if product and chain and form else None
    return memo[node.name]


def _make_group_to_codes(def_use: DefUse, product: Product, chain: Chain, form: EpilogueForm) -> FusionGroup | None:
    nodes = (*product.nodes, *collect_chain_nodes(def_use, product.nodes[0], chain))
    return _make_group(def_use, replace(product, bias=product.bias + form.bias), nodes, form.epilogue)


def _find_form_of_part(def_use: DefUse, product: Product, whole: Chain) -> tuple[Chain, EpilogueForm | None]:
    """Return the longest part of a chain that ends in codes and has a fast form, and that form.

    Without one, return the whole chain with its slow form, or with None if elements move or no form is proved.
    """
    first: EpilogueForm | None = None
    for chain in (whole, *reversed([before for before, _ in split_at_codes(def_use, whole)])):
        form = _find_form(def_use, chain) if _keeps_places(def_use, product, chain) else None
        if form is not None and not is_long(form):
            return chain, form
        first = form if chain is whole else first
    return whole, first


def _find_form(def_use: DefUse, chain: Chain) -> EpilogueForm | None:
    """Return the cheapest epilogue that gives the codes of a chain; None if none is proved."""
    step_function, operand = step_function_of(def_use, chain), operand_of(def_use.graph.edges[chain.end])
    if operand is None or step_function is None:
        return None
    kind = def_use.graph.edges[chain.end].integers
    form = find_cheapest_form(step_function, operand, kind)
    if form is not None and not is_long(form):
        return form
    fixed = find_multiply_shift(step_function, operand, kind) or find_fixed_point(def_use, chain, operand)
    return EpilogueForm(fixed) if fixed else form


def match_product_with_gate(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a product and the chain through hard swish to codes.

    Given:   %acc = conv(%x, weights); %codes = quantize(hard_swish(batch_norm(%acc)))
    Result:  %codes = layer(%x, weights, rescale with a gate)
    """
    product = find_product(def_use, node)
    chain = find_chain(def_use, product.end, product.axis, monotone=False) if product else None
    if product is None or chain is None or not _keeps_places(def_use, product, chain):
        return None
    operand = operand_of(def_use.graph.edges[chain.end])
    epilogue = find_gated_rescale(def_use.graph, chain, operand) if operand else None
    if epilogue is None:
        return None
    return _make_group(
        def_use, product, (*product.nodes, *collect_chain_nodes(def_use, product.nodes[0], chain)), epilogue
    )


def match_product_with_residual(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a product, a residual that is added to it, and the chain to codes.

    Given:   %acc = conv(%x, weights); %sum = add(batch_norm(%acc), %shortcut); %codes = quantize(relu(%sum))
    Result:  %codes = layer(%x, weights, rescale with residual %shortcut)
    """
    product = find_product(def_use, node)
    chain = find_joined_chain(def_use, product.end, product.axis, node) if product else None
    if product is None or chain is None or not _keeps_places(def_use, product, chain):
        return None
    edges = def_use.graph.edges
    operand, second = operand_of(edges[chain.end]), residual_operand(def_use, chain.second)
    if operand is None or not _within_int32(edges[chain.second]):
        return None
    form = find_paired_form(Paired(def_use.graph, chain, operand, second))
    if form is None:
        return None
    nodes = (*product.nodes, *collect_chain_nodes(def_use, node, chain))
    return _make_group(def_use, replace(product, bias=product.bias + form.bias), nodes, form.epilogue, chain.second)


def _within_int32(edge: Edge) -> bool:
    kind = edge.type
    return isinstance(kind, Integers) and INT32[0] <= kind.least and kind.most <= INT32[1]


def match_product(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a product alone.

    Given:   %acc = conv(%x, weights)
    Result:  %acc = layer(%x, weights)    int32 accumulators
    """
    product = find_product(def_use, node)
    return _make_group(def_use, product, product.nodes, None) if product else None


def collect_chain_nodes(def_use: DefUse, first: Node, chain: Chain) -> tuple[Node, ...]:
    """Return the nodes of a chain, with its constant nodes that come after `first` and serve the chain alone."""
    names = set(chain.names)
    constant_nodes: list[Node] = []
    for node in reversed(chain.constant_nodes):
        serves = all(reader.name in names for reader in def_use.readers[node.outputs[0]])
        if serves and def_use.order[node.name] > def_use.order[first.name]:
            names.add(node.name)
            constant_nodes.insert(0, node)
    return (*constant_nodes, *chain.second_path, *chain.nodes)


def _keeps_places(def_use: DefUse, product: Product, chain: Chain) -> bool:
    """Return whether elements at the end of a chain lie as the accumulators do: pixels in order, channels last."""
    first, last = (def_use.graph.edges[name].shape for name in (chain.start, chain.end))
    axis = chain.axes[-1]
    if product.layout == Layout.PLAIN:
        return axis == len(last) - 1
    return axis == 1 and first[0] == last[0]


def _make_group(
    def_use: DefUse, product: Product, nodes: tuple[Node, ...], epilogue: Epilogue | None, residual: str = ""
) -> FusionGroup | None:
    if product.factors is not None and residual == product.factors.columns.edge:
        return None
    maker = find_layer_maker(def_use, product, epilogue, nodes[-1].outputs[0])
    return ProductGroup(def_use, product, nodes, maker, residual) if maker else None


def _find_move(def_use: DefUse, product: Product, edge: str) -> Node | None:
    """Return the transposition of results of several products of two edges that leaves each row as it is; or None."""
    reader = def_use.only_reader(edge)
    if reader is None or reader.op != "transpose" or product.factors is None or not product.factors.outer:
        return None
    return reader if reader.attributes["order"][-1] == product.factors.rank - 1 else None


class ProductGroup(FusionGroup):
    """A product and its epilogue, computed by one layer."""

    def __init__(
        self, def_use: DefUse, product: Product, nodes: tuple[Node, ...], maker: LayerMaker, residual: str = ""
    ) -> None:
        self.def_use, self.product, self.nodes, self.maker, self.residual = def_use, product, nodes, maker, residual
        self.inputs = tuple(dict.fromkeys(self._read))
        self.move = _find_move(def_use, product, nodes[-1].outputs[0])
        if self.move is not None:
            self.nodes = (*nodes, self.move)
        self.outputs = (self.nodes[-1].outputs[0],)

    def reads(self, edge: str) -> tuple[Format, ...]:
        """Return the formats of codes, in bytes or words, which cost the same; of a residual bytes, or accumulators."""
        if edge == self.residual:
            operand = residual_operand(self.def_use, edge)
            own = self.maker.act if edge == self.product.start else operand
            return (Format.codes(own, self.product.layout) if own else Format("int32", None, self.product.layout),)
        factors = self.product.factors
        if factors is not None:
            operand = self.maker.act if edge == self.product.start else self.maker.columns
            assert operand is not None
            rank = len(self.def_use.graph.edges[edge].shape)
            layouts: tuple[Layout, ...] = (Layout.PLAIN, Layout.NHWC) if rank > 2 else (Layout.NHWC, Layout.PLAIN)
            if edge == factors.rows.edge and not factors.outer and rank > 2:
                layouts = (Layout.PLAIN,)  # Rows of several matrices follow each other there alone.
            return tuple(Format.codes(operand, layout) for layout in layouts)
        layouts = (Layout.PLAIN,) if self.product.layout == Layout.PLAIN else (Layout.NHWC, Layout.PACKED)
        return tuple(Format.codes(self.maker.act, layout) for layout in layouts)

    def writes(self, edge: str) -> tuple[Format, ...]:
        """Return the formats of codes, as bytes and, if all their bits are used, as words; or of accumulators."""
        layout, codes = self.product.layout, self.maker.codes
        if codes is None:
            return (Format("int32", None, layout),)
        if layout == Layout.PLAIN or self.product.factors is not None or not self.maker.packs:
            return (Format.codes(codes, layout),)
        return (Format.codes(codes), Format.codes(codes, Layout.PACKED))

    def layer(self, buffers: Mapping[str, Buffer]) -> PackedLayer:
        """Return the layer that reads and writes the formats of these buffers."""
        if self.product.factors is not None:
            return self.maker.layer()
        return self.maker.layer(*(buffers[e].format.layout for e in (self.product.start, *self.outputs)))

    def step(self, buffers: Mapping[str, Buffer]) -> NetworkStep:
        """Return the step of the layer."""
        inputs, outputs = (tuple(buffers[e].name for e in edges) for edges in (self._read, self.outputs))
        return LayerStep(self.names, inputs, outputs, self.layer(buffers), self.product.image, self._matrices(buffers))

    @property
    def _read(self) -> tuple[str, ...]:
        """The edges that a step reads, in order: activations, weights that are an edge, the residual."""
        factors = self.product.factors
        columns = (factors.columns.edge,) if factors is not None else ()
        return (self.product.start, *columns, *filter(None, (self.residual,)))

    def _matrices(self, buffers: Mapping[str, Buffer]) -> Matrices | None:
        """Return where the factors of a product of two edges lie in these buffers; None for constant weights."""
        factors = self.product.factors
        if factors is None:
            return None
        rows, columns = (buffers[factor.edge] for factor in (factors.rows, factors.columns))
        return factors.matrices(
            (rows.format, columns.format), (rows.edge.shape, columns.edge.shape), self._result_strides(buffers)
        )

    def _result_strides(self, buffers: Mapping[str, Buffer]) -> tuple[int, ...]:
        """Return the strides of results along their outer axes and rows, where these are moved; else ()."""
        if self.move is None:
            return ()
        result = buffers[self.outputs[0]]
        strides = dict(zip(self.move.attributes["order"], result.format.strides(result.edge.shape), strict=True))
        return tuple(int(strides[axis]) for axis in range(len(strides) - 1))
