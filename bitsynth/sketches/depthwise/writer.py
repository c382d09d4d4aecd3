"""The program of a flush in the making, and the registers of sums that it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import VecType
from bitsynth.kernel.depthwise import DepthwiseFlush
from bitsynth.sketches.depthwise.orders import ChannelOrder


@dataclass(frozen=True)
class SumRegister:
    """A register of sums and the channels of its lanes."""

    name: str
    kind: VecType
    channels: ChannelOrder


@dataclass
class FlushWriter:
    """The program that is being made."""

    program: list[Step] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)

    def __call__(self, op: str, args: tuple[str, ...], imm: int = 0) -> str:
        """Return the register that a step makes; equal steps share one."""
        step = next((s for s in self.program if (s.op, s.args, s.imm) == (op, args, imm)), None)
        if step is None:
            self.program.append(step := Step(f"t{len(self.program)}", op, args, imm))
        return step.dst

    def flush(self, order: ChannelOrder, tile: Mapping[int, str]) -> DepthwiseFlush:
        """Return the flush to `order` whose sums are `tile`."""
        named = tuple(tile[r] for r in range(len(tile)))
        return DepthwiseFlush(order, tuple(self.constants), tuple(map(str, self.program)), named)

    def constant(self, kind: VecType, lanes: tuple[int, ...]) -> str:
        """Return the constant register that holds `lanes`; equal constants share one."""
        made = next((c for c in self.constants if (c.type, c.lanes) == (str(kind), lanes)), None)
        if made is None:
            self.constants.append(made := Constant(f"k{len(self.constants)}", str(kind), lanes))
        return made.name
