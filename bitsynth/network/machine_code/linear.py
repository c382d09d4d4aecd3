"""Int32 numbers that code adds up, as a number and multiples of unknown int32 numbers in memory."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from bitsynth.isa.domains.terms import BitTerm, TermPayload
from bitsynth.objects.memory import NotShown, OutOfPlace
from bitsynth.objects.values import Byte, Contents, Operation

_BITS = 32
INT32_BYTES = 4
Bytes = list[Byte | None]
"""Bytes of memory; None has no value."""


class NamedBytes(NamedTuple):
    """The name of unknown bytes of a layer's run: their kind, and their number among several."""

    kind: Literal["in", "out", "row", "pair", "term", "sums", "results"]
    number: int

    def bytes(self, first: int, size: int) -> Bytes:
        """Return `size` of these bytes from byte `first` on."""
        return [(self, first + k) for k in range(size)]


UnknownNumber = tuple[Hashable, int]
"""An unknown number: the name of where it is from, and its first byte there."""
Linear = tuple[int, dict[UnknownNumber, int]]
"""A number, and the factor of each unknown number, modulo 2**32 as signed numbers."""


@dataclass
class LinearValues:
    """What the contents of memory are as sums of unknown numbers."""

    contents: Contents
    _memo: dict[tuple[Byte | None, ...], Linear] = field(default_factory=dict)

    def of(self, data: Bytes) -> Linear:
        """Return the sum that four bytes are; NotShown if they are none."""
        first = data[0]
        if isinstance(first, tuple) and not isinstance(first[0], Operation):
            name, start = first
            if data == [(name, start + k) for k in range(INT32_BYTES)] and start % INT32_BYTES == 0:
                return 0, {(name, start): 1}
        key = tuple(data)
        if key not in self._memo:
            self._memo[key] = self._of(data)
        return self._memo[key]

    def restore_names(self, data: Bytes) -> Bytes:
        """Return bytes by their names in memory, though they were moved by operations, as exclusive ors can do."""
        if not any(isinstance(x, tuple) and isinstance(x[0], Operation) for x in data) or None in data:
            return data
        values = self.contents
        content = values.content([x for x in data if x is not None])
        operations = values.operations_of(content, content)
        if operations is None:
            return data
        (terms,) = values.evaluate([content], operations, lambda of: values.domain.atom(of, 8))
        return [_name(term, byte) for term, byte in zip(terms, data, strict=True)]

    def _of(self, data: Bytes) -> Linear:
        if None in data:
            raise OutOfPlace("it is not written")
        values, domain = self.contents, self.contents.domain
        content = values.content([x for x in data if x is not None])
        operations = values.operations_of(content, content)
        if operations is None:
            raise NotShown("a number is a sum of too many parts")

        def name_unknown(of: Byte) -> TermPayload:
            assert isinstance(of, tuple)
            byte = of[1] % INT32_BYTES
            whole = domain.atom((of[0], of[1] - byte), _BITS)
            return domain.cut(whole, _BITS, 8 * byte, 8 * byte + 8)

        (parts,) = values.evaluate([content], operations, name_unknown)
        added, factors = 0, dict[UnknownNumber, int]()
        for term, times in _addends(domain.join(parts, _BITS)):
            if isinstance(term, int):
                added += term * times
                continue
            atom, more = _atom(term, times)
            factors[atom] = factors.get(atom, 0) + times * more
        return _to_signed(added), {atom: _to_signed(times) for atom, times in factors.items() if _to_signed(times)}


def _name(term: TermPayload, byte: Byte | None) -> Byte | None:
    """Return the name of a byte that a term is, or `byte` if it is none."""
    if isinstance(term, int):
        return term
    return term.args[0] if term.op == "atom" else byte  # type: ignore[return-value]


def parse_name(byte: Byte | None, kind: str) -> tuple[int, int] | None:
    """Return the number in the name of a byte of a `kind`, such as "row", and which byte of these it is; else None."""
    if not isinstance(byte, tuple) or not isinstance(byte[0], NamedBytes) or byte[0].kind != kind:
        return None
    return byte[0].number, byte[1]


def _addends(x: TermPayload) -> list[tuple[TermPayload, int]]:
    if isinstance(x, BitTerm) and x.op == "sum":
        const, *terms = x.args
        return [(const, 1), *terms]  # type: ignore[list-item]
    return [(x, 1)]


def _atom(x: BitTerm, times: int) -> tuple[UnknownNumber, int]:
    """Return the unknown number that a term is a multiple of by a power of two, and that power.

    Of a term that is taken `times` times, the upper bits do not count if that is a multiple of a power of two.
    """
    factor = 1
    pieces: list[Any] = list(x.args) if x.op == "concat" else [(x, 0, _BITS)]
    if pieces[0][0] == 0:
        factor <<= pieces.pop(0)[2]
    elif len(pieces) == 2 and pieces[1][0] == 0 and times % (1 << pieces[1][2]) == 0:
        pieces.pop()
    term, first, _ = pieces[0]
    if len(pieces) > 1 or first or not isinstance(term, BitTerm) or term.op != "atom":
        raise NotShown("a number is no sum of numbers that are known by name")
    name: Any = term.args[0]
    return name, factor


def _to_signed(x: int) -> int:
    x &= (1 << _BITS) - 1
    return x - (1 << _BITS) if x >> _BITS - 1 else x
