"""Elementwise specs of glue, the operators between layers: from codes of one or two inputs to a code.

For example `greatest`, from which max pools are built, has the inputs a and b, bytes, and the meaning
`ite(ult(a, b), b, a)` in the lane language (`isa/lane.py`). A proved program computes it, or plain C of that text.
"""

from __future__ import annotations

from msgspec.structs import replace

from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec, SpecKind
from bitsynth.spec.rescaling import SMALL_ZERO, is_number

_FIRST, _SECOND = ElementInput("a", "u8"), ElementInput("b", "u8")
_LAST, _ZERO = ElementInput("h", "u8", "all"), ElementInput("z", "s16", "all")
_REAL, _SCALE = ElementInput("x", "u32"), ElementInput("m", "u32", "channel")
MAX_SUMS = 1 << 20
"""Entries of a table of sums."""
_GREAT = 0x4B00_0000
"""float32: 2**23."""


def every() -> tuple[ElementwiseSpec, ...]:
    """Return the specs of glue."""
    lookups = (lookup(1 << bits) for bits in (4, 5, 6, 7, 8))
    tables = lookup_channels(), lookup_channels(floats=True), lookup_sums()
    sums = (add_weighted(even=even, wide=wide) for wide in (False, True) for even in (False, True))
    floats = quantize(), signs(), dequantize()
    means = (mean(even=even) for even in (False, True))
    return greatest(), *lookups, *tables, *map(pairs, (2, 3, 4, 8)), *sums, *means, average(), *floats


def greatest() -> ElementwiseSpec:
    """Return the greater of two bytes."""
    return ElementwiseSpec(name="greatest", inputs=(_FIRST, _SECOND), meaning="ite(ult(a, b), b, a)", out="u8")


def lookup(entries: int) -> ElementwiseSpec:
    """Return the entry of a table of bytes for each byte, which is below `entries`."""
    inputs = ElementInput("x", "u8"), ElementInput("t", "u8", "table", entries)
    assumes = (f"bit(ult(x, {entries}))",) if entries < 256 else ()
    return _lookup_spec(f"lookup{entries}", inputs, "lookup(t, x)", "u8", assumes)


def lookup_channels(*, floats: bool = False) -> ElementwiseSpec:
    """Return the lookup of each byte in its channel's table of 256 bytes, or of float32 if they are `floats`."""
    kind, name = ("u32", "lookup_floats") if floats else ("u8", "lookup_channels")
    inputs = ElementInput("x", "u8"), ElementInput("t", kind, "channel", 256)
    return _lookup_spec(name, inputs, "lookup(t, x)", kind)


def lookup_sums(entries: int = MAX_SUMS) -> ElementwiseSpec:
    """Return the entry of a table of bytes for each sum below `entries`."""
    inputs = ElementInput("s", "u32"), ElementInput("t", "u8", "table", entries)
    below = f"bit(ult(s, {entries}))"
    return _lookup_spec("lookup_sums", inputs, "lookup(t, s)", "u8", (below,))


def _lookup_spec(
    name: str, inputs: tuple[ElementInput, ...], meaning: str, out: str, assumes: tuple[str, ...] = ()
) -> ElementwiseSpec:
    return ElementwiseSpec(name, inputs, meaning, out, assumes=assumes, kind=SpecKind.LOOKUP)


def pairs(bits: int) -> ElementwiseSpec:
    """Return the lookup of each pair of codes of up to `bits` bits in a table of bytes; the first code is high."""
    entries = 1 << 2 * bits
    first, second = ("a", "b") if bits <= 4 else ("zext(a, 16)", "zext(b, 16)")
    return ElementwiseSpec(
        name=f"pairs{entries}",
        inputs=(_FIRST, _SECOND, ElementInput("t", "u8", "table", entries)),
        meaning=f"lookup(t, ({first} << {bits}) | {second})",
        out="u8",
        assumes=tuple(f"bit(ult({x}, {1 << bits}))" for x in "ab" if bits < 8),
        kind=SpecKind.PAIRS,
    )


def add_weighted(*, even: bool, wide: bool) -> ElementwiseSpec:
    """Return codes (p >> n) + z of two codes, with p = a * f + b * g + k in 32 bits, which wrap, from 0 to h.

    Factors have 16 bits, or 32 if they are `wide`. Rounded half to `even`, e and bit n of p are added to p before it is
    shifted; else k contains both the rounding and z.
    """
    factor = ElementInput("f", "s32" if wide else "s16", "all")
    product = "(zext(a, 32) * sext(f, 32) + zext(b, 32) * sext(g, 32) + k)"
    rounded = f"{product} + e + (lsr({product}, n) & 1)" if even else product
    code = f"sext(asr({rounded}, n), 64)" + (" + sext(z, 64)" if even else "")
    ends = ("k", "e", "n") if even else ("k", "n")
    return ElementwiseSpec(
        name=f"weighted{factor.lane.bits}{'_even' if even else ''}",
        inputs=(
            *(_FIRST, _SECOND, factor, replace(factor, name="g")),
            *(ElementInput(x, "s32", "all") for x in ends),
            *([_ZERO] if even else []),
            _LAST,
        ),
        meaning=f"ite(slt({code}, 0), 0, ite(slt(zext(h, 64), {code}), zext(h, 64), {code}))",
        out="u8",
        assumes=("bit(ult(n, 32))", *([SMALL_ZERO] if even else [])),
        kind=SpecKind.WEIGHTED,
    )


def mean(*, even: bool) -> ElementwiseSpec:
    """Return codes of sums s: n * m >> 32 + t with n = 2 * s + c, at most h.

    With m a little above 2**(32 + t) / d that is n // d. The quotient is a half where d divides n. With `even` halves
    are rounded to numbers whose last bit is w, 0 or 1; else up.
    """
    number = "((s << 1) + c)"
    quotient = f"asr(trunc((zext({number}, 64) * zext(m, 64)) >> 32, 32), t)"
    code = f"({quotient} - (ite(eq({quotient} * d, {number}), {quotient} ^ w, 0) & 1))" if even else quotient
    numbers = tuple(ElementInput(x, "u32", "all") for x in ("cmdw" if even else "cm"))
    return ElementwiseSpec(
        name=f"mean{'_even' if even else ''}",
        inputs=(ElementInput("s", "u32"), *numbers, ElementInput("t", "s32", "all"), _LAST),
        meaning=f"ite(slt(zext(h, 32), {code}), zext(h, 32), ite(slt({code}, 0), 0, {code}))",
        out="u8",
        assumes=("bit(ult(t, 32))", f"bit(ult({number}, {1 << 31}))"),
        kind=SpecKind.MEAN,
    )


def average() -> ElementwiseSpec:
    """Return the spec of codes of sums s: the quotient n / d with n = s * f + k, clipped to l and h.

    Where d divides n, the mean is a half. With e = 1 the quotient is then less by 1 if its last bit is not w; with
    e = 0 it stays. A negative n gives l.
    """
    number = "(zext(s, 64) * f + k)"
    quotient = f"udiv({number}, d)"
    code = f"({quotient} - ite(eq({quotient} * d, {number}), ({quotient} ^ w) & e, 0))"
    above, most = f"ite(slt({code}, zext(l, 64)), zext(l, 64), {code})", "zext(h, 64)"
    within = f"ite(slt({most}, {above}), {most}, {above})"
    wide = (ElementInput(x, "s64" if x in "fk" else "u64", "all") for x in "fkdwe")
    return ElementwiseSpec(
        name="scaled_mean",
        inputs=(ElementInput("s", "u32"), *wide, *(ElementInput(x, "u8", "all") for x in "lh")),
        meaning=f"ite(slt({number}, 0), zext(l, 64), {within})",
        out="u8",
        assumes=("~bit(slt(d, 1))", "bit(ult(w, 2))", "bit(ult(e, 2))"),
    )


def quantize() -> ElementwiseSpec:
    """Return codes of the float32 x / m, from the float32 l to h, rounded half to even, plus z.

    The code of NaN is the code of l.
    """
    quotient = "fdiv(x, m)"
    least = f"ite(flt(l, {quotient}), {quotient}, l)"
    return ElementwiseSpec(
        name="quantize_floats",
        inputs=(_REAL, _SCALE, *(ElementInput(x, "u32", "all") for x in "lh"), ElementInput("z", "s32", "all")),
        meaning=f"trunc(nearest(ite(flt({least}, h), {least}, h)) + z, 8)",
        out="u8",
        assumes=(f"bit(flt(h, {_GREAT}))",),
        kind=SpecKind.QUANTIZE,
    )


def signs() -> ElementwiseSpec:
    """Return a spec of signs: 1 where the float32 x / m is 0 or more, else 0, also for NaN."""
    return ElementwiseSpec(
        name="signs",
        inputs=(_REAL, _SCALE),
        meaning=f"zext({is_number('x')} & ~bit(flt(fdiv(x, m), 0)), 8)",
        out="u8",
        kind=SpecKind.SIGNS,
    )


def dequantize() -> ElementwiseSpec:
    """Return a spec in float32: a code times f, plus k, times the float32 m."""
    numbers = (ElementInput(x, "s32", "all") for x in "fk")
    return ElementwiseSpec(
        name="dequantize_codes",
        inputs=(_FIRST, _SCALE, *numbers),
        meaning="fmul(float_of(zext(a, 32) * f + k), m)",
        out="u32",
        kind=SpecKind.DEQUANTIZE,
    )
