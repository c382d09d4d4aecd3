"""The lane language in C: a domain whose payloads are C expressions, so that C is of the text that numpy and Z3 read.

Numbers of w bits are unsigned, in the narrowest type that holds them, and below 2**w. float64 numbers are doubles. No
expression is undefined, but for conversions to integers of a double that int32 does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bitsynth.errors import SpecError
from bitsynth.isa.doubles import number_of

CARRIERS = (8, 16, 32, 64)
_MAX_MINIMA = 32
"""The most bits of numbers whose minimum is one instruction in most vector registers."""


@dataclass(frozen=True)
class Term:
    """A C expression of `args`, which stand in `text` as {0}, {1}: a number of `w` bits, a truth value if that is 0.

    A "flipped" one has its sign flipped, a "widened" one is a signed number in twice the bits, or more. A "product" is
    of float32. A "float" is one in C, a "double" and a "double product" are doubles, a "signed" number has the signed
    type of `w` bits. A "signed" condition compares signed numbers. A "sum" adds up its argument in a loop of
    `iterations`.
    """

    text: str
    w: int
    args: tuple[Term, ...] = ()
    kind: str = ""
    number: int | None = None
    iterations: int = 0

    @property
    def ctype(self) -> str:
        """The type in C."""
        if self.kind == "signed" and self.w:
            return f"int{self.w}_t"
        if self.kind == "float":
            return "float"
        return "double" if self.is_double else ctype(self.w)

    @property
    def is_double(self) -> bool:
        """Whether it is a double in C."""
        return self.kind in ("double", "double product")

    @property
    def is_product(self) -> bool:
        """Whether it is a product of floats."""
        return self.kind in ("product", "double product")


_BITS_OF_FLOAT = "bs_bits({0})"


def bits_of_float(text: str) -> Term:
    """Return the bits of a float that C has."""
    return Term(_BITS_OF_FLOAT, 32, (Term(text, 32, kind="float"),))


def _bits(a: Term) -> Term:
    """Return the bits of a double, and other terms as they are."""
    return Term("(union {{ double x; uint64_t bits; }}){{ {0} }}.bits", a.w, (a,)) if a.is_double else a


def _float(bits: Term) -> Term:
    """Return the float of some bits; gcc vectorizes no loop that makes bits of a float and a float of these again."""
    return bits.args[0] if bits.text == _BITS_OF_FLOAT else Term("bs_float({0})", 32, (bits,), "float")


def carrier(w: int) -> int:
    """Return the bits of the C type that holds numbers of `w` bits."""
    return next(c for c in CARRIERS if w <= c)


def ctype(w: int) -> str:
    """Return the C type of terms of `w` bits."""
    return f"uint{carrier(w)}_t" if w else "int"


def _literal(number: int, w: int) -> str:
    return str(number) if w <= 16 else f"UINT{carrier(w)}_C({number})"


def _write_signed(number: int, w: int) -> str:
    least = 1 << (w - 1)
    if number == least:
        return f"INT{w}_MIN"
    value = number - 2 * least if number > least else number
    return f"INT64_C({value})" if w == 64 else str(value)


def _cast_to_signed(x: Term, place: int, w: int) -> str:
    """Return the argument of a term at a `place` as a signed number."""
    return f"(int{w}_t){{{place}}}" if x.number is None else _write_signed(x.number, w)


def _sum(text: str, w: int, *args: Term, kind: str = "") -> Term:
    """Return an unsigned number that may have more than `w` bits, cut to them."""
    cut = text if w in CARRIERS else f"({text}) & {_literal((1 << w) - 1, w)}"
    return Term(cut if w in (32, 64) else f"({ctype(w)})({cut})", w, args, kind)


def _wide(w: int) -> str:
    """Return the cast of an operand of up to 16 bits, which C would promote to int."""
    return "(uint32_t)" if w <= 16 else ""


def _double(text: str, *args: Term) -> Term:
    return Term(text, 64, _as_doubles(*args), "double")


def _as_doubles(*args: Term) -> tuple[Term, ...]:
    """Return terms with the constants among them, which are bits of float64 numbers, as doubles."""
    return tuple(x if x.number is None else Term(_double_literal(x.number), 64, (), "double", x.number) for x in args)


def _double_literal(bits: int) -> str:
    number = number_of(bits)
    return repr(number) if number.is_integer() and abs(number) < 1 << 16 else number.hex()


class CDomain:
    """Payloads are `Term`s. `kept` has the payloads that loops of their own compute, in their order.

    Float products are if the compiler `fuses`: it may compute a product and what is added to it in one operation, which
    rounds once. Where the file forbids that, none is kept.
    """

    def __init__(self, *, fuses: bool = True) -> None:
        self.kept: dict[Term, None] = {}
        self.fuses = fuses

    def const(self, value: int, w: int) -> Term:
        number = value & ((1 << w) - 1)
        return Term(_literal(number, w), w, number=number)

    def add(self, a: Term, b: Term, w: int) -> Term:
        return _sum("{0} + {1}", w, a, b)

    def sub(self, a: Term, b: Term, w: int) -> Term:
        return _sum(f"{_wide(w)}{{0}} - {{1}}", w, a, b)

    def mul(self, a: Term, b: Term, w: int) -> Term:
        if a.kind == b.kind == "widened":
            first, second = (f"(int{x.args[0].w}_t){{{n}}}" for n, x in enumerate((a, b)))
            return Term(f"(uint{w}_t)((int{w}_t){first} * {second})", w, (a.args[0], b.args[0]))
        return _sum(f"{_wide(w)}{{0}} * {{1}}", w, a, b)

    def udiv(self, a: Term, b: Term, w: int) -> Term:
        return Term(f"({ctype(w)})({{1}} ? {{0}} / {{1}} : {_literal((1 << w) - 1, w)})", w, (a, b))

    def and_(self, a: Term, b: Term, w: int) -> Term:
        return _sum("{0} & {1}", w, a, b)

    def or_(self, a: Term, b: Term, w: int) -> Term:
        return _sum("{0} | {1}", w, a, b)

    def xor(self, a: Term, b: Term, w: int) -> Term:
        if a.number is not None and b.number is not None:
            return self.const(a.number ^ b.number, w)
        flips = w in CARRIERS and b.number == 1 << (w - 1)
        return _sum("{0} ^ {1}", w, a, b, kind="flipped" if flips else "")

    def not_(self, a: Term, w: int) -> Term:
        return _sum(f"~{_wide(w)}{{0}}", w, a)

    def shl(self, a: Term, n: int, w: int) -> Term:
        return _sum(f"{_wide(w)}{{0}} << {n}", w, a) if n < w else self.const(0, w)

    def lshr(self, a: Term, n: int, w: int) -> Term:
        return _sum(f"{{0}} >> {n}", w, _bits(a)) if n < w else self.const(0, w)

    def eq(self, a: Term, b: Term, w: int) -> Term:
        return Term("{0} == {1}", 0, (a, b))

    def ult(self, a: Term, b: Term, w: int) -> Term:
        """Return a < b without signs; of numbers whose sign bit is flipped it is a comparison of signed ones."""
        flipped = [x for x in (a, b) if x.kind == "flipped"]
        if not flipped or any(x.kind != "flipped" and x.number is None for x in (a, b)):
            return Term("{0} < {1}", 0, (a, b))
        texts, args = [], list[Term]()
        for x in (a, b):
            if x.number is None:
                texts.append(f"(int{w}_t){{{len(args)}}}")
                args.append(x.args[0])
            else:
                texts.append(_write_signed(x.number ^ 1 << (w - 1), w))
        return Term(" < ".join(texts), 0, tuple(args), "signed")

    def ite(self, cond: Term, a: Term, b: Term, w: int) -> Term:
        if a.is_double or b.is_double:
            return _double("{0} ? {1} : {2}", cond, a, b)
        if (a.number, b.number) == (1, 0):
            return Term(f"({ctype(w)})({{0}})", w, (cond,))
        if cond.kind == "signed" and w <= _MAX_MINIMA and all(x in cond.args for x in (a, b) if x.number is None):
            # Compilers see a minimum or a maximum in one expression of signed numbers.
            first, second = (_cast_to_signed(x, n, w) for n, x in enumerate((a, b), len(cond.args)))
            chosen = Term(f"{cond.text} ? {first} : {second}", w, (*cond.args, a, b), "signed")
            return Term(f"({ctype(w)}){{0}}", w, (chosen,))
        return Term(f"({ctype(w)})({{0}} ? {{1}} : {{2}})", w, (cond, a, b))

    def zext(self, a: Term, w: int, to: int) -> Term:
        return Term("{0}" if carrier(w) == carrier(to) else f"({ctype(to)}){{0}}", to, (a,))

    def sext(self, a: Term, w: int, to: int) -> Term:
        if w == to:
            return a
        if w in CARRIERS:
            widened = "widened" if to in (32, 64) and 2 * w <= to else ""
            return Term(_sum(f"({ctype(to)})(int{w}_t){{0}}", to).text, to, (a,), widened)
        sign = self.const(1 << (w - 1), to)
        return self.sub(self.xor(self.zext(a, w, to), sign, to), sign, to)

    def trunc(self, a: Term, w: int, to: int) -> Term:
        if to == w:
            return a
        a = _bits(a)
        return Term(f"({ctype(to)}){{0}}", to, (a,)) if to in CARRIERS else _sum("{0}", to, a)

    def popcount(self, a: Term, w: int) -> Term:
        return Term(f"({ctype(w)})bs_popcount({{0}})", w, (a,))

    def lookup(self, table: Sequence[Term], index: Term, w: int) -> Term:
        out = table[-1]
        for k in range(len(table) - 2, -1, -1):
            out = self.ite(Term(f"{{0}} % {len(table)} == {k}", 0, (index,)), table[k], out, w)
        return out

    def join(self, parts: Sequence[Term], w: int) -> Term:
        size = w * len(parts)
        out = self.zext(parts[0], w, size)
        for k, part in enumerate(parts[1:], 1):
            out = self.or_(out, self.shl(self.zext(part, w, size), k * w, size), size)
        return out

    def split(self, a: Term, w: int, to: int) -> list[Term]:
        return [self.trunc(self.lshr(a, k, w), w, to) for k in range(0, w, to)]

    def float_of(self, a: Term) -> Term:
        return Term("bs_float_of({0})", 32, (a,))

    def nearest(self, a: Term) -> Term:
        self._keep_products(a)
        return Term("bs_nearest({0})", 32, (a,))

    def fmul(self, a: Term, b: Term, toward_zero: bool = False) -> Term:
        if toward_zero:
            raise SpecError("C rounds to nearest, not toward zero")
        return Term("bs_fmul({0}, {1})", 32, (a, b), "product")

    def fadd(self, a: Term, b: Term) -> Term:
        self._keep_products(a, b)
        return Term("bs_fadd({0}, {1})", 32, (a, b))

    def fdiv(self, a: Term, b: Term) -> Term:
        return Term("bs_fdiv({0}, {1})", 32, (a, b))

    def flt(self, a: Term, b: Term) -> Term:
        return Term("bs_flt({0}, {1})", 0, (a, b))

    def fle(self, a: Term, b: Term) -> Term:
        return Term("bs_scalar({0}) <= {1}", 0, (_float(a), _float(b)))

    def double_of(self, a: Term) -> Term:
        return _double("(double)(int32_t){0}", a)

    def double_of_float(self, a: Term) -> Term:
        return _double("(double){0}", _float(a))

    def int_of(self, a: Term) -> Term:
        return Term("(uint32_t)(int32_t){0}", 32, (a,))

    def dmul(self, a: Term, b: Term) -> Term:
        return replace(_double("{0} * {1}", a, b), kind="double product")

    def dadd(self, a: Term, b: Term) -> Term:
        self._keep_products(a, b)
        return _double("{0} + {1}", a, b)

    def dsub(self, a: Term, b: Term) -> Term:
        self._keep_products(a, b)
        return _double("{0} - {1}", a, b)

    def ddiv(self, a: Term, b: Term) -> Term:
        return _double("{0} / {1}", a, b)

    def dlt(self, a: Term, b: Term) -> Term:
        return Term("{0} < {1}", 0, _as_doubles(a, b))

    def dle(self, a: Term, b: Term) -> Term:
        return Term("{0} <= {1}", 0, _as_doubles(a, b))

    def _keep_products(self, *terms: Term) -> None:
        for term in terms if self.fuses else ():
            if term.is_product:
                self.kept[term] = None
            elif term not in self.kept:
                self._keep_products(*term.args)

    def add_up(self, body: Term, iterations: int, w: int) -> Term:
        """Return the sum of `body` over the iterations of a loop."""
        added = Term("", w, (body,), "sum", iterations=iterations)
        self.kept[added] = None
        return added

    def shift(self, a: Term, n: Term, w: int, name: str) -> Term:
        """Return `a` shifted by `n` bits, as the function `name` of `isa/functions.py` does."""
        if name == "asr":
            return Term(f"({ctype(w)})((int{w}_t){{0}} >> ({{1}} < {w} ? {{1}} : {w - 1}))", w, (a, n))
        sign = "<<" if name == "lsl" else ">>"
        return _sum(f"{{1}} < {w} ? {_wide(w)}{{0}} {sign} ({{1}} & {w - 1}) : 0", w, a, n)
