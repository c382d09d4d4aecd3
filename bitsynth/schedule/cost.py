"""Cost models: what a multiset of instructions costs per 128 multiply-accumulates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.tables import ANY_PORT
from bitsynth.isa.value import Value
from bitsynth.kernel.matrices import matrix_grid
from bitsynth.kernel.program import MATRIX, Kernel, Pass, but_accumulators, find_held_for_rows, row_free, row_program

AMORTISED_K = 576
"""K over which flushes are spread if none is given: 3 x 3 x 64, layer C2 of ResNet-18."""
LOOP_INSTRUCTIONS = 3
"""Instructions that each step of a loop has besides its work: they move two addresses, and count steps."""
SUSTAINED = 0.85
"""The share of the peak rate of loads that loops of bitsynth's kind reach on Zen 5."""


class KernelCost(msgspec.Struct, frozen=True):
    """The cost per 128 multiply-accumulates, flushes amortised over K = 576, loads apart.

    `lower_bound` is the least a steady loop of the sketch takes, on record since it was solved. If this
    kernel's takes no more, `minimal` names the sketch; else it is empty. `bitsynth verify` solves both again.
    """

    ops_per_128_mac: float
    lower_bound: float
    minimal: str
    loads_per_128_mac: float
    instructions: int
    cycles: dict[str, float]


def moves_needed(isa: Isa, program: Sequence[Step], kept: Iterable[Value]) -> int:
    """Return the number of register copies: for instructions that overwrite an operand if all operands are read
    later."""
    wanted = set(kept)
    copies = 0
    for step in reversed(program):
        instr = isa[step.op]
        tied = [a for a, o in zip(step.args, instr.operands, strict=True) if o.name in instr.tied]
        copies += bool(tied) and all(a in wanted for a in tied)
        wanted.discard(step.dst)
        wanted.update(step.args)
    return copies


def runs_per_row(isa: Isa, kernel: Kernel, depth: int = AMORTISED_K) -> dict[str, float]:
    """Return the runs of each instruction form by one row of the tile over `depth` positions of K, loads apart.

    Instructions that all rows share count in equal parts for each row. Instructions on matrix registers are apart, too
    (`matrix_products_per_128_mac`).
    """
    total: defaultdict[str, float] = defaultdict(float)
    steps = -(-depth // kernel.k_step)
    for loop, carried in ((p, k > 0) for chain in kernel.chains for k, p in enumerate(chain)):
        runs = steps
        # Loops over K, innermost first, and accumulators set to zero.
        for nested in loop.loops if not kernel.in_matrices else ():
            entered = -(-runs // nested.trip_count)
            again = runs - entered if nested.first else runs
            for program, times in ((nested.steps, again), (nested.first, entered)):
                shared = row_free(program) if nested is loop.step else set()
                for step in program:
                    total[step.op] += times / kernel.groups if step.dst in shared else times
            if not nested.first and not (carried and nested is loop.loops[-1]):
                total[isa.gate.name] += len(nested.accs) * entered
            runs = entered
        if kernel.in_matrices:
            runs = -(-steps // loop.flush_every)
        # Flushes, the tile, register copies.
        for step in loop.flush:
            total[step.op] += runs
        if kernel.has_row_terms and not loop.carries:
            total[kernel.memory.add_tile] += kernel.tile_registers(isa.table.vector_bits) * kernel.together * runs
        if not kernel.in_matrices:
            total[isa.gate.name] += moves_needed(isa, row_program(loop), find_kept_in_step(kernel, loop)) * steps
    return {op: times / kernel.together for op, times in total.items()}


@lru_cache(maxsize=1 << 10)
def shared_program(loop: Pass) -> tuple[Step, ...]:
    """Return the steps run once for all rows."""
    free = row_free(loop.step.steps)
    return tuple(s for s in loop.step.steps if s.dst in free)


def find_kept_in_step(kernel: Kernel, loop: Pass) -> set[Value]:
    """Return the values that a row must not overwrite: constants, new accumulators, and inputs of further rows."""
    values = {c.name for c in kernel.constants} | {acc.next for acc in loop.step.accs}
    return values | find_held_for_rows(loop) if kernel.groups > 1 else values


def units(kernel: Kernel, depth: int = AMORTISED_K) -> float:
    """Return the multiply-accumulates of a row of the tile over `depth` positions of K, divided by 128."""
    return kernel.columns * depth / 128


def matrix_products_per_128_mac(kernel: Kernel) -> float:
    """Return the products of matrix registers, of whichever rows; 0 without matrix registers."""
    if not kernel.in_matrices:
        return 0.0
    return matrix_grid(kernel).products * 128 / (kernel.rows * kernel.columns * kernel.k_step)


def ops_per_128_mac(isa: Isa, kernel: Kernel) -> float:
    """Return instructions on vectors and matrices, with register copies and zeroing, without loads and stores."""
    counts = runs_per_row(isa, kernel)
    vectors = sum(isa[op].instructions * times for op, times in counts.items()) / units(kernel)
    return vectors + matrix_products_per_128_mac(kernel) * _padding(kernel, AMORTISED_K)


def _padding(kernel: Kernel, depth: int) -> float:
    """Return the positions of K of whole steps for each of `depth` positions."""
    return -(-depth // kernel.k_step) * kernel.k_step / depth


def loop_ops_per_128_mac(isa: Isa, kernel: Kernel) -> float:
    """Return vector instructions of the steady loop alone, with register copies."""
    if kernel.in_matrices:
        return matrix_products_per_128_mac(kernel)
    per_step = 0.0
    for p in kernel.passes:
        program = row_program(p)
        shared = sum(isa[s.op].instructions for s in shared_program(p))
        per_step += sum(isa[s.op].instructions for s in program) + shared / kernel.groups
        per_step += moves_needed(isa, program, find_kept_in_step(kernel, p))
    return per_step * 128 / (kernel.columns * kernel.k_step * kernel.together)


def loads_per_128_mac(isa: Isa, kernel: Kernel) -> float:
    """Return loads of inputs in the steady loop, spread over the tile."""
    if kernel.in_matrices:
        return _matrix_loads(isa, kernel) * 128 / (kernel.rows * kernel.columns * kernel.k_step)
    registers = kernel.column_registers(isa.table.vector_bits)
    per_step = sum(len(p.columns) * registers / kernel.rows + len(p.rows) / kernel.together for p in kernel.passes)
    return per_step * (AMORTISED_K / kernel.k_step) / units(kernel)


def _matrix_loads(isa: Isa, kernel: Kernel) -> int:
    """Return the registers of vectors that a step on matrices loads: each row is copied, then loaded in a matrix."""
    grid = matrix_grid(kernel)
    return 2 * kernel.rows + isa.matrices.rows * grid.registers


def broadcast_slots(isa: Isa, kernel: Kernel, cpu: str) -> float:
    """Return slots of vector ports that the loads of rows' inputs take, per 128 multiply-accumulates."""
    if kernel.in_matrices:
        return 0.0
    per_step = sum(len(p.rows) for p in kernel.passes) / kernel.together
    return isa[kernel.memory.broadcast].cost[cpu].slots * per_step * 128 / (kernel.columns * kernel.k_step)


def stall_per_128_mac(isa: Isa, kernel: Kernel, cpu: str, depth: int = AMORTISED_K) -> float:
    """Estimate the cycles that loads and stores take in addition to vector instructions.

    Steps load inputs; flushes load and store the tile; outer loops load and store the accumulators that registers do
    not hold, half of them while the next steps run. Loads reach `SUSTAINED` of their peak rate.
    """
    load, store = (isa[op].cost[cpu].per_cycle for op in (kernel.memory.load, kernel.memory.store_tile))
    at_once = isa.table.cpu[cpu].vector_per_cycle

    def beyond(ops: float, loads: float, stores: float) -> float:
        if isa.table.cpu[cpu].loads_block:
            return loads / load + stores / store
        return max(0.0, max(loads / (load * SUSTAINED), stores / store) - ops / at_once)

    total, steps = 0.0, -(-depth // kernel.k_step)
    tile = kernel.tile_registers(isa.table.vector_bits) * kernel.rows
    for loop in kernel.passes:
        inputs = len(loop.columns) * kernel.column_registers(isa.table.vector_bits) + len(loop.rows) * kernel.groups
        # Steps load inputs, and steps on matrices store the rows that they copy.
        runs = steps
        if kernel.in_matrices:
            busy = matrix_grid(kernel).products * isa.matrices.cycles[cpu].multiply * at_once
            total += runs * beyond(busy, _matrix_loads(isa, kernel), kernel.rows)
        else:
            total += runs * beyond(len(row_program(loop)) * kernel.groups, inputs, 0)
        # Outer loops load and store spilled accumulators.
        for level, inner in enumerate(loop.loops[:-1], 1):
            runs = -(-runs // inner.trip_count)
            total += runs * count_spilled(isa, kernel, loop, level) * (1 / load + 1 / store) / 2
        # Flushes load and store the tile.
        if not loop.carries:
            total += -(-runs // loop.loops[-1].trip_count) * beyond(len(loop.flush) * kernel.groups, tile, tile)
    return round(total / (units(kernel, depth) * kernel.rows), 6)


def count_spilled(isa: Isa, kernel: Kernel, loop: Pass, level: int) -> int:
    """Return the accumulators of an outer loop for which a step leaves no register."""
    inner = sum(len(nested.accs) for nested in loop.loops[:level]) * kernel.groups
    wanted = len(loop.loops[level].accs) * kernel.groups
    return min(wanted, max(0, wanted + inner + but_accumulators(loop) - isa.table.registers))


def bytes_per_128_mac(kernel: Kernel) -> float:
    """Return the bytes of inputs that a tile reads; an input that several passes read counts once."""
    row_bytes = kernel.row_bytes / kernel.together
    return round(128 * (row_bytes / kernel.columns + kernel.column_bytes / kernel.rows) / kernel.k_step, 6)


def cycles_per_128_mac(isa: Isa, kernel: Kernel, cpu: str, depth: int = AMORTISED_K) -> float:
    """Return the throughput bound in cycles of `cpu`: the busiest port class, or all instructions over all ports."""
    everything, busy = _busy(isa, kernel, cpu, depth)
    return max(everything, *busy.values())


@lru_cache(maxsize=1 << 14)
def estimate_sustained_per_128_mac(isa: Isa, kernel: Kernel, cpu: str, depth: int = AMORTISED_K) -> float:
    """Return the expected cycles of a tile with inputs in L1: the bound, and the cycles of loads and stores beyond it.

    Port classes may overlap in part: then it is the busiest class plus the part of the others that does not overlap.
    Instructions of all kinds are another limit, if it is known how many issue in a cycle.
    """
    everything, busy = _busy(isa, kernel, cpu, depth)
    stall, most = stall_per_128_mac(isa, kernel, cpu, depth), max(busy.values())
    if (overlap := isa.table.cpu[cpu].overlap) == 1:
        vectors = max(everything, most) + stall
    else:
        vectors = max(everything + stall, most + (1 - overlap) * (sum(busy.values()) - most))
    if not (width := isa.table.cpu[cpu].issued_per_cycle):
        return vectors
    # If two limits are far apart, the greater one is the time; if they are near each other, it takes more than either.
    return float(np.cbrt(vectors**3 + (_count_issued_per_128_mac(isa, kernel, depth) / width) ** 3))


def _count_issued_per_128_mac(isa: Isa, kernel: Kernel, depth: int) -> float:
    """Return instructions of all kinds: vector instructions, loads of inputs, and control of the innermost loops."""
    vectors = sum(isa[op].instructions * times for op, times in runs_per_row(isa, kernel, depth).items())
    control = LOOP_INSTRUCTIONS * len(kernel.passes) * 128 / (kernel.rows * kernel.columns * kernel.k_step)
    return vectors / units(kernel, depth) + loads_per_128_mac(isa, kernel) + control


def crowding_per_128_mac(isa: Isa, kernel: Kernel, cpu: str) -> float:
    """Return cycles of the busiest port class if instructions for any port are spread evenly over all ports.

    Measured on Zen 5: together with an add that any port takes, lookups lose a seventh of their rate.
    """
    everything, busy = _busy(isa, kernel, cpu)
    anywhere = busy.pop(ANY_PORT, 0.0)
    return round(max([everything, *(cycles + anywhere for cycles in busy.values())]), 6)


def _busy(isa: Isa, kernel: Kernel, cpu: str, depth: int = AMORTISED_K) -> tuple[float, dict[str, float]]:
    """Return cycles per 128 multiply-accumulates of all instructions over all ports, and of each port class alone."""
    busy: dict[str, float] = defaultdict(float)
    counts, over = runs_per_row(isa, kernel, depth), units(kernel, depth)
    for op, times in counts.items():
        cost = isa[op].cost[cpu]
        busy[cost.port] += times / cost.per_cycle / over
    everything = sum(isa[op].instructions * times for op, times in counts.items()) / isa.table.cpu[cpu].vector_per_cycle
    if kernel.in_matrices:
        products = matrix_products_per_128_mac(kernel) * _padding(kernel, depth)
        return everything / over, {**busy, MATRIX: products * isa.matrices.cycles[cpu].multiply}
    return everything / over, busy


def instructions(kernel: Kernel) -> int:
    """Return the length of the programs for one row: steps, outer loops and flushes."""
    return sum(len(program) for p in kernel.passes for program in p.programs)


def figure(isa: Isa, kernel: Kernel, model: str) -> float:
    """Return the figure that the model minimizes: operations or cycles per 128 products, or instructions."""
    if model == "length":
        return float(instructions(kernel))
    return ops_per_128_mac(isa, kernel) if model == "ops" else cycles_per_128_mac(isa, kernel, model)


def _typical(isa: Isa, kernel: Kernel) -> str:
    """Return the first processor of the set.

    For products of sums, which read more, it is the first one whose loads do not block.
    """
    every = isa.table.cpu
    return next((name for name, cpu in every.items() if kernel.cross_terms and not cpu.loads_block), next(iter(every)))


def price(isa: Isa, kernel: Kernel, model: str, *, in_layer: bool = False) -> tuple[float, ...]:
    """Return the sort key: the figure of `model` to a hundredth; cycles that memory adds; loads; input bytes.

    If loads block, their stalls are part of the figure, and so are the slots that broadcasts take. Of two tiles without
    stalls, the one with fewer loads was the faster on Zen 5 and Emerald Rapids. A layer's K may exceed the nearest
    cache, so in layers (`in_layer`) bytes count before loads. Before bytes counts whether rows need no splitting into
    digits, because activations are split in each call, weights only once. Last come more rows, and less crowded ports.
    """
    loads = round(loads_per_128_mac(isa, kernel), 6)
    if model == "length":
        return figure(isa, kernel, model), round(ops_per_128_mac(isa, kernel), 6), loads
    cpu = model if model in isa.table.cpu else _typical(isa, kernel)
    stall = stall_per_128_mac(isa, kernel, cpu)
    crowding = crowding_per_128_mac(isa, kernel, cpu)
    blocked = stall if isa.table.cpu[cpu].loads_block else 0.0
    slots = broadcast_slots(isa, kernel, cpu) / (isa.table.cpu[cpu].vector_per_cycle if cpu == model else 1)
    least = round(figure(isa, kernel, model) + blocked + slots, 2)
    size = bytes_per_128_mac(kernel)
    read = (float(kernel.has_digits), size, loads) if in_layer else (loads, size)
    return least, stall, *read, -kernel.rows, crowding
