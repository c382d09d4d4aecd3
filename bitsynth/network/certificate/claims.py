"""Claims: the formula by which the C of a step turns sums into results, which equals the network's chain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import PRODUCTS
from bitsynth.graph.ranges import bound_sums
from bitsynth.graph.types import Tensor
from bitsynth.layers.epilogues import Epilogue, gives_codes
from bitsynth.layers.epilogues.claimed import (
    Claim,
    ClaimedFixedPoint,
    ClaimedFormula,
    ClaimedGate,
    ClaimedIdentity,
    ClaimedTable,
    ClaimedThresholds,
)
from bitsynth.layers.glue import Lookup, PairLookup, SumLookup
from bitsynth.layers.packed import PackedLayer
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.arrays import decode_array, encode_array, encode_number
from bitsynth.network.certificate.chains import ChainWriter, Unsupported
from bitsynth.network.certificate.edges import MAX_PLACE, range_of
from bitsynth.network.certificate.records import (
    ClaimedSums,
    ElementSums,
    FloatPlaces,
    LayerFacts,
    LayerSums,
    MatrixFacts,
    MatrixSums,
    StepClaim,
    WindowSums,
)
from bitsynth.network.formulas.step_functions import StepFunction
from bitsynth.network.formulas.thresholds import level_ends
from bitsynth.network.program import Buffer, GlueStep, LayerStep, NetworkProgram, PlainStep
from bitsynth.spec.layout import Layout

_MAX_SUMS = 1 << 25
"""Operations on all sums, all of whose results the checker holds at once."""
FormulaT = TypeVar("FormulaT", bound=ClaimedFormula)
ELEMENTS = ElementSums()
"""Instead of sums the elements of an edge, whose range is there."""


def layer_claims(program: NetworkProgram, step: LayerStep) -> StepClaim:
    """Return a layer's accumulators, chain and claims; Unsupported if the checker cannot check them."""
    nodes = program.nodes_of(step)
    product = next((node for node in nodes if node.op in PRODUCTS), None)
    if product is None:
        raise Unsupported("the graph has no product that it computes")
    sums = program.graph.edges[product.outputs[0]]
    chain = ChainWriter(program.graph, (len(sums.shape), 1 if product.op == "conv" else len(sums.shape) - 1))
    given, written = ([program.buffers[name] for name in names] for names in (step.inputs, step.outputs))
    chain.start_sums(sums, given[0].edge, program.graph.edges[product.inputs[1]])
    factors = 1 if step.matrices is None else 2
    for other in given[factors:]:
        chain.start("other", other.edge, factors)
    after = [node for node in nodes if node not in _before(nodes, product)]
    if step.matrices is not None and step.matrices.results:
        *after, move = after
        add_nodes(chain, after)
        chain.edges[move.outputs[0]] = chain.value(move.inputs[0])  # numbers are the same for all columns
    else:
        add_nodes(chain, after)
    formulas = zip(layer_formulas(step.layer), written, strict=True)
    results = [replace(claim, result=chain.integers(buffer.edge.name)) for claim, buffer in formulas]
    products = _matrices(step, given) if step.matrices else _products(program.graph, step, given[0], product)
    claim, channels = finish_claims(chain, results, products), step.layer.plan.spec.geometry.out_channels
    if isinstance(results[0], ClaimedGate):
        low, high = (decode_array(end) for end in (products.low, products.high))
        require_few_sums(claim, low, high, channels)
    else:
        levels = step.layer.epilogue.codes if gives_codes(step.layer.epilogue) else (0, 0)
        require_few(claim, levels, channels, given[factors - 1 :])
    return claim


def glue_claims(program: NetworkProgram, step: GlueStep) -> StepClaim:
    """Return the sums, the chain and the claims of glue with a table."""
    given, written = ([program.buffers[name] for name in names] for names in (step.inputs, step.outputs))
    nodes = program.nodes_of(step)
    glue, first = step.glue, given[0]
    if isinstance(glue, Lookup | PairLookup):
        rank = len(first.edge.shape)
        chain = ChainWriter(program.graph, (rank, 1 if rank > 1 else -1))
        for k, (name, other) in enumerate(zip(("sum", "other"), given, strict=False)):
            chain.start(name, other.edge, k)
        sums: ElementSums | WindowSums = ELEMENTS
    else:
        assert isinstance(glue, SumLookup)
        summed = program.graph.edges[nodes[0].outputs[0]]
        chain = ChainWriter(program.graph, (len(summed.shape), 1))
        chain.start_sums(summed, first.edge)
        nodes, sums = nodes[1:], _window(first, step, glue)
    add_nodes(chain, nodes)
    reads = sums.reads if isinstance(sums, WindowSums) else operand_of(first)
    claim = replace(table_formula(glue, reads), result=chain.integers(written[0].edge.name))
    return finish_claims(chain, [claim], sums)


def table_formula(glue: Lookup | PairLookup | SumLookup, reads: list[int]) -> ClaimedTable:
    """Return the formula of glue's results: an entry for each code, pair of codes or sum, of codes `reads`.

    `reads` are the difference of the integers of neighbouring codes, and the integer of code 0.
    """
    apart, start = reads
    if isinstance(glue, PairLookup):
        table, width = glue.pairs.reshape(1, -1), glue.pairs.shape[1]
    else:
        table, width = np.atleast_2d(glue.table), 1
    if isinstance(glue, SumLookup):
        start = math.prod(glue.geometry.kernel) * start
    return ClaimedTable(table=table, first=start, apart=apart, width=width)


def input_claims(program: NetworkProgram, step: PlainStep, step_function: StepFunction) -> StepClaim:
    """Return the claims of a step that reads float32 inputs; "sums" are their places in the order of float32."""
    start = program.graph.edges[step_function.chain.start]
    chain = ChainWriter(program.graph, (len(start.shape), step_function.chain.axes[0]))
    chain.start("sum", start)
    add_nodes(chain, step_function.chain.nodes)
    written = program.buffers[step.outputs[0]]
    assert written.format.operand is not None
    values, rising = level_ends(step_function, written.format.operand), step_function.rising.astype(np.int64)[:, None]
    claim = ClaimedThresholds(values=values, rising=rising, result=chain.integers(written.edge.name))
    places = FloatPlaces(places="float32", bias=0, low=-MAX_PLACE, high=MAX_PLACE)
    return finish_claims(chain, [claim], places)


def _before(nodes: Sequence[Node], product: Node) -> list[Node]:
    """Return the nodes that compute what a product reads, and the product."""
    before, wanted = [product], {*product.inputs}
    for node in reversed(nodes[: nodes.index(product)]):
        if wanted & {*node.outputs}:
            before.append(node)
            wanted |= {*node.inputs}
    return before


def add_nodes(chain: ChainWriter, nodes: Sequence[Node]) -> None:
    """Add nodes in order."""
    for node in nodes:
        chain.add(node)


def require_few(claim: StepClaim, levels: tuple[int, int], channels: int, given: Sequence[Buffer]) -> None:
    """Raise Unsupported if the checker would evaluate a chain at too many points."""
    kinds = [b.edge.integers for b in given[1:]]
    elements = math.prod(kind.most - kind.least + 1 for kind in kinds)
    points = elements * channels * (2 * (levels[1] - levels[0]) + 2)
    if points * (1 + len(claim.chain)) >= checker.MAX_POINTS >> 1:
        raise Unsupported(f"a chain of {len(claim.chain)} operations has {points:,} points to check")


def require_few_sums(claim: StepClaim, low: Tensor, high: Tensor, channels: int) -> None:
    """Raise Unsupported if the checker would evaluate a chain that is not monotone at too many sums."""
    points = (int(high.max()) - int(low.min()) + 1) * channels
    if points * (1 + len(claim.chain)) >= _MAX_SUMS:
        raise Unsupported(f"the chain turns back, and has {points:,} sums to check: proved where it is compiled")


def finish_claims(chain: ChainWriter, claims: Sequence[Claim], sums: ClaimedSums) -> StepClaim:
    """Return the claims about a chain's results of sums."""
    return StepClaim(constants=chain.constants, chain=chain.ops, claims=list(claims), sums=sums)


def operand_of(buffer: Buffer) -> list[int]:
    """Return scale and offset: the integer of a code is scale * code + offset."""
    operand = buffer.format.operand
    return [operand.scale, operand.offset] if operand else [1, 0]


def _products(graph: Graph, step: LayerStep, given: Buffer, product: Node) -> LayerSums:
    """Return the sums of products that a layer computes, and their ranges."""
    weight = step.layer.weight.astype(np.int64)
    _require_weights(graph, product, step.layer)
    geometry, facts = step.layer.plan.spec.geometry, layer_facts(step)
    low, high = _bounds(given, weight, geometry.groups, any(geometry.padding))
    scale = graph.edges[product.inputs[1]].integers.scale
    return LayerSums(
        **msgspec.structs.asdict(facts),
        scale=encode_number(scale if scale.size == 1 else scale.reshape(-1, 1)),
        low=encode_array(low),
        high=encode_array(high),
    )


def _matrices(step: LayerStep, given: Sequence[Buffer]) -> MatrixSums:
    """Return the sums of products of two edges, and their range."""
    facts = layer_facts(step)
    assert isinstance(facts, MatrixFacts)
    if any(buffer.edge.integers.scale.size > 1 for buffer in given[:2]):
        raise Unsupported("scales of a factor that is an edge differ")
    rows, columns = (_factor_ends(buffer) for buffer in given[:2])
    least, most = checker.bound_products_of_ends(rows, columns, facts.matrices[2])
    return MatrixSums(
        **msgspec.structs.asdict(facts), low=encode_array(np.array([least])), high=encode_array(np.array([most]))
    )


def _factor_ends(buffer: Buffer) -> tuple[int, int]:
    """Return the least and the greatest integer of a buffer's edge, less its zero point."""
    kind = buffer.edge.integers
    zero = int(kind.zero.reshape(-1)[0])
    return kind.least - zero, kind.most - zero


def layer_facts(step: LayerStep) -> LayerFacts | MatrixFacts:
    """Return the facts of a layer's sums that the layer itself decides: weights, bias, window, what codes mean.

    Of a product of two edges they are the sizes of the matrices in place of weights and window.
    """
    if step.matrices is not None:
        spec, (count, _, rows) = step.layer.plan.spec, step.image
        bias = np.unique(np.asarray(step.layer.bias, np.int64))
        return MatrixFacts(
            matrices=[count, rows, spec.geometry.in_channels, spec.geometry.out_channels],
            reads=[[spec.act.scale, spec.act.offset - spec.zero_point], [spec.wgt.scale, spec.wgt.offset]],
            bias=encode_array(bias if bias.size == 1 else np.asarray(step.layer.bias, np.int64)),
        )
    spec, weight = step.layer.plan.spec, step.layer.weight.astype(np.int64)
    geometry = spec.geometry
    return LayerFacts(
        weights=encode_array(weight.reshape(geometry.groups, -1, weight.shape[1], math.prod(geometry.kernel))),
        padded=any(geometry.padding),
        reads=[spec.act.scale, spec.act.offset - spec.zero_point],
        bias=encode_array(np.broadcast_to(np.asarray(step.layer.bias, np.int64), (len(weight),))),
        geometry={**geometry.window(), "image": list(step.image)},
    )


def layer_formulas(layer: PackedLayer) -> list[Claim]:
    """Return the formulas of a layer's results, and of the sums that it keeps as well if it does.

    Channels of a product of two edges are columns. These need not lie along axis 1 of results, as the checker's
    channels do, so numbers that are the same for all columns become one number.
    """
    claims = [_claim(layer), *([_claim_sums(layer)] if layer.kept_type else [])]
    return [_with_common_rows(claim) for claim in claims] if layer.codes is None else claims


def _with_common_rows(claim: Claim) -> Claim:
    """Return a formula with one row of numbers in place of rows that are all the same; a gate has other rows."""
    named = {name: getattr(claim, name) for name in claim.__struct_fields__ if name != "gate"}
    arrays = {name: _common_row(x) for name, x in named.items() if isinstance(x, np.ndarray)}
    if isinstance(claim, ClaimedFixedPoint):
        return replace(claim, **arrays, values=[[_common_row(x) for x in line] for line in claim.values])
    return replace(claim, **arrays)


def _common_row(numbers: Tensor) -> Tensor:
    """Return the first of rows that are all the same, else all rows."""
    return numbers[:1] if numbers.ndim and (numbers == numbers[:1]).all() else numbers


def _bounds(given: Buffer, weight: Tensor, groups: int, padded: bool) -> tuple[Tensor, Tensor]:
    """Return the least and greatest sum for each channel of weights (channels, inputs of a group, window).

    Raises:
        Unsupported: The range of the input differs along other axes than channels, or its numbers are not whole.
    """
    facts = {"shape": given.edge.shape}
    inputs, zero = groups * weight.shape[1], int(given.edge.integers.zero.reshape(-1)[0])
    try:
        ends = [
            checker.spread_over_inputs(np.reshape(end, (-1, 1)), facts, inputs, operand_of(given)[1]) - zero
            for end in range_of(given.edge)
        ]
    except AssertionError as why:
        raise Unsupported(f"products of its input: {why}") from None
    low, high = (np.minimum(ends[0], 0), np.maximum(ends[1], 0)) if padded else ends
    return bound_sums(weight, low, high, groups)


def _require_weights(graph: Graph, product: Node, layer: PackedLayer) -> None:
    """Raise Unsupported unless a layer has the values of the network's weights, in the order of its features."""
    name, own, flat = product.inputs[1], layer.weight, layer.plan.spec.flat
    values = graph.constants[name] - graph.edges[name].integers.zero.astype(np.int64)
    rows = values.reshape(len(own), -1) if product.op == "conv" else values.T
    if flat and not flat.idle:
        rows = flat.weights(rows, Layout.NCHW, fill=0)
    if not np.array_equal(rows, own.reshape(len(own), -1)):
        raise Unsupported("the layer's weights stand for other integers than the network's")


def _window(given: Buffer, step: GlueStep, glue: SumLookup) -> WindowSums:
    """Return the facts of sums of the elements of a window, each channel by itself: products with weights of 1."""
    spread, offset = operand_of(given)
    zero = given.edge.integers.zero.reshape(-1)
    if zero.size > 1 or range_of(given.edge)[0].size > 1:
        raise Unsupported("channels of a pool differ in zero points or range")
    ones = np.ones((1, 1, 1, math.prod(glue.geometry.kernel)), np.int64)
    low, high = _bounds(given, ones[0], 1, False)
    reads = [spread, offset - int(zero[0])]
    return WindowSums(
        weights=encode_array(ones),
        each=True,
        geometry={**glue.geometry.window(), "image": list(step.image)},
        padded=False,
        reads=reads,
        bias=0,
        low=encode_array(low),
        high=encode_array(high),
    )


def _claim(layer: PackedLayer) -> Claim:
    """Return the formula of a layer's results."""
    epilogue, channels = layer.epilogue, layer.plan.spec.geometry.out_channels
    if epilogue is None:
        return ClaimedIdentity()
    if (formula := epilogue.formula(channels)) is None:
        raise Unsupported("results are floats")
    return _with_residual(formula, epilogue, channels)


def _with_residual(formula: FormulaT, epilogue: Epilogue, channels: int) -> FormulaT:
    """Return a formula with the factor and the zero point of the second tensor that an epilogue adds, if any."""
    if epilogue.residual is None:
        return formula
    factors = epilogue.residual_factors(channels)
    return replace(formula, factor=factors[:, None], of_zero=epilogue.residual.zero_point)


def _claim_sums(layer: PackedLayer) -> Claim:
    """Return the formula of the sums that a layer keeps."""
    epilogue = layer.epilogue
    if epilogue is None or epilogue.adds_floats:
        raise Unsupported("kept sums are floats")
    return _with_residual(ClaimedIdentity(), epilogue, layer.plan.spec.geometry.out_channels)
