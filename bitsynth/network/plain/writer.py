"""Writes a loop: operations of terms become values in C; operations of constants are computed at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Floats, Fractions
from bitsynth.graph.operators.rounding import half_even
from bitsynth.graph.types import Tensor
from bitsynth.network.plain.loops import Loops, align_steps, dense_steps
from bitsynth.network.plain.terms import BOUNDS, COMPARISONS, OF_FLOATS, OF_INTEGERS, OF_PAIRS, REST, Bounds, LoopTerm

_INT32 = (-(1 << 31), (1 << 31) - 1)
_INT64 = (-(1 << 63), (1 << 63) - 1)
_SMALL = 1 << 24
"""Whole numbers that float32 holds."""
_EVERY: Any = (-math.inf, math.inf)
_ROUNDERS = {"float16": "bs_half", "bfloat16": "bs_bfloat"}
_ROUNDED = ("add", "subtract", "multiply", "divide")
REAL = np.dtype(np.float64)
WHOLE = np.dtype(np.int64)


class Writer:
    """Writes operations of terms.

    Args:
        loops: Where they are done.
        constants: The step's.
        exact: Whether float64 stands for real numbers.
        paired: Whether these are pairs: a float64 and the rest that it does not hold.
        unbounded: Whether numbers may be beyond float64, as powers of e are. Then rests are kept finite.
    """

    def __init__(self, loops: Loops, *, exact: bool, paired: bool = False, unbounded: bool = False) -> None:
        self.loops, self.constants = loops, loops.constants
        self.exact, self.paired, self.unbounded = exact, exact and paired, unbounded

    def constant(self, array: Tensor) -> LoopTerm:
        """Return a constant in its type; fractions become real numbers."""
        array = np.asarray(array)
        dtype = REAL if array.dtype == object else WHOLE if array.dtype.kind in "iu" else array.dtype
        return LoopTerm(self, dtype, bounds=_bounds_of(array), value=array)

    def operate(self, name: str, *inputs: Any) -> LoopTerm:
        """Write the operation of that name in numpy."""
        terms = [x if isinstance(x, LoopTerm) else self._literal(x, inputs) for x in inputs]
        if all(t.value is not None for t in terms):
            return self.constant(_fold(name, [t.value for t in terms], self.exact))
        operands = terms[1:] if name == "where" else terms
        dtype = np.result_type(*(t.dtype for t in operands))
        held = [self.cast(self.hold(t), dtype) for t in operands]
        if name == "where":
            held.insert(0, self.hold(terms[0]))
        result = self._integer(name, held) if dtype.kind in "iub" else self._float(name, dtype, held)
        return replace(result, dtype=np.dtype(bool)) if name in COMPARISONS else result

    def _literal(self, x: Any, inputs: tuple[Any, ...]) -> LoopTerm:
        """Return a constant; a Python number takes the type of the other operand."""
        if isinstance(x, (int, float)) and not isinstance(x, np.generic):
            other = next((t.dtype for t in inputs if isinstance(t, LoopTerm) and t.dtype != bool), WHOLE)
            if isinstance(x, float) or other.kind not in "iu":
                x = np.asarray(x, other if other.kind not in "iu" else REAL)
        return self.constant(np.asarray(x))

    def hold(self, term: LoopTerm) -> LoopTerm:
        """Return a term that has C: constants become literals, or elements of arrays."""
        if term.value is None:
            return term
        if term.dtype == REAL:
            high, rest = _halves(term.value)
            low = self._element(rest, REAL) if self.paired and rest.any() else ""
            return replace(term, code=self._element(high, REAL), rest=low, value=None)
        return replace(term, code=self._element(term.value, term.dtype), value=None)

    def _element(self, array: Tensor, dtype: np.dtype[Any]) -> str:
        if array.size == 1:
            return _text(array.reshape(-1)[0], dtype)
        if dtype.kind in "iub":
            name = self.constants.add(array.astype("int32" if _fits(_bounds_of(array)) else "int64"))
        else:
            name = self.constants.add(array.astype("float64" if dtype == REAL else "float32"))
        steps = align_steps(dense_steps(array.shape), array.shape, self.loops.shape)
        return self.loops.value(_c_name(dtype, _bounds_of(array)), self.loops.at(name, steps))

    def _integer(self, name: str, terms: list[LoopTerm]) -> LoopTerm:
        intervals = [t.bounds or _INT64 for t in terms]
        if name == "remainder" and 0 <= intervals[0][0] and intervals[0][1] < intervals[1][0]:
            return terms[0]
        bounds = (0, 1) if name in COMPARISONS else BOUNDS[name](*intervals)
        within = _INT64[0] <= bounds[0] and bounds[1] <= _INT64[1]
        bounds = bounds if within else _INT64
        wide = not all(map(_fits, [bounds, *intervals]))
        codes = [f"(int64_t){t.code}" if wide and name != "where" else t.code for t in terms]
        code = OF_INTEGERS[name].format(*codes)
        if not within:
            code = f"(int64_t)({OF_INTEGERS[name].format(*(f'(uint64_t){c}' for c in codes))})"
        kind = "int" if name in COMPARISONS else "int32_t" if _fits(bounds) else "int64_t"
        if kind == "int32_t" and wide:
            code = f"(int32_t)({code})"
        return LoopTerm(self, WHOLE, self.loops.value(kind, code), bounds)

    def _float(self, name: str, dtype: np.dtype[Any], terms: list[LoopTerm]) -> LoopTerm:
        bounds = _bounds(name, [t.bounds or _EVERY for t in terms])
        if self.paired and dtype == REAL and name in OF_PAIRS:
            code, rest = OF_PAIRS[name](self._part, *terms)
            return LoopTerm(self, dtype, code, bounds, rest)
        code = OF_FLOATS[name].format(*(t.code for t in terms), f="" if dtype == REAL else "_f")
        if name in _ROUNDED and str(dtype) in _ROUNDERS:
            code = f"{_ROUNDERS[str(dtype)]}({code})"
        kind = "int" if name in COMPARISONS else _c_name(dtype, None)
        return LoopTerm(self, dtype, self.loops.value(kind, code), bounds)

    def _part(self, kind: str, code: str) -> str:
        """Return the name of a value that a pair is made of: of a C type, or a rest."""
        if kind != REST:
            return self.loops.value(kind, code)
        return self.loops.value("double", f"bs_finite({code})" if self.unbounded else code)

    def cast(self, term: LoopTerm, dtype: np.dtype[Any]) -> LoopTerm:
        """Return the number in another type, as numpy casts."""
        dtype = WHOLE if dtype.kind in "iu" else dtype
        if term.dtype == dtype:
            return term
        if term.value is not None:
            return self.constant(_cast_value(term.value, dtype))
        if dtype == WHOLE:
            return self._whole(term)
        code, kind = _convert(term, dtype), _c_name(dtype, None)
        if term.whole is not None and term.whole.dtype == dtype == np.float32:
            code = f"bs_whole_f({term.whole.code})"
        return LoopTerm(self, dtype, self.loops.value(kind, code), term.bounds)

    def _whole(self, term: LoopTerm) -> LoopTerm:
        if term.dtype == bool:
            return replace(term, dtype=WHOLE, bounds=(0, 1))
        low, high = term.bounds or _EVERY
        low, high = min(low, 0), max(high, 0)  # What is not a number becomes 0.
        if low >= _INT32[0] and high <= _INT32[1]:
            small = term.dtype == np.float32 and -low <= _SMALL and high <= _SMALL
            code = f"bs_small_f({term.code})" if small else f"bs_whole32((double){term.code})"
            bounds = (int(low), int(high))
            return LoopTerm(self, WHOLE, self.loops.value("int32_t", code), bounds)
        return LoopTerm(
            self, WHOLE, self.loops.value("int64_t", f"bs_whole64((double){term.code})"), (-(1 << 62), 1 << 62)
        )

    def call(self, function: str, term: LoopTerm) -> LoopTerm:
        """Return a call of a runtime function of float64, rounded once to the number's type."""
        if term.value is not None:
            maths = Fractions() if self.exact else Floats("onnx")
            return self.constant(maths.call(function, maths.constant(term.value)))
        wide = self.cast(term, REAL)
        result = LoopTerm(self, REAL, self.loops.value("double", f"bs_{function}({wide.code})"))
        return self.cast(result, term.dtype)


def _convert(term: LoopTerm, dtype: np.dtype[Any]) -> str:
    """Return C for a number converted to a float type."""
    if dtype == REAL:
        return f"(double){term.code}"
    name = _ROUNDERS.get(str(dtype))
    if not name:
        return f"(float){term.code}"
    narrow = term.dtype.kind not in "iub" and term.dtype != REAL
    return f"{name}({term.code})" if narrow else f"{name}_of_double((double){term.code})"


def _bounds(name: str, bounds: list[Any]) -> Bounds | None:
    if name in COMPARISONS or name in ("multiply", "divide", "remainder"):
        return None
    return BOUNDS[name](*bounds)


def _bounds_of(array: Tensor) -> Bounds | None:
    if not array.size:
        return None
    least, most = array.min(), array.max()
    if array.dtype != object and not (np.isfinite(float(least)) and np.isfinite(float(most))):
        return None
    return math.floor(least), math.ceil(most)


def _fits(bounds: Bounds | None) -> bool:
    return bounds is not None and bounds[0] >= _INT32[0] and bounds[1] <= _INT32[1]


def _c_name(dtype: np.dtype[Any], bounds: Bounds | None) -> str:
    if dtype.kind in "iub":
        return "int32_t" if dtype.kind == "b" or _fits(bounds) else "int64_t"
    return "double" if dtype == REAL else "float"


def _text(value: Any, dtype: np.dtype[Any]) -> str:
    """Return a C literal."""
    if dtype.kind in "iub":
        n = int(value)
        return (f"{n}" if n >= 0 else f"({n})") if abs(n) <= _INT32[1] else f"INT64_C({n})"
    x = float(value)
    if not math.isfinite(x):
        infinite = '__builtin_nan("")' if math.isnan(x) else "__builtin_inf()"
        return f"(-{infinite})" if x < 0 else infinite
    suffix = "" if dtype == REAL else "f"
    return f"({x.hex()}{suffix})" if x < 0 else f"{x.hex()}{suffix}"


def _halves(array: Tensor) -> tuple[Tensor, Tensor]:
    """Return real numbers as float64, and the rest that float64 does not hold."""
    if array.dtype != object:
        return array.astype(np.float64), np.zeros(1)
    high = array.astype(np.float64)
    return high, np.asarray(array - Fractions().constant(high)).astype(np.float64)


def _cast_value(array: Tensor, dtype: np.dtype[Any]) -> Tensor:
    return array.astype(np.float64).astype(dtype) if array.dtype == object else array.astype(dtype)


def _fold(name: str, values: list[Any], exact: bool) -> Tensor:
    with np.errstate(all="ignore"):
        if exact and any(v.dtype in (object, np.float64) for v in values):
            values = [v if v.dtype == bool else Fractions().constant(v) for v in values]
        function: Callable[..., Any] = half_even if name == "rint" else getattr(np, name)
        return np.asarray(function(*values))
