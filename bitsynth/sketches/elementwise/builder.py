"""Builds elementwise programs: values of a whole unit, and roles applied to them register by register.

A role is a text in the lane language, such as "a[i] + b[i]"; `roles.py` finds the cheapest form that does it. Given a
unit of 8 int32 accumulators s in registers of 4 lanes, and a constant:

    builder.map(ADD, builder.input("s"), builder.constant(kind, 1))
    appends  v0 = add s0_0 k0; v1 = add s0_1 k0   and returns  UnitValue(s32x4, (v0, v1))

`find_orders` then finds, by running the program, which channel each position of an input belongs to: forms that narrow
or interleave may leave lanes in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.reads import ReadsDomain
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.elementwise.program import ElementLoop, ElementwiseProgram, names, shape
from bitsynth.kernel.elementwise.run import run
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.roles import Filled, role
from bitsynth.spec.elementwise import WORD_BITS, ElementInput, ElementwiseSpec

_BYTE = 8
_TRIES = 64
_RANGES = (4, 8, 16, 1 << 6, 1 << 14, 1 << 31)
"""Magnitudes of the random inputs that show which position a result depends on."""


@dataclass(frozen=True)
class UnitValue:
    """One value for every element of the unit, in registers of one type."""

    type: VecType
    registers: tuple[Value, ...]

    def as_type(self, kind: VecType) -> UnitValue:
        """Return the same registers, viewed as another type of their size."""
        return replace(self, type=kind)


@dataclass
class Builder:
    """Collects a program of `spec` for `unit` elements; NoKernel where the instruction set lacks a form."""

    isa: Isa
    spec: ElementwiseSpec
    unit: int
    steps: list[Step] = field(default_factory=list)
    constants: ConstantPool = field(default_factory=dict)
    memo: dict[tuple[str, tuple[Value, ...], int], Value] = field(default_factory=dict)

    def input(self, name: str, number: int = 0) -> UnitValue:
        """Return value `number` of an input."""
        input_ = next(x for x in self.spec.inputs if x.name == name)
        kind, count = shape(self.isa, input_, self.unit)
        return UnitValue(kind, tuple(Value(f"{name}{number}_{n}") for n in range(count)))

    def constant(self, kind: VecType, *lanes: int) -> UnitValue:
        """Return a constant register: one number for all lanes, or one for each."""
        full = tuple(x % (1 << kind.bits) for x in (lanes if len(lanes) > 1 else lanes * kind.lanes))
        constant = self.constants.setdefault(
            (kind, full), Constant(Value.of(Role.CONSTANT, len(self.constants)), str(kind), full)
        )
        return UnitValue(kind, (constant.name,))

    def apply(self, filled: Filled, args: Sequence[Value]) -> Value:
        """Append an instruction, unless the same one is there already, and return the name of its result."""
        given = tuple(args[k] for k in filled.places)
        key = (filled.op, given, filled.imm)
        if key not in self.memo:
            self.memo[key] = Value(f"v{len(self.steps)}")
            self.steps.append(Step(self.memo[key], filled.op, given, filled.imm))
        return self.memo[key]

    def map(self, meaning: str, *values: UnitValue, out: VecType | None = None) -> UnitValue:
        """Apply the role `meaning` register by register; a value of one register is used with all of the others."""
        kind = out or values[0].type
        filled = role(self.isa, meaning, kind, *(v.type for v in values))
        count = max(len(v.registers) for v in values)
        given = [v.registers * (count if len(v.registers) == 1 else 1) for v in values]
        return UnitValue(kind, tuple(self.apply(filled, args) for args in zip(*given, strict=True)))

    def pairs(self, filled: Filled, value: UnitValue, out: VecType) -> UnitValue:
        """Make one register of each two neighbours."""
        if len(value.registers) % 2:
            raise NoKernel(f"{len(value.registers)} registers make no pairs")
        pairs = zip(value.registers[::2], value.registers[1::2], strict=True)
        return UnitValue(out, tuple(self.apply(filled, pair) for pair in pairs))

    def bitwise(self, meaning: str, *values: UnitValue) -> UnitValue:
        """Apply a role of single bits, which holds for lanes of any width."""
        kind = VecType("u", _BYTE, values[0].type.total_bits // _BYTE)
        return self.map(meaning, *(v.as_type(kind) for v in values)).as_type(values[0].type)

    def narrow(self, value: UnitValue, *, fits: bool = False, signed: bool = True) -> UnitValue:
        """Narrow signed lanes to half their width; their order is then the instruction set's.

        They saturate, unless all are known to fit (`fits`); to unsigned lanes if not `signed`.
        """
        kind = value.type
        filled = roles.narrowing(self.isa, replace(kind, sign="s"), fits=fits, signed=signed)
        return self.pairs(filled, value, VecType(kind.sign, kind.bits // 2, kind.lanes * 2))

    def finish_loop(self, counts: UnitValue) -> ElementLoop:
        """Make a loop of the instructions so far, which compute `counts` from the bytes x, and begin the next part."""
        start = self.constant(counts.type, 0).registers[0]
        steps = _select_used(self.steps, counts.registers)
        self.steps, self.memo = [], {}
        return ElementLoop((), start, tuple(steps), counts.registers)

    def finish(self, results: UnitValue, loop: ElementLoop | None = None) -> ElementwiseProgram:
        """Return the program, as yet without orders and without instructions whose results are unused."""
        steps = _select_used(self.steps, results.registers)
        in_loop = loop.steps if loop else ()
        read = {a for s in (*steps, *in_loop) for a in s.args} | set(results.registers)
        return ElementwiseProgram(
            isa=self.isa.name,
            spec=self.spec,
            unit=self.unit,
            orders=tuple(() for _ in self.spec.inputs),
            loads=tuple(self._load(x.name) for x in self.spec.inputs),
            constants=tuple(c for c in self.constants.values() if c.name in read or (loop and c.name == loop.start)),
            steps=tuple(steps),
            results=results.registers,
            store=role(self.isa, roles.LOADED, results.type, results.type, store=True).op,
            loop=loop,
        )

    def _load(self, name: str) -> str:
        input_ = next(x for x in self.spec.inputs if x.name == name)
        kind, _ = shape(self.isa, input_, self.unit)
        if input_.per in ("row", "all"):
            return role(self.isa, roles.REPEATED, kind, input_.lane, memory=True).op
        return role(self.isa, roles.LOADED, kind, kind, memory=True).op


def _select_used(steps: Sequence[Step], results: Sequence[Value]) -> list[Step]:
    """Return the instructions that the results depend on."""
    wanted, out = set(results), []
    for step in reversed(steps):
        if step.dst in wanted:
            out.append(step)
            wanted.update(step.args)
    return out[::-1]


def read_off(program: ElementwiseProgram, codes: UnitValue) -> ElementwiseProgram:
    """Return the program with the orders of its inputs, by which positions each lane of `codes` depends on.

    `codes` are the results, or the bytes whose bits the results gather to words. NoKernel if a lane depends on more
    than one position of an input.
    """
    read = _reads(program, codes)
    orders: list[list[int]] = [[-1] * program.unit for _ in program.spec.inputs]
    for p, lanes in enumerate(_distinguish(read)):
        channel = p if program.spec.out != "words" else p // WORD_BITS * WORD_BITS + p % 8 * 8 + p % WORD_BITS // 8
        for number, position in lanes:
            orders[number][position] = channel
    shared = [x.is_shared for x in program.spec.inputs]
    if any(sorted(o) != list(range(program.unit)) for o, s in zip(orders, shared, strict=True) if not s):
        raise NoKernel(f"{program.name}: lanes of codes are not made of one position each")
    read_orders = tuple(() if s else tuple(o) for o, s in zip(orders, shared, strict=True))
    return msgspec.structs.replace(program, orders=read_orders)


def _distinguish(read: list[frozenset[tuple[int, int]]]) -> list[frozenset[tuple[int, int]]]:
    """Return the positions that each lane reads, without positions that are known to belong to another lane.

    A lane that reads one position of an input belongs to it. Saturating forms may read neighbours too.
    """
    owned: set[tuple[int, int]] = set()
    for lanes in read:
        by_input = [[x for x in lanes if x[0] == number] for number in {n for n, _ in lanes}]
        owned |= {some[0] for some in by_input if len(some) == 1}
    out = []
    for lanes in read:
        inputs = {n for n, _ in lanes}
        alone = {n for n in inputs if sum(x[0] == n for x in lanes) == 1}
        out.append(frozenset(x for x in lanes if x[0] in alone or x not in owned))
    return out


def _reads(program: ElementwiseProgram, codes: UnitValue) -> list[frozenset[tuple[int, int]]]:
    """Return, for each lane of codes, the inputs and positions that it depends on, shared inputs left out."""
    trace, domain = Trace(load(program.isa), ReadsDomain()), ReadsDomain()
    trace.bind_constants(program.constants)
    for number, input_ in enumerate(program.spec.inputs):
        kind, _ = program.registers(input_)
        common = input_.is_shared
        for registers in names(program, input_):
            for n, name in enumerate(registers):
                at = [frozenset() if common else frozenset({(number, n * kind.lanes + i)}) for i in range(kind.lanes)]
                trace.bind(name, Register(kind, tuple(at)))
    for step in program.steps:
        trace.run(step)
    return [x for name in codes.registers for x in trace.registers[name].view_as(domain, codes.type).lanes]


def find_orders(program: ElementwiseProgram) -> ElementwiseProgram:
    """Return the program with the orders of its inputs, found by running it; itself, if it has them.

    NoKernel if a result does not depend on one position of each input.
    """
    if program.loop:
        return _order_loop(program, program.loop)
    if any(program.orders):
        return program
    shared = [x.is_shared for x in program.spec.inputs]
    orders = tuple(() if s else _order(program, n) for n, s in enumerate(shared))
    return msgspec.structs.replace(program, orders=orders)


def _order_loop(program: ElementwiseProgram, loop: ElementLoop) -> ElementwiseProgram:
    """Return a program with a loop, and its orders: first the counting bytes' order, then the inputs' orders by it."""
    in_place = msgspec.structs.replace(program, loop=msgspec.structs.replace(loop, order=tuple(range(program.unit))))
    if in_place.iteration is None or in_place.last is None:
        raise NoKernel(f"{program.name} has no loop")
    after = find_orders(_without_orders(in_place.last)).order
    *orders, _, over = find_orders(_without_orders(in_place.iteration)).orders
    orders = [tuple(after[p] for p in order) for order in (*orders, over)]
    return msgspec.structs.replace(program, orders=tuple(orders), loop=msgspec.structs.replace(loop, order=after))


def _without_orders(program: ElementwiseProgram) -> ElementwiseProgram:
    return msgspec.structs.replace(program, orders=tuple(() for _ in program.spec.inputs))


def _order(program: ElementwiseProgram, number: int) -> tuple[int, ...]:
    """Return the order of an input: change one position after the other, and see which result changes."""
    input_, unit = program.spec.inputs[number], program.unit
    rng = np.random.default_rng(number)
    positions = np.full(unit, -1)
    for _ in range(_TRIES):
        half = int(rng.choice(_RANGES))
        given = {x.name: _draw_ascending(rng, x, unit, half) for x in program.spec.inputs}
        base = {name: np.repeat(v[:, :, None], unit, axis=2) for name, v in given.items()}
        changed = {**base, input_.name: base[input_.name].copy()}
        other = _draw_ascending(rng, input_, unit, half)
        for p in range(unit):
            changed[input_.name][:, p, p] = other[:, p]
        for channel, p in np.argwhere(run(program, base) != run(program, changed)):
            positions[channel] = p
        if sorted(positions) == list(range(unit)):
            return tuple(int(x) for x in np.argsort(positions))
    raise NoKernel(f"{program.name}: results do not each depend on one position of {input_.name}")


def _draw_ascending(rng: np.random.Generator, input_: ElementInput, unit: int, half: int) -> NDArray[np.uint64]:
    """Draw ascending values (values, positions) from -half, or 0 if unsigned, to half."""
    most = 1 << (input_.lane.bits - 1)
    most = most if input_.per == "table" else min(half, most)
    low, high = 0 if input_.lane.sign == "u" else -most, most
    values = np.sort(rng.integers(low, high, (input_.values, 1 if input_.is_shared else unit)), axis=0)
    return values.astype(np.int64).view(np.uint64) & np.uint64((1 << input_.lane.bits) - 1)
