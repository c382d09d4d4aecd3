"""Double-double arithmetic: real numbers of about 106 bits as a float64 and the rest that it does not hold.

Sums, products and quotients of numbers that float64 holds lose nothing that a comparison could see: the rest has the
sign of what is left. A number beyond float64 is infinite, and has no rest: inf - inf would make it NaN.
"""

from __future__ import annotations

from collections.abc import Callable

from bitsynth.network.plain.operations import COMPARISONS
from bitsynth.network.plain.terms import LoopTerm

_Value = Callable[[str, str], str]
"""The name of a value of a C type, by its code; of `REST`, a double that is the rest of another."""
REST = "rest"
_Made = tuple[str, str]


def _normal(value: _Value, near: str, rest: str) -> _Made:
    """Return the pair with its rest within half a unit in the last place."""
    high = value("double", f"{near} + {rest}")
    return high, value(REST, f"{rest} - ({high} - {near})")


def _add(value: _Value, a: LoopTerm, b: LoopTerm) -> _Made:
    near = value("double", f"{a.code} + {b.code}")
    error = value(REST, f"bs_sum_error({a.code}, {b.code}, {near})")
    rests = [r for r in (a.rest, b.rest) if r]
    return _normal(value, near, value(REST, " + ".join([error, *rests]))) if rests else (near, error)


def _negative(value: _Value, a: LoopTerm) -> _Made:
    return value("double", f"-{a.code}"), value("double", f"-{a.rest}") if a.rest else ""


def _subtract(value: _Value, a: LoopTerm, b: LoopTerm) -> _Made:
    code, rest = _negative(value, b)
    return _add(value, a, LoopTerm(b.writer, b.dtype, code, None, rest))


def _multiply(value: _Value, a: LoopTerm, b: LoopTerm) -> _Made:
    near = value("double", f"{a.code} * {b.code}")
    error = value(REST, f"bs_product_error({a.code}, {b.code}, {near})")
    rests = [f"{x.code} * {y.rest}" for x, y in ((a, b), (b, a)) if y.rest]
    return _normal(value, near, value(REST, " + ".join([error, *rests]))) if rests else (near, error)


def _divide(value: _Value, a: LoopTerm, b: LoopTerm) -> _Made:
    near = value("double", f"{a.code} / {b.code}")
    back = value("double", f"{near} * {b.code}")
    left = value("double", f"({a.code} - {back}) - bs_product_error({near}, {b.code}, {back})")
    parts = [left, *([a.rest] if a.rest else [])]
    total = " + ".join(parts) + (f" - {near} * {b.rest}" if b.rest else "")
    rest = value(REST, f"({total}) / {b.code}")
    return _normal(value, near, rest) if a.rest or b.rest else (near, rest)


def _absolute(value: _Value, a: LoopTerm) -> _Made:
    rest = value("double", f"{a.code} < 0 ? -{a.rest} : {a.rest}") if a.rest else ""
    return value("double", f"bs_size({a.code})"), rest


def _compare(sign: str) -> Callable[..., _Made]:
    def rule(value: _Value, a: LoopTerm, b: LoopTerm) -> _Made:
        return value("int", compare(sign, a, b)), ""

    return rule


def compare(sign: str, a: LoopTerm, b: LoopTerm) -> str:
    """Return C for a comparison."""
    if not a.rest and not b.rest:
        return f"{a.code} {sign} {b.code}"
    inner = f"{a.rest or 0} {sign} {b.rest or 0}"
    if sign in ("==", "!="):
        return f"({a.code} {sign} {b.code}) {'&' if sign == '==' else '|'} ({inner})"
    return f"({a.code} {sign[0]} {b.code}) | (({a.code} == {b.code}) & ({inner}))"


def _chosen(value: _Value, mask: str, a: LoopTerm, b: LoopTerm) -> _Made:
    rest = value("double", f"{mask} ? {a.rest or '0.0'} : {b.rest or '0.0'}") if a.rest or b.rest else ""
    return value("double", f"{mask} ? {a.code} : {b.code}"), rest


def _extreme(sign: str) -> Callable[..., _Made]:
    def rule(value: _Value, a: LoopTerm, b: LoopTerm) -> _Made:
        mask = value("int", f"({compare(sign, a, b)}) | ({a.code} != {a.code})")
        return _chosen(value, mask, a, b)

    return rule


def _at_least(value: _Value, a: LoopTerm, b: LoopTerm) -> _Made:
    return _chosen(value, value("int", compare(">=", a, b)), a, b)


def _where(value: _Value, mask: LoopTerm, a: LoopTerm, b: LoopTerm) -> _Made:
    return _chosen(value, mask.code, a, b)


def _rounded(function: str, sign: str = "") -> Callable[..., _Made]:
    def rule(value: _Value, a: LoopTerm) -> _Made:
        if not a.rest:
            return value("double", f"{sign}{function}({sign}{a.code})"), ""
        return value("double", f"{sign}{function}_pair({sign}{a.code}, {sign}{a.rest})"), ""

    return rule


OF_PAIRS: dict[str, Callable[..., _Made]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "negative": _negative,
    "absolute": _absolute,
    **{name: _compare(sign) for name, sign in COMPARISONS.items()},
    "maximum": _extreme(">="),
    "minimum": _extreme("<="),
    "at_least": _at_least,
    "where": _where,
    "rint": _rounded("bs_rint"),
    "floor": _rounded("bs_floor"),
    "ceil": _rounded("bs_floor", "-"),
}
"""C of the number and of its rest, by the names of numpy."""
