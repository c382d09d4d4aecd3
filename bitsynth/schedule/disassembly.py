"""Reads AArch64 disassembly for the scoreboard: the registers that an instruction reads and writes, and its pipes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.scoreboard import Issued, arithmetic, of_kind
from bitsynth.isa.tables import ANY_PORT

_REGISTER = re.compile(r"\b([vqdshbxw]\d+|sp)\b")
_VECTOR = re.compile(r"\bv\d+\.|\b[qdshb]\d+\b")
_BRANCH = re.compile(r"(b|b\.\w+|bl|br|ret|cbn?z|tbn?z)")
_SHIFT = re.compile(r"\b(ls[lr]|asr|ror|[su]xt[bhw]) #")
_FIELDS = {"extr", "bfi", "bfxil", "ubfx", "sbfx", "ubfiz", "sbfiz"}
"""Integer instructions that shift an operand."""
_COMPARES = {"cmp", "cmn", "tst", "ccmp"}
_SETS = _COMPARES | {"subs", "adds", "ands", "bics", "negs"}
"""Instructions that write the flags; `_READS` matches instructions that read them."""
_READS = re.compile(r"b\.\w+|csel|cset\w*|csinc|cinc|csinv|csneg|ccmp")


def read_issued(isa: Isa, cpu: str, listing: Iterable[str]) -> Iterator[Issued]:
    """Yield the instructions of a listing, in the order in which they are run."""
    for line in listing:
        yield from _read_issued(isa, cpu, " ".join(line.split()))


@lru_cache(maxsize=1 << 14)
def _read_issued(isa: Isa, cpu: str, line: str) -> tuple[Issued, ...]:
    op, _, operands = line.partition(" ")
    registers = [_whole(r) for r in _REGISTER.findall(operands)]
    if op.startswith(("ld", "st")):
        return _memory(isa, cpu, op, operands, registers)
    rules = isa.rules(cpu)
    if op == "prfm":
        return (of_kind(rules, "load_integer", registers),)
    if _BRANCH.fullmatch(op):
        return (of_kind(rules, "branch", [*registers, *(["flags"] if _READS.fullmatch(op) else [])]),)
    if _VECTOR.search(operands):
        return (_arithmetic(isa, cpu, op, operands, registers),)
    reads, writes = (registers, []) if op in _COMPARES else (registers[1:], registers[:1])
    kind = "multiply" if op in {"mul", "madd", "msub", "umull", "smull", "umulh", "mneg"} else "integer"
    if "shifted" in rules.kinds and (_SHIFT.search(operands) or op in _FIELDS):
        kind = "shifted"
    return (of_kind(rules, kind, reads + ["flags"] * bool(_READS.fullmatch(op)), writes + ["flags"] * (op in _SETS)),)


def _whole(register: str) -> str:
    """Return the register that a part of it, such as q3 or w7, belongs to."""
    return register if register == "sp" else ("v" if register[0] in "vqdshb" else "x") + register[1:]


def _memory(isa: Isa, cpu: str, op: str, operands: str, registers: list[str]) -> tuple[Issued, ...]:
    """Return the kinds that a load or store issues: two for a pair, one for a store of integers; an add for a new
    base."""
    rules, values, address = isa.rules(cpu), *operands.split("[", 1)
    count = len(_REGISTER.findall(values))
    moved, base = registers[:count], registers[count:]
    whole = "q" in values or (op == "ld1" and ".16b" in values)
    if op == "ld1r":
        kind = "broadcast"
    elif op.startswith("ld"):
        kind = "load_integer" if moved[0][0] != "v" else "load" if whole else "load_half"
    else:
        kind = "store" if _VECTOR.search(values) else "store_integer"
    transfers = [
        of_kind(rules, kind, base, [r]) if op.startswith("ld") else of_kind(rules, kind, [r, *base]) for r in moved
    ]
    if kind == "store_integer":
        transfers = transfers[:1]
    back = "!" in address or "]," in address
    return (*transfers, *([of_kind(rules, "integer", base[:1], base[:1])] if back else []))


def _arithmetic(isa: Isa, cpu: str, op: str, operands: str, registers: list[str]) -> Issued:
    rules = isa.rules(cpu)
    written, *read = registers
    if op in {"mov", "ins"} and "[" in operands.partition(",")[0]:
        op, read = "ins", [written, *read]
    if op in {"movi", "mvni", "fmov"} or (op == "mov" and len(set(operands.replace(" ", "").split(","))) == 2):
        outside = [r for r in registers if r[0] == "x"]
        kind = "move" if not outside else "from_vector" if written[0] == "x" else "to_vector"
        return of_kind(rules, kind, read, [written])
    if op in {"umov", "smov"}:
        return of_kind(rules, "from_vector", read, [written])
    if op in {"dup", "ins"} and any(r[0] == "x" for r in read):
        return of_kind(rules, "to_vector", read, [written], written if op == "ins" else "")
    if op in rules.others:
        table = rules.others[op]
        return Issued((*read, written), (written,), table.lat, tuple(table.takes.items()))
    form = _form(isa, op)
    if form is None:
        return Issued(tuple(registers), (written,), rules.kinds["move"].lat, ((ANY_PORT, 1),))
    given = [written, *read] if form.tied else read
    return arithmetic(isa, cpu, form.name, given, written)


@lru_cache(maxsize=1 << 10)
def _form(isa: Isa, mnemonic: str) -> Instr | None:
    """Return a form of full registers that compiles to `mnemonic`, or to its twin for the low halves.

    None if no table has one.
    """
    for name in (mnemonic, mnemonic.removesuffix("2")):
        for instr in isa.full_forms:
            if name in instr.mnemonics:
                return instr
    return None
