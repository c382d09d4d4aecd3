"""Terms: numbers of a loop in C that behave like numpy arrays, so that the operator table's meanings write the C.

A term takes part in numpy's operators and functions as an array does; each operation is a value of the loop, of the
type that numpy gives it. Tables give the C of each operation by its name in numpy, for each type of operands.

Double-double arithmetic has real numbers of about 106 bits as a float64 and the rest that it does not hold. Sums,
products and quotients of numbers that float64 holds lose nothing that a comparison could see: the rest has the sign of
what is left. A number beyond float64 is infinite, and has no rest: inf - inf would make it NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bitsynth.graph.types import Shape, Tensor

if TYPE_CHECKING:
    from bitsynth.network.plain.writer import Writer


Bounds = tuple[int, int]


@dataclass(frozen=True, eq=False)
class LoopTerm(np.lib.mixins.NDArrayOperatorsMixin):
    """A number for each element of a loop.

    Args:
        writer: Makes the operations.
        dtype: Its type, as numpy's operators see it; integers of any size are int64.
        code: C: a name or a literal; "" of a constant.
        bounds: The least and the greatest it can be, if known.
        rest: C of what is left of it in float64, of real numbers that one does not hold; "" if nothing is.
        value: The array of a constant, which broadcasts to the loop; of fractions if it stands for real numbers.
        whole: The whole number of floats that it was, if it was one.
    """

    writer: Writer
    dtype: np.dtype[Any]
    code: str = ""
    bounds: Bounds | None = None
    rest: str = ""
    value: Tensor | None = None
    whole: LoopTerm | None = None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **_: Any) -> LoopTerm:
        return self.writer.operate(ufunc.__name__, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result: Any = _FUNCTIONS[function](*args)
        return result

    @property
    def shape(self) -> Shape:
        """The loop's shape."""
        return self.writer.loops.shape

    @property
    def size(self) -> int:
        """The size of a single number."""
        return 1

    def astype(self, dtype: Any) -> LoopTerm:
        """Return the number in another type."""
        return self.writer.cast(self, np.dtype(dtype))

    def min(self) -> int:
        """Return the least value that it can have."""
        return self.bounds[0] if self.bounds else -(1 << 63)

    def max(self) -> int:
        """Return the greatest value that it can have."""
        return self.bounds[1] if self.bounds else (1 << 63) - 1

    def within(self, low: int, high: int) -> LoopTerm:
        """Return the number, known to be within bounds."""
        return replace(self, bounds=(max(low, self.min()), min(high, self.max())))


def _clip(number: LoopTerm, low: Any, high: Any) -> LoopTerm:
    """Return the number clipped to limits; NaN becomes the lower limit."""
    name = "at_least" if number.value is None else "maximum"
    clipped = number if low is None else number.writer.operate(name, number, low)
    return clipped if high is None else number.writer.operate("minimum", clipped, high)


def _where(mask: LoopTerm, a: Any, b: Any) -> LoopTerm:
    return mask.writer.operate("where", mask, a, b)


def _spread(number: LoopTerm, shape: Shape) -> LoopTerm:
    return number


_FUNCTIONS: dict[Any, Callable[..., LoopTerm]] = {np.where: _where, np.clip: _clip, np.broadcast_to: _spread}


COMPARISONS = {
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}
ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}

OF_FLOATS: dict[str, str] = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (ARITHMETIC | COMPARISONS).items()},
    "negative": "-{0}",
    "absolute": "bs_size{f}({0})",
    "rint": "bs_rint{f}({0})",
    "floor": "bs_floor{f}({0})",
    "ceil": "-bs_floor{f}(-{0})",
    "sign": "({0} > 0) - ({0} < 0)",
    "maximum": "(({0} >= {1}) | ({0} != {0})) ? {0} : {1}",
    "at_least": "{0} >= {1} ? {0} : {1}",
    "minimum": "(({0} <= {1}) | ({0} != {0})) ? {0} : {1}",
    "where": "{0} ? {1} : {2}",
}
OF_INTEGERS: dict[str, str] = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (ARITHMETIC | COMPARISONS).items() if name != "divide"},
    "divide": "bs_quotient({0}, {1})",
    "remainder": "bs_modulo({0}, {1})",
    "right_shift": "{0} >> {1}",
    "negative": "-{0}",
    "absolute": "{0} < 0 ? -{0} : {0}",
    "sign": "({0} > 0) - ({0} < 0)",
    **dict.fromkeys(("maximum", "at_least"), "{0} > {1} ? {0} : {1}"),
    "minimum": "{0} < {1} ? {0} : {1}",
    "where": "{0} ? {1} : {2}",
    **dict.fromkeys(("rint", "floor", "ceil"), "{0}"),
}


def _corners(function: Callable[[int, int], int]) -> Callable[[Bounds, Bounds], Bounds]:
    def rule(a: Bounds, b: Bounds) -> Bounds:
        corners = [function(x, y) for x in a for y in b]
        return min(corners), max(corners)

    return rule


BOUNDS: dict[str, Callable[..., Bounds]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": _corners(lambda x, y: x * y),
    "divide": lambda a, b: (-max(map(abs, a)), max(map(abs, a))),
    "remainder": lambda a, b: (0, b[1] - 1),
    "right_shift": _corners(lambda x, y: x >> max(y, 0)),
    "negative": lambda a: (-a[1], -a[0]),
    "absolute": lambda a: (0 if a[0] <= 0 <= a[1] else min(map(abs, a)), max(map(abs, a))),
    "sign": lambda a: (-1, 1),
    **dict.fromkeys(("maximum", "at_least"), lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "where": lambda m, a, b: (min(a[0], b[0]), max(a[1], b[1])),
    **dict.fromkeys(("rint", "floor", "ceil"), lambda a: a),
}
"""The bounds of a result, from its operands' bounds; comparisons have none."""


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


def _choose(value: _Value, mask: str, a: LoopTerm, b: LoopTerm) -> _Made:
    rest = value("double", f"{mask} ? {a.rest or '0.0'} : {b.rest or '0.0'}") if a.rest or b.rest else ""
    return value("double", f"{mask} ? {a.code} : {b.code}"), rest


def _extreme(sign: str) -> Callable[..., _Made]:
    def rule(value: _Value, a: LoopTerm, b: LoopTerm) -> _Made:
        mask = value("int", f"({compare(sign, a, b)}) | ({a.code} != {a.code})")
        return _choose(value, mask, a, b)

    return rule


def _at_least(value: _Value, a: LoopTerm, b: LoopTerm) -> _Made:
    return _choose(value, value("int", compare(">=", a, b)), a, b)


def _where_pair(value: _Value, mask: LoopTerm, a: LoopTerm, b: LoopTerm) -> _Made:
    return _choose(value, mask.code, a, b)


def _round(function: str, sign: str = "") -> Callable[..., _Made]:
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
    "where": _where_pair,
    "rint": _round("bs_rint"),
    "floor": _round("bs_floor"),
    "ceil": _round("bs_floor", "-"),
}
"""C of the number and of its rest, by the names of numpy."""
