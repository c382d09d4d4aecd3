"""The cheapest depthwise kernel of the sketch: ranges that are proved, steps between flushes, pixels at once, cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec

from bitsynth.errors import NoKernel, Refuted
from bitsynth.isa.load import Isa
from bitsynth.kernel.depthwise import MAX_FLUSH, DepthwiseFlush, DepthwiseMemory, DepthwiseProgram
from bitsynth.kernel.straight_line import constant_load
from bitsynth.proof.depthwise import step_sums
from bitsynth.schedule.memory import stores
from bitsynth.sketches.depthwise.flushes import flushes
from bitsynth.sketches.depthwise.steps import DepthwiseStep, in_registers, require_steps
from bitsynth.spec.options import DOT_POSITIONS

WIDTHS = (2, 4, 8)
"""Widths of the operands of kernels that ship; other widths take the next greater one."""
METHODS = ("multiply", "dot")
"""How kernels multiply. Dot products are of bytes in lanes of 32 bits, for all widths; kernels of 8 bits ship."""
TYPICAL_TAPS = 9
PIXELS = (4, 2, 1)
"""Pixels at once, the most that registers hold: more gain nothing, as loads of weights are few already."""


class DepthwiseCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cost per product of a 3 x 3 window: vector instructions without loads and stores, and cycles by processor."""

    ops_per_128_mac: float
    cycles: dict[str, float]


def method_of(program: DepthwiseProgram) -> str:
    """Return the method of a kernel, one of `METHODS`."""
    return "dot" if program.taps == DOT_POSITIONS else "multiply"


def cheapest(isa: Isa, act_bits: int, w_bits: int, method: str = "multiply") -> DepthwiseProgram:
    """Return the program by `method` of fewest instructions for a 3 x 3 window.

    NoKernel if no program of the sketch is right.
    """
    programs = list(_programs(isa, act_bits, w_bits, method))
    if not programs:
        raise NoKernel(f"no depthwise kernel of {act_bits}-bit activations and {w_bits}-bit weights on {isa.name}")
    wanted = max(p.wgt[1] - p.wgt[0] for p in programs)
    return min(programs, key=lambda p: ops(isa, p) * _parts(wanted, p))


def _parts(wanted: int, program: DepthwiseProgram) -> int:
    """Return how many taps of a program one weight of the `wanted` range takes."""
    return -(-wanted // (program.wgt[1] - program.wgt[0]))


def _programs(isa: Isa, act_bits: int, w_bits: int, method: str) -> Iterator[DepthwiseProgram]:
    for step in require_steps(isa, method):
        try:
            ends = flushes(isa, step)
        except NoKernel:
            continue
        for act in (
            {(0, (1 << act_bits) - 1), (-128, (1 << act_bits) - 129)} if act_bits == 8 else [(0, (1 << act_bits) - 1)]
        ):
            for wgt in _weight_ranges(w_bits):
                if program := _limit_steps(isa, _program(isa, step, ends, (act_bits, w_bits), act, wgt)):
                    yield program
                    break


def _weight_ranges(bits: int) -> list[tuple[int, int]]:
    """Yield ranges of weights, widest first: all numbers of that width in any encoding, then halves and quarters."""
    if bits < 8:
        return [(-(1 << bits) + 1, (1 << bits) - 1)]
    return [(-128, 127), (-64, 64), (-32, 32)]


def _program(
    isa: Isa,
    step: DepthwiseStep,
    ends: tuple[DepthwiseFlush, ...],
    bits: tuple[int, int],
    act: tuple[int, int],
    wgt: tuple[int, int],
) -> DepthwiseProgram:
    fit = (n for n in PIXELS if in_registers(step, n) + len(ends[0].constants) <= isa.table.registers)
    return DepthwiseProgram(
        isa=isa.name,
        act_bits=bits[0],
        w_bits=bits[1],
        act=act,
        wgt=wgt,
        taps=step.taps,
        pixels=next(fit, 1),
        weights=step.weights,
        memory=DepthwiseMemory(
            constant_load(isa, isa.word).name, constant_load(isa, isa.tile).name, stores(isa, isa.tile)
        ),
        steps=tuple(step.program),
        accs=step.accs,
        flush_every=1,
        flushes=ends,
    )


def _limit_steps(isa: Isa, program: DepthwiseProgram) -> DepthwiseProgram | None:
    """Return the program with as many steps between flushes as its lanes hold; None if they overflow in one."""
    try:
        added = step_sums(isa, program)
    except Refuted:
        return None
    bits = {acc.name: int(acc.type[1 : acc.type.index("x")]) for acc in program.accs}
    fits = MAX_FLUSH
    for (name, _), (_, form) in added.items():
        half = 1 << (bits[name] - 1)
        fits = min(fits, *(n for n in (_times(half - 1, form.hi), _times(half, -form.lo)) if n is not None))
    return msgspec.structs.replace(program, flush_every=fits) if fits >= 1 else None


def _times(room: int, each: int) -> int | None:
    return room // each if each > 0 else None


def runs(isa: Isa, program: DepthwiseProgram, taps: int) -> Counter[str]:
    """Return how often each form runs for one unit of a pixel with that many taps, without loads."""
    steps = -(-taps // program.taps)
    flushes = -(-steps // program.flush_every)
    total: Counter[str] = Counter()
    for step in program.steps:
        total[step.op] += steps
    for step in program.flushes[0].steps:
        total[step.op] += flushes
    total[isa.gate.name] += len(program.accs) * flushes
    return total


def ops(isa: Isa, program: DepthwiseProgram, taps: int = TYPICAL_TAPS) -> float:
    """Return vector instructions per 128 products, without loads and stores."""
    counted = sum(isa[op].instructions * times for op, times in runs(isa, program, taps).items())
    return counted * 128 / (taps * program.unit)


def unit_cycles(isa: Isa, program: DepthwiseProgram, cpu: str, taps: int) -> float:
    """Return the cycles of `cpu` for a unit of a pixel: of all instructions, the busiest port class, or loads."""
    busy: dict[str, float] = defaultdict(float)
    counted = runs(isa, program, taps)
    for op, times in counted.items():
        busy[isa[op].cost[cpu].port] += times / isa[op].cost[cpu].per_cycle
    steps = -(-taps // program.taps)
    loads = (
        steps * (program.taps + len(program.weights) / program.pixels) / isa[program.memory.load].cost[cpu].per_cycle
    )
    every = sum(isa[op].instructions * n for op, n in counted.items()) / isa.table.cpu[cpu].vector_per_cycle
    stored = len(program.flushes[0].tile) / isa[program.memory.store_tile].cost[cpu].per_cycle
    if isa.table.cpu[cpu].loads_block:
        return max(every, *busy.values()) + loads + stored
    return max(every, *busy.values(), loads, stored)


def cycles_per_128_mac(isa: Isa, program: DepthwiseProgram, cpu: str) -> float:
    """Return the cycles of `cpu` per 128 products of a 3 x 3 window."""
    return unit_cycles(isa, program, cpu, TYPICAL_TAPS) * (128 / (TYPICAL_TAPS * program.unit))
