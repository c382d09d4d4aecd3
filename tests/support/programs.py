"""Programs as text: tests write steps and values as strings, as files have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec

from bitsynth.isa.step import Constant, Step
from bitsynth.isa.value import Value
from bitsynth.kernel.program import Acc, Loop

_R = TypeVar("_R")


def lines(program: Iterable[Step]) -> tuple[str, ...]:
    """The text of a program, a line a step."""
    return tuple(map(str, program))


def steps(program: Iterable[Step | str]) -> tuple[Step, ...]:
    """The program of these lines, which may be steps already."""
    if isinstance(program, tuple) and {*map(type, program)} == {Step}:
        return program  # As most are: mutants of kernels are made by the ten thousand.
    return tuple(x if isinstance(x, Step) else Step.parse(x) for x in program)


def constant(name: str, kind: str, lanes: tuple[int, ...]) -> Constant:
    """The constant called `name`."""
    return Constant(Value(name), kind, lanes)


def acc(name: str, kind: str, after: str, start: str = "") -> Acc:
    """The accumulator called `name`, which becomes `after`, and `start` in a first run."""
    return Acc(Value(name), kind, Value(after), Value(start))


def change(record: _R, **fields: Any) -> _R:
    """The step or record with other fields; programs and values among them may be text. `program` is what files say."""
    if "program" in fields and not hasattr(record, "program"):
        fields["steps"] = fields.pop("program")
    given: dict[str, Any] = {name: _read(record, name, field) for name, field in fields.items()}
    changed: Any = record.replace(**given) if isinstance(record, Step) else msgspec.structs.replace(record, **given)  # type: ignore[type-var]
    return cast(_R, changed)


def _read(record: object, name: str, given: Any) -> Any:
    """The field as `record` has it."""
    if name in ("steps", "flush") or (name == "first" and isinstance(record, Loop)):
        return steps(given)
    if name in ("args", "tile", "results") or (name == "next" and isinstance(given, tuple)):
        return tuple(map(Value, given))
    if name in ("dst", "next", "start", "table") or (name == "name" and isinstance(record, Acc | Constant)):
        return Value(given)
    return given
