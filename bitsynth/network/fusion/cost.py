"""Predicted cycles of fusion groups, by which one of several is chosen (`choice.py`).

Cycles are counted on the target's processor, on one thread, for the batch of the graph. The cycles of a group are for

* the accumulators of a layer, by the model that chose its schedule (`layers/cost.py`), and packing weights that are an
  edge,
* each element: proved programs by `schedule/price.py`, plain C by its counted operations (`Operations`),
* the bytes that it reads and writes, from the nearest cache if an edge fits there, else from the next,
* the call of its step.

`benchmarks/fusion_costs.py` measures the constants of plain C, and compares predictions with times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, singledispatch

from bitsynth.emit.column_packer import column_inputs
from bitsynth.graph.arithmetic.fractions import FUNCTIONS
from bitsynth.graph.float_products import multiply_accumulates
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import PRODUCTS, TABLE
from bitsynth.graph.types import Integers
from bitsynth.isa import architecture
from bitsynth.isa.load import load_table
from bitsynth.isa.tables import CpuTable, IsaTable
from bitsynth.kernel.elementwise.program import ElementwiseProgram, EpilogueProgram
from bitsynth.layers.cost import MEASURED_WIDTH
from bitsynth.layers.glue.programs import list_called
from bitsynth.layers.packed import PackedLayer
from bitsynth.layers.planning import expected_cycles
from bitsynth.matmul import MatmulKernel
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.fusion.affine import AffineGroup, GuardedAffineGroup
from bitsynth.network.fusion.curves import CurveGroup
from bitsynth.network.fusion.glue import GlueGroup
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.inputs import InputGroup
from bitsynth.network.fusion.layers import ProductGroup
from bitsynth.network.fusion.real_convolutions import RealConvolution
from bitsynth.network.fusion.real_levels import RealsGroup
from bitsynth.network.plain.group import PlainGroup
from bitsynth.schedule.price import count_cycles

CALL_CYCLES = 20.0
"""Cycles of the call of a step of plain C or glue; measured on Zen 4, as the other figures here."""
SCALAR_CYCLES = 0.25
"""Cycles of an operation of a loop that a compiler does not vectorize."""
FUNCTION_CYCLES = 6.0
"""Cycles of a function of one number, such as exp."""


@dataclass(frozen=True)
class Operations:
    """Counted operations of plain C, without loads and stores of loops that compilers vectorize.

    Args:
        doubles: On vectors of float64.
        words: On vectors of 32 bits.
        scalars: On single numbers, in loops that compilers do not vectorize.
        functions: Functions such as exp, of single numbers.
    """

    doubles: float = 0.0
    words: float = 0.0
    scalars: float = 0.0
    functions: float = 0.0

    def __add__(self, other: Operations) -> Operations:
        """Return both together."""
        counts = zip(self._counts, other._counts, strict=True)
        return Operations(*(a + b for a, b in counts))

    def times(self, count: float) -> Operations:
        """Return the work of a number of elements."""
        return Operations(*(count * x for x in self._counts))

    @property
    def _counts(self) -> tuple[float, ...]:
        return self.doubles, self.words, self.scalars, self.functions


AFFINE = Operations(doubles=6, words=6)
"""An element of an affine formula: multiply, add, round, two conversions; then add, clip and narrow."""
SECOND_OPERAND = Operations(doubles=3)
"""More for an affine formula with a second operand."""
GATE = Operations(doubles=5)
"""More for an affine formula with a gate."""
GUARD = Operations(doubles=6)
"""More for an affine formula with a guard: its distance to a half, compared and collected."""
CURVE = Operations(doubles=5, scalars=10)
"""An element of a table of breakpoints: its cell by vectors of float64, then a comparison, and two loads."""
MULTIPLY_SHIFT = Operations(doubles=24)
"""An element of `multiply_shift`: 64-bit products and shifts by channel; measured on Zen 4, 1.7 cycles."""
TABLE_LOAD = Operations(scalars=4)
"""An element of a table in memory."""
COPIED_SLOT = Operations(scalars=18)
"""The bytes of a column in a register that are packed at run time as they are: 4.0 to 5.4 cycles."""
PLACED_CODE = Operations(scalars=6)
"""A code whose bits are put into a byte with other codes' bits at run time: 1.3 to 2.1 cycles."""


@dataclass(frozen=True)
class Processor:
    """The cycles that a processor takes for work and for bytes.

    Args:
        isa: The instruction set.
        cpu: A processor of the set, "" for the first that it names.
    """

    isa: str
    cpu: str = ""

    @cached_property
    def _table(self) -> IsaTable:
        return load_table(self.isa)

    @cached_property
    def _cpu(self) -> CpuTable:
        return self._table.cpu.get(self.cpu) or next(iter(self._table.cpu.values()))

    @cached_property
    def _doubles_bits(self) -> int:
        """Bits of a register of float64: processors of 32 bits have no vectors of them."""
        return 64 if architecture.find_architecture(self._table.arch).bits == 32 else self._table.vector_bits

    @cached_property
    def slower(self) -> float:
        """How many times as long scalar operations take as on the processor of `MEASURED_WIDTH`."""
        return self._cpu.slower or MEASURED_WIDTH / self._cpu.vector_per_cycle

    def cycles(self, work: Operations) -> float:
        """Return the cycles of work of plain C."""
        vectors = work.doubles * 64 / self._doubles_bits + work.words * 32 / self._table.vector_bits
        single = work.scalars * SCALAR_CYCLES + work.functions * FUNCTION_CYCLES
        return vectors / self._cpu.vector_per_cycle + self.slower * single

    def transfer(self, size: float) -> float:
        """Return the cycles in which a number of bytes is read or written."""
        is_near = size <= self._cpu.near_bytes
        return size / (self._table.vector_bits / 8 if is_near else self._cpu.far_bytes_per_cycle)

    def together(self, elements: float, moved: float) -> float:
        """Return the cycles of elements and of the bytes that they are read from and written to.

        Operations hide the transfer, as a layer's accumulation does, unless loads block.
        """
        return elements + moved if self._cpu.loads_block else max(elements, moved)

    def program_cycles(self, program: EpilogueProgram) -> float:
        """Return the cycles of an element by a program, proved or of plain C."""
        if isinstance(program, ElementwiseProgram):
            return _proved_cycles(program, self.cpu)
        spec = program.spec
        # An opening parenthesis for each operation of the text; two more load and store.
        return self.cycles(Operations(words=spec.meaning.count("(") + len(spec.nested) + 2))


@lru_cache(maxsize=1 << 10)
def _proved_cycles(program: ElementwiseProgram, cpu: str) -> float:
    """Return the cycles of an element by a proved program, on a processor or the first that the program's set names."""
    processors = load_table(program.isa).cpu
    return count_cycles(program, cpu if cpu in processors else next(iter(processors))) / program.unit


def processor_of(target: NetworkTarget) -> Processor:
    """Return the processor of a target."""
    return Processor(target.isa, target.cpu)


@dataclass(frozen=True)
class GroupCost:
    """Predicted cycles of a group.

    Args:
        sums: Cycles of a layer's accumulators and their inputs, which are the same with any epilogue.
        rest: Cycles of elements, bytes and the call.
        floor: All cycles if elements took none.
    """

    sums: float
    rest: float
    floor: float

    @property
    def cycles(self) -> float:
        """All cycles."""
        return self.sums + self.rest


def cost_of(group: FusionGroup, def_use: DefUse) -> GroupCost:
    """Return the predicted cycles of a group."""
    processor, edges = processor_of(def_use.target), def_use.graph.edges
    if group.is_alias:
        return GroupCost(0.0, 0.0, 0.0)
    elements = _element_cycles(group, def_use, processor)
    read = {e: processor.transfer(group.reads(e)[0].bytes(edges[e].shape)) for e in group.inputs}
    written = sum(processor.transfer(group.writes(e)[0].bytes(edges[e].shape)) for e in group.outputs)
    if not isinstance(group, ProductGroup):
        moved = sum(read.values()) + written
        return GroupCost(0.0, processor.together(elements, moved) + CALL_CYCLES, moved + CALL_CYCLES)
    layer = group.maker.layer()
    count = group.product.image[0]
    sums = count * expected_cycles(layer.plan) + _column_cycles(layer, count, processor)
    others = sum(cycles for edge, cycles in read.items() if edge != group.product.start)
    moved = written + others + CALL_CYCLES
    return GroupCost(sums, elements + moved, sums + moved)


def _column_cycles(layer: PackedLayer, products: int, processor: Processor) -> float:
    """Return the cycles of packing a layer's weights at run time, once for each product; 0 if they are constant."""
    if layer.codes is not None:
        return 0.0
    assert isinstance(layer.plan.kernel, MatmulKernel)
    kernel, geometry, work = layer.plan.kernel.entry.kernel, layer.plan.spec.geometry, Operations()
    for given in column_inputs(kernel):
        work += PLACED_CODE.times(sum(map(len, given.places))) if given.is_looked_up else COPIED_SLOT
    steps = -(-geometry.in_channels // kernel.k_step)
    return processor.cycles(work.times(products * geometry.out_channels * steps))


@singledispatch
def _element_cycles(group: FusionGroup, def_use: DefUse, processor: Processor) -> float:
    """Return the cycles of a group's elements."""
    raise NotImplementedError(type(group).__name__)


def _size(group: FusionGroup, def_use: DefUse) -> int:
    """Return the elements of a group's first result."""
    return math.prod(def_use.graph.edges[group.outputs[0]].shape)


@_element_cycles.register
def _(group: ProductGroup, def_use: DefUse, processor: Processor) -> float:
    return _epilogue_cycles(group.maker.layer(), _size(group, def_use), processor)


def layer_cycles(layer: PackedLayer, batch: int, processor: Processor) -> float:
    """Return the predicted cycles of a layer for a number of typical images: accumulators, packing and epilogue.

    If weights are an edge, an image is a product of two matrices.
    """
    spec = layer.plan.spec
    rows, columns = spec.geometry.output(*spec.typical_image)
    size = batch * rows * columns * spec.geometry.out_channels
    sums = batch * expected_cycles(layer.plan) + _column_cycles(layer, batch, processor)
    return sums + _epilogue_cycles(layer, size, processor)


def _epilogue_cycles(layer: PackedLayer, size: int, processor: Processor) -> float:
    """Return the cycles of a number of elements by the programs that finish a layer."""
    channels, programs = layer.plan.spec.geometry.out_channels, layer.programs.by_field.values()
    joins = int(layer.constants.numbers.get("joined_pixels", 0)) > 0
    cycles = 0.0
    for program in programs:
        units = channels if joins else -(-channels // program.unit) * program.unit
        cycles += size / channels * units * processor.program_cycles(program)
    return cycles


@_element_cycles.register
def _(group: AffineGroup, def_use: DefUse, processor: Processor) -> float:
    work = AFFINE
    work += SECOND_OPERAND if group.affine.ratio is not None else Operations()
    work += GATE if group.affine.gate is not None else Operations()
    work += GUARD if isinstance(group, GuardedAffineGroup) else Operations()
    return processor.cycles(work.times(_size(group, def_use)))


@_element_cycles.register
def _(group: CurveGroup, def_use: DefUse, processor: Processor) -> float:
    return processor.cycles(CURVE.times(_size(group, def_use)))


@_element_cycles.register
def _(group: InputGroup, def_use: DefUse, processor: Processor) -> float:
    levels = min(group.step_function.levels, 8)  # More are found by a formula, or by a binary search.
    return processor.cycles(Operations(words=4 + 2 * levels).times(_size(group, def_use)))


@_element_cycles.register
def _(group: RealsGroup, def_use: DefUse, processor: Processor) -> float:
    return processor.cycles(Operations(doubles=4 + 2 * group.step_function.levels).times(_size(group, def_use)))


@_element_cycles.register
def _(group: RealConvolution, def_use: DefUse, processor: Processor) -> float:
    macs = group.sums.shape[0] * group.sums.macs
    return processor.cycles(Operations(words=macs) + Operations(words=12).times(_size(group, def_use)))


@_element_cycles.register
def _(group: GlueGroup, def_use: DefUse, processor: Processor) -> float:
    glue = group.make(group.layouts[0], group.layouts[0])
    numbers, size = glue.constants.numbers, _size(group, def_use)
    programs = list_called(glue.isa, glue.constants)
    taps = int(numbers.get("kernel_h", 1)) * int(numbers.get("kernel_w", 1))
    if programs:
        return taps * size * max(map(processor.program_cycles, programs))
    is_table = numbers["op"] in ("lookup", "add") or "tables" in glue.constants.arrays
    work = TABLE_LOAD if is_table else Operations(words=1)
    return taps * processor.cycles(work.times(size))


@_element_cycles.register
def _(group: PlainGroup, def_use: DefUse, processor: Processor) -> float:
    return processor.cycles(plain_work(def_use.graph, group.nodes))


_PAIRED = 6.0
"""Scalar operations of a node whose numbers are pairs of float64."""


def plain_work(graph: Graph, nodes: Sequence[Node]) -> Operations:
    """Return the counted operations of plain C of nodes.

    Where a quantizer follows in exact arithmetic, real numbers are pairs of float64.
    """
    return plain_work_from_each(graph, nodes)[0] if nodes else Operations()


def plain_work_from_each(graph: Graph, nodes: Sequence[Node]) -> list[Operations]:
    """Return the `plain_work` of nodes[k:] for each k, each node counted once."""
    fixed, real_elements, largest, is_paired = Operations(), 0.0, 0, False
    works = []
    for node in reversed(nodes):
        work, elements = _node_work(graph, node)
        fixed, real_elements = fixed + work, real_elements + elements
        largest = max(largest, math.prod(graph.edges[node.outputs[0]].shape))
        is_paired = is_paired or (graph.reference == "exact" and TABLE[node.op].kind == "step")
        real = Operations(scalars=_PAIRED) if is_paired else Operations(doubles=1)
        works.append(fixed + real.times(real_elements) + Operations(doubles=2 * largest))
    return works[::-1]


def _node_work(graph: Graph, node: Node) -> tuple[Operations, float]:
    """Return the counted operations of a node, and how many operations on real numbers it has more."""
    size = math.prod(graph.edges[node.outputs[0]].shape)
    is_real = not all(isinstance(graph.edges[e].type, Integers) for e in (*node.inputs, *node.outputs))
    if node.op in PRODUCTS:
        macs = multiply_accumulates(graph, node)
        return (Operations(doubles=2 * macs) if is_real else Operations(words=2 * macs)), 0.0
    if node.op == "multi_threshold":
        return Operations(scalars=2 * size * node.attributes["thresholds"].shape[1]), 0.0
    if node.op in FUNCTIONS or node.op in ("softmax", "multiply_shift"):
        work = MULTIPLY_SHIFT if node.op == "multiply_shift" else Operations(functions=1)
        return work.times(size), 0.0
    kind = TABLE[node.op].kind
    if kind in ("pool", "reduction"):
        size = max(size, *(math.prod(graph.edges[e].shape) for e in node.inputs))
        return (Operations(doubles=size) if is_real else Operations(words=size)), 0.0
    if kind == "move":
        return Operations(scalars=2 * size), 0.0
    return (Operations(), size) if is_real else (Operations(words=size), 0.0)
