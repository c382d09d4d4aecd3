"""Instruction sets: read from their folder, and checked beyond the types of their tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from bitsynth import paths
from bitsynth.errors import SpecError
from bitsynth.isa import architecture, toml
from bitsynth.isa import lane as lane_text
from bitsynth.isa.expand import forms, settings, vector_type
from bitsynth.isa.instr import Instr
from bitsynth.isa.tables import InstrFile, IsaFile, IsaTable, IssueTable, MatrixTable
from bitsynth.isa.types import VecType

_VECTOR_BITS = (64, 128, 256, 512)


def check_isa(path: Path, table: IsaTable) -> None:
    """Raise SpecError for a fact of an `[isa]` table that cannot be."""
    if table.name != path.parent.name:
        raise SpecError(f"{path}: name is {table.name!r}, the folder is {path.parent.name!r}")
    if table.arch not in architecture.load_architectures():
        known = ", ".join(architecture.load_architectures())
        raise SpecError(f"{path}: arch is {table.arch!r}; known: {known}, from {paths.architectures()}")
    if table.vector_bits not in _VECTOR_BITS or table.registers < 1:
        raise SpecError(f"{path}: want vector_bits of {_VECTOR_BITS} and a register or more")
    rates = [rate for c in table.cpu.values() for rate in (c.vector_per_cycle, c.half_width_speedup)]
    if not rates or not all(0 < rate < math.inf for rate in rates):
        raise SpecError(f"{path}: want one cpu or more, each with vector_per_cycle and half_width_speedup above 0")
    if not all(0 <= c.overlap <= 1 and (c.slower is None or 0 < c.slower < math.inf) for c in table.cpu.values()):
        raise SpecError(
            f"{path}: want overlap of 0 to 1, the share of cycles that overlap with others, and slower above 0"
        )
    asking = [name for name, c in table.cpu.items() if c.prefetch_turns]
    if wrong := [name for name in asking if table.prefetch is None or name not in table.in_order]:
        raise SpecError(f"{path}: cpu.{wrong[0]}: prefetch_turns want [isa.prefetch] and rules that are in order")
    asked = [*table.wanted_features, *(f for x in table.features.values() for f in x.host)]
    if silent := [f for f in asked if f not in table.probes]:
        raise SpecError(f"{path}: probes: want a C expression that asks for {silent[0]}, which host features name")
    if table.matrices and (absent := [name for name in table.cpu if name not in table.matrices.cycles]):
        raise SpecError(f"{path}: matrices.cycles: want cycles for {absent[0]}")
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
        select_once(path, f"feature of cpu.{name}", cpu.features or [], table.features)


def check_high_forms(folder: Path, instrs: Mapping[str, Instr]) -> None:
    """Raise SpecError for a form with `high` without the form of that table with the same types."""
    for low in instrs.values():
        high = instrs.get(f"{low.high}.{low.name.rpartition('.')[2]}")
        if low.high and (high is None or (high.operands, high.out) != (low.operands, low.out)):
            raise SpecError(f"{folder}: {low.name}: no {low.high!r} of the same operands, which `high` names")


def select_once(path: Path, what: str, names: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `known` that `names` has; SpecError for one that is not known, or named twice."""
    if unknown := [n for n in names if n not in known]:
        raise SpecError(f"{path}: unknown {what} {unknown[0]!r}; known: {', '.join(known)}")
    if len(set(names)) < len(names):
        raise SpecError(f"{path}: a {what} is named twice in {', '.join(names)}")
    return {n: v for n, v in known.items() if n in names}


@dataclass(frozen=True)
class Requirements:
    """Requirements of compiler and processor, the base of the instruction set first.

    Macros the compiler defines, flags it is given, features of Linux's /proc/cpuinfo.
    """

    macros: tuple[str, ...]
    cc_flags: tuple[str, ...]
    host: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Isa:
    """An instruction set: its facts and its instruction forms by name."""

    table: IsaTable
    instrs: Mapping[str, Instr]

    @property
    def name(self) -> str:
        """The name of the instruction set."""
        return self.table.name

    @cached_property
    def word(self) -> VecType:
        """The full register as bytes."""
        return VecType("u", 8, self.table.vector_bits // 8)

    @cached_property
    def tile(self) -> VecType:
        """The full register as lanes of the int32 tile."""
        return VecType("u", 32, self.table.vector_bits // 32)

    @cached_property
    def full_forms(self) -> tuple[Instr, ...]:
        """The forms that make a full register of registers."""
        whole_registers = (i for i in self.instrs.values() if i.out.total_bits == self.table.vector_bits)
        return tuple(i for i in whole_registers if i.on_registers)

    @cached_property
    def gate(self) -> Instr:
        """A gate on full registers: setting a register to zero, or copying one, costs as much."""
        return next(i for i in self.full_forms if i.out == self.word and lane_text.is_bitwise(i.tree))

    def high_half(self, instr: Instr) -> str | None:
        """Return the form that does to the high halves what `instr` does to the low ones.

        None if `instr` names none.
        """
        name = f"{instr.high}.{instr.name.rpartition('.')[2]}"
        return name if name in self.instrs else None

    def for_cpu(self, cpu: str) -> Isa:
        """Return this set without the forms that `cpu` lacks, always the same object; SpecError if it is unknown."""
        if not isinstance(cpu, str):
            raise SpecError(f"cpu must be the name of a processor, not {cpu!r}")
        return _for_cpu(self, cpu)

    def rules(self, cpu: str) -> IssueTable:
        """Return the issue rules of `cpu`; SpecError if it has none."""
        if cpu not in self.table.cpu or (rules := self.table.cpu[cpu].issue) is None:
            raise SpecError(f"{self.name} has no issue rules for {cpu}: nothing predicts its cycles")
        return rules

    def requirements(self, ops: Iterable[str] = (), *, matrices: bool = False) -> Requirements:
        """Return the requirements of the forms named `ops`, only the base's if none is named, and of `matrices`.

        SpecError if the set has no matrix registers.
        """
        used = {self[op].feature for op in ops}
        sets = [f for name, f in self.table.features.items() if name in used]
        flags = [*(x for f in sets for x in f.cc_flags), *(self.matrices.cc_flags if matrices else ())]
        host = [*(x for f in sets for x in f.host), *(self.matrices.host if matrices else ())]
        return Requirements(
            (self.table.feature, *(f.macro for f in sets)),
            tuple(dict.fromkeys([*self.table.cc_flags, *flags])),
            tuple(dict.fromkeys([*self.table.host_features, *host])),
        )

    @property
    def matrices(self) -> MatrixTable:
        """The matrix registers; SpecError if the set has none."""
        if self.table.matrices is None:
            raise SpecError(f"{self.name} has no matrix registers")
        return self.table.matrices

    def probe_text(self, host: Collection[str]) -> str:
        """Return the functions that `probes` of the features `host` call, as C."""
        text = architecture.find_architecture(self.table.arch).probe_text()
        asks_system = any("matrices_allowed()" in self.table.probes.get(f, "") for f in host)
        return f"{text}\n{self.matrices.permission.strip()}\n" if asks_system else text

    def __getitem__(self, name: str) -> Instr:
        try:
            return self.instrs[name]
        except KeyError:
            raise SpecError(
                f"{self.name} has no instruction {name!r}; `bitsynth isa show {self.name}` lists them"
            ) from None


def names() -> list[str]:
    """Return the names of the instruction sets: the sets that ship, then the folders' in BITSYNTH_ISA.

    SpecError if such a folder holds no instruction set, or a set of a name that another folder has.
    """
    return [*_folders(paths.isa_specs(), paths.user_isa_specs())]


@lru_cache
def _folders(shipped: Path, own: tuple[Path, ...]) -> Mapping[str, Path]:
    """Return the folder of each instruction set, by name."""
    folders = _sets(shipped)
    for home in own:
        sets = _sets(home)
        if not sets:
            raise SpecError(
                f"BITSYNTH_ISA: {home} holds no instruction set; "
                f"want a folder in it for each set, with the set's name and an isa.toml"
            )
        for name, folder in sets.items():
            if folders.setdefault(name, folder) != folder:
                raise SpecError(f"{folder}: {folders[name]} is also called {name}; give one of them another name")
    return folders


def _sets(home: Path) -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(home.glob("*/isa.toml"))}


def narrower(isa: IsaTable) -> list[str]:
    """Return the instruction sets of shorter registers that some processor of `isa` runs too."""
    others = [load_table(name) for name in names()]
    return [t.name for t in others if t.vector_bits < isa.vector_bits and _share_processor(t, isa)]


def run_by(isa: IsaTable) -> list[str]:
    """Return the instruction sets that processors of `isa` run: its own, the one it extends, narrower ones."""
    return [isa.name, *([isa.extends] if isa.extends else []), *narrower(isa)]


def _share_processor(one: IsaTable, other: IsaTable) -> bool:
    return one.arch == other.arch and not one.cpu.keys().isdisjoint(other.cpu)


def load(name: str) -> Isa:
    """Return the instruction set `name`; SpecError names the file and what is wrong in it."""
    if not isinstance(name, str):
        raise _unknown_set_error(name)
    return _load(_folder(name))


@lru_cache
def _load(folder: Path) -> Isa:
    return load_folder(folder)


def load_table(name: str) -> IsaTable:
    """Return the facts of the instruction set `name` without its forms, most of what there is to read."""
    return _load_table(_folder(name))


@lru_cache
def _load_table(folder: Path) -> IsaTable:
    return _isa_table(folder)[0]


def _folder(name: str) -> Path:
    if name not in names():
        raise _unknown_set_error(name)
    return paths.isa_folder(name)


def _unknown_set_error(name: object) -> SpecError:
    return SpecError(f"unknown instruction set {name!r}; known: {', '.join(names())}")


def load_folder(folder: Path) -> Isa:
    """Return the instruction set declared in `folder`."""
    table, parent = _isa_table(folder)
    needed = settings(table)
    instrs = {} if parent is None else _inherit_forms(load_folder(parent), table, needed)
    for path in sorted(folder.glob("*.toml")):
        if path.name != "isa.toml":
            for name, entry in toml.decode(path, InstrFile).instr.items():
                for form in forms(f"{path}: {name}", table, needed, name, entry):
                    if form.name in instrs:
                        raise SpecError(f"{path}: {form.name} is declared twice")
                    instrs[form.name] = form
    check_high_forms(folder, instrs)
    return Isa(table, instrs)


@lru_cache
def _for_cpu(isa: Isa, cpu: str) -> Isa:
    if cpu not in isa.table.cpu:
        others = [name for name in names() if cpu in load_table(name).cpu]
        elsewhere = f"; instruction sets of {cpu}: {', '.join(others)}" if others else ""
        raise SpecError(f"unknown cpu {cpu!r}; {isa.name} knows {', '.join(isa.table.cpu)}{elsewhere}")
    table = isa.table.cpu[cpu]
    instrs = {name: i for name, i in isa.instrs.items() if table.has(i.feature)}
    return isa if len(instrs) == len(isa.instrs) else Isa(isa.table, instrs)


def _isa_table(folder: Path) -> tuple[IsaTable, Path | None]:
    """Return the `[isa]` table, completed by the table of the set it extends, and that set's folder."""
    path = folder / "isa.toml"
    raw = toml.read(path)
    parent = _parent(path, raw)
    if parent is not None:
        raw = _merge_tables({"isa": {**msgspec.to_builtins(_isa_table(parent)[0]), "doc": None}}, raw)
    table: IsaTable = toml.convert(path, raw, IsaFile).isa
    if parent is not None and table.cpus:
        table = msgspec.structs.replace(table, cpu=select_once(path, "cpu", table.cpus, table.cpu))
    check_isa(path, table)
    return table, parent


def _parent(path: Path, raw: Mapping[str, Any]) -> Path | None:
    """Return the folder of the set that the one in `path` extends, or None."""
    own = raw.get("isa")
    if not isinstance(own, dict) or not {"extends", "cpus"} & set(own):
        return None
    name, home = own.get("extends"), path.parent.parent
    others = _sets(paths.isa_specs()) if home in paths.user_isa_specs() else {}
    others |= {n: folder for n, folder in _sets(home).items() if folder != path.parent}
    if not isinstance(name, str) or name not in others:
        raise SpecError(f"{path}: extends {name!r}, which is no other instruction set")
    if "cpu" in own:
        raise SpecError(f"{path}: its cpus are the cpus of {name}; `cpus` names the ones it keeps")
    parent = toml.read(others[name] / "isa.toml").get("isa")
    if isinstance(parent, dict) and parent.get("extends"):
        raise SpecError(f"{path}: extends {name}, which itself extends another")
    return others[name]


def _merge_tables(base: Any, over: Any) -> Any:
    """Return `over`, completed by what only `base` has, table by table."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{k: _merge_tables(base.get(k), v) for k, v in over.items()}}


def _inherit_forms(parent: Isa, isa: IsaTable, needed: Mapping[str, str]) -> dict[str, Instr]:
    """Return the forms of the set that `isa` extends, as its own, with its settings."""
    return {
        name: replace(
            instr,
            isa=isa.name,
            cost={cpu: c for cpu, c in instr.cost.items() if cpu in isa.cpu},
            setting=needed[instr.feature],
        )
        for name, instr in parent.instrs.items()
    }
