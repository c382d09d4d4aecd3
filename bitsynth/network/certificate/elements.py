"""Claims of elementwise plain C: formulas, real numbers, and moves of integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from bitsynth.graph.ir import Node
from bitsynth.graph.types import Edge, Integers
from bitsynth.layers.epilogues.claimed import ClaimedConversion, ClaimedIdentity, ClaimedNumbers, ClaimedTable
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.arrays import decode_array, encode_array
from bitsynth.network.certificate.chains import ChainWriter, Unsupported
from bitsynth.network.certificate.claims import (
    ELEMENTS,
    add_nodes,
    finish_claims,
    input_claims,
    operand_of,
    require_few,
    require_few_sums,
)
from bitsynth.network.certificate.edges import edge_record, range_of
from bitsynth.network.certificate.rebuild import is_conversion
from bitsynth.network.certificate.records import ElementSums, RegridRecord, StepClaim, to_dict
from bitsynth.network.formulas.affine_formula import AffineFormula
from bitsynth.network.formulas.curves import Curve
from bitsynth.network.formulas.step_functions import StepFunction
from bitsynth.network.program import Buffer, NetworkProgram, NetworkStep, PlainStep, alias_root

_MIN_POINTS = 1 << 11
"""Integers whose numbers are computed at once: numbers of a few channels fit into near caches."""
_MOVES = {"transpose", "reshape", "slice", "gather", "depth_to_space", "space_to_depth", "max_pool", "resize"}


def formula_claims(
    program: NetworkProgram, step: PlainStep, formula: StepFunction | AffineFormula | Curve
) -> StepClaim:
    """Return the claims of C that computes a formula: of accumulators, or of float32 inputs by thresholds."""
    if isinstance(formula, StepFunction):
        return input_claims(program, step, formula)
    given, written = ([program.buffers[name] for name in names] for names in (step.inputs, step.outputs))
    chain, channels = _chain(program, step, given), given[0].edge.shape[1]
    claim = replace(formula.formula(), result=chain.integers(written[0].edge.name))
    proof = finish_claims(chain, [claim], ELEMENTS)
    if isinstance(formula, AffineFormula) and formula.gate is None:
        require_few(proof, formula.limits, channels, given)
    else:
        require_few_sums(proof, *range_of(given[0].edge), channels)
    return proof


def _chain(program: NetworkProgram, step: PlainStep, given: Sequence[Buffer]) -> ChainWriter:
    """Return the chain of a step's nodes after the `given` edges, with channels along axis 1."""
    chain = ChainWriter(program.graph, (len(given[0].edge.shape), 1))
    for k, (name, buffer) in enumerate(zip(("sum", "other"), given, strict=False)):
        chain.start(name, buffer.edge, k)
    add_nodes(chain, program.nodes_of(step))
    return chain


def number_claims(program: NetworkProgram, step: PlainStep) -> StepClaim:
    """Return the claims of C that computes real numbers of integers in float64: an error bound, and their range.

    The numbers are results of nodes, or the caller gets an edge's integers as numbers.
    """
    given, written = ([program.buffers[name] for name in names] for names in (step.inputs, step.outputs))
    if len(given) != 1 or not isinstance(given[0].edge.type, Integers):
        raise Unsupported("plain C computes real numbers: tested, not proved")
    if program.graph.reference != "exact":
        return conversion_claims(program, step)
    first = given[0].edge
    chain = ChainWriter(program.graph, (len(first.shape), 1 if len(first.shape) > 1 else -1))
    chain.start("sum", first)
    add_nodes(chain, program.nodes_of(step))
    end, points = chain.number(written[0].edge.name), first.integers.most - first.integers.least + 1
    channels = first.shape[1] if len(first.shape) > 1 else math.prod(first.shape)
    if points * channels * (1 + len(chain.ops)) >= checker.MAX_POINTS >> 1:
        if not step.nodes:
            return conversion_claims(program, step)
        raise Unsupported(f"plain C computes real numbers of {points:,} integers: tested, not proved")
    proof = finish_claims(chain, [], ELEMENTS)
    off, *ends = _reach(proof, end.name, first)
    if not np.isfinite(off):
        raise Unsupported("plain C computes real numbers, and how far off they are is not known")
    reach = [] if isinstance(written[0].edge.type, Integers) else [encode_array(np.full((1, 1), x)) for x in ends]
    return replace(proof, claims=[ClaimedNumbers(result=end.name, off=off)], reach=tuple(reach))


def _reach(proof: StepClaim, name: str, first: Edge) -> tuple[float, float, float]:
    """Return the checker's bound on float64's error, and the least and the greatest number."""
    record, operations = edge_record(first, False), [to_dict(op) for op in proof.chain]
    numbers_of = {k: np.atleast_2d(decode_array(x).astype(np.float64)) for k, x in proof.constants.items()}
    grid = {"scale0": record.scale, "zero0": record.zero}
    numbers_of |= {k: decode_array(x).reshape(-1, 1).astype(np.float64) for k, x in grid.items()}
    at: dict[str, Any] = {k: (x, 0.0, 0.0) for k, x in numbers_of.items()}
    least, end = first.integers.least, first.integers.most + 1
    reached = []
    for start in range(least, end, _MIN_POINTS):
        at["sum"] = np.arange(start, min(start + _MIN_POINTS, end), dtype=np.float64)[None], 1.0, 0.0
        numbers, _, off = checker.evaluate(operations, at, True, numbers_of)[name]
        reached.append((float(np.max(off)), float(numbers.min()), float(numbers.max())))
    offs, lows, highs = zip(*reached, strict=True)
    return float(np.max(offs)), min(lows), max(highs)


def conversion_claims(program: NetworkProgram, step: PlainStep) -> StepClaim:
    """Return the claim that a step gives an edge's integers as the caller's numbers, or these as its integers.

    Unsupported if the step does more, or if its C does not follow from what a certificate says of its buffers.
    """
    edge = program.buffers[step.inputs[0]].edge
    if not is_conversion(program.graph, step, program.buffers):
        raise Unsupported("plain C computes real numbers: tested, not proved")
    if edge.is_float and edge.dtype not in checker.EPSILONS:
        raise Unsupported(f"the checker knows no numbers of {edge.dtype}")
    return StepClaim(constants={}, chain=[], claims=[ClaimedConversion(result="sum")], sums=ELEMENTS)


def claim_moves(program: NetworkProgram, step: NetworkStep) -> StepClaim:
    """Return the claims of moves and maxima: each element of the result is an element of the input."""
    nodes = program.nodes_of(step)
    if left := [node.op for node in nodes if node.op not in _MOVES]:
        raise Unsupported(f"plain C computes {left[0]}: tested, not proved")
    if len(step.inputs) != 1:
        raise Unsupported("what is moved comes from several edges")
    given, written = (program.buffers[names[0]] for names in (step.inputs, step.outputs))
    kind = given.edge.type
    if isinstance(kind, Integers) and max(-kind.least, kind.most) >= checker.INT32:
        raise Unsupported("elements are integers beyond int32")
    if _facts(given) != _facts(written):
        raise Unsupported("elements are on another grid than those they are moved from")
    return StepClaim(
        constants={},
        chain=[],
        claims=[replace(_claim_equal_elements(written), result="sum")],
        sums=_record_elements(given.edge, nodes),
    )


def _claim_equal_elements(buffer: Buffer) -> ClaimedTable | ClaimedIdentity:
    """Return the formula of elements that equal the elements read: a table for codes, the identity for integers."""
    if operand := buffer.format.operand:
        table = np.arange(len(operand.codes))[None]
        return ClaimedTable(table=table, first=operand.offset, apart=operand.scale, width=1)
    return ClaimedIdentity()


def record_regrid(program: NetworkProgram, buffer: Buffer) -> RegridRecord | None:
    """Return the record of a buffer whose elements stand for other numbers than the elements of its shared memory.

    `nodes` of the record are the nodes from that memory's edge to the buffer's, as names and operators. A single view
    gives integers another meaning, as the file says. Other nodes have a chain and a claim that they leave each integer
    as it is. None if scale and zero point are the same.
    """
    root = program.buffers[alias_root(program.buffers, buffer.name)]
    if not isinstance(buffer.edge.type, Integers) or _is_on_grid_of(buffer, root):
        return None
    makers, nodes, at = program.graph.makers, list[Node](), buffer.edge.name
    while at != root.edge.name:
        nodes.insert(0, makers[at])
        at = nodes[0].inputs[0]
    record = RegridRecord(nodes=[[node.name, node.op] for node in nodes])
    if {node.op for node in nodes} <= {"view", "reshape"}:
        return record
    rank = len(root.edge.shape)
    chain = ChainWriter(program.graph, (rank, 1 if rank > 1 else -1))
    chain.start("sum", root.edge)
    try:
        add_nodes(chain, nodes)
        claim = replace(_claim_equal_elements(buffer), result=chain.integers(buffer.edge.name))
    except Unsupported as why:
        return replace(record, unclaimed=str(why))
    return replace(record, claims=[claim], constants=chain.constants, chain=chain.ops, sums=ELEMENTS)


def _is_on_grid_of(buffer: Buffer, root: Buffer) -> bool:
    """Return whether each element of memory stands for the same number by both of its names."""
    own, its = (to_dict(edge_record(b.edge, False)) for b in (buffer, root))
    lie, lies = ({"layout": b.format.layout} for b in (buffer, root))
    if "scale" not in its:
        return True
    return all(np.all(a == b) for a, b in (checker.elements_of(own, its, lie, lies, key) for key in ("scale", "zero")))


def _record_elements(edge: Edge, nodes: list[Node]) -> ElementSums:
    """Return the elements, and if channels differ in range, the channel of them that each result channel has."""
    if not isinstance(edge.type, Integers) or all(end.size == 1 for end in (edge.type.low, edge.type.high)):
        return ELEMENTS
    if all(end.size == 1 for end in range_of(edge)):
        raise Unsupported("ranges differ along other axes than channels")
    if not nodes or all(node.op == "max_pool" for node in nodes):
        return ELEMENTS
    if len(nodes) > 1 or nodes[0].op != "gather" or nodes[0].attributes["axis"] != 1:
        raise Unsupported("channels that differ in range are moved")
    return ElementSums(rows=np.ravel(nodes[0].attributes["places"]).tolist())


def _facts(buffer: Buffer) -> list[float | list[int]] | None:
    """Return the facts that two edges must share: scales and zero points, and how memory holds their integers."""
    edge = buffer.edge
    if not isinstance(edge.type, Integers):
        return None
    if buffer.role != "arena" and (edge.is_float or edge.type.zero.any()):
        raise Unsupported("integers become numbers")
    record = edge_record(edge, False)
    return [*(decode_array(numbers).ravel().tolist() for numbers in (record.scale, record.zero)), operand_of(buffer)]
