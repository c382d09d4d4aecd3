"""Flushes of depthwise kernels: accumulators of any width and order, widened and added to int32 sums in order.

Instructions are found by what they do: those that widen the lanes of a register half by half, those that add such lanes
at once, those that take any lanes of two registers as an index says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import Inexact, LinearForm, add_forms, as_form, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import VecType
from bitsynth.sketches.depthwise.steps import DepthwiseStep
from bitsynth.sketches.lanes.terms import adder

ChannelOrder = tuple[int, ...]
Emit = Callable[[str, tuple[str, ...], int], str]
"""Append an instruction on named values with an immediate; the name of what it makes."""
_SUM_BITS = 32


@dataclass(frozen=True)
class DepthwiseFlush:
    """The program of a flush, its constants, and the names of the sums after it."""

    program: tuple[Step, ...]
    constants: tuple[Constant, ...]
    tile: tuple[str, ...]


@dataclass(frozen=True)
class _Held:
    """A register of sums and the channels of its lanes."""

    name: str
    kind: VecType
    channels: ChannelOrder


@dataclass
class _Writer:
    """The program that is being made."""

    program: list[Step] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)

    def __call__(self, op: str, args: tuple[str, ...], imm: int = 0) -> str:
        self.program.append(Step(f"t{len(self.program)}", op, args, imm))
        return self.program[-1].dst

    def constant(self, kind: VecType, lanes: tuple[int, ...]) -> str:
        self.constants.append(Constant(f"k{len(self.constants)}", str(kind), lanes))
        return self.constants[-1].name


def flush(isa: Isa, step: DepthwiseStep) -> DepthwiseFlush:
    """The flush of a step's accumulators; NoKernel if the instruction set cannot bring them into order."""
    write = _Writer()
    held = [
        _Held(acc.name, VecType.parse(acc.type), channels)
        for acc, channels in zip(step.accs, step.channels, strict=True)
    ]
    lanes = isa.tile.lanes
    while held[0].kind.bits < _SUM_BITS:
        if not all(_in_runs(x, lanes) for x in held):
            held = _ordered(isa, held, lanes, write)
        if held[0].kind.bits * 2 == _SUM_BITS and (adding := widening_adds(isa, held[0].kind)):
            return _added_at_once(isa, held, adding, write)
        held = [half for x in held for half in _widened(isa, x, write)]
    tile = [""] * len(held)
    for x in held:
        r = x.channels[0] // lanes
        tile[r] = write(adder(isa, isa.tile), (f"c{r}", x.name))
    return DepthwiseFlush(tuple(write.program), tuple(write.constants), tuple(tile))


def _in_runs(x: _Held, lanes: int) -> bool:
    """Whether registers of int32 made of its parts hold `lanes` channels each that follow each other."""
    starts = range(0, len(x.channels), lanes)
    return all(
        x.channels[k] % lanes == 0 and x.channels[k : k + lanes] == tuple(range(x.channels[k], x.channels[k] + lanes))
        for k in starts
    )


def _added_at_once(isa: Isa, held: Sequence[_Held], adding: tuple[str, str], write: _Writer) -> DepthwiseFlush:
    lanes = isa.tile.lanes
    tile = [""] * (len(held) * 2)
    for x in held:
        for h, op in enumerate(adding):
            r = x.channels[h * lanes] // lanes
            tile[r] = write(op, (f"c{r}", x.name))
    return DepthwiseFlush(tuple(write.program), tuple(write.constants), tuple(tile))


def _widened(isa: Isa, x: _Held, write: _Writer) -> Iterator[_Held]:
    kind = VecType("s", 2 * x.kind.bits, x.kind.lanes // 2)
    for h, ops in enumerate(widenings(isa, x.kind)):
        name = x.name
        for op, imm in ops:
            name = write(op, (name,), imm)
        yield _Held(name, kind, x.channels[h * kind.lanes : (h + 1) * kind.lanes])


def _unknowns(kind: VecType, what: str = "x") -> list[LinearForm]:
    return [variable((what, i), -1, 0) for i in range(kind.lanes)]


def _gives(instr: Instr, args: Sequence[Sequence[object]], imm: int, want: Sequence[LinearForm]) -> bool:
    try:
        got = [as_form(x) for x in instr(LinearDomain(1), args, imm)]
    except Inexact:
        return False
    return [(x.const, x.atoms) for x in got] == [(x.const, x.atoms) for x in want]


@lru_cache
def widening_adds(isa: Isa, kind: VecType) -> tuple[str, str] | None:
    """The instructions that add the low and the high lanes of a `kind` to lanes twice as wide; None without such."""
    wide = VecType("s", 2 * kind.bits, kind.lanes // 2)
    sums, x = _unknowns(wide, "c"), _unknowns(kind)
    halves = x[: wide.lanes], x[wide.lanes :]
    found = []
    for half in halves:
        want = [add_forms(c, y) for c, y in zip(sums, half, strict=True)]
        fit = (i for i in isa.full_forms if [o.type.bits for o in i.operands] == [wide.bits, kind.bits] and not i.imm)
        found.append(next((i.name for i in fit if i.operands[1].type == kind and _gives(i, [sums, x], 0, want)), None))
    low, high = found
    return (low, high) if low and high else None


@lru_cache
def widenings(isa: Isa, kind: VecType) -> tuple[tuple[tuple[str, int], ...], ...]:
    """The instructions, each with its immediate, that widen the low and the high lanes of a register of `kind`."""
    half = kind.lanes // 2
    x = _unknowns(kind)
    out = [_widening(isa, kind, x, x[h * half : (h + 1) * half]) for h in range(2)]
    return tuple(out)


def _widening(
    isa: Isa, kind: VecType, x: Sequence[LinearForm], want: Sequence[LinearForm]
) -> tuple[tuple[str, int], ...]:
    """One instruction on the whole register, or one that takes a half of it and one on that."""
    part = VecType("s", kind.bits, kind.lanes // 2)
    unary = [i for i in isa.full_forms if len(i.operands) == 1 and not i.imm and i.out.bits == 2 * kind.bits]
    for instr in unary:
        if instr.operands[0].type == kind and _gives(instr, [x], 0, want):
            return ((instr.name, 0),)
    for instr in unary:
        if instr.operands[0].type == part and _gives(instr, [_unknowns(part)], 0, _unknowns(part)):
            for cut, imm in _halvings(isa, kind, part):
                if list(want) == list(x[imm * part.lanes : (imm + 1) * part.lanes]):
                    return ((cut, imm), (instr.name, 0))
    raise NoKernel(f"{isa.name} has no instruction that widens signed lanes of {kind}")


@lru_cache
def _halvings(isa: Isa, kind: VecType, part: VecType) -> tuple[tuple[str, int], ...]:
    """Instructions with immediates that take the low and the high half of a register of `kind`."""
    x = _unknowns(kind)
    return tuple(
        (i.name, h)
        for i in isa.instrs.values()
        if i.imm and [o.type for o in i.operands] == [kind] and i.out == part
        for h in range(2)
        if h in i.imms and _gives(i, [x], h, x[h * part.lanes : (h + 1) * part.lanes])
    )


def _ordered(isa: Isa, held: Sequence[_Held], lanes: int, write: _Writer) -> list[_Held]:
    """The same sums with channels in order, two registers at a time."""
    out: list[_Held] = []
    for x, y in zip(held[::2], held[1::2], strict=True):
        both = [*x.channels, *y.channels]
        order = sorted(both)
        for wanted in (order[: len(both) // 2], order[len(both) // 2 :]):
            index = [both.index(ch) for ch in wanted]
            out.append(_Held(_chosen(isa, x, y, index, write), x.kind, tuple(wanted)))
    if not all(_in_runs(x, lanes) for x in out):
        raise NoKernel(f"{isa.name} cannot bring the channels of {len(held)} registers into order")
    return out


def _chosen(isa: Isa, x: _Held, y: _Held, index: Sequence[int], write: _Writer) -> str:
    """A register of the lanes index[i] of x, then y."""
    for instr in isa.full_forms:
        kinds = {o.type for o in instr.operands}
        if len(instr.operands) != 3 or kinds != {instr.out} or instr.imm:
            continue
        each = instr.out.bits // x.kind.bits
        if each == 0 or any(
            index[k] % each or index[k : k + each] != _run(index[k], each) for k in range(0, len(index), each)
        ):
            continue
        wide = tuple(index[k] // each for k in range(0, len(index), each))
        place = _index_place(instr, wide)
        if place is not None:
            args = {place[0]: x.name, place[1]: y.name, place[2]: write.constant(instr.out, wide)}
            return write(instr.name, tuple(args[k] for k in range(3)))
    raise NoKernel(f"{isa.name} has no instruction that takes any lanes of two registers")


def _run(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def _index_place(instr: Instr, wide: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The operands that are the first register, the second, and the index."""
    x, y = _unknowns(instr.out, "x"), _unknowns(instr.out, "y")
    x, y = ([LinearForm(0, f.atoms, 0, 1) for f in forms] for forms in (x, y))
    both = [*x, *y]
    for first, second, index in permutations(range(3)):
        args: list[Sequence[object]] = [[]] * 3
        args[first], args[second], args[index] = x, y, list(wide)
        try:
            if _gives(instr, args, 0, [both[k] for k in wide]):
                return first, second, index
        except (TypeError, AttributeError):
            continue
    return None
