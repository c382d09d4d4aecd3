"""Records that hold steps and values, as JSON: each step and each value is a string there."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa.step import Step
from bitsynth.isa.value import Value

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
