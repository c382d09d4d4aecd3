"""Expands an `[instr.NAME]` table into its forms, checked against the `[isa]` table.

`forms` in the table lists the values of its type and number variables, so that one table
covers all lane widths of an instruction; form `k` is named NAME.<first variable>.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bitsynth.errors import SpecError
from bitsynth.isa import architecture
from bitsynth.isa import lane as lane_text
from bitsynth.isa.functions import FUNCTIONS
from bitsynth.isa.instr import Instr, InstrCost, Operand
from bitsynth.isa.tables import ANY_PORT, InstrTable, IsaTable
from bitsynth.isa.types import VecType

_OR = " | "
_MNEMONIC = re.compile(r"[a-z][a-z0-9]*( \| [a-z][a-z0-9]*)*")
_RESERVED = {"i", "to", *FUNCTIONS, *keyword.kwlist}


def forms(where: str, isa: IsaTable, settings: Mapping[str, str], name: str, entry: InstrTable) -> list[Instr]:
    """Return the forms of the table NAME, read from `where` (a file); SpecError names `where` and what is wrong.

    `settings` are the settings of the table.
    """
    if entry.feature and entry.feature not in isa.features:
        raise SpecError(f"{where}: unknown feature {entry.feature!r}; known: {', '.join(isa.features)}")
    if entry.instructions < 1:
        raise SpecError(f"{where}: instructions is {entry.instructions}, and must be 1 or more")
    _check_cost(where, isa, entry)
    _check_lane(where, entry)
    lengths = {len(v) for v in entry.forms.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise SpecError(f"{where}: want one or more forms, as many of each variable; got lists of {sorted(lengths)}")
    rows = [dict(zip(entry.forms, row, strict=True)) for row in zip(*entry.forms.values(), strict=True)]
    needed = settings[entry.feature]
    spelled = _mnemonics(where, entry, len(rows))
    return [_form(where, isa, name, entry, row, needed, m) for row, m in zip(rows, spelled, strict=True)]


def _mnemonics(where: str, entry: InstrTable, count: int) -> list[tuple[str, ...]]:
    """Return the mnemonics that each of `count` forms may compile to."""
    given = [entry.mnemonic] * count if isinstance(entry.mnemonic, str) else entry.mnemonic
    if len(given) != count:
        raise SpecError(f"{where}: mnemonic: want one for all forms or a list of {count}, one a form; got {len(given)}")
    if bad := next((text for text in given if not _MNEMONIC.fullmatch(text)), None):
        raise SpecError(f"{where}: mnemonic: want small letters and digits, and ' | ' between choices, not {bad!r}")
    return [tuple(text.split(_OR)) for text in given]


def _check_lane(where: str, entry: InstrTable) -> None:
    types = [k for k, v in entry.forms.items() if any(isinstance(x, str) for x in v)]
    sizes = [f"{k}_{what}" for k in types for what in ("bits", "lanes")]
    names = [*entry.in_, *entry.forms, *sizes, *entry.imm]
    _check_names(where, names)
    lane_text.parse(where, entry.lane, names)
    for key, named in (("tied", entry.tied), ("floats", entry.floats)):
        if unknown := sorted(set(named) - set(entry.in_)):
            raise SpecError(f"{where}: `{key}` names {', '.join(unknown)}, which is no operand")


def _check_names(where: str, names: Sequence[str]) -> None:
    bad = [n for n in names if not n.isidentifier() or n in _RESERVED or names.count(n) > 1]
    if bad:
        raise SpecError(
            f"{where}: {', '.join(map(repr, bad))}: want different names, none of them one of the language's"
        )


def _check_cost(where: str, isa: IsaTable, entry: InstrTable) -> None:
    wanted = {name for name, cpu in isa.cpu.items() if cpu.has(entry.feature)}
    if missing := sorted(wanted - set(entry.cost)):
        raise SpecError(f"{where}: no cost for {', '.join(missing)}")
    if unknown := sorted(set(entry.cost) - set(isa.cpu)):
        raise SpecError(f"{where}: cost for unknown cpu {', '.join(unknown)}")
    if lacking := sorted(set(entry.cost) - wanted):
        raise SpecError(f"{where}: cost for {', '.join(lacking)}, without the feature {entry.feature}")
    for cpu, c in entry.cost.items():
        most = isa.cpu[cpu].vector_per_cycle
        if not (0 <= c.lat < math.inf and 0 < c.per_cycle < math.inf):
            raise SpecError(f"{where}: cost for {cpu}: want lat >= 0 and per_cycle > 0")
        if c.port == ANY_PORT and c.per_cycle > most:
            raise SpecError(f"{where}: cost for {cpu}: {c.per_cycle:g} start a cycle, where at most {most:g} can")
    if entry.source not in isa.sources:
        raise SpecError(f"{where}: unknown cost source {entry.source!r}; known: {', '.join(isa.sources)}")


def _form(
    where: str,
    isa: IsaTable,
    name: str,
    entry: InstrTable,
    row: Mapping[str, str | int],
    needed: str,
    mnemonics: tuple[str, ...],
) -> Instr:
    types = {k: vector_type(where, v) for k, v in row.items() if isinstance(v, str)}
    numbers = {k: v for k, v in row.items() if isinstance(v, int)}
    if not types:
        raise SpecError(f"{where}: `forms` has no type variable")

    def resolve(text: str) -> VecType:
        return types[text] if text in types else vector_type(where, text)

    operands = tuple(Operand(k, resolve(v.lstrip("*")), v.startswith("*")) for k, v in entry.in_.items())
    out = resolve(entry.out)
    sizes = {f"{k}_{what}": getattr(t, what) for k, t in types.items() for what in ("bits", "lanes")}
    holes = {o.name: f"{{{o.name}}}" for o in operands} | {k: f"{{{k}}}" for k in [*entry.imm, "to"]}
    text, clang = (_c_text(where, c, {**types, **numbers, **holes}) for c in (entry.c, entry.clang))
    narrow = max(t.total_bits for t in (out, *(o.type for o in operands))) < isa.vector_bits and not entry.store
    first = next(iter(row.values()))
    instr = Instr(
        isa=isa.name,
        name=f"{name}.{first}",
        doc=entry.doc,
        operands=operands,
        imm=_imm(where, entry, numbers),
        try_imm=tuple(entry.try_imm),
        out=out,
        lane=entry.lane,
        text=text,
        mnemonics=mnemonics,
        cost=_costs(isa, entry, narrow),
        tied=tuple(entry.tied),
        high=entry.high,
        store=entry.store,
        names={**numbers, **sizes},
        setting=needed,
        feature=entry.feature,
        instructions=entry.instructions,
        floats=tuple(entry.floats),
        any_nan=entry.any_nan,
        clang=clang,
    )
    _check_form(where, isa, instr)
    return instr


def _c_text(where: str, text: str, values: Mapping[str, object]) -> str:
    """Return a C text with the types and numbers of a form, and with holes for its operands."""
    try:
        return text.format(**values)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise SpecError(f"{where}: C text {text!r} does not fill: {error!r}") from None


def _costs(isa: IsaTable, entry: InstrTable, narrow: bool) -> dict[str, InstrCost]:
    """Return costs by CPU; some CPUs start more instructions a cycle if all operands are `narrow`."""
    return {
        cpu: InstrCost(c.lat, c.per_cycle * (isa.cpu[cpu].half_width_speedup if narrow else 1.0), c.port, c.slots)
        for cpu, c in entry.cost.items()
    }


def _check_form(where: str, isa: IsaTable, instr: Instr) -> None:
    used = [instr.out, *(o.type for o in instr.operands if not o.memory)]
    if unknown := sorted({str(t) for t in used} - set(isa.ctype)):
        raise SpecError(f"{where}: isa.toml has no ctype for {', '.join(unknown)}")
    if not instr.imms or not set(instr.try_imm) <= set(instr.imms):
        raise SpecError(f"{where}: try_imm and imm: want immediates between {instr.imm}, first to last")
    for text in instr.texts:
        if ("{to}" in text) != instr.store:
            raise SpecError(f"{where}: the hole {{to}} is what a store has, and all that has it")
        try:
            replace(instr, text=text).render([o.name for o in instr.operands], instr.imms[0], "to")
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise SpecError(f"{where}: C text {text!r} does not fill: {error!r}") from None


def _imm(where: str, entry: InstrTable, numbers: Mapping[str, int]) -> tuple[str, int, int] | None:
    if not entry.imm:
        return None
    if len(entry.imm) > 1:
        raise SpecError(f"{where}: at most one immediate")
    ((name, ends),) = entry.imm.items()
    try:
        low, high = (numbers[e] if isinstance(e, str) else e for e in ends)
    except KeyError as error:
        raise SpecError(f"{where}: immediate bound {error} is not in `forms`") from None
    return name, low, high


def vector_type(where: str, text: str) -> VecType:
    """Return the type that `text` spells; SpecError names `where` if it does not spell one."""
    try:
        return VecType.parse(text)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None


def settings(isa: IsaTable) -> dict[str, str]:
    """Return the settings of forms in C, by the feature set that each needs; "" needs none."""
    return {feature: _setting(isa, feature) for feature in ("", *isa.features)}


def _setting(isa: IsaTable, feature: str) -> str:
    """Return the facts of `isa.toml` that the C of a form depends on, with the probe of its features, as text."""
    features = [isa.features[feature]] if feature else []
    flags = [*isa.cc_flags, *(flag for f in features for flag in f.cc_flags)]
    needed = [*isa.host_features, *(name for f in features for name in f.host)]
    probes = [(name, isa.probes[name]) for name in needed]
    asked = probes, architecture.find_architecture(isa.arch).probe_text()
    return repr((isa.header, flags, isa.cast, isa.pin, sorted(isa.ctype.items()), asked))
