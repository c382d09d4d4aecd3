"""Finds the prefetches of AArch64 code, from the loads that they accompany.

An emulator ignores `prfm` and reports no address of it, but it reports where loads read. A prefetch accompanies a load
from the same pointers: it fetches a line some bytes after the address of that load.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bitsynth.errors import ToolError

_REGISTER = re.compile(r"\b(?:x|w)\d+|\bsp\b")
_BRANCH = re.compile(r"b|b\.\w+|bl|blr|br|ret|cbn?z|tbn?z")
_ON_CONDITION = re.compile(r"b\.\w+|cbn?z|tbn?z")
_PLACE = re.compile(
    r"\[(?P<base>x\d+|sp)(?:, (?:(?P<index>x\d+)|#(?P<behind>-?\w+)))?\](?P<before>!)?(?:, #(?P<after>-?\w+))?"
)


@dataclass(frozen=True)
class Sum:
    """Values of registers at the start of a run of instructions, each so many times, and a constant."""

    of: frozenset[tuple[str, int]]
    constant: int = 0

    def __add__(self, other: Sum) -> Sum:
        times = Counter(dict(self.of))
        times.update(dict(other.of))
        return Sum(frozenset(times.items()), self.constant + other.constant)


@dataclass
class _Run:
    """Instructions that run one after the other: contents of registers, loads, and prefetches that wait for a load.

    Branches on a condition that lead onwards are among them, as what they lead to is taken to be seldom run. Where
    loops begin another run does: what is before is not of their turns.
    """

    holds: dict[str, Sum] = field(default_factory=dict)
    loads: dict[frozenset[tuple[str, int]], tuple[int, int]] = field(default_factory=dict)
    waiting: list[Sum] = field(default_factory=list)
    writes: int = 0

    def value(self, register: str) -> Sum:
        return self.holds.setdefault(register, Sum(frozenset({(register, 1)})))

    def write(self, register: str, value: Sum | None = None) -> None:
        """A register holds the value, or one that nothing is known of."""
        self.writes += 1
        self.holds[register] = value or Sum(frozenset({(f"{register}'{self.writes}", 1)}))


def prefetched(listing: Mapping[int, str]) -> dict[int, list[int]]:
    """By the address of a load: the distances in bytes, after its own address, that are prefetched.

    ToolError if a prefetch accompanies no load.
    """
    found, run = defaultdict[int, list[int]](list), _Run()
    parted = {at: " ".join(line.split()).partition(" ")[::2] for at, line in sorted(listing.items())}
    on_condition = {at: _target(rest) for at, (op, rest) in parted.items() if _ON_CONDITION.fullmatch(op)}
    begins = {target for at, target in on_condition.items() if target <= at}
    for at, (op, rest) in parted.items():
        if at in begins:
            run = _ended(run, at)
        for load, distance in _step(run, at, op, rest):
            found[load].append(distance)
        if _BRANCH.fullmatch(op) and on_condition.get(at, at) <= at:
            run = _ended(run, at)
    _ended(run, max(listing, default=0))
    return dict(found)


def _target(operands: str) -> int:
    """The address that a branch leads to."""
    return int(operands.rpartition(",")[2].split()[0], 16)


def _ended(run: _Run, at: int) -> _Run:
    """The run behind this one."""
    if run.waiting:
        raise ToolError(f"no load before {at:#x} reads what a prefetch there asks for lines behind")
    return _Run()


def _step(run: _Run, at: int, op: str, rest: str) -> Iterator[tuple[int, int]]:
    """Follow an instruction; the loads and distances of prefetches that are known by it."""
    place = _PLACE.search(rest)
    if op == "prfm" and place:
        run.waiting.append(_address(run, place))
    elif op.startswith("ld") and place:
        where = _address(run, place)
        run.loads[where.of] = at, where.constant
    if place and (op == "prfm" or op.startswith("ld")):
        yield from _settled(run)
    written = (
        [] if op == "prfm" or op.startswith("st") else _REGISTER.findall(rest.partition("[")[0] if place else rest)
    )
    if place and place["base"] == "sp" and not place["before"] and not place["after"]:
        _spill(run, op, rest, int(place["behind"] or "0", 0))
    else:
        _write(run, op, rest, written if place else written[:1])
    if place and (place["before"] or place["after"]):
        moved = int(place["behind"] if place["before"] else place["after"], 0)
        run.write(place["base"], run.value(place["base"]) + Sum(frozenset(), moved))


def _spill(run: _Run, op: str, rest: str, behind: int) -> None:
    """Registers that are stored to the stack or loaded from there: a place holds a register's content."""
    for k, register in enumerate(_REGISTER.findall(rest.partition("[")[0])):
        place = f"sp+{behind + 8 * k}"
        if op.startswith("st"):
            run.write(place, run.value(register))
        else:
            run.write(register, run.value(place))


def _settled(run: _Run) -> Iterator[tuple[int, int]]:
    left = list[Sum]()
    for wanted in run.waiting:
        if wanted.of in run.loads:
            load, constant = run.loads[wanted.of]
            yield load, wanted.constant - constant
        else:
            left.append(wanted)
    run.waiting = left


def _address(run: _Run, place: re.Match[str]) -> Sum:
    where = run.value(place["base"])
    if place["index"]:
        where += run.value(place["index"])
    return where + Sum(frozenset(), int(place["behind"] or "0", 0) * (not place["after"]))


def _write(run: _Run, op: str, rest: str, written: Iterable[str]) -> None:
    """What an instruction leaves in integer registers."""
    operands = [word.strip() for word in rest.split(",")]
    if op in {"add", "sub", "mov"} and len(operands) == (2 if op == "mov" else 3) and operands[0][0] == "x":
        *values, last = operands[1:]
        if op == "mov" and _REGISTER.fullmatch(last):
            return run.write(operands[0], run.value(last))
        if values and _REGISTER.fullmatch(values[0]):
            if last[0] == "#":
                return run.write(
                    operands[0], run.value(values[0]) + Sum(frozenset(), int(last[1:], 0) * (-1) ** (op == "sub"))
                )
            if op == "add" and _REGISTER.fullmatch(last):
                return run.write(operands[0], run.value(values[0]) + run.value(last))
    for register in written:
        run.write("x" + register[1:] if register[0] == "w" else register)
    return None
