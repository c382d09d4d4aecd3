"""What a compiled network is made of: its steps, what each became, and memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bitsynth.layers.packed import PackedLayer
from bitsynth.network.arena import ArenaPlan
from bitsynth.network.program import Buffer, Format, GlueStep, LayerStep, NetworkProgram, NetworkStep, PlainStep


@dataclass(frozen=True)
class StepReport:
    """What a step became.

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
        cycles: Cycles of these on the first processor that the instruction set knows; 0 of others.
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


@dataclass(frozen=True)
class NetworkReport:
    """A compiled network: its steps in order, bytes of buffers, the fewest that any plan has, bytes of constants."""

    name: str
    reference: str
    isa: str
    threads: int
    steps: tuple[StepReport, ...]
    arena_bytes: int
    arena_bound: int
    weight_bytes: int

    def as_json(self) -> dict[str, Any]:
        """The report as plain values for JSON."""
        return asdict(self)


def report(program: NetworkProgram, plan: ArenaPlan, weight_bytes: int) -> NetworkReport:
    """The report of a program, its plan and the bytes of all constants, of which equal ones are there once."""
    steps = tuple(_step(program, step) for step in program.steps)
    graph = program.graph
    names = graph.name, graph.reference, program.isa, program.threads
    return NetworkReport(*names, steps, plan.bytes, plan.bound, weight_bytes)


def _step(program: NetworkProgram, step: NetworkStep) -> StepReport:
    made = [program.buffers[name] for name in step.outputs]
    names = step.nodes, made[0].edge.name
    out = made[0].edge.shape, _memory(made[0]), sum(b.bytes for b in made)
    if isinstance(step, LayerStep):
        layer, constants = step.layer, step.layer.constants.arrays.values()
        macs = _macs(step)
        what = "layer", str(layer.plan.schedule), layer.plan.kernel.name
        return StepReport(*names, *what, *out, sum(a.nbytes for a in constants), macs, _cycles(layer, macs))
    if isinstance(step, GlueStep):
        size = sum(a.nbytes for a in step.glue.constants.arrays.values())
        return StepReport(*names, "glue", str(step.glue.constants.numbers["op"]), "", *out, size)
    size = sum(a.nbytes for a in step.constants)
    return StepReport(*names, "plain", _operators(program, step), "", *out, size)


def _operators(program: NetworkProgram, step: PlainStep) -> str:
    ops = {node.name: node.op for node in program.graph.nodes}
    return ", ".join(ops[name] for name in step.nodes if name in ops) or "conversion"


def _macs(step: LayerStep) -> int:
    batch, height, width = step.image
    geometry = step.layer.plan.spec.geometry
    rows, columns = geometry.output(height, width)
    return batch * rows * columns * geometry.out_channels * geometry.depth


def _cycles(layer: PackedLayer, macs: int) -> int:
    return round(macs * next(iter(layer.plan.kernel.cost.cycles.values())) / 128)


def _memory(buffer: Buffer) -> str:
    form: Format = buffer.format
    what = f"{form.operand.bits}-bit codes" if form.operand else form.dtype
    return f"{what} {form.layout}"
