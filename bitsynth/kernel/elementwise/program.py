"""Programs of elementwise specs: straight-line instructions that compute the results of a unit of elements.

A unit is as many elements, in successive channels, as some registers hold, such as 16. Registers of inputs are named
by input, number of the value, and number of the register: `s0_1` holds the second part of the unit's accumulators,
`t2_0` the first part of the third threshold; a value that a row or all elements share has one register, `r0_0`.

    spec     thresholds2: s (int32), t (2 int32 of a channel), result u8; a unit of 4 elements
    program  v0 = cgt s0_0 t0_0      -1 in lanes where s > t[0]
             v1 = cgt s0_0 t1_0
             v2 = add v0 v1          minus the result; then negated, narrowed to bytes, stored

Many thresholds are counted by a loop over the last input (`ElementLoop`).

Specs without a proved program are computed by plain C (`PlainProgram`).
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.elementwise.constants import UnitConstants
from bitsynth.kernel.straight_line import check_names, check_program, constant_load
from bitsynth.spec.elementwise import WORD_BITS, ElementInput, ElementwiseSpec

MAX_UNIT, MAX_VALUES = 256, 256
LEAST_UNIT = 16


class ElementLoop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A loop over the values of the last input, which counts in bytes x.

    Attributes:
        order: Byte p counts for channel order[p] of the unit.
        start: The constant that the bytes start from.
        steps: One iteration; it reads the input's value of this iteration as value 0.
        next: The bytes after an iteration.
    """

    order: tuple[int, ...]
    start: Value
    steps: tuple[Step, ...] = msgspec.field(name="program")
    next: tuple[Value, ...]


class ElementwiseProgram(UnitConstants, msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A program for `unit` elements at a time.

    Attributes:
        orders: Position p of input n belongs to channel orders[n][p] of the unit; () for a shared input. All inputs
            that differ from element to element have the same order.
        loads: The form that loads each input.
        results: The registers that `store` writes one behind the other, in the order of channels.
        loop: Runs before `steps`, which then read the bytes that the loop has counted.
        moves: Whether the last instructions move results so that elements lie in the order of channels.
    """

    isa: str
    spec: ElementwiseSpec
    unit: int
    orders: tuple[tuple[int, ...], ...]
    loads: tuple[str, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...] = msgspec.field(name="program")
    results: tuple[Value, ...]
    store: str
    loop: ElementLoop | None = None
    moves: bool = False

    @property
    def in_matrices(self) -> bool:
        """Whether its C uses matrix registers: never."""
        return False

    @property
    def forms(self) -> list[str]:
        """The instruction forms used, sorted."""
        in_loop = self.loop.steps if self.loop else ()
        return sorted({s.op for s in (*self.steps, *in_loop)} | {*self.loads, self.store})

    @property
    def written_forms(self) -> set[str]:
        """The instruction forms that its C contains: those used, and loads of constants."""
        isa = load(self.isa)
        return {*self.forms, *(constant_load(isa, VecType.parse(c.type)).name for c in self.constants)}

    @property
    def by_elements(self) -> tuple[Step, ...]:
        """The steps, ordered by the last register of the first input that each depends on."""
        last = {name: n for n, name in enumerate(names(self, self.spec.inputs[0])[0])}
        for step in self.steps:
            last[step.dst] = max((last.get(a, -1) for a in step.args), default=-1)
        return tuple(sorted(self.steps, key=lambda step: last[step.dst]))

    @property
    def iteration(self) -> ElementwiseProgram | None:
        """One iteration of the loop as a program of its own, whose channels are the bytes that count."""
        if self.loop is None:
            return None
        places = {channel: p for p, channel in enumerate(self.loop.order)}
        *others, over = [tuple(places[c] for c in order) for order in self.orders]
        return msgspec.structs.replace(
            self,
            spec=self.spec.iteration(),
            orders=(*others, tuple(range(self.unit)), over),
            loads=(*self.loads[:-1], self._byte_load, self.loads[-1]),
            steps=self.loop.steps,
            results=self.loop.next,
            store=next(i.name for i in load(self.isa).instrs.values() if i.store and i.out == load(self.isa).word),
            loop=None,
        )

    @property
    def last(self) -> ElementwiseProgram | None:
        """The instructions after the loop as a program of its own."""
        if self.loop is None:
            return None
        return msgspec.structs.replace(
            self, spec=self.spec.last(), orders=(self.loop.order,), loads=(self._byte_load,), loop=None
        )

    @property
    def _byte_load(self) -> str:
        """The form that would load the bytes that count."""
        isa = load(self.isa)
        return constant_load(isa, isa.word).name

    @property
    def name(self) -> str:
        """The name of the program, and of its file."""
        return f"{self.spec.name}_{'ordered_' * self.moves}{self.isa}"

    @property
    def result_bytes(self) -> int:
        """Bytes of a unit's results."""
        return self.unit * self.spec.out_bits // 8

    def shared_bytes(self, input_: ElementInput) -> int:
        """Return the bytes of an input among a unit's constants; a table is repeated to fill registers."""
        if input_.per == "table":
            kind, count = self.registers(input_)
            return count * kind.total_bits // 8
        return super().shared_bytes(input_)

    def table(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the table of a program that has one, with its `values` repeated to fill registers."""
        (input_,) = (x for x in self.spec.inputs if x.per == "table")
        repeats = max(1, self.shared_bytes(input_) * 8 // (input_.count * input_.lane.bits))
        return np.tile(np.ascontiguousarray(values).view(np.uint8), repeats)

    def registers(self, input_: ElementInput) -> tuple[VecType, int]:
        """Return the type and the number of registers of one value of an input."""
        return shape(load(self.isa), input_, self.unit)


def shape(isa: Isa, input_: ElementInput, unit: int) -> tuple[VecType, int]:
    """Return the type and the number of registers that a value of an input takes for `unit` elements."""
    full = isa.table.vector_bits // input_.lane.bits
    lanes = full if input_.is_shared else min(full, unit)
    count = max(1, input_.count // full) if input_.per == "table" else 1 if input_.is_shared else max(1, unit // lanes)
    return VecType(input_.lane.sign, input_.lane.bits, lanes), count


def names(program: ElementwiseProgram, input_: ElementInput) -> list[list[Value]]:
    """Return the names of the registers of an input, value by value."""
    _, count = program.registers(input_)
    values = 1 if input_.per == "table" else input_.values
    return [[Value(f"{input_.name}{k}_{n}") for n in range(count)] for k in range(values)]


def place(spec: ElementwiseSpec, channel: int, bit: int) -> int:
    """Return the position, in bits, of a bit of a channel's result among the results of its unit."""
    if spec.out != "words":
        return channel * spec.out_bits + bit
    word, at = divmod(channel, WORD_BITS)
    return (word * spec.planes + bit) * WORD_BITS + at % 8 * 8 + at // 8


def check_shape(program: ElementwiseProgram) -> None:
    """Raise SpecError for registers, orders, loads or stores that do not fit the spec."""
    isa, spec = load(program.isa), program.spec
    spec.check()
    where = f"{program.name}: "
    if not 1 <= program.unit <= MAX_UNIT or any(not 0 <= x.count <= MAX_VALUES for x in spec.inputs):
        raise SpecError(f"{where}want a unit of 1 to {MAX_UNIT} channels and at most {MAX_VALUES} values an input")
    _check_orders(program)
    _check_names(program, isa)
    if spec.out == "words" and program.unit % WORD_BITS:
        raise SpecError(f"{where}words take units of {WORD_BITS} channels")
    if len(program.loads) != len(spec.inputs):
        raise SpecError(f"{where}{len(program.loads)} loads of {len(spec.inputs)} inputs")
    for input_, op in zip(spec.inputs, program.loads, strict=True):
        form, (kind, _) = isa[op], program.registers(input_)
        if not form.is_load or (form.out.bits, form.out.lanes) != (kind.bits, kind.lanes):
            raise SpecError(f"{where}{op} loads no {kind}")
    _check_store(program, isa)
    if program.loop:
        _check_loop(program, program.loop)


def _check_names(program: ElementwiseProgram, isa: Isa) -> None:
    """Raise SpecError unless names are well formed, no value is defined twice, and all results are defined."""
    loops = (program.loop.steps, program.loop.next) if program.loop else ((), ())
    given = {c.name for c in program.constants} | {r for x in program.spec.inputs for v in names(program, x) for r in v}
    given |= {Value(f"x0_{n}") for n in range(len(loops[1]))}
    check_names("constant", "k", (c.name for c in program.constants))
    for steps, results in ((program.steps, program.results), loops):
        check_program(isa, steps, given, letter="v")
        if unknown := set(results) - {*(s.dst for s in steps), *given}:
            raise SpecError(f"{program.name}: the result {min(unknown)[:40]!r} has no value")


def _check_store(program: ElementwiseProgram, isa: Isa) -> None:
    store = isa[program.store]
    if not store.store or len(store.operands) != 1:
        raise SpecError(f"{program.name}: {program.store} stores no register")
    if store.out.total_bits * len(program.results) != 8 * program.result_bytes:
        raise SpecError(f"{program.name}: {len(program.results)} results of {store.out}, {program.result_bytes} bytes")


def _check_loop(program: ElementwiseProgram, loop: ElementLoop) -> None:
    zero = [c for c in program.constants if c.name == loop.start and not any(c.lanes)]
    over = program.spec.inputs[-1]
    if sorted(loop.order) != list(range(program.unit)) or not zero or over.per != "channel":
        raise SpecError(f"{program.name}: the loop wants an order of the unit, a start of zeros, an input of channels")
    if not 0 < over.count < 1 << 8 or len(program.spec.nested) != 1:
        raise SpecError(f"{program.name}: a byte counts to {over.count}, of {len(program.spec.nested)} conditions")


def _check_orders(program: ElementwiseProgram) -> None:
    spec, every = program.spec, list(range(program.unit))
    if len(program.orders) != len(spec.inputs) or not every or program.unit * spec.out_bits % 8:
        raise SpecError(f"{program.name}: {len(program.orders)} orders of {program.unit} channels, want one an input")
    for input_, order in zip(spec.inputs, program.orders, strict=True):
        wanted = [] if input_.is_shared else every
        if sorted(order) != wanted or order != _own(program, input_, order):
            raise SpecError(f"{program.name}: the order of {input_.name} is none of the unit's channels")


def _own(program: ElementwiseProgram, input_: ElementInput, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order that an input must have: the elements', or in a loop the counting bytes'; others are free."""
    return {"element": program.order, "iteration": tuple(range(program.unit))}.get(input_.per, order)


class PlainProgram(UnitConstants, msgspec.Struct, frozen=True):
    """The meaning of `spec`, element by element in the order of channels, `unit` of them at a time.

    Any whole number of eights will do: compilers take a unit to vector registers at once. Words want 64.
    """

    spec: ElementwiseSpec
    unit: int

    @classmethod
    def of(cls, spec: ElementwiseSpec, vector_bytes: int, channels: int) -> PlainProgram:
        """Return the program whose results fill registers of that many bytes, at least half of the channels in use."""
        unit = max(LEAST_UNIT, min(vector_bytes, 1 << (channels - 1).bit_length()))
        return cls(spec, WORD_BITS if spec.planes else unit)

    @property
    def name(self) -> str:
        """The name of the program."""
        return f"{self.spec.name}_plain"


EpilogueProgram = ElementwiseProgram | PlainProgram
"""What makes results of an epilogue."""
