"""A step of a program, one instruction form applied to values, the constants it may name, and both as JSON.

In a record each step and each value is a string."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, final

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa.value import Value

_LINE = re.compile(r"(\w+) = ([\w.]+)((?: \w+)*)(?: #(\d{1,6}))?", re.ASCII)


@final
class Step:
    """`dst = op(args)`, with an immediate if the instruction takes one. A step does not change.

    No `msgspec.Struct`: files have a step as a line of text.
    """

    __slots__ = ("_hash", "args", "dst", "imm", "op")

    if TYPE_CHECKING:
        dst: Value
        op: str
        args: tuple[Value, ...]
        imm: int
        _hash: int

    def __init__(self, dst: Value, op: str, args: tuple[Value, ...], imm: int = 0) -> None:
        fields = {"dst": dst, "op": op, "args": args, "imm": imm, "_hash": hash((dst, op, args, imm))}
        for name, field in fields.items():
            object.__setattr__(self, name, field)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"the step {self} does not change")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Step):
            return NotImplemented
        return self is other or (
            self._hash == other._hash
            and (self.dst, self.op, self.args, self.imm) == (other.dst, other.op, other.args, other.imm)
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[[str], Step], tuple[str]]:
        return Step.parse, (str(self),)

    def __repr__(self) -> str:
        return f"Step.parse({str(self)!r})"

    def __str__(self) -> str:
        return " ".join((self.dst, "=", self.op, *self.args)) + (f" #{self.imm}" if self.imm else "")

    @staticmethod
    def parse(line: str) -> Step:
        """Return the step that `line` spells; SpecError if it does not spell one."""
        return _parse_line(line)

    def replace(
        self,
        *,
        dst: Value | None = None,
        op: str | None = None,
        args: tuple[Value, ...] | None = None,
        imm: int | None = None,
    ) -> Step:
        """Return the step with other fields; None leaves a field as it is."""
        return Step(
            self.dst if dst is None else dst,
            self.op if op is None else op,
            self.args if args is None else args,
            self.imm if imm is None else imm,
        )

    def rename(self, rename: Callable[[Value], Value]) -> Step:
        """Return the step with every value, result and operands, replaced by what `rename` gives for it."""
        return Step(rename(self.dst), self.op, tuple(map(rename, self.args)), self.imm)


@lru_cache(maxsize=1 << 16)
def _parse_line(line: str) -> Step:
    match = _LINE.fullmatch(line)
    if not match:
        raise SpecError(f"bad program line {line[:80]!r}: want 'dst = op arg ... #imm'")
    dst, op, args, imm = match.groups()
    return Step(Value(dst), op, tuple(map(Value, args.split())), int(imm or 0))


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A register that is the same in every step: lanes of vector type `type`."""

    name: Value
    type: str
    lanes: tuple[int, ...]


_T = TypeVar("_T")


def to_json(record: object) -> bytes:
    """Return the JSON text of a record."""
    return msgspec.json.encode(record, enc_hook=_write)


def from_json(text: bytes | str, kind: type[_T]) -> _T:
    """Return the record of type `kind` in a JSON text; msgspec.DecodeError if there is none."""
    return msgspec.json.decode(text, type=kind, dec_hook=_read)


def to_builtins(record: object) -> Any:
    """Return a record as lists, dictionaries, strings and numbers."""
    return msgspec.to_builtins(record, enc_hook=_write)


def from_builtins(record: Any, kind: type[_T]) -> _T:
    """Return the record of type `kind` in lists and dictionaries; msgspec.ValidationError if there is none."""
    return msgspec.convert(record, kind, dec_hook=_read)


def _write(value: object) -> str:
    if isinstance(value, Step | Value):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is not part of a record")


def _read(kind: type[Any], text: object) -> Any:
    if not isinstance(text, str) or kind not in (Step, Value):
        raise TypeError(f"want a string for a {kind.__name__.lower()}")
    if kind is Value:
        return Value(text)
    try:
        return Step.parse(text)
    except SpecError as why:
        raise ValueError(str(why)) from None
