"""Straight-line programs over instruction forms, and the microkernel made of them.

A microkernel computes one MR x NR tile. It runs its passes one after the other; each
pass loops over K with its own planes and accumulators, and adds its sums to the int32
tile every `flush_every` steps. A program is written for one row of activations and NR
columns; MR rows are the same program on other inputs.

Names in a program: `a{i}` act plane i of the row, `w{g}_{j}` wgt plane j of register g,
`acc{i}` accumulators, `c{i}` registers of the int32 tile, `k{i}` constants, `t{i}` values.
A value is defined once, before its uses.
"""

from __future__ import annotations

import re

import msgspec

from bitsynth.errors import SpecError

WORD_BYTES = 8
"""Bytes of packed K positions a column or row has in one step: half a NEON register."""

_LINE = re.compile(r"(\w+) = ([\w.]+)((?: \w+)*)(?: #(\d{1,6}))?", re.ASCII)


class Step(msgspec.Struct, frozen=True):
    """`dst = op(args)`, with an immediate where the instruction takes one."""

    dst: str
    op: str
    args: tuple[str, ...]
    imm: int = 0

    def __str__(self) -> str:
        return " ".join((self.dst, "=", self.op, *self.args)) + (f" #{self.imm}" if self.imm else "")

    @classmethod
    def parse(cls, line: str) -> Step:
        """The step `line` spells; SpecError if it spells none."""
        match = _LINE.fullmatch(line)
        if not match:
            raise SpecError(f"bad program line {line[:80]!r}: want 'dst = op arg ... #imm'")
        dst, op, args, imm = match.groups()
        return cls(dst, op, tuple(args.split()), int(imm or 0))


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A register that is the same in every step: lanes of vector type `type`."""

    name: str
    type: str
    lanes: tuple[int, ...]


class Acc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A loop-carried accumulator: starts at zero, becomes the value `next` at each step."""

    name: str
    type: str
    next: str


class Pass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One loop over K. Planes are truth tables over codes, bit c for code c.

    `flush` takes the accumulators and the tile registers c0.. to those named in `tile`.
    """

    act_planes: tuple[int, ...]
    wgt_planes: tuple[int, ...]
    step: tuple[str, ...]
    accs: tuple[Acc, ...]
    flush: tuple[str, ...]
    tile: tuple[str, ...]
    flush_every: int

    @property
    def step_program(self) -> tuple[Step, ...]:
        return tuple(map(Step.parse, self.step))

    @property
    def flush_program(self) -> tuple[Step, ...]:
        return tuple(map(Step.parse, self.flush))


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The instruction forms that move data: whole registers, act words, int32 tiles."""

    load: str
    broadcast: str
    load_tile: str
    store_tile: str
    add_tile: str
    broadcast_tile: str


class Kernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A microkernel for unsigned act codes times bipolar wgt codes.

    The tile starts at g[n] + h[m], where g and h sum `g_table` and `h_table` over the codes
    of a column and of a row. `slots[s]` is the column in 64-bit slot s of the wgt registers.
    """

    isa: str
    act_bits: int
    w_bits: int
    rows: int
    columns: int
    bits_per_byte: int
    slots: tuple[int, ...]
    memory: Memory
    constants: tuple[Constant, ...]
    passes: tuple[Pass, ...]
    g_table: tuple[int, ...]
    h_table: tuple[int, ...]

    @property
    def k_step(self) -> int:
        """Positions of K one step covers."""
        return WORD_BYTES * self.bits_per_byte

    @property
    def has_row_terms(self) -> bool:
        return any(self.h_table)
