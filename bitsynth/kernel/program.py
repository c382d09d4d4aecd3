"""The microkernel as a value: nests of loops over K, each with straight-line programs over instruction forms.

A microkernel computes tiles of MR x NR, several adjacent ones in a call. Rows are activations and columns weights, or
the other way round if it is `swapped`. A row's input is repeated over a register; a column has its own bytes of one:

    for each pass                                   digits of the codes; most kernels have one pass
        for each run of loop 1                      widens: adds the accumulators of loop 0 to its own, then zeroes them
            for each run of loop 0, a step over K
                t0 = eor a0 w0_0; t1 = cnt t0; acc0 = add acc0 t1
        flush: c0 = add c0 acc0...                  adds the outermost accumulators to the int32 tile

Passes run one after the other. The passes of a chain share the outermost accumulators, and alternate block by block
of K.
A program is written for one row and NR columns. MR rows are the same program on other inputs, except for instructions
that depend on columns and constants alone: these run once for all rows, as unpacking does.

Values in a program (`isa/value.py`): `a{i}` input i of the row, `w{g}_{j}` input j of column register g,
`acc{i}` accumulators, `c{i}` registers of the int32 tile, `k{i}` constants, `t{i}` results of steps,
`x0` the staged codes of a table. A value is defined once, before its uses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from math import prod

import msgspec

from bitsynth.isa.load import load
from bitsynth.isa.step import Constant, Step, to_json
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.in_order.halves import half_loads
from bitsynth.kernel.inputs import Build, Input, Planes, Table
from bitsynth.kernel.straight_line import constant_load, sign_shift
from bitsynth.spec.matmul import MatmulSpec

MATRIX = "matrix"
ORDERS = ("rows", "steps", MATRIX)
"""The order of a step in C: row by row, or each instruction for all rows before the next, or on matrix registers, which
take several rows and several such instructions at once; else that for a processor."""

BIT_AXES = ("inner", "outer")
"""The place of planes in memory: the planes of a step side by side, or all steps of one plane after another."""


class Acc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A loop-carried accumulator: the value `next` after each run, `start` after the first if that has its own."""

    name: Value
    type: str
    next: Value
    start: Value = Value("")


class Loop(msgspec.Struct, frozen=True, cache_hash=True, forbid_unknown_fields=True):
    """A loop: runs `steps` at most `trip_count` times, from accumulators at zero or carried from another pass.

    The innermost loop is a step over K; an outer one adds the accumulators of the loop inside to its own. A `first`
    program of the innermost loop is its first run: it sets the accumulators that `steps` would add to zeros.
    """

    trip_count: int = msgspec.field(name="times")
    steps: tuple[Step, ...] = msgspec.field(name="program")
    accs: tuple[Acc, ...]
    first: tuple[Step, ...] = ()

    @property
    def first_run(self) -> Loop:
        """The loop with `first` for its program, which sets the accumulators."""
        accs = tuple(Acc(acc.name, acc.type, acc.start) for acc in self.accs)
        return Loop(self.trip_count, self.first, accs)

    @property
    def becomes(self) -> dict[Value, Value]:
        """The accumulators by the names of their next values."""
        return {acc.next: acc.name for acc in self.accs}


class Pass(msgspec.Struct, frozen=True, cache_hash=True, forbid_unknown_fields=True, omit_defaults=True):
    """One nest of loops over K, innermost first.

    `flush` computes the new tile registers, named in `tile`, from the accumulators of the outermost loop and the tile
    registers c0, c1 and so on. If the pass `carries`, `flush` reads the accumulators alone, and `tile` names the values
    from which the next pass's accumulators start, over the same steps of K.
    """

    rows: tuple[Input, ...]
    columns: tuple[Planes, ...]
    loops: tuple[Loop, ...]
    flush: tuple[Step, ...]
    tile: tuple[Value, ...]
    carries: bool = False

    @property
    def step(self) -> Loop:
        """The innermost loop, a step over K."""
        return self.loops[0]

    @property
    def carried(self) -> Loop:
        """The flush of a pass that carries, as one run of a loop with the outermost accumulators."""
        accs = self.loops[-1].accs
        becoming = tuple(msgspec.structs.replace(a, next=n) for a, n in zip(accs, self.tile, strict=True))
        return Loop(1, self.flush, becoming)

    @property
    def flush_every(self) -> int:
        """Steps between two flushes, at most."""
        return prod(loop.trip_count for loop in self.loops)

    @property
    def programs(self) -> tuple[tuple[Step, ...], ...]:
        """Every program of the pass, the flush last."""
        return (self.step.first, *(loop.steps for loop in self.loops), self.flush)


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The instruction forms that move data: whole registers, a row's input, int32 tiles."""

    load: str
    broadcast: str
    load_tile: str
    store_tile: str
    add_tile: str
    broadcast_tile: str


class Kernel(msgspec.Struct, frozen=True, cache_hash=True, forbid_unknown_fields=True, omit_defaults=True):
    """A microkernel for the core product: unsigned act codes times bipolar or signed wgt codes.

    Attributes:
        slot_bytes: Bytes that a column has in one register.
        slots: `slots[s]` is the column in slot s.
        row_terms: Added to the tile at the start: the sum of `row_terms[code]` over the codes of a row.
        column_terms: The same for the codes of a column.
        cross_terms: On both sides this multiple of the products of neighbours, the codes at positions 2 j and 2 j + 1,
            is added to the tile at the start, too.
        unroll: How many times the innermost loop is unrolled; 0 leaves it to the compiler.
        bit_axis: One of BIT_AXES: the place of planes in memory.
        order: The order of instructions in a step: one of ORDERS, or the name of the in-order processor that they are
            scheduled for.
        code_bytes: Bytes of a code. If there are several, what `Planes` has for bytes holds for codes, lowest byte
            first.
        together: Rows of a group. One program computes a group: its inputs are tables whose bytes the rows share, of
            equally many bits each, the first row's lowest. `c0` and so on are the tile registers of the first row of
            the group, then of the next row.
        scalar_pass: For an in-order processor: a pass on general-purpose registers for the last of several rows, whose
            instructions are interleaved with the vector instructions of the other rows. Files call it `beside`.
    """

    isa: str
    act_bits: int
    w_bits: int
    swapped: bool
    rows: int
    columns: int
    k_step: int
    slot_bytes: int
    slots: tuple[int, ...]
    memory: Memory
    constants: tuple[Constant, ...]
    build: Build | None
    passes: tuple[Pass, ...]
    row_terms: tuple[int, ...]
    column_terms: tuple[int, ...]
    unroll: int = 0
    bit_axis: str = "inner"
    order: str = ORDERS[0]
    code_bytes: int = 1
    together: int = 1
    cross_terms: int = 0
    scalar_pass: Pass | None = msgspec.field(name="beside", default=None)

    @property
    def digest(self) -> str:
        """Half of the SHA-256 of the kernel as it is stored, by which measurements name the kernel."""
        return hashlib.sha256(to_json(self)).hexdigest()[:32]

    @property
    def core(self) -> MatmulSpec:
        """The product of codes that it computes; the products of all encodings are built around it."""
        return MatmulSpec.plain(self.isa, self.act_bits, self.w_bits)

    @property
    def row_bits(self) -> int:
        """Bits of the operand whose vectors are rows of the tile."""
        return self.w_bits if self.swapped else self.act_bits

    @property
    def column_bits(self) -> int:
        """Bits of the operand whose vectors are columns of the tile."""
        return self.act_bits if self.swapped else self.w_bits

    @property
    def in_matrices(self) -> bool:
        """Whether its steps run on matrix registers."""
        return self.order == MATRIX

    @property
    def groups(self) -> int:
        """Groups of rows; a group has one program."""
        return self.rows // self.together

    @property
    def every_pass(self) -> tuple[Pass, ...]:
        """The passes, the `scalar_pass` included."""
        return (*self.passes, *([self.scalar_pass] if self.scalar_pass else []))

    @property
    def nests(self) -> bool:
        """Whether a pass has loops around the innermost one."""
        return any(len(loop.loops) > 1 for loop in self.passes)

    def with_passes(self, change: Callable[[Pass], Pass]) -> Kernel:
        """Return the kernel with every pass changed, the `scalar_pass` included."""
        return msgspec.structs.replace(
            self, passes=tuple(map(change, self.passes)), scalar_pass=self.scalar_pass and change(self.scalar_pass)
        )

    @property
    def alone(self) -> tuple[Kernel, ...]:
        """The kernels of each program of rows: what one of them computes, all do."""
        if self.scalar_pass is None:
            return (self,)
        last = msgspec.structs.replace(self, rows=1, order=ORDERS[0])._of((self.scalar_pass,), self.scalar_pass)
        return self._of(self.passes, None), last

    def _of(self, passes: tuple[Pass, ...], scalar_pass: Pass | None) -> Kernel:
        """Return the kernel of these passes, with the constants that they read."""
        read = {a for p in passes for program in p.programs for s in program for a in s.args}
        constants = tuple(c for c in self.constants if c.name in read)
        return msgspec.structs.replace(self, passes=passes, constants=constants, scalar_pass=scalar_pass)

    @property
    def active_scalar_pass(self) -> Pass | None:
        """The last row's own program where it runs: in the order of a processor, if there are other rows."""
        return self.scalar_pass if self.order not in ORDERS and self.groups > 1 else None

    def of_group(self, loop: Pass, group: int) -> Pass:
        """Return the pass that a group of rows has for `loop`: the last its own, where it has one."""
        return (self.active_scalar_pass if group == self.groups - 1 else None) or loop

    def rows_of(self, group: int) -> range:
        """Return the rows of a group."""
        return range(group * self.together, (group + 1) * self.together)

    @property
    def code_bits(self) -> int:
        """Bits of the codes that a program multiplies: of activation and weight, and of a group's further rows."""
        return self.act_bits + self.w_bits + self.row_bits * (self.together - 1)

    def first_bit(self, of_row: bool, member: int = 0) -> int:
        """Return the lowest of these bits that belongs to the code of a row, `member` of its group, or of a column."""
        if member:
            return self.act_bits + self.w_bits + (member - 1) * self.row_bits
        return 0 if of_row != self.swapped else self.act_bits

    @property
    def method(self) -> str:
        """The method of multiplication, as its inputs and its order tell."""
        if self.in_matrices:
            return MATRIX
        if self.build is not None:
            return "lookup" if self.together == 1 else "pairs"
        if self.cross_terms:
            return "fip"
        codes = self.slot_bytes // self.code_bytes
        if codes == 4 and VecType.parse(self.passes[0].loops[0].accs[0].type).bits < 8 * self.slot_bytes:
            return "multiply"  # A column has sums of some of its codes in each of several lanes.
        return {16: "popcount", 8: "popcount", 4: "dot"}.get(codes, "multiply")

    @property
    def bit_axes(self) -> tuple[str, ...]:
        """The places planes may lie at: there is a choice if each input is one, of the codes all of its side are of."""
        sides = [inputs for p in self.passes for inputs in (p.rows, p.columns)]
        return BIT_AXES if max(map(len, sides)) > 1 and all(map(_planes_of_the_same, sides)) else BIT_AXES[:1]

    @property
    def chains(self) -> tuple[tuple[Pass, ...], ...]:
        """The passes between two flushes to the tile: the last of each goes there, all before it carry."""
        ends = [k + 1 for k, p in enumerate(self.passes) if not p.carries]
        return tuple(self.passes[start:end] for start, end in pairwise([0, *ends]))

    @property
    def forms(self) -> list[str]:
        """The instruction forms that the kernel's C may contain, whatever the encoding, sorted."""
        isa, memory, build = load(self.isa), self.memory, self.build
        moving = {memory.load, memory.broadcast, memory.load_tile, memory.store_tile}
        row_terms = {memory.add_tile, memory.broadcast_tile} if self.has_row_terms or not self.swapped else set()
        halves = half_loads(isa, self.order) if self.order not in ORDERS else None
        chosen = {halves.load, halves.join} if halves else set[str]()
        chosen |= {sign_shift(isa).name} if self.shifts else set()
        programs = {s.op for p in self.every_pass for program in p.programs for s in program}
        building = {build.load, build.store, *(s.op for s in build.steps)} if build else set()
        constants = (*self.constants, *(build.constants if build else ()))
        loads = {constant_load(isa, VecType.parse(c.type)).name for c in constants}
        return sorted(moving | row_terms | chosen | programs | building | loads)

    @property
    def doublings(self) -> tuple[int, ...]:
        """How often C doubles the kernel's products in some encodings, such as bipolar activations."""
        return () if self.swapped else (1,)

    @property
    def shifts(self) -> bool:
        """Whether C halves the kernel's results in some encodings: of weights of scale 1, from products of scale 2."""
        return not self.swapped and self.core.wgt.scale == 2

    @property
    def has_row_terms(self) -> bool:
        """Whether a row adds terms of its codes to the tile."""
        return any(self.row_terms) or self.cross_terms != 0

    @property
    def has_digits(self) -> bool:
        """Whether rows are bytes of parts of their codes."""
        rows = [x for p in self.passes for x in p.rows if isinstance(x, Planes)]
        return self.slot_bytes < 8 and any(len(x.tables) < self.row_bits for x in rows)

    def tile_registers(self, vector_bits: int) -> int:
        """Return registers that one row of the int32 tile takes, of `vector_bits` bits each."""
        return self.columns * 32 // vector_bits

    def column_registers(self, vector_bits: int) -> int:
        """Return registers that one input of the columns takes in a step, of `vector_bits` bits each."""
        return self.columns * self.slot_bytes * 8 // vector_bits

    def input_bytes(self, of_row: Input) -> int:
        """Return bytes a vector's input takes in memory."""
        return of_row.entries if isinstance(of_row, Table) else self.slot_bytes * of_row.slots

    def _side_bytes(self, sides: Iterable[tuple[Input, ...]]) -> int:
        """Return the bytes of inputs in a step; an input that several passes read counts once."""
        return sum(self.input_bytes(x) for inputs in dict.fromkeys(sides) for x in inputs)

    @property
    def row_bytes(self) -> int:
        """Bytes of memory a row takes in a step, over all passes."""
        return self._side_bytes(p.rows for p in self.passes)

    @property
    def column_bytes(self) -> int:
        """Bytes of memory a column takes in a step, over all passes."""
        return self._side_bytes(p.columns for p in self.passes)


def period(chain: Iterable[Pass]) -> int:
    """Return the most steps between two flushes of passes that share accumulators."""
    return min(p.flush_every for p in chain)


def _planes_of_the_same(inputs: tuple[Input, ...]) -> bool:
    planes = [x for x in inputs if isinstance(x, Planes) and len(x.tables) == 1]
    return len(planes) == len(inputs) and len({(x.first, x.stride, x.per_byte) for x in planes}) == 1


@lru_cache(maxsize=1 << 12)
def row_free(program: tuple[Step, ...]) -> frozenset[Value]:
    """Return the values that depend on columns and constants alone: all rows share them."""
    free = set[Value]()
    for step in program:
        if all(a.all_rows_share or a in free for a in step.args):
            free.add(step.dst)
    return frozenset(free)


@lru_cache(maxsize=1 << 10)
def row_program(loop: Pass) -> tuple[Step, ...]:
    """Return the instructions that run for every row."""
    free = row_free(loop.step.steps)
    return tuple(s for s in loop.step.steps if s.dst not in free)


@lru_cache(maxsize=1 << 10)
def find_held_for_rows(loop: Pass) -> frozenset[Value]:
    """Return the shared values that the row program reads: column inputs, and values that depend on them alone."""
    free = row_free(loop.step.steps)
    return frozenset(a for s in row_program(loop) for a in s.args if a.is_column or a in free)


def but_accumulators(loop: Pass) -> int:
    """Return a lower bound of a step's live registers without accumulators: shared values, one input, one temporary."""
    return len(find_held_for_rows(loop)) + 2
