"""A step of a program, one instruction form applied to named values, and the constants it may name."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from bitsynth.errors import SpecError

_LINE = re.compile(r"(\w+) = ([\w.]+)((?: \w+)*)(?: #(\d{1,6}))?", re.ASCII)


class Step(msgspec.Struct, frozen=True, cache_hash=True):
    """`dst = op(args)`, with an immediate if the instruction takes one."""

    dst: str
    op: str
    args: tuple[str, ...]
    imm: int = 0

    def __str__(self) -> str:
        return " ".join((self.dst, "=", self.op, *self.args)) + (f" #{self.imm}" if self.imm else "")

    @staticmethod
    def parse(line: str) -> Step:
        """Return the step that `line` spells; SpecError if it does not spell one."""
        return _parse_line(line)


@lru_cache(maxsize=1 << 16)
def _parse_line(line: str) -> Step:
    match = _LINE.fullmatch(line)
    if not match:
        raise SpecError(f"bad program line {line[:80]!r}: want 'dst = op arg ... #imm'")
    dst, op, args, imm = match.groups()
    return Step(dst, op, tuple(args.split()), int(imm or 0))


@lru_cache(maxsize=1 << 12)
def steps_of(program: tuple[str, ...]) -> tuple[Step, ...]:
    """Return the steps of a program; SpecError for text that does not spell one."""
    return tuple(map(Step.parse, program))


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A register that is the same in every step: lanes of vector type `type`."""

    name: str
    type: str
    lanes: tuple[int, ...]
