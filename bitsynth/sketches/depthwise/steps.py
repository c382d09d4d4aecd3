"""Steps of depthwise kernels: an instruction that multiplies lane by lane, taps side by side if it sums two or four."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import Inexact, LinearForm, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.program import Acc
from bitsynth.sketches.lanes.terms import ProductTerm, find

Places = tuple[int, ...]
"""The tap and channel of each byte of a register: tap * unit + channel."""


@dataclass(frozen=True)
class DepthwiseStep:
    """The program of a step: its weights' places, its accumulators, and the channel of each of their lanes."""

    taps: int
    weights: tuple[Places, ...]
    program: tuple[Step, ...]
    accs: tuple[Acc, ...]
    channels: tuple[tuple[int, ...], ...]


def steps(isa: Isa, method: str) -> Iterator[DepthwiseStep]:
    """Yield every step by `method`, in the order of the instruction tables.

    NoKernel if no instruction multiplies so.
    """
    for term in find(isa, method):
        for layout in _layouts(isa, term.slot_bytes) if term.slots == term.sum_lanes == 1 else ():
            yield _step(term, layout)


@dataclass(frozen=True)
class _Layout:
    """Registers to multiply: the instructions that make them of the step's taps, and the tap and channel of each
    byte."""

    taps: int
    program: tuple[Step, ...]
    registers: tuple[tuple[Value, Places], ...]


def _tap(number: int) -> Value:
    """Return the register of activations of a tap."""
    return Value.of(Role.ROW, number)


def _layouts(isa: Isa, size: int) -> Iterator[_Layout]:
    unit = isa.word.lanes
    if size == 1:
        yield _Layout(1, (), ((_tap(0), tuple(range(unit))),))
    if size == 2:
        for pair in interleavers(isa, 1):
            first, second = (_tap(0), tuple(range(unit))), (_tap(1), tuple(range(unit, 2 * unit)))
            program, registers = _interleave(isa, pair, 1, first, second, 0)
            yield _Layout(2, program, registers)
    if size == 4:
        for pairs, fours in product(interleavers(isa, 1), interleavers(isa, 2)):
            yield _four_taps(isa, pairs, fours)


def _four_taps(isa: Isa, pairs: Interleaver, fours: Interleaver) -> _Layout:
    """Return the layout of four taps: two pairs side by side, then both pairs side by side."""
    given = [(_tap(j), tuple(range(j * isa.word.lanes, (j + 1) * isa.word.lanes))) for j in range(4)]
    program: list[Step] = []
    halves = []
    for j in (0, 2):
        steps, registers = _interleave(isa, pairs, 1, given[j], given[j + 1], len(program))
        program += steps
        halves.append(registers)
    columns: list[tuple[Value, Places]] = []
    for low, high in zip(*halves, strict=True):
        steps, registers = _interleave(isa, fours, 2, low, high, len(program))
        program += steps
        columns += registers
    return _Layout(4, tuple(program), tuple(columns))


Interleaver = tuple[tuple[str, Places], ...]
"""Two instructions, and for each lane of their results the lane of either register."""


def _interleave(
    isa: Isa, by: Interleaver, size: int, left: tuple[Value, Places], right: tuple[Value, Places], first: int
) -> tuple[tuple[Step, ...], tuple[tuple[Value, Places], ...]]:
    """Return steps, numbered from `first` on, that interleave `size` bytes of both, and their result registers."""
    both = (*left[1], *right[1])
    program = tuple(Step(Value.of(Role.TEMPORARY, first + k), op, (left[0], right[0])) for k, (op, _) in enumerate(by))
    places = (tuple(p for lane in lanes for p in both[lane * size : (lane + 1) * size]) for _, lanes in by)
    return program, tuple((step.dst, of) for step, of in zip(program, places, strict=True))


def interleavers(isa: Isa, size: int) -> Iterator[Interleaver]:
    """Yield pairs of instructions that interleave lanes of `size` bytes of two registers, each lane exactly once."""
    kind = replace(isa.word, bits=8 * size, lanes=isa.word.lanes // size)
    unit = kind.lanes
    given = [[variable(tap * unit + ch, 0, (1 << kind.bits) - 1) for ch in range(unit)] for tap in range(2)]
    candidates: list[tuple[str, Places]] = []
    for instr in isa.full_forms:
        if [o.type for o in instr.operands] != [kind, kind] or instr.out != kind or instr.imm:
            continue
        try:
            places = tuple(_place(x) for x in instr(LinearDomain(1), given))
        except Inexact:
            continue
        if all(b == a + unit for a, b in zip(places[::2], places[1::2], strict=True)):
            candidates.append((instr.name, places))
    for pair in combinations(candidates, 2):
        if sorted(p for _, places in pair for p in places) == list(range(2 * unit)):
            yield pair


def _place(x: object) -> int:
    if isinstance(x, LinearForm) and not x.const and len(x.atoms) == 1:
        ((key, by),) = x.atoms.items()
        if by == {1: 1} and isinstance(key, int):
            return key
    raise Inexact("not a byte as it is")


def _step(term: ProductTerm, layout: _Layout) -> DepthwiseStep:
    """Return one product for each half of each register, and a sum if the instruction does not add."""
    program, accs = list(layout.program), list[Acc]()
    channels: list[tuple[int, ...]] = []
    each = term.acc_type.lanes
    unit = len(layout.registers[0][1])
    for j, (register, places) in enumerate(layout.registers):
        for h, op in enumerate(term.halves):
            acc = Value.of(Role.ACCUMULATOR, len(accs))
            args = term.arguments(register, Value.of(Role.COLUMN, j), acc)
            program.append(Step(Value.of(Role.TEMPORARY, len(program)), op, args))
            if term.add:
                program.append(Step(Value.of(Role.TEMPORARY, len(program)), term.add, (acc, program[-1].dst)))
            accs.append(Acc(acc, str(_to_signed(term.acc_type)), program[-1].dst))
            first = h * each * term.slot_bytes
            channels.append(tuple(places[first + i * term.slot_bytes] % unit for i in range(each)))
    return DepthwiseStep(layout.taps, _weights(layout), tuple(program), tuple(accs), tuple(channels))


def _weights(layout: _Layout) -> tuple[Places, ...]:
    return tuple(places for _, places in layout.registers)


def _to_signed(kind: VecType) -> VecType:
    return VecType("s", kind.bits, kind.lanes)


def in_registers(step: DepthwiseStep, pixels: int) -> int:
    """Return the registers that `pixels` pixels at once take: accumulators, weights, and the values of one pixel."""
    return pixels * len(step.accs) + len(step.weights) + _alive(step.program, step.taps)


def _alive(program: Sequence[Step], taps: int) -> int:
    """Return the greatest number of live values of one pixel, its activations included."""
    last = {name: k for k, s in enumerate(program) for name in s.args if name.role in (Role.ROW, Role.TEMPORARY)}
    alive, most = {Value.of(Role.ROW, j) for j in range(taps)}, taps
    for k, step in enumerate(program):
        alive = {name for name in alive if last[name] > k}
        if step.dst in last:
            alive.add(step.dst)
        most = max(most, len(alive) + 1)
    return most


def require_steps(isa: Isa, method: str) -> list[DepthwiseStep]:
    """Return the steps of the sketch by `method`; NoKernel if the instruction set has none."""
    if not (solved := list(steps(isa, method))):
        raise NoKernel(f"{isa.name} has no instruction that multiplies channels in lanes")
    return solved
