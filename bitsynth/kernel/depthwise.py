"""Programs of depthwise convolutions: channels in lanes, sums over taps lane by lane.

A *unit* is a register of bytes, a channel a byte. A step takes `taps` taps: one register of activations
each, `a{j}`, and registers of weights, `w{j}`. Accumulators `acc{i}` take the products; every `flush_every`
steps a flush adds them to `c{r}`, registers of the int32 sums. A kernel has a flush for every order in which results
of sums are made, the unit's own first. Constants of flushes are `k{i}`, values `t{i}`; a value is defined once, before
its uses. The same program runs for `pixels` pixels at once, which share weights.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Constant, Step, to_json
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.program import Acc
from bitsynth.kernel.straight_line import check_names, check_program, constant_load, find_unused

PREFIX = "bs_dw_"
"""How the names of depthwise kernels start."""
MAX_PIXELS = 16
MAX_TAPS = 4
MAX_FLUSH = 1 << 24
_NAME = re.compile(r"bs_dw_a(\d)_w(\d)_s32_([a-z][a-z0-9_]*?)_(\d+)x(\d)", re.ASCII)


class DepthwiseMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The instruction forms that move data: registers of bytes, registers of int32 sums."""

    load: str
    load_tile: str
    store_tile: str


class DepthwiseFlush(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that adds accumulators to int32 sums with channels in `order`; `tile` names the new sums."""

    order: tuple[int, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...] = msgspec.field(name="program")
    tile: tuple[Value, ...]


class DepthwiseProgram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A depthwise kernel for activations in `act` and weights in `wgt`, both (least, greatest).

    Byte b of weight register j is the weight of tap weights[j][b] // unit of the step, channel weights[j][b] % unit.
    The codes that activations lie in memory as are `act_low` greater than they are here, and at most `act_bits` wide.
    """

    isa: str
    act_bits: int
    w_bits: int
    act: tuple[int, int]
    wgt: tuple[int, int]
    taps: int
    pixels: int
    weights: tuple[tuple[int, ...], ...]
    memory: DepthwiseMemory
    steps: tuple[Step, ...] = msgspec.field(name="program")
    accs: tuple[Acc, ...]
    flush_every: int
    flushes: tuple[DepthwiseFlush, ...]

    @property
    def name(self) -> str:
        """The name in C: bs_dw_a4_w4_s32_avx2_32x2, widths at most, instruction set, channels and taps of a step."""
        return f"bs_dw_a{self.act_bits}_w{self.w_bits}_s32_{self.isa}_{self.unit}x{self.taps}"

    @property
    def digest(self) -> str:
        """Half of the SHA-256 of the program as it is stored."""
        return hashlib.sha256(to_json(self)).hexdigest()[:32]

    @property
    def unit(self) -> int:
        """Channels of a unit."""
        return len(self.weights[0])

    @property
    def step_bytes(self) -> int:
        """Bytes of the weights of a unit in a step."""
        return len(self.weights) * self.unit

    @property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """The orders of channels that sums may have."""
        return tuple(flush.order for flush in self.flushes)

    @property
    def in_matrices(self) -> bool:
        """Whether its C uses matrix registers: never."""
        return False

    @property
    def forms(self) -> list[str]:
        """The instruction forms that the kernel's C contains, sorted."""
        isa, memory = load(self.isa), self.memory
        moving = {memory.load, memory.load_tile, memory.store_tile}
        constants = {constant_load(isa, VecType.parse(c.type)).name for x in self.flushes for c in x.constants}
        flushing = (step for x in self.flushes for step in x.steps)
        return sorted(moving | constants | {s.op for s in (*self.steps, *flushing)})


def isa_of(name: str) -> str:
    """Return the instruction set in the name of a depthwise kernel; SpecError for anything that is no such name."""
    match = _NAME.fullmatch(name)
    if not match:
        raise SpecError(f"{name[:80]!r} is no depthwise kernel's name; one looks like bs_dw_a4_w4_s32_SET_32x2")
    return match[3]


def check_shape(isa: Isa, program: DepthwiseProgram) -> None:
    """Raise SpecError unless sizes, names and inputs of the program fit a depthwise kernel."""
    lanes = isa.word.lanes
    if not (1 <= program.act_bits <= 8 and 1 <= program.w_bits <= 8 and 1 <= program.taps <= MAX_TAPS):
        raise SpecError(f"malformed depthwise kernel: want 1 to 8 bits on both sides and 1 to {MAX_TAPS} taps")
    places = sorted(p for register in program.weights for p in register)
    facts = {
        "activations of that many bits": _spans(program.act, 1 << program.act_bits),
        "weights of a byte, of both signs": -128 <= program.wgt[0] < 0 < program.wgt[1] <= 127,
        f"1 to {MAX_PIXELS} pixels": 1 <= program.pixels <= MAX_PIXELS,
        "weights of a whole register": all(len(register) == lanes for register in program.weights),
        "each weight of a step once": places == list(range(program.taps * lanes)),
        "accumulators of whole registers": bool(program.accs) and all(_whole(isa, a) for a in program.accs),
        "a bound on steps between flushes": 1 <= program.flush_every <= MAX_FLUSH,
        "flushes in different orders, the unit's own first": _orders(program.orders, lanes),
        "all sums of a unit": all(len(x.tile) * isa.tile.lanes == lanes for x in program.flushes),
        "constants of whole registers": all(
            VecType.parse(c.type).total_bits == isa.table.vector_bits for x in program.flushes for c in x.constants
        ),
    }
    if wrong := [fact for fact, holds in facts.items() if not holds]:
        raise SpecError(f"malformed depthwise kernel: it lacks {', '.join(wrong)}")
    _check_names(isa, program)


def _spans(act: tuple[int, int], codes: int) -> bool:
    return act[0] in (0, -128) and act[1] - act[0] == codes - 1


def _orders(orders: tuple[tuple[int, ...], ...], lanes: int) -> bool:
    own = list(range(lanes))
    return (
        bool(orders)
        and list(orders[0]) == own
        and len(set(orders)) == len(orders) == sum(sorted(order) == own for order in orders)
    )


def _whole(isa: Isa, acc: Acc) -> bool:
    return VecType.parse(acc.type).total_bits == isa.table.vector_bits and not acc.start


def _check_names(isa: Isa, program: DepthwiseProgram) -> None:
    """Raise SpecError unless inputs have the names they must have, no value is defined twice, and all are used."""
    inputs = [Value.of(Role.ROW, j) for j in range(program.taps)]
    inputs += [Value.of(Role.COLUMN, j) for j in range(len(program.weights))]
    accs = [a.name for a in program.accs]
    check_names("accumulator", "acc", accs)
    check_program(isa, program.steps, {*inputs, *accs})
    unused = {"step": find_unused(inputs, program.steps, [a.next for a in program.accs])}
    for flush in program.flushes:
        tile = [Value.of(Role.TILE, r) for r in range(len(flush.tile))]
        given = [*accs, *tile, *(c.name for c in flush.constants)]
        check_names("constant", "k", (c.name for c in flush.constants))
        check_program(isa, flush.steps, given)
        unused["flush"] = unused.get("flush") or find_unused(given, flush.steps, flush.tile)
    if where := next((where for where, names in unused.items() if names), None):
        raise SpecError(f"malformed depthwise kernel: a {where} lacks uses of every value")
