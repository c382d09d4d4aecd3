"""An instruction form: types, meaning, C text and cost, as declared in `isa_specs/`."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bitsynth.errors import SpecError
from bitsynth.isa import lane as lane_text
from bitsynth.isa.bits import Bits, trunc
from bitsynth.isa.domains.domain import Domain
from bitsynth.isa.types import VecType

_FAILURES = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, MemoryError, RecursionError)
"""Errors of a lane expression that is not total, or mixes widths."""


@dataclass(frozen=True)
class InstrCost:
    """Latency in cycles, throughput per cycle, the port class that limits it, and slots of vector ports besides."""

    latency: float
    per_cycle: float
    port: str
    slots: int = 0


@dataclass(frozen=True)
class Operand:
    """A register operand, or with `memory` the bytes its pointer points at."""

    name: str
    type: VecType
    memory: bool = False


@dataclass(frozen=True, eq=False)
class Instr:
    """One form of an instruction, such as `addp.u8x16`.

    It compiles to one of `mnemonics`. `feature` names the feature set that has it, "" the base; it counts as
    `instructions` of the machine's. `floats` are the operands that hold float32 numbers; with `any_nan`, its lanes that
    are not a number have any sign and payload, whatever the meaning says.
    `clang` is the C text for Clang, "" if that is `text`.
    """

    isa: str
    name: str
    doc: str
    operands: tuple[Operand, ...]
    imm: tuple[str, int, int] | None
    try_imm: tuple[int, ...]
    out: VecType
    lane: str
    text: str
    mnemonics: tuple[str, ...]
    cost: Mapping[str, InstrCost]
    tied: tuple[str, ...]
    high: str | None
    store: bool
    names: Mapping[str, int]
    setting: str
    feature: str = ""
    instructions: int = 1
    floats: tuple[str, ...] = ()
    any_nan: bool = False
    clang: str = ""

    @property
    def _parameters(self) -> list[str]:
        """The names the lane expression may use, in the order of `__call__`."""
        return [*(o.name for o in self.operands), *self.names, *([self.imm[0]] if self.imm else [])]

    @cached_property
    def tree(self) -> ast.Expression:
        """The syntax tree of the lane expression; SpecError if it is not a valid one."""
        return lane_text.parse(f"{self.isa}: {self.name}", self.lane, self._parameters)

    @cached_property
    def _lanes(self) -> lane_text.Evaluate:
        return lane_text.compile_lanes(self.tree, self.out.lanes, self._parameters)

    @cached_property
    def _lane(self) -> Callable[..., Any]:
        return lane_text.compile_lane(self.tree, self._parameters)

    @property
    def reads_memory(self) -> bool:
        """Whether an operand is memory."""
        return any(o.memory for o in self.operands)

    @property
    def is_load(self) -> bool:
        """Whether it fills a register from the memory at one pointer, and has no other operand."""
        return len(self.operands) == 1 and self.reads_memory and not self.imm and not self.store

    @property
    def on_registers(self) -> bool:
        """Whether it neither loads nor stores."""
        return not self.reads_memory and not self.store

    @property
    def texts(self) -> tuple[str, ...]:
        """The C texts that emitted files contain: one, or one for other compilers and one for Clang."""
        return (self.text, self.clang) if self.clang else (self.text,)

    @property
    def imms(self) -> range:
        """Every legal immediate; (0,) alone if the instruction takes none."""
        return range(self.imm[1], self.imm[2] + 1) if self.imm else range(1)

    @property
    def meaning(self) -> str:
        """The facts its result depends on: types of operands, names, and the expression of lane i."""
        given = [f"{o.name}: {o.type}" for o in self.operands] + [f"{k} = {v}" for k, v in sorted(self.names.items())]
        return f"({', '.join(given)}) -> {self.out}: {self.lane}"

    @cached_property
    def digest(self) -> str:
        """The fingerprint of the declaration: what a differential test vouches for.

        `setting` is the part of `isa.toml` that its C depends on: header, flags, casts, C types, probes of features.
        """
        parts = [
            self.setting,
            self.name,
            *map(repr, self.operands),
            repr(self.imm),
            str(self.out),
            self.lane,
            self.text,
        ]
        parts += [f"{k}={v}" for k, v in sorted(self.names.items())]
        parts += [f"floats: {', '.join(self.floats)}"] if self.floats else []
        parts += ["any_nan"] if self.any_nan else []
        parts += [f"clang: {self.clang}"] if self.clang else []
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def __call__(self, domain: Domain, args: Sequence[Sequence[Any]], imm: int = 0) -> list[Any]:
        """Return the output lanes for `args`, one sequence of lane payloads an operand."""
        values: list[Any] = [
            tuple(Bits(domain, o.type.bits, v) for v in given) for o, given in zip(self.operands, args, strict=True)
        ]
        return [self._payload(x) for x in self._evaluate_lanes(self._lanes, values, imm)]

    def lane_at(self, operands: Sequence[Any], imm: int, i: Any) -> Any:
        """Return the payload of output lane `i`, a number or what `operands`, whose lanes are bits, take for one."""
        return self._payload(self._evaluate_lanes(self._lane, operands, imm, i))

    def _evaluate_lanes(self, function: Callable[..., Any], operands: Sequence[Any], imm: int, *at: Any) -> Any:
        try:
            return function(*operands, *self.names.values(), *([imm] if self.imm else []), *at)
        except _FAILURES as error:
            raise SpecError(f"{self.isa}: {self.name}: lane expression {self.lane!r} fails: {error}") from None

    def _payload(self, x: Any) -> Any:
        if not isinstance(x, Bits) or x.w < self.out.bits:
            raise SpecError(f"{self.isa}: {self.name}: the lane expression must give {self.out.bits} bits or more")
        return x.v if x.w == self.out.bits else trunc(x, self.out.bits).v

    def render(self, args: Sequence[str], imm: int = 0, to: str = "") -> str:
        """Return the C expression for operands `args` and immediate `imm`; a store writes to the pointer `to`."""
        holes: dict[str, object] = dict(zip((o.name for o in self.operands), args, strict=True))
        if self.store:
            holes["to"] = to
        if self.imm:
            holes[self.imm[0]] = imm
        return self.text.format(**holes)


Metric = Callable[[Instr], float]
"""The cost of one instruction under a cost model."""
