"""The domain of terms: what a lane is computed from, in a normal form, for every value of its unknowns.

A payload is an int or a `BitTerm`; equal payloads are equal for all values of their unknowns. Three facts are put into
the normal form, which are what compilers use when they replace one instruction by another:

    bits that are only moved   lshr(x, 4) of 8 bits is a concatenation: bits 4..7 of x, then 4 zeros
    sums modulo 2**w           x + x and shl(x, 1) are the same; a + b and b + a are the same
    gates                      act bit by bit, a constant mask selects; a function of bits is a sum modulo 2 of products
                               of bits, which is one for each function: a | b and a ^ b ^ (a & b) are the same

Every other operation is a term of its own, equal to itself on equal operands. Unlike the linear domain nothing is
refused and no range is needed: terms say that two programs compute the same, not what they compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from bitsynth.isa.domains.forms import Inexact

_BYTE = 8


class BitTerm:
    """An operation on payloads, `width` bits wide; equal terms are one object."""

    __slots__ = ("args", "op", "serial", "width")

    def __init__(self, op: str, width: int, args: tuple[Hashable, ...], serial: int) -> None:
        self.op, self.width, self.args, self.serial = op, width, args, serial

    def __repr__(self) -> str:
        return f"{self.op}.{self.width}{self.args}"


TermPayload = int | BitTerm
Piece = tuple[TermPayload, int, int]
"""Bits `first` to `first + bits - 1` of a term; of an int `first` is 0."""
_BitProducts = frozenset[frozenset[BitTerm]]
"""A sum modulo 2 of products of bits; the product of none is 1."""
_MAX_PRODUCTS = 64
"""The most products of a sum; a gate that would have more is a term of its own."""


def _products(x: BitTerm) -> _BitProducts:
    """Return the sum of products that a term is; one that is no gate is the product of itself."""
    return frozenset(map(frozenset, x.args)) if x.op == "gates" else frozenset([frozenset([x])])  # type: ignore[arg-type]


def atoms_of(term: object) -> Iterator[Any]:
    """Yield the unknowns in a term, by what they are called."""
    if isinstance(term, BitTerm):
        yield from [term.args[0]] if term.op == "atom" else atoms_of(term.args)
    elif isinstance(term, tuple):
        for part in term:
            yield from atoms_of(part)


class TermDomain:
    """Terms of one pool; `atom` makes unknowns."""

    def __init__(self) -> None:
        self._terms: dict[tuple[str, int, tuple[Hashable, ...]], BitTerm] = {}
        self._serials = count()

    def term(self, op: str, width: int, *args: Hashable) -> BitTerm:
        """Return the term `op(args)`."""
        key = (op, width, args)
        if key not in self._terms:
            self._terms[key] = BitTerm(op, width, args, next(self._serials))
        return self._terms[key]

    def atom(self, key: Hashable, width: int) -> BitTerm:
        """Return the unknown called `key`."""
        return self.term("atom", width, key)

    def const(self, value: int, w: int) -> int:
        return value & ((1 << w) - 1)

    def _pieces(self, x: TermPayload, w: int) -> list[Piece]:
        """Return the pieces that a payload of `w` bits is put together from, lowest first."""
        if isinstance(x, BitTerm) and x.op == "concat":
            return list(x.args)  # type: ignore[arg-type]
        return [(x, 0, w)]

    def _whole(self, pieces: Iterable[Piece]) -> TermPayload:
        """Return the payload of pieces, lowest first; neighbours that belong together are one piece."""
        out: list[Piece] = []
        for x, first, bits in pieces:
            if out:
                y, start, size = out[-1]
                if isinstance(x, int) and isinstance(y, int):
                    out[-1] = (y | x << size, 0, size + bits)
                    continue
                if x is y and start + size == first:
                    out[-1] = (y, start, size + bits)
                    continue
            out.append((x, first, bits))
        x, first, bits = out[0]
        if len(out) == 1 and (isinstance(x, int) or (first == 0 and bits == x.width)):
            return x
        return self.term("concat", sum(size for _, _, size in out), *out)

    def _cut_pieces(self, x: TermPayload, w: int, first: int, last: int) -> list[Piece]:
        """Return the pieces of bits `first` to `last - 1` of a payload of `w` bits."""
        out: list[Piece] = []
        offset = 0
        for y, start, bits in self._pieces(x, w):
            low, high = max(first - offset, 0), min(last - offset, bits)
            if low < high:
                if isinstance(y, int):
                    out.append((y >> low & ((1 << high - low) - 1), 0, high - low))
                else:
                    out.append((y, start + low, high - low))
            offset += bits
        return out

    def cut(self, x: TermPayload, w: int, first: int, last: int) -> TermPayload:
        """Return bits `first` to `last - 1` of a payload of `w` bits."""
        return self._whole(self._cut_pieces(x, w, first, last)) if (first, last) != (0, w) else x

    def join(self, parts: Sequence[TermPayload], w: int) -> TermPayload:
        return self._whole(piece for part in parts for piece in self._pieces(part, w))

    def split(self, a: TermPayload, w: int, to: int) -> list[TermPayload]:
        return [self.cut(a, w, k, k + to) for k in range(0, w, to)]

    def shl(self, a: TermPayload, n: int, w: int) -> TermPayload:
        return self._whole([(0, 0, n), *self._cut_pieces(a, w, 0, w - n)]) if 0 < n < w else 0 if n else a

    def lshr(self, a: TermPayload, n: int, w: int) -> TermPayload:
        return self._whole([*self._cut_pieces(a, w, n, w), (0, 0, n)]) if 0 < n < w else 0 if n else a

    def zext(self, a: TermPayload, w: int, to: int) -> TermPayload:
        return self._whole([*self._pieces(a, w), (0, 0, to - w)]) if to > w else a

    def sext(self, a: TermPayload, w: int, to: int) -> TermPayload:
        if to == w:
            return a
        top = self.cut(a, w, w - 1, w)
        signs = ((1 << to - w) - 1 if top else 0) if isinstance(top, int) else self.term("signs", to - w, top)
        return self._whole([*self._pieces(a, w), (signs, 0, to - w)])

    def trunc(self, a: TermPayload, w: int, to: int) -> TermPayload:
        return self.cut(a, w, 0, to)

    # Sums: coefficients modulo 2**w of payloads, and a constant.

    def add(self, a: TermPayload, b: TermPayload, w: int) -> TermPayload:
        return self._sum([(a, 1), (b, 1)], w)

    def sub(self, a: TermPayload, b: TermPayload, w: int) -> TermPayload:
        return self._sum([(a, 1), (b, -1)], w)

    def _sum(self, addends: Iterable[tuple[TermPayload, int]], w: int) -> TermPayload:
        """Return the sum of payloads times numbers, with one coefficient for each of them."""
        mask, const, coefs = (1 << w) - 1, 0, dict[BitTerm, int]()
        for x, times in addends:
            for key, coef in self._addends(x, w):
                if isinstance(key, int):
                    const += key * coef * times
                else:
                    coefs[key] = coefs.get(key, 0) + coef * times & mask
        # Of a multiple of 2**n only the low w - n bits of the other factor count.
        reduced: dict[BitTerm, int] = {}
        for key, coef in coefs.items():
            n = (coef & -coef).bit_length() - 1
            small = self._factor(key, w, n) if coef and n else key
            if isinstance(small, int):
                const += small * coef
            elif coef:
                reduced[small] = reduced.get(small, 0) + coef & mask
        terms = sorted(((key.serial, key, coef) for key, coef in reduced.items() if coef), key=lambda x: x[0])
        const &= mask
        if not terms:
            return const
        _, key, coef = terms[0]
        if len(terms) == 1 and not const and coef & (coef - 1) == 0:
            return self.shl(key, coef.bit_length() - 1, w)
        return self.term("sum", w, const, *((key, coef) for _, key, coef in terms))

    def _factor(self, x: BitTerm, w: int, n: int) -> TermPayload:
        """Return what has the same product with 2**n as a term, modulo 2**w, and is one for all such terms.

        The highest n bits do not count: they are the next bits of the term that lies below them, or 0.
        """
        pieces = self._cut_pieces(x, w, 0, w - n)
        y, start, bits = pieces[-1]
        if isinstance(y, BitTerm):
            more = min(n, y.width - start - bits)
            pieces[-1], n = (y, start, bits + more), n - more
        return self._whole([*pieces, (0, 0, n)] if n else pieces)

    def _addends(self, x: TermPayload, w: int) -> list[tuple[TermPayload, int]]:
        """Return a payload as a sum of payloads times numbers; zeros below a payload are a factor of 2**n."""
        if isinstance(x, int):
            return [(x, 1)]
        if x.op == "sum":
            const, *terms = x.args
            return [(const, 1), *terms]  # type: ignore[list-item]
        first, *rest = self._pieces(x, w)
        n = first[2]
        if isinstance(first[0], int) and not first[0] and n < w:
            y, start, _ = rest[0]
            if len(rest) == 1 and isinstance(y, BitTerm) and (y.op, y.width, start) == ("sum", w, 0):
                return [(key, times << n) for key, times in self._addends(y, w)]
            return [(self.zext(self.cut(x, w, n, w), w - n, w), 1 << n)]
        return [(x, 1)]

    def mul(self, a: TermPayload, b: TermPayload, w: int) -> TermPayload:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int):
            return self._sum([(a, b)], w)
        return self._commuting("mul", a, b, w)

    def _commuting(self, op: str, a: TermPayload, b: TermPayload, w: int) -> TermPayload:
        return self.term(op, w, *sorted((a, b), key=lambda x: -1 if isinstance(x, int) else x.serial))

    # Gates: byte by byte, and bit by bit where one side is constant. `gates` are sums of products of bits.

    def and_(self, a: TermPayload, b: TermPayload, w: int) -> TermPayload:
        return self._gate("and", a, b, w, lambda x, m, bits: x if m else 0)

    def or_(self, a: TermPayload, b: TermPayload, w: int) -> TermPayload:
        return self._gate("or", a, b, w, lambda x, m, bits: (1 << bits) - 1 if m else x)

    def xor(self, a: TermPayload, b: TermPayload, w: int) -> TermPayload:
        return self._gate("xor", a, b, w, lambda x, m, bits: self._invert(x, bits) if m else x)

    def not_(self, a: TermPayload, w: int) -> TermPayload:
        return self.xor(a, (1 << w) - 1, w)

    def _invert(self, x: TermPayload, bits: int) -> TermPayload:
        """Return each bit of a payload inverted."""
        return x ^ (1 << bits) - 1 if isinstance(x, int) else self._of_products(_products(x) ^ {frozenset()}, bits)

    def _gate_of_terms(self, op: str, x: BitTerm, y: BitTerm, bits: int) -> TermPayload:
        """Return a gate of two terms as a sum of products."""
        left, right = _products(x), _products(y)
        out = left ^ right if op != "and" else frozenset[frozenset[BitTerm]]()
        if op != "xor":
            if len(left) * len(right) > _MAX_PRODUCTS:
                return self._commuting(op, x, y, bits)
            for one in left:
                out ^= frozenset(k for k, n in Counter(one | other for other in right).items() if n % 2)
        return self._of_products(out, bits) if len(out) <= _MAX_PRODUCTS else self._commuting(op, x, y, bits)

    def _of_products(self, products: _BitProducts, bits: int) -> TermPayload:
        """Return the payload that is a sum of products."""
        if len(products) < 2:
            (product,) = products or (None,)
            if not product:
                return 0 if product is None else (1 << bits) - 1
            if len(product) == 1:
                return next(iter(product))
        ordered = sorted(tuple(sorted(x.serial for x in product)) for product in products)
        by_serial = {x.serial: x for product in products for x in product}
        return self.term("gates", bits, *(tuple(by_serial[k] for k in serials) for serials in ordered))

    def _gate(
        self, op: str, a: TermPayload, b: TermPayload, w: int, masked: Callable[[TermPayload, int, int], TermPayload]
    ) -> TermPayload:
        """Return a gate of two payloads; `masked` returns the gate of a payload and a constant bit for each of its
        bits."""
        ends = sorted(self._ends(a, w) | self._ends(b, w) | set(range(_BYTE, w, _BYTE)) | {w})
        sizes = [last - first for first, last in zip([0, *ends], ends, strict=False)]
        out: list[Piece] = []
        for x, y, bits in zip(self._divide(a, w, sizes), self._divide(b, w, sizes), sizes, strict=True):
            if isinstance(x, int) and isinstance(y, int):
                part: TermPayload = x & y if op == "and" else x | y if op == "or" else x ^ y
            elif isinstance(x, int) or isinstance(y, int):
                of, mask = (y, x) if isinstance(x, int) else (x, y)
                assert isinstance(mask, int)
                part = self._mask(of, mask, bits, masked)
            elif x is y:
                part = 0 if op == "xor" else x
            else:
                part = self._gate_of_terms(op, x, y, bits)
            out += self._pieces(part, bits)
        return self._whole(out)

    def _mask(
        self, x: TermPayload, mask: int, bits: int, masked: Callable[[TermPayload, int, int], TermPayload]
    ) -> TermPayload:
        """Return a gate of `x` and a constant, in runs of equal bits of the constant."""
        out: list[Piece] = []
        first = 0
        while first < bits:
            bit, last = mask >> first & 1, first + 1
            while last < bits and mask >> last & 1 == bit:
                last += 1
            part = masked(self.cut(x, bits, first, last), bit, last - first)
            out += self._pieces(part, last - first)
            first = last
        return self._whole(out)

    def _divide(self, x: TermPayload, w: int, sizes: Sequence[int]) -> list[TermPayload]:
        """Return the parts of a payload of these bits, the lowest first; each part lies in one piece."""
        out: list[TermPayload] = []
        pieces, gone = iter(self._pieces(x, w)), 0
        y, start, bits = next(pieces)
        for size in sizes:
            if gone == bits:
                (y, start, bits), gone = next(pieces), 0
            if isinstance(y, int):
                out.append(y >> gone & ((1 << size) - 1))
            else:
                out.append(self._whole([(y, start + gone, size)]))
            gone += size
        return out

    def _ends(self, x: TermPayload, w: int) -> set[int]:
        """Return where the pieces of a payload end."""
        offset, out = 0, set[int]()
        for _, _, bits in self._pieces(x, w):
            offset += bits
            out.add(offset)
        return out

    def eq(self, a: TermPayload, b: TermPayload, w: int) -> bool | BitTerm:
        if a is b or (isinstance(a, int) and isinstance(b, int)):
            return a == b
        return self.term("eq", 1, w, a, b)

    def ult(self, a: TermPayload, b: TermPayload, w: int) -> bool | BitTerm:
        if isinstance(a, int) and isinstance(b, int):
            return a < b
        return self.term("ult", 1, w, a, b)

    def ite(self, cond: bool | BitTerm, a: TermPayload, b: TermPayload, w: int) -> TermPayload:
        if isinstance(cond, bool):
            return a if cond else b
        return a if a == b else self.term("ite", w, cond, a, b)

    def popcount(self, a: TermPayload, w: int) -> TermPayload:
        return a.bit_count() if isinstance(a, int) else self.term("popcount", w, a)

    def udiv(self, a: TermPayload, b: TermPayload, w: int) -> TermPayload:
        return self.term("udiv", w, a, b)

    def lookup(self, table: Sequence[TermPayload], index: TermPayload, w: int) -> TermPayload:
        if isinstance(index, int):
            return table[index % len(table)]
        return self.term("lookup", w, tuple(table), index)

    def float_of(self, *_: object, **__: object) -> TermPayload:
        raise Inexact("floats have no terms")

    nearest = fmul = fadd = fdiv = flt = fle = float_of
    double_of = double_of_float = int_of = dmul = dadd = dsub = ddiv = dlt = dle = float_of
