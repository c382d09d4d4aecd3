"""TOML files as typed tables: SpecError names the file and what is wrong in it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bitsynth.errors import SpecError
from bitsynth.files import read_file

_Table = TypeVar("_Table")


def decode(path: Path, kind: type[_Table]) -> _Table:
    """Return the file `path` as a `kind`."""
    return convert(path, read(path), kind)


def read(path: Path) -> dict[str, Any]:
    """Return the tables of the file `path`, as they stand there."""
    try:
        return tomllib.loads(read_file(path).decode())
    except FileNotFoundError:
        raise SpecError(f"{path} is missing") from None
    except RecursionError:
        raise SpecError(f"{path}: nested too deeply") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SpecError(f"{path}: {error}") from None


def convert(path: Path, tables: Mapping[str, Any], kind: type[_Table]) -> _Table:
    """Return tables that were read from `path` as a `kind`."""
    try:
        return msgspec.convert(tables, kind)
    except msgspec.ValidationError as error:
        raise SpecError(f"{path}: {error}") from None
