"""The results that a kernel's proved program has for given sizes, as values to compare machine code with.

The program's loops run as `kernel/program.py` says, on bytes of the buffers in the layout of the C interface. Where the
kernel's encodings ask for it, products and the terms of rows are doubled and finished tiles are shifted right, as
`emit/correction_terms.py` says.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from bitsynth.emit.correction_terms import doublings, has_row_terms, makes_values
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import Input
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass, period
from bitsynth.kernel.straight_line import sign_shift
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.affine import GeneralNumber, array_part
from bitsynth.objects.values import Content, Contents
from bitsynth.proof.multiples import prove_multiple
from bitsynth.spec.matmul import affine

RegisterContents = dict[Value, Content]
TileContents = dict[tuple[int, int], Content]
"""The registers of a tile by row and first column."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call of the microkernel."""

    tiles: int
    segments: int
    steps: int

    @property
    def all_steps(self) -> int:
        """The steps over K of a tile."""
        return self.segments * self.steps

    def __str__(self) -> str:
        return f"tiles {self.tiles}, segments {self.segments}, steps {self.steps}"


@dataclass(frozen=True)
class StepPlace:
    """Where the inputs of a step over K are: numbers of a call, known or not.

    Attributes:
        steps: Steps of a segment.
        all_steps: Steps of a tile.
        before_tile: Steps of all tiles before this one.
        step: The step within its tile.
        here: The step within its segment.
        row: The name in memory of a row's codes in the segment of this step, by the number of the row.
    """

    steps: GeneralNumber
    all_steps: GeneralNumber
    before_tile: GeneralNumber
    step: GeneralNumber
    here: GeneralNumber
    row: Callable[[int], Hashable]


@dataclass(frozen=True)
class ProgramRun:
    """A kernel's program on the values of a call's buffers.

    Attributes:
        kernel: The program; its flushes add products that are doubled.
        row_terms: Whether tiles start from `h` too.
        doublings: How often the terms of rows are doubled where there are steps over K, as the products are.
        shift: By how many bits the elements of a finished tile are shifted right, with their signs.
        part: Names parts of buffers.
    """

    kernel: Kernel
    values: Contents
    row_terms: bool
    doublings: int = 0
    shift: int = 0
    part: Callable[[Hashable, GeneralNumber], tuple[Hashable, int]] = array_part

    @classmethod
    def of(cls, kernel: MatmulKernel, values: Contents) -> ProgramRun:
        """Return the program of a kernel, with what the encodings of its operands add to it."""
        proved, spec = kernel.proved_entry.proved, kernel.spec
        program = proved.artifact
        times = doublings(program, spec)
        shift = affine(spec).shift if makes_values(program, spec) else 0
        return cls(prove_multiple(proved, times), values, has_row_terms(program, spec), times, shift)

    @cached_property
    def isa(self) -> Isa:
        """The instruction set."""
        return load(self.kernel.isa)

    @property
    def _registers(self) -> int:
        return self.kernel.tile_registers(self.isa.table.vector_bits)

    def tile(self, sizes: Sizes, tile: int) -> TileContents:
        """Return the registers of a tile."""
        if not sizes.all_steps:
            return self.without_steps(tile * self.kernel.columns)
        out = self.start(tile * self.kernel.columns)
        for chain in self.kernel.chains:
            done = 0
            while done < sizes.all_steps:
                block = min(period(chain), sizes.all_steps - done)
                for group in range(self.kernel.groups):
                    self._block(chain, sizes, tile, group, range(done, done + block), out)
                done += block
        return self.finish(out)

    def start(self, column: GeneralNumber) -> TileContents:
        """Return the registers from which the tile whose first column is `column` starts, if there are steps."""
        return self._start(column, self.doublings)

    def without_steps(self, column: GeneralNumber) -> TileContents:
        """Return the tile whose first column is `column` if K is 0: then the terms of rows are not doubled."""
        return self.finish(self._start(column, 0))

    def finish(self, tile: TileContents) -> TileContents:
        """Return the registers of a tile that are stored at last, from its registers after the last flush."""
        if not self.shift:
            return tile
        shift = sign_shift(self.isa)
        return {place: self.values.apply(shift, [content], self.shift) for place, content in tile.items()}

    def _start(self, column: GeneralNumber, doublings: int) -> TileContents:
        lanes, memory = self.isa.tile.lanes, self.kernel.memory
        out: TileContents = {}
        for row, register in product(range(self.kernel.rows), range(self._registers)):
            start = self.load(memory.load_tile, "g", 4 * (column + register * lanes))
            if self.row_terms:
                term = self.load(memory.broadcast_tile, "h", 4 * row)
                for _ in range(doublings):
                    term = self._run(memory.add_tile, [term, term])
                start = self._run(memory.add_tile, [start, term])
            out[row, register * lanes] = start
        return out

    def _block(
        self,
        chain: Sequence[Pass],
        sizes: Sizes,
        tile: int,
        group: int,
        steps: range,
        out: TileContents,
    ) -> None:
        """Run a block of steps for a group of rows, and flush it to the tile."""
        carried = None
        for number, each in enumerate(chain):
            loop = self.kernel.of_group(each, group)
            accs = self._nest(loop, len(loop.loops) - 1, steps, sizes, tile, group, carried)
            if loop.carries:
                carried = self.carry(loop, self.kernel.of_group(chain[number + 1], group), accs)
                continue
            out |= self.flush(loop, group, accs, out)

    def flush(self, loop: Pass, group: int, accs: RegisterContents, tile: TileContents) -> TileContents:
        """Return the registers of a tile that a group of rows has after a flush."""
        lanes, registers = self.isa.tile.lanes, {**self._constants, **accs}
        names = [(row, r * lanes) for row in self.kernel.rows_of(group) for r in range(self._registers)]
        registers |= {Value.of(Role.TILE, k): tile[name] for k, name in enumerate(names)}
        self._steps(loop.flush, registers)
        return {name: registers[value] for name, value in zip(names, loop.tile, strict=True)}

    def carry(self, loop: Pass, following: Pass, accs: RegisterContents) -> RegisterContents:
        """Return the outermost accumulators from which the pass after one that carries starts."""
        registers = {**self._constants, **accs}
        self._steps(loop.flush, registers)
        pairs = zip(following.loops[-1].accs, loop.carried.accs, strict=True)
        return {new.name: registers[old.next] for new, old in pairs}

    def zeros(self, loop: Loop) -> RegisterContents:
        """Return accumulators of a loop that are zero."""
        return {acc.name: self.values.number(0, _size(acc)) for acc in loop.accs}

    def after_step(self, loop: Pass, group: int, place: StepPlace, accs: RegisterContents | None) -> RegisterContents:
        """Return the accumulators after a step over K; the accumulators before it are None if a run begins."""
        here = loop.step
        program = here.first if accs is None and here.first else here.steps
        registers = {**self._constants, **(accs or self.zeros(here)), **self._inputs_of(loop, group).registers(place)}
        self._steps(program, registers)
        return _after(here if program is here.steps else here.first_run, registers)

    def _inputs_of(self, loop: Pass, group: int) -> _Inputs:
        key = id(loop), group  # No other pass gets this number, as the inputs hold the pass.
        if key not in self._inputs:
            self._inputs[key] = _Inputs(self, loop, group)
        return self._inputs[key]

    @cached_property
    def _inputs(self) -> dict[tuple[int, int], _Inputs]:
        return {}

    def widen(self, here: Loop, accs: RegisterContents | None, inside: RegisterContents) -> RegisterContents:
        """Return the accumulators of a loop after the accumulators of the loop `inside` were added."""
        registers = {**self._constants, **(accs or self.zeros(here)), **inside}
        self._steps(here.steps, registers)
        return _after(here, registers)

    def _nest(
        self, loop: Pass, level: int, steps: range, sizes: Sizes, tile: int, group: int, start: RegisterContents | None
    ) -> RegisterContents:
        """Return the accumulators of loop `level` after `steps`."""
        here = loop.loops[level]
        accs = start
        if level == 0:
            for step in steps:
                accs = self.after_step(loop, group, self._place(sizes, tile, step), accs)
            return accs or self.zeros(here)
        size = loop.loops[level - 1].trip_count
        for inner in loop.loops[: level - 1]:
            size *= inner.trip_count
        for first in range(0, len(steps), size):
            inside = self._nest(loop, level - 1, steps[first : first + size], sizes, tile, group, None)
            accs = self.widen(here, accs, inside)
        return accs or self.zeros(here)

    def _place(self, sizes: Sizes, tile: int, step: int) -> StepPlace:
        segment, here = divmod(step, sizes.steps)
        rows = self.kernel.rows
        return StepPlace(
            sizes.steps, sizes.all_steps, tile * sizes.all_steps, step, here, lambda k: ("row", segment * rows + k)
        )

    @cached_property
    def _constants(self) -> RegisterContents:
        return constant_contents(self.values, self.kernel.constants)

    def _steps(self, program: Sequence[Step], registers: RegisterContents) -> None:
        apply, isa = self.values.apply, self.isa
        for step in program:
            registers[step.dst] = apply(isa[step.op], [registers[a] for a in step.args], step.imm)

    def _run(self, op: str, args: Sequence[Content], imm: int = 0) -> Content:
        return self.values.apply(self.isa[op], args, imm)

    def load(self, op: str, array: Hashable, first: GeneralNumber) -> Content:
        """Return what an instruction makes of memory, from byte `first` of an array on."""
        instr = self.isa[op]
        size = instr.operands[0].type.total_bits // 8
        return self.values.apply(instr, [self.values.memory(*self.part(array, first), size)])


def constant_contents(values: Contents, constants: Iterable[Constant]) -> RegisterContents:
    """Return the registers of a program's constants."""
    out: RegisterContents = {}
    for c in constants:
        kind = VecType.parse(c.type)
        data = b"".join((v & ((1 << kind.bits) - 1)).to_bytes(kind.bits // 8, "little") for v in c.lanes)
        out[c.name] = values.content(tuple(data))
    return out


class _Inputs:
    """The inputs of a pass for a group of rows, in the layout of the C interface."""

    def __init__(self, reference: ProgramRun, loop: Pass, group: int) -> None:
        self._reference, self._loop = reference, loop
        kernel, isa = reference.kernel, reference.isa
        self._outer, self._row = kernel.bit_axis == "outer", group * kernel.together
        row_start = _bytes_before(kernel, [p.rows for p in kernel.every_pass], loop.rows)
        self._columns_before = kernel.columns * _bytes_before(
            kernel, [p.columns for p in kernel.every_pass], loop.columns
        )
        self._columns_of_step = kernel.columns * (kernel.slot_bytes if self._outer else _bytes(kernel, loop.columns))
        befores = [row_start + _bytes(kernel, loop.rows[:i]) for i in range(len(loop.rows))]
        self._rows = [(Value.of(Role.ROW, i), before) for i, before in enumerate(befores)]
        registers, size = kernel.column_registers(isa.table.vector_bits), isa.word.lanes
        self._columns = [
            (Value.of(Role.COLUMN, i, register=g), i * registers * size, g * size)
            for i, g in product(range(len(loop.columns)), range(registers))
        ]

    def registers(self, place: StepPlace) -> RegisterContents:
        """Return the inputs of a step over K."""
        reference, kernel, outer, here = self._reference, self._reference.kernel, self._outer, place.here
        memory, row = kernel.memory, place.row(self._row)
        out: RegisterContents = {}
        for value, before in self._rows:
            at = place.steps * before + here * kernel.slot_bytes if outer else here * kernel.row_bytes + before
            out[value] = reference.load(memory.broadcast, row, at)
        first = place.before_tile * (kernel.columns * kernel.column_bytes) + place.all_steps * self._columns_before
        first += place.step * self._columns_of_step
        for value, of_input, of_register in self._columns:
            at = first + ((place.all_steps if outer else 1) * of_input + of_register)
            out[value] = reference.load(memory.load, "w", at)
        return out


def _bytes_before(kernel: Kernel, sides: Sequence[tuple[Input, ...]], inputs: tuple[Input, ...]) -> int:
    """Return the bytes of a step before the block of `inputs`; equal inputs of passes are stored once."""
    before: Iterator[tuple[Input, ...]] = iter(dict.fromkeys(sides))
    total = 0
    for side in before:
        if side == inputs:
            break
        total += _bytes(kernel, side)
    return total


def _bytes(kernel: Kernel, inputs: Sequence[Input]) -> int:
    return sum(kernel.input_bytes(x) for x in inputs)


def _size(acc: Acc) -> int:
    return VecType.parse(acc.type).total_bits // 8


def _after(loop: Loop, registers: RegisterContents) -> RegisterContents:
    return {acc.name: registers[acc.next] for acc in loop.accs}
