"""Checks the declaration of an instruction set, beyond the types of its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitsynth import paths
from bitsynth.errors import SpecError
from bitsynth.isa import architecture
from bitsynth.isa.expand import vector_type
from bitsynth.isa.instr import Instr
from bitsynth.isa.tables import IsaTable

_VECTOR_BITS = (64, 128, 256, 512)


def check_isa(path: Path, table: IsaTable) -> None:
    """Raise SpecError for a fact of an `[isa]` table that cannot be."""
    if table.name != path.parent.name:
        raise SpecError(f"{path}: name is {table.name!r}, the folder is {path.parent.name!r}")
    if table.arch not in architecture.known():
        known = ", ".join(architecture.known())
        raise SpecError(f"{path}: arch is {table.arch!r}; known: {known}, from {paths.architectures()}")
    if table.vector_bits not in _VECTOR_BITS or table.registers < 1:
        raise SpecError(f"{path}: want vector_bits of {_VECTOR_BITS} and a register or more")
    rates = [rate for c in table.cpu.values() for rate in (c.vector_per_cycle, c.half_width_speedup)]
    if not rates or not all(0 < rate < math.inf for rate in rates):
        raise SpecError(f"{path}: want one cpu or more, each with vector_per_cycle and half_width_speedup above 0")
    if not all(0 <= c.overlap <= 1 and (c.slower is None or 0 < c.slower < math.inf) for c in table.cpu.values()):
        raise SpecError(f"{path}: want overlap of 0 to 1, the share of cycles beside others, and slower above 0")
    asking = [name for name, c in table.cpu.items() if c.prefetch_turns]
    if wrong := [name for name in asking if table.prefetch is None or name not in table.in_order]:
        raise SpecError(f"{path}: cpu.{wrong[0]}: prefetch_turns want [isa.prefetch] and rules that are in order")
    asked = [*table.host_features, *(f for x in table.features.values() for f in x.host)]
    if silent := [f for f in asked if f not in table.probes]:
        raise SpecError(f"{path}: probes: want a C expression that asks for {silent[0]}, which host features name")
    for kind in table.ctype:
        vector_type(f"{path}: ctype", kind)
    _check_features(path, table)


def _check_features(path: Path, table: IsaTable) -> None:
    for name, f in table.features.items():
        if not f.macro.isidentifier() or not f.cc_flags or not f.host:
            raise SpecError(f"{path}: features.{name}: want the name of a macro, and cc_flags and host of one or more")
    macros = [table.feature, *(f.macro for f in table.features.values())]
    if twice := sorted({m for m in macros if macros.count(m) > 1}):
        raise SpecError(f"{path}: features: two of them have the macro {twice[0]}")
    for name, cpu in table.cpu.items():
        named_once(path, f"feature of cpu.{name}", cpu.features or [], table.features)


def check_high_forms(folder: Path, instrs: Mapping[str, Instr]) -> None:
    """Raise SpecError for a form with `high` without the form of that table with the same types."""
    for low in instrs.values():
        high = instrs.get(f"{low.high}.{low.name.rpartition('.')[2]}")
        if low.high and (high is None or (high.operands, high.out) != (low.operands, low.out)):
            raise SpecError(f"{folder}: {low.name}: no {low.high!r} of the same operands, which `high` names")


def named_once(path: Path, what: str, names: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `known` that `names` has; SpecError for one that is not known, or named twice."""
    if unknown := [n for n in names if n not in known]:
        raise SpecError(f"{path}: unknown {what} {unknown[0]!r}; known: {', '.join(known)}")
    if len(set(names)) < len(names):
        raise SpecError(f"{path}: a {what} is named twice in {', '.join(names)}")
    return {n: v for n, v in known.items() if n in names}
