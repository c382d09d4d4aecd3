"""Operations of terms as C, by their names in numpy, for each type of operands; and a maximum that drops NaN."""

from __future__ import annotations

from collections.abc import Callable

from bitsynth.network.plain.terms import Bounds

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
"""The bounds of a result, by those of its operands; none are known of comparisons."""
