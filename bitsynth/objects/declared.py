"""Machine instructions by mnemonic: those that an instruction set declares, and an architecture's moves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from bitsynth import paths
from bitsynth.isa import toml
from bitsynth.isa.expand import vector_type
from bitsynth.isa.instr import Instr, Operand
from bitsynth.isa.load import Isa

MACHINE_ORDER = {"vpermd": (1, 0), "vpermps": (1, 0)}
"""Mnemonics whose operands are in another order than the declaration's: place in the declaration of each operand."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[instr.NAME]` table of an architecture; its keys are those of an instruction set's."""

    doc: str
    mnemonic: str | list[str]
    in_: dict[str, str] = msgspec.field(name="in")
    out: str
    lane: str
    forms: dict[str, list[str | int]]
    imm: dict[str, tuple[int | str, int | str]] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    instr: dict[str, _Entry]


@lru_cache
def by_mnemonic(isa: Isa) -> Mapping[str, tuple[Instr, ...]]:
    """Return the forms that a mnemonic may stand for, those of the instruction set first."""
    out: dict[str, list[Instr]] = {}
    for instr in (*isa.instrs.values(), *_of_architecture(isa)):
        if not instr.floats:
            for mnemonic in instr.mnemonics:
                out.setdefault(mnemonic, []).append(instr)
    return {mnemonic: tuple(instrs) for mnemonic, instrs in out.items()}


def _of_architecture(isa: Isa) -> list[Instr]:
    """Return the forms in the table of the architecture."""
    path = paths.architectures().parent / f"{isa.table.arch}.toml"
    return [form for name, entry in toml.decoded(path, _File).instr.items() for form in _forms(str(path), name, entry)]


def _forms(where: str, name: str, entry: _Entry) -> list[Instr]:
    out = []
    rows = [dict(zip(entry.forms, row, strict=True)) for row in zip(*entry.forms.values(), strict=True)]
    spelled = [entry.mnemonic] * len(rows) if isinstance(entry.mnemonic, str) else entry.mnemonic
    for row, mnemonic in zip(rows, spelled, strict=True):
        types = {k: vector_type(where, v) for k, v in row.items() if isinstance(v, str)}
        numbers = {k: v for k, v in row.items() if isinstance(v, int)}
        sizes = {f"{k}_{what}": getattr(t, what) for k, t in types.items() for what in ("bits", "lanes")}
        imm: tuple[str, int, int] | None = None
        for of, ends in entry.imm.items():
            low, high = (numbers[end] if isinstance(end, str) else end for end in ends)
            imm = of, low, high
        instr = Instr(
            isa="", name=f"{name}.{row[next(iter(row))]}", doc=entry.doc,
            operands=tuple(Operand(k, types[v]) for k, v in entry.in_.items()),
            imm=imm, try_imm=(), out=types[entry.out], lane=entry.lane, text="",
            mnemonics=tuple(mnemonic.split(" | ")), cost={}, tied=(), high=None, store=False,
            names={**numbers, **sizes}, setting="",
        )  # fmt: skip
        out.append(instr)
    return out
