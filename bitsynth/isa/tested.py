"""The record of instruction forms whose declared meaning was compared with the machine's.

The synthesizer may only use forms for which `is_tested` holds: those whose declaration is, letter for letter, one
that `bitsynth isa check` compared with the real instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from bitsynth import paths
from bitsynth.errors import SpecError
from bitsynth.files import read_file, replace_file
from bitsynth.isa.instr import Instr

RECORD = "checked.json"
ADVICE = "run it in a clone that can be written to, or on an instruction set of your own in a folder of BITSYNTH_ISA"
"""Advice if the record cannot be written: it lies among the instruction sets."""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    by: str
    digests: dict[str, str]


def record(isa: str, by: str, digests: Mapping[str, str]) -> Path:
    """Store that the forms with these digests passed, tested by the machine `by`; the path of the record."""
    path = paths.isa_folder(isa) / RECORD
    text = msgspec.json.encode(_Record(by, dict(digests)))
    replace_file(path, msgspec.json.format(text, indent=1) + b"\n", ADVICE)
    _digests.cache_clear()
    return path


@lru_cache
def _digests(isa: str) -> Mapping[str, str]:
    path = paths.isa_folder(isa) / RECORD
    try:
        return msgspec.json.decode(read_file(path), type=_Record).digests
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, OSError) as error:
        raise SpecError(f"{path}: {error}; run `bitsynth isa check {isa} --bless`") from None


def is_tested(instr: Instr) -> bool:
    """Return whether this very declaration passed the differential test."""
    return _digests(instr.isa).get(instr.name) == instr.digest


def require_tested(instrs: Iterable[Instr]) -> None:
    """Raise SpecError, naming the untested forms, unless all of `instrs` are tested."""
    unknown = [i for i in instrs if not is_tested(i)]
    if unknown:
        named = ", ".join(sorted({i.name for i in unknown})[:5])
        raise SpecError(
            f"{unknown[0].isa}: {named} is not differential-tested (or has changed since): "
            f"run `bitsynth isa check {unknown[0].isa} --bless`"
        )
