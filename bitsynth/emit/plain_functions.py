"""The functions of the lane language that C has in other words, or in loops, than the domains of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bitsynth.emit.plain_terms import CARRIERS, CDomain, Term
from bitsynth.isa import shifts
from bitsynth.isa.bits import Bits, total
from bitsynth.isa.functions import FUNCTIONS
from bitsynth.spec.elementwise import MAX_UNROLLED_LEVELS

TURN = "turn"
"""The variable of loops over values of an input."""


class InputValues:
    """The `count` values of an input, as an expression indexes them.

    Each element has its own, value k a `unit` behind value k - 1; or all have the same, if the unit is 0.
    """

    def __init__(self, domain: CDomain, w: int, count: int, array: str, unit: int) -> None:
        self.domain, self.w, self.count, self.array, self.unit = domain, w, count, array, unit

    def __getitem__(self, k: int | Term) -> Bits:
        if isinstance(k, int) and k >= self.count:
            raise IndexError(k)
        text, args = (str(k * max(1, self.unit)), ()) if isinstance(k, int) else (self._at(k.text), k.args)
        return Bits(self.domain, self.w, Term(f"{self.array}[{text}{' + j' if self.unit else ''}]", self.w, args))

    def _at(self, number: str) -> str:
        return f"({number}) * {self.unit}" if self.unit else number

    def __iter__(self) -> Iterator[Bits]:
        return (self[k] for k in range(self.count))


def functions(domain: CDomain) -> dict[str, Any]:
    """The functions of lane expressions in `domain`: those that C has in other words, or in a loop, in those."""
    return {**FUNCTIONS, **{name: _shift(domain, name) for name in ("asr", "lsr", "lsl")}} | {
        "range": lambda *ends: _turns(domain, range(*ends)),
        "sum": lambda xs: _added_up(domain, xs),
        "lookup": _looked_up,
    }


def _shift(domain: CDomain, name: str) -> Any:
    def shift(x: Bits, n: Bits | int) -> Bits:
        if x.w not in CARRIERS:
            return Bits(domain, x.w, getattr(shifts, name)(x, n).v)
        by = n.v if isinstance(n, Bits) else domain.const(min(n, x.w), 8)
        return Bits(domain, x.w, domain.shifted(x.v, by, x.w, name))

    return shift


def _turns(domain: CDomain, numbers: range) -> Iterator[Any]:
    """The numbers; of many from 0 on, the variable that counts them, alone."""
    if len(numbers) <= MAX_UNROLLED_LEVELS or numbers.start or numbers.step != 1:
        yield from numbers
    else:
        domain.turns = len(numbers)
        yield Term(TURN, 64)


def _added_up(domain: CDomain, xs: Iterable[Bits]) -> Bits:
    values = list(xs)
    count, domain.turns = domain.turns, 0
    if not count:
        return total(values)
    return Bits(domain, values[0].w, domain.added_up(values[0].v, count, values[0].w))


def _looked_up(table: Any, index: Bits) -> Bits:
    if not isinstance(table, InputValues):
        return FUNCTIONS["lookup"](table, index)  # type: ignore[no-any-return]
    return table[Term(f"{{0}} % {table.count}u", 32, (index.v,))]
