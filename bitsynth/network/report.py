"""Reports of compiled networks: what computes each node, and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import NDArray

from bitsynth.graph.float_products import FloatProduct, find_float_products, is_float_product, multiply_accumulates
from bitsynth.graph.overflow import find_overflows
from bitsynth.layers.packed import PackedLayer
from bitsynth.network.arena import ArenaPlan
from bitsynth.network.declines import Alternative
from bitsynth.network.program import Buffer, Format, GlueStep, LayerStep, NetworkProgram, NetworkStep, PlainStep


@dataclass(frozen=True)
class StepReport:
    """How a step is computed.

    Args:
        nodes: The nodes it computes; none of a conversion.
        edge: Its first result.
        kind: layer, glue or plain.
        method: Of a layer its schedule, of glue the operation.
        kernel: The kernel of a layer; empty of others.
        shape: Axes of its first result.
        memory: How that lies: type and layout.
        out_bytes: Bytes of its results.
        weight_bytes: Bytes of its constants.
        macs: Multiply-accumulates of a layer.
        cycles: Cycles of these on the processor that the network is for, or the first that the set names; 0 of others.
        reason: Why no layer, glue or formula computes the nodes of a step of plain C; empty of others.
        alternatives: Fusion patterns that would have computed the first node, and cost more.
    """

    nodes: tuple[str, ...]
    edge: str
    kind: str
    method: str
    kernel: str
    shape: tuple[int, ...]
    memory: str
    out_bytes: int
    weight_bytes: int
    macs: int = 0
    cycles: int = 0
    reason: str = ""
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True)
class ProductWork:
    """The multiply-accumulates of a network's products, by what computes them.

    Args:
        macs: All multiply-accumulates.
        float_macs: Multiply-accumulates of products of real numbers, which plain C computes in floats.
        plain_macs: Multiply-accumulates of products of integers that no layer computes, but plain C.
        floats: The products of real numbers, the most expensive first.
    """

    macs: int = 0
    float_macs: int = 0
    plain_macs: int = 0
    floats: tuple[FloatProduct, ...] = ()


@dataclass(frozen=True)
class NetworkReport:
    """The report of a compiled network.

    Args:
        name: The network's name.
        reference: The name of the reference.
        isa: The instruction set it is for.
        threads: Threads it is scheduled for.
        steps: The steps, in order.
        arena_bytes: Bytes of all buffers together.
        arena_bound: The fewest bytes that any plan of these buffers needs.
        weight_bytes: Bytes of constants.
        cpu: The processor of the set; empty if that is not known.
        products: What computes its products.
        warnings: The warnings that reading the file gave.
    """

    name: str
    reference: str
    isa: str
    threads: int
    steps: tuple[StepReport, ...]
    arena_bytes: int
    arena_bound: int
    weight_bytes: int
    cpu: str = ""
    products: ProductWork = ProductWork()
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return asdict(self)


def report(program: NetworkProgram, plan: ArenaPlan, weight_bytes: int) -> NetworkReport:
    """Return the report of a program, its plan and the bytes of all constants; equal constants count once."""
    ops = {node.name: node.op for node in program.graph.nodes}
    steps = tuple(_step(program, step, ops) for step in program.steps)
    graph = program.graph
    names = graph.name, graph.reference, program.isa, program.threads
    memory = plan.bytes, plan.bound, weight_bytes
    return NetworkReport(*names, steps, *memory, program.cpu, _products(program), find_overflows(graph))


def _products(program: NetworkProgram) -> ProductWork:
    """Return what computes the products of a program."""
    graph = program.graph
    in_layers = {name for step in program.steps if isinstance(step, LayerStep) for name in step.nodes}
    plain = [n for n in graph.nodes if n.name not in in_layers and not is_float_product(graph, n)]
    floats = sorted(find_float_products(graph), key=lambda product: -product.macs)
    every, of_integers = (sum(multiply_accumulates(graph, n) for n in nodes) for nodes in (graph.nodes, plain))
    return ProductWork(every, sum(product.macs for product in floats), of_integers, tuple(floats))


def _step(program: NetworkProgram, step: NetworkStep, ops: Mapping[str, str]) -> StepReport:
    results = [program.buffers[name] for name in step.outputs]
    first, size = results[0], sum(b.bytes for b in results)
    method, kernel, arrays = _became(step, ops)
    macs = _macs(step) if isinstance(step, LayerStep) else 0
    cycles = _cycles(step.layer, macs) if isinstance(step, LayerStep) else 0
    weights = sum(a.nbytes for a in arrays)
    names = step.nodes, first.edge.name
    reason = step.reason if isinstance(step, PlainStep) else ""
    kind, shape, memory = step.kind, first.edge.shape, _memory(first)
    lost = next((program.alternatives[name] for name in step.nodes if name in program.alternatives), ())
    return StepReport(*names, kind, method, kernel, shape, memory, size, weights, macs, cycles, reason, lost)


def _became(step: NetworkStep, ops: Mapping[str, str]) -> tuple[str, str, Iterable[NDArray[Any]]]:
    """Return the method of a step, its kernel and constants; `ops` has the operators of all nodes by name."""
    if isinstance(step, LayerStep):
        plan = step.layer.plan
        packing = step.layer.column_packing
        arrays = [*step.layer.constants.arrays.values(), *(packing.arrays.values() if packing else ())]
        return str(plan.schedule), plan.kernel.name, arrays
    if isinstance(step, GlueStep):
        constants = step.glue.constants
        return str(constants.numbers["op"]), "", constants.arrays.values()
    operators = ", ".join(ops[name] for name in step.nodes if name in ops)
    return operators or "conversion", "", step.constants


def _macs(step: LayerStep) -> int:
    batch, height, width = step.image
    geometry = step.layer.plan.spec.geometry
    rows, columns = geometry.output(height, width)
    return batch * rows * columns * geometry.out_channels * geometry.depth


def _cycles(layer: PackedLayer, macs: int) -> int:
    return round(macs * layer.plan.kernel.cost.cycles[layer.plan.processor] / 128)


def _memory(buffer: Buffer) -> str:
    form: Format = buffer.format
    what = f"{form.operand.bits}-bit codes" if form.operand else form.dtype
    return f"{what} {form.layout}"
