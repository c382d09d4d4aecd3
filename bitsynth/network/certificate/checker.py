"""Check the certificate of a compiled network: `python NAME_check.py [NAME.certificate.json]`. It needs numpy alone.

Exit code 0: all that is claimed holds. 1: something does not. 2: the file is no certificate that can be read.

A certificate describes a list of steps that C runs one after another. A step reads buffers, memory with the elements
of an edge of the network, and writes others. For most steps it *claims* how C makes each result, a formula with all
its numbers, and has the *chain*: the operations of the network that give this result, in the order and arithmetic of
the network's reference. `check` verifies, in this order:

1. `check_digest`, `check_files`: the certificate and the files beside it are those that were written.
2. `check_ranges`: each edge has a range, and that of an input is the range of the type, or the codes, it is given in.
3. `check_order`: each step reads what was written before it, and nothing is written twice.
4. `check_buffers`: buffers have room for their edge's elements; what shares memory by another name has the same
   elements; `check_arena`: no two buffers that are in use at one step overlap.
5. `prove`, for each step with claims: C's formula gives what the chain gives, for all integers that the step can read.

The file says nothing of the C text itself, as that needs the compiler's sources: `bitsynth verify` compares it.

How `prove` covers millions of integers with few evaluations. A layer's sums lie in a range that the weights and the
range of the activations give. Let g be C's formula and f the chain, of one channel, as functions of the sum. Both are
monotonic: g because it counts thresholds or rounds a line, f because each of its operations is, in a direction that is
followed from the sum to the result (`Bounded.rises`). So the sums fall into intervals on which g is constant. If f = g
at both ends of such an interval, then f, which lies between its values at the ends, is the same constant inside. For
thresholds 3 and 7 on sums from 0 to 9 the ends are 0, 3, 4, 7, 8 and 9 (`find_deciding_sums`). Where g is the sum
itself, f must be a straight line (`StepChain.is_line`), and two points decide. Where g is a table or may change
direction, all sums are evaluated, and nothing is assumed of f.

Numbers of the reference "exact" are real numbers. They are evaluated in float64, with a bound on the distance to the
real number (`Bounded.off`). Where the bound leaves open how a number is rounded, it is evaluated again in fractions.
Numbers of other references are evaluated in their own floats, operation by operation.

What is assumed: that numpy's float32 and float64 are those of IEEE 754, rounded to nearest even, and that its sigmoid,
tanh and erf are off by 2^-48 at most (`apply_curve`).

Arrays have axes (channels, points): a row for each channel, or one row for all, and a column for each integer that is
looked at. AssertionError means that a claim is false; every other exception, that the certificate is malformed.
"""

import base64
import hashlib
import json
import math
import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT = 2
MAX_POINTS = 1 << 29
"""Evaluated operations at most, so that a forged certificate cannot keep the checker busy for hours."""
MAX_FRACTIONS = MAX_POINTS >> 4
MAX_CURVE_FRACTIONS = 1 << 20
"""Fractions make a curve no more exact but at 0: many open points are not decided by them, and take minutes."""
LOST = 2.0**-51
"""Four times what an operation of float64 loses, relative to its result."""
WHOLE = 1 << 53
"""float64 holds all integers up to this one."""
INT32 = 1 << 31
LAST_PLACE = 0x7F7FFFFF
"""The place of the greatest finite float32 in their order, counted from 0: its bits, as an integer."""
PLACES = (-LAST_PLACE, LAST_PLACE)
FIXED_SHIFT = 23
"""Bits that lines of integers are shifted to the right by."""
EPSILONS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


def require(holds: Any, what: str) -> None:
    """Raise AssertionError, which says `what` is wrong, unless `holds`; of a list or array, unless all of it does."""
    if not all(np.all(part) for part in holds) if isinstance(holds, list) else not np.all(holds):
        raise AssertionError(what)


# 1. Decode: numbers, arrays and columns of the JSON text.


def whole(number: Any) -> int:
    """Return an integer of the file; TypeError for anything else, as floats, which compare equal to integers."""
    if type(number) is not int:
        raise TypeError(f"{number!r} is no integer")
    return number


def array(given: Any) -> Any:
    """Return an array: an integer as an array without axes, or the numbers that an object has in base64.

    Such an object has a `shape` and either a `type`, of little-endian numbers one after another, or `bits`: codes of 1,
    2, 4 or 8 bits packed into bytes, the first lowest, which stand for low + step * code. For example
    {"bits": 2, "low": -1, "step": 1, "shape": [3], "data": "JA=="} has the byte 0x24, the codes 0, 1, 2: the array
    [-1, 0, 1]. Integers beyond 2^53 become 2^53: no range, weight or threshold of C is that great.
    """
    if not isinstance(given, dict):
        return np.asarray(whole(given), np.int64).clip(-WHOLE, WHOLE)
    data, shape = base64.b64decode(given["data"], validate=True), [whole(n) for n in given["shape"]]
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count > 8 * max(1, len(data)):
        raise ValueError(f"{len(data)} bytes hold no array of shape {shape}")
    if "type" in given:
        numbers = np.frombuffer(data, given["type"]).reshape(shape)
        return numbers if numbers.dtype.kind == "f" else numbers.astype(np.int64).clip(-WHOLE, WHOLE)
    bits, low, step = whole(given["bits"]), whole(given["low"]), whole(given["step"])
    if bits not in (1, 2, 4, 8) or max(abs(low), abs(step)) > WHOLE or len(data) != -(-count * bits // 8):
        raise ValueError(f"{len(data)} bytes hold no {count} codes of {bits} bits")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (np.frombuffer(data, np.uint8)[:, None] >> shifts & (1 << bits) - 1).ravel()[:count]
    return (low + step * codes.astype(np.int64)).clip(-WHOLE, WHOLE).reshape(shape)


def column(given: Any) -> Any:
    """Return numbers (channels, 1), a number a channel, or (1, 1), one for all channels."""
    return array(given).reshape(-1, 1)


def ends_of(edge: dict[str, Any], *, inner: bool = False) -> tuple[Any, Any]:
    """Return the least and the greatest integer of an edge, each (channels, 1), or (1, 1) for all channels.

    The edge has arrays that broadcast to its shape. They are by channel if they differ along axis 1 alone. Of others
    the widest range that an element has is taken for what is read; the `inner` one, which all elements have in common,
    for what is written: 0 to 9 and 2 to 5 are 0 to 9 to read, 2 to 5 to write.
    """
    ends = [array(edge["low"]), array(edge["high"])]
    along = [is_by_channel(x, edge) for x in ends]
    if not all(along) and inner:
        return ends[0].max().reshape(1, 1), ends[1].min().reshape(1, 1)
    if not all(along):
        return ends[0].min().reshape(1, 1), ends[1].max().reshape(1, 1)
    low, high = np.broadcast_arrays(*(x.reshape(-1, 1) for x in ends))
    return low, high


def is_by_channel(numbers: Any, edge: dict[str, Any]) -> bool:
    """Return whether numbers that broadcast to the shape of an edge are one for all, or differ along axis 1 alone."""
    rank = len(edge["shape"])
    return bool(numbers.size == 1 or (numbers.ndim >= rank - 1 > 0 and numbers.shape[1 - rank] == numbers.size))


def decode_claim(claim: dict[str, Any]) -> dict[str, Any]:
    """Return a claim with its arrays: columns, but for those with several numbers a channel."""
    tables = ("table", "values")
    arrays = {k: array(x) if k in tables else column(x) for k, x in claim.items() if isinstance(x, dict)}
    return claim | arrays


# 2. Evaluate a chain.


class Bounded(NamedTuple):
    """The value of one operation of a chain, for all sums that are examined.

    Attributes:
        numbers: (channels, points), float64 or the floats of the reference, or of dtype object `Fraction`.
        rises: How numbers change as the sum grows, over the whole range of sums: 1 they never fall, -1 they never
            rise, 0 they are constant, nan if none of these is known.
        off: A bound on the distance between `numbers` and the real numbers; nan where there is none.
    """

    numbers: Any
    rises: Any = 0
    off: Any = 0


fractions = np.frompyfunc(lambda x: Fraction(x) if math.isfinite(x) else x, 1, 1)
"""Make float64 numbers the fractions that they are; limits of max and min may be infinite."""
JOINED = {"add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum}
AFFINE = {"add", "sub", "mul", "div"}
"""Operations that leave a straight line of sums straight, if their second operand is a constant."""
CURVES: dict[str, Any] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x.clip(-700))),
    "tanh": np.tanh,
    "erf": np.frompyfunc(math.erf, 1, 1),
}
"""Functions that rise by less than 8/7 of what their argument rises by."""
ROUNDED = {"floor": np.floor, "ceil": np.ceil, "round": np.rint}


def _on_fractions(step: Any) -> Any:
    """Return a function of arrays of Fraction that rounds; nan, of which nothing is known, stays."""
    return np.frompyfunc(lambda x: step(x) if isinstance(x, Fraction) or math.isfinite(x) else x, 1, 1)


ROUNDED_FRACTIONS = {
    "floor": _on_fractions(math.floor),
    "ceil": _on_fractions(math.ceil),
    "round": _on_fractions(round),
}


def combine(name: str, a: Bounded, b: Bounded, exact: bool, lost: float) -> Bounded:
    """Return a sum, a difference, the greater or the lesser number of two values.

    Its direction is that of both values, or of the one that is not constant; if they differ it is not known. Sums of
    whole numbers below 2^53 lose nothing. The greater of two numbers is exact where it is the same for all real numbers
    within the bounds, as max(-3 +- 1, 0) is 0.
    """
    merge = JOINED[name]
    numbers, b_rises = merge(a.numbers, b.numbers), -b.rises if name == "sub" else b.rises
    rises = np.where(a.rises == 0, b_rises, np.where((b_rises == 0) | (a.rises == b_rises), a.rises, np.nan))
    if not exact:
        return Bounded(numbers, rises)
    off = a.off + b.off
    if name in ("max", "min"):
        least, most = (merge(a.numbers + sign * a.off, b.numbers + sign * b.off) for sign in (-1, 1))
        return Bounded(numbers, rises, off * (least != most))
    is_whole = (off == 0) & (a.numbers % 1 == 0) & (b.numbers % 1 == 0) & (abs(numbers) < WHOLE)
    return Bounded(numbers, rises, off + lost * abs(numbers) * ~is_whole)


def scale(name: str, a: Bounded, b: Bounded, exact: bool, lost: float) -> Bounded:
    """Return a product or a quotient.

    Its direction is known where the second value is a constant whose sign is: x * -2 falls where x rises. A quotient of
    |b| less its bound may be off by more than any number: its bound is infinite or nan then.
    """
    numbers = a.numbers * b.numbers if name == "mul" else a.numbers / b.numbers
    least, sign = abs(b.numbers) - b.off, np.sign(b.numbers).astype(float)
    has_sign = (b.rises == 0) & ((b.off == 0) | (least > 0))
    rises = np.where(has_sign, a.rises * sign, np.nan)
    if not exact:
        return Bounded(numbers, rises)
    if name == "mul":
        off = abs(a.numbers) * b.off + (abs(b.numbers) + b.off) * a.off
    else:
        off = (a.off + abs(numbers) * b.off) / least.clip(0)
    if lost:  # with what a number too small for float64's usual precision loses
        off = off + lost * (abs(numbers) + 2.0**-900 * (a.numbers != 0) * (b.numbers != 0))
    return Bounded(numbers, rises, off)


def take_root(a: Bounded, exact: bool, lost: float) -> Bounded:
    """Return square roots. As fractions they have 50 bits, and a bound unless they are exact."""
    if not exact:
        return Bounded(np.sqrt(a.numbers), a.rises)
    numbers = np.sqrt(a.numbers) if lost else fractions(np.sqrt(a.numbers.astype(float)))
    rounding = lost or Fraction(LOST) * (numbers**2 != a.numbers)
    return Bounded(numbers, a.rises, a.off / np.where(a.off == 0, 1, numbers) + numbers * rounding)


def apply_curve(name: str, a: Bounded, lost: float) -> Bounded:
    """Return sigmoid, tanh or erf in float64, which is assumed to be off by 8 * LOST = 2^-48 at most; exact at 0.

    Their slope is below 8 / 7, and they lie between -1 and 1, so that two of their numbers are 2 apart at most.
    """
    floats = CURVES[name](np.asarray(a.numbers, float)).astype(float)
    off = np.minimum(a.off + a.off / 7, 2) + 8 * (lost or Fraction(LOST))
    at_zero = (a.numbers == 0) & (a.off == 0)
    return Bounded(floats if lost else fractions(floats), a.rises, np.where(at_zero, 0 * a.off, off))


def apply_step(name: str, a: Bounded, levels: Any, exact: bool, lost: float) -> Bounded:
    """Return whole numbers: rounded down, up or to nearest even, or how many of a channel's levels are reached.

    They are exact where all real numbers within the bound give the same one, and not known elsewhere: 2.4 +- 0.01 is
    2 to nearest, 2.5 +- 0.01 is not known.
    """

    def step(x: Any) -> Any:
        if name == "count":  # levels (channels, how many) against numbers (channels, points)
            return sum(x >= level for level in levels.T[..., None])
        if x.dtype == object:
            return ROUNDED_FRACTIONS[name](x)
        return ROUNDED[name](x)

    if not exact:
        return Bounded(step(a.numbers), a.rises)
    off = a.off + lost * (1 + abs(a.numbers)) if lost else a.off
    least, most = step(a.numbers - off), step(a.numbers + off)
    return Bounded(most, a.rises, np.where((least == most) & (off < np.inf), 0 * least, np.nan))


def evaluate(
    chain: list[Any], start: dict[str, Any], exact: bool, levels: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the `Bounded` of every name in a chain, evaluated in order from those that are there at the `start`.

    Args:
        chain: Operations: {"op": what it does, "of": names of one or two values, "is": the name of its result}.
        start: The sums, "sum", what else is read, and constants, by name: (numbers, rises, off) each.
        exact: Whether numbers are real numbers; else each operation is rounded in the type its operands have.
        levels: Constants (channels, levels) by name, of which "count" says how many are reached.

    Raises:
        AssertionError: A name is there already, so that which value it stands for would depend on the order; or a
            fraction that is not known exactly is beyond floats.
        KeyError: There is no such name or operation.
    """
    values = {name: Bounded(*value) for name, value in start.items()}
    lost = LOST if exact and values["sum"].numbers.dtype != object else 0
    for op in chain:
        require(op["is"] not in values, f"two values of a chain are called {op['is']}")
        with np.errstate(all="ignore"):  # what leaves floats is infinite or nan, and no code
            try:
                values[op["is"]] = operate(op, values, (levels or {}).get(op["of"][-1]), exact, lost)
            except OverflowError:
                raise AssertionError(f"{op['is']} of a chain is beyond floats") from None
    return values


def operate(op: dict[str, Any], values: dict[str, Bounded], levels: Any, exact: bool, lost: float) -> Bounded:
    """Return the value of one operation; arguments are those of `evaluate`, and what an operation loses.

    In floats, which may be infinite, operations may turn back where those of real numbers do not: 0 * inf and inf - inf
    are nan, which "count" takes for less than each level, and -1 / 0 and 1 / 0 lie far apart. A direction is known only
    where none of this can be between two sums at both of which it is known: a factor or divisor is finite, a divisor
    not 0, and of two summands one is a finite constant, or both are finite.
    """
    made = _operate_on_finite(op, values, levels, exact, lost)
    if exact:
        return made
    name, a, b = op["op"], values[op["of"][0]], values[op["of"][-1]]
    is_finite, is_known = [np.isfinite(x.numbers) for x in (a, b)], ~np.isnan(made.numbers)
    if name in ("mul", "div"):
        is_known = is_known & is_finite[1] & ((name == "mul") | (b.numbers != 0))
    if name in ("add", "sub"):
        is_known = is_known & ((is_finite[0] | (b.rises == 0)) & is_finite[1] | is_finite[0] & (a.rises == 0))
    return made._replace(rises=np.where(is_known, made.rises, np.nan))


def _operate_on_finite(
    op: dict[str, Any], values: dict[str, Bounded], levels: Any, exact: bool, lost: float
) -> Bounded:
    """Return the value of one operation, its direction as it is where all numbers are finite."""
    name, a, b = op["op"], values[op["of"][0]], values[op["of"][-1]]
    if name in JOINED:
        return combine(name, a, b, exact, lost)
    if name in AFFINE:
        return scale(name, a, b, exact, lost)
    if name == "root":
        return take_root(a, exact, lost)
    if name in CURVES and exact:
        return apply_curve(name, a, lost)
    if name == "type":
        return a if exact else Bounded(a.numbers.astype(f"<f{whole(op['bytes'])}"), a.rises)
    return apply_step(name, a, levels, exact, lost)


class StepChain(NamedTuple):
    """The chain of a step, and what it has besides sums.

    Attributes:
        ops: Its operations.
        exact: Whether the reference is "exact".
        constants: Numbers (channels, how many) or (1, how many) by name: the step's own, and scale and zero point of
            each edge that it reads, called scale0, zero0, scale1, zero1. Only those that "count" has several columns.
    """

    ops: list[Any]
    exact: bool
    constants: dict[str, Any]

    def is_line(self, sums: Any, other: Any) -> bool:
        """Return whether the chain is a straight line between `sums`: where it is right at two, it is right between.

        Other references round each operation, which bends lines, but for sums of whole numbers below 2^53, at both ends
        and so between them.
        """
        names = {op["op"] for op in self.ops}
        if self.exact or not names:
            return names <= AFFINE
        values = self.values(sums, other)
        used = [values[name].numbers for op in self.ops for name in (*op["of"], op["is"])]
        return names <= {"add", "sub"} and all(np.all((x % 1 == 0) & (abs(x) < WHOLE)) for x in used)

    def values(self, sums: Any, other: Any) -> dict[str, Bounded]:
        """Return all values by name for `sums` (channels, points) and an integer of a second tensor (1, 1)."""
        start = {k: Bounded(x.reshape(-1, 1)) for k, x in self.constants.items()}
        start |= {"sum": Bounded(sums, 1.0), "other": Bounded(other)}
        return evaluate(self.ops, start, self.exact, self.constants)

    def at(self, sums: Any, other: Any, name: str) -> Bounded:
        """Return the value called `name`; arguments are those of `values`."""
        return self.values(sums, other)[name]

    def agrees(self, sums: Any, other: Any, name: str, wanted: Any) -> tuple[Any, Any]:
        """Return where a value is what is `wanted`, and where its direction is not known, both (channels, points).

        Points that float64 leaves open are evaluated in fractions, each as a channel of its own with one sum. For
        example 0.1 * 25 = 2.5 is a tie to "round": float64 gives 2.5 +- 1e-15, which may be 2 or 3; fractions decide.
        """
        made, rises, off = self.at(sums, other, name)
        made, wanted, is_open = np.broadcast_arrays(made, wanted, off != 0)
        alike = (made == wanted) & ~is_open
        rows, points = is_open.nonzero()
        if rows.size:
            has_curve = not {op["op"] for op in self.ops}.isdisjoint(CURVES)
            most = MAX_CURVE_FRACTIONS if has_curve else MAX_FRACTIONS
            require(rows.size * (1 + len(self.ops)) < most, "there is too much to check in fractions")
            real = self._replace(constants={k: fractions(x[rows % len(x)]) for k, x in self.constants.items()})
            found = real.at(fractions(sums[rows % len(sums), points])[:, None], fractions(other), name)
            alike[is_open] = ((found.numbers == wanted[is_open][:, None]) & (found.off == 0))[:, 0]
        return alike, np.isnan(rises)


# 3. Evaluate C's formula.


def evaluate_formula(claim: dict[str, Any], sums: Any, element: int) -> Any:
    """Return the codes or integers that C makes of sums (channels, points) and the `element` of a second tensor, or 0.

    By what the claim has:
        table: An entry for each sum, or for each pair of a sum and an element.
        thresholds: How many of a channel's thresholds lie below the sum, or above it where the channel is falling.
        sums: The sum itself.
        lines: (x * m + k) >> FIXED_SHIFT in int32, x kept between two ends; once, or twice one after the other.
        rescale: scale * sum + bias in floats, rounded to nearest even, between two codes.
        gate: The same with a factor before it is rounded: a second line of the same value, between 0 and 1.
        curve: scale * sum + bias in floats, rounded down, picks a row of a table of two columns; the second one if the
            number is at least what `turns` has for that row.

    All but tables add factor * (element - of_zero) first. AssertionError if anything leaves int32.
    """
    by = claim["by"]
    if by == "table":
        require(whole(claim["apart"]) > 0, "entries of a table are not apart")
        entries = (sums[0] - whole(claim["first"])) // claim["apart"] * whole(claim["width"]) + element
        return claim["table"][:, np.uint64(entries)]  # an entry below 0 is beyond every table
    more = np.asarray(claim["factor"] * float(element - whole(claim["of_zero"])))
    require((abs(sums + 0.5) < INT32) & (abs(sums + more + 0.5) < INT32), "sums leave int32")
    if by in ("rescale", "gate", "curve"):
        return _evaluate_in_floats(claim, sums, more)
    sums = sums + more
    if by == "lines":
        for line in claim["values"]:
            low, high, factor, summand = (column(x) for x in line)
            product = sums.clip(low, high) * 1.0 * factor + summand
            require(abs(product + 0.5) < INT32, "products leave int32")
            sums = product // (1 << FIXED_SHIFT)
        return sums
    if by == "thresholds":
        above = [np.where(claim["rising"], sums > t, sums < t) for t in np.array(claim["values"]).T[..., None]]
        return sum(above, np.zeros_like(sums))
    if by != "sums":
        raise KeyError(by)
    return sums


def _evaluate_in_floats(claim: dict[str, Any], sums: Any, more: Any) -> Any:
    """Return codes of a formula in float32 or float64, the type of the claim's scale, each operation rounded in it."""
    real, by = claim["scale"].dtype, claim["by"]
    require(np.isfinite(claim["scale"]) & np.isfinite(claim["bias"]), "a formula has factors that are not finite")
    value = sums.astype(real) * claim["scale"] + claim["bias"] + more.astype(real)
    if by == "curve":
        place = value.clip(0, len(claim["turns"]) - 1)
        cell = place.astype(int)
        return claim["table"][cell, (place >= claim["turns"][cell, 0]) * 1]
    if by == "gate":
        value = value * (value * claim["gate"][0] + claim["gate"][1]).clip(0, 1)
    zero = whole(claim["zero"])
    low, high = whole(claim["low"]) - zero, whole(claim["high"]) - zero
    return np.rint(value.clip(low, high)).astype(int) + zero


def find_deciding_sums(claim: dict[str, Any], low: Any, high: Any, grid: int, element: int) -> Any:
    """Return sums (channels, points) from `low` to `high` that decide whether C's formula is the chain.

    Of a formula that steps, these are both ends of each interval on which it is constant: for each level between its
    first and its last code, the first sum that reaches it, found by bisection, and the sum before that. Of
    "sums", which is a straight line, both ends. Of formulas that may change direction all sums, or every `grid`-th if
    there are no others.
    """
    by = claim["by"]
    if by == "sums":
        return np.c_[low, high]
    if by in ("table", "gate", "curve", "numbers"):
        require(int(high.max()) - int(low.min()) < MAX_POINTS, "there is too much to check")
        return np.arange(low.min(), high.max() + 1, grid)[None]
    start, end, low, high = np.broadcast_arrays(
        evaluate_formula(claim, low, element), evaluate_formula(claim, high, element), low, high
    )
    a, b, levels = np.broadcast_arrays(low, high, np.arange(1, 1 + abs(end - start).max())[None])
    while (a < b).any():
        middle = (a + b) >> 1
        reached = np.sign(end - start) * (evaluate_formula(claim, middle, element) - start) >= levels
        a, b = np.where(reached, a, np.minimum(middle + 1, b)), np.where(reached, middle, b)
    return np.hstack([low, high, np.maximum(a - 1, low), a])


# 4. The sums that a step can have.


class SumRange(NamedTuple):
    """The integers that a step's formula is given.

    Attributes:
        low, high: The least and the greatest (channels, 1), or (1, 1).
        grid: How far apart they are at least.
    """

    low: Any
    high: Any
    grid: int


_OF_ELEMENTS = {"bias", "low", "high", "rows", "places"}
_OF_PRODUCTS = {"weights", "padded", "reads", "bias", "geometry", "each", "scale", "low", "high"}
"""The keys that may describe sums: of elements of an input, and of products."""


def bound_sums(step: dict[str, Any], buffer: dict[str, Any], edge: dict[str, Any]) -> SumRange:
    """Return the range of a step's sums: of products with weights, or of elements of the edge if it has no weights.

    For example weights [2, -1] on activations from 0 to 3 give sums from -3 to 6. They must be on one scale: where
    several inputs meet in a sum, the edge has one scale. Padding is a 0 of the activations.
    """
    of, (apart, first) = step["sums"], buffer["operand"]
    low, high = ends_of(edge)
    grid, start = apart, first
    known = _OF_PRODUCTS if "weights" in of else _OF_ELEMENTS
    require({*of} <= known, f"it says {', '.join(sorted({*of} - known))} of sums, which has no meaning")
    if "weights" in of:
        weights, zero = array(of["weights"]).astype(float), edge["zero"]  # (groups, channels, inputs, window)
        require(type(zero) is int, "codes have several zero points, or none that is whole")
        groups, channels, inputs, window = weights.shape
        require(weights % 1 == 0, "weights are not whole")
        require(array(edge["scale"]).size == 1 or channels * inputs == 1, "codes mean other integers")
        require(of["reads"] == [apart, first - zero], "codes mean other integers")
        ends = [spread_over_inputs(x, edge, groups * inputs, first) - zero for x in (low, high)]
        if of["padded"]:
            ends = [np.minimum(ends[0], 0), np.maximum(ends[1], 0)]
        products = [weights * x.reshape(groups, 1, inputs, 1) for x in ends]
        require(np.abs(products).sum() < WHOLE, "sums leave int64")
        low, high = (f(*products).sum((2, 3)).reshape(-1, 1).astype(int) for f in (np.minimum, np.maximum))
        is_of_codes = np.all(weights == 1) and not of["padded"]
        grid, start = (apart, (first - zero) * inputs * window) if is_of_codes else (1, 0)
    else:
        has_places = "places" in of
        is_float = "scale" not in edge and (buffer["role"], buffer["type"], edge["type"]) == ("input", *["float32"] * 2)
        require(not has_places or is_float, "places are those of the caller's float32 numbers alone")
    if "weights" not in of and "rows" in of:
        require([array(edge.get(k, 0)).size == 1 for k in ("scale", "zero")], "channels it reads are on several scales")
        require(
            [0 <= whole(row) < len(low) for row in of["rows"]], f"it reads one of {len(low)} channels by another number"
        )
        low, high = low[of["rows"]], high[of["rows"]]
    require([np.all(array(of[k]) == x[:, 0]) for k, x in (("low", low), ("high", high)) if k in of], "ranges differ")
    bias = column(of["bias"])
    require("weights" in of or not bias.any(), "elements have no bias")
    low, high = low + bias, high + bias
    require(low.size > 0, "it has no sums")
    return SumRange(low, high, grid if np.all((start + bias - low.min()) % grid == 0) else 1)


def spread_over_inputs(ends: Any, edge: dict[str, Any], inputs: int, idle: int) -> Any:
    """Return an end of a range for each input of a product, from one for all or one a channel (channels, 1).

    A product of a whole image reads it pixel by pixel: channel c of each is input c, c + stride, ...; in packed words
    the stride is a multiple of 64, and inputs between are `idle`, code 0, as they are of no channel.
    """
    if ends.size == 1:
        return np.full(inputs, ends[0, 0])
    if ends.size == inputs:
        return ends[:, 0]
    pixels = math.prod(edge["shape"][2:])
    require(inputs % pixels == 0 and inputs // pixels >= ends.size, "ranges of channels fit no inputs")
    between = inputs // pixels - ends.size
    return np.tile(np.pad(ends[:, 0], (0, between), constant_values=idle), pixels)


def check_shapes(step: dict[str, Any], edges: list[Any]) -> int:
    """Return how many channels a step's results have, if weights, window, image and results fit each other.

    A layer (groups, channels, inputs, window) reads all of its image's channels, and gives a result for each channel
    and place of the window. Sums with `each` are those of every channel by itself.
    """
    of, reads = step["sums"], len(step["inputs"])
    given, made = edges[0]["shape"], [edge["shape"] for edge in edges[reads:]]
    sizes = [math.prod(shape) for shape in made]
    channels = {shape[1] if len(shape) > 1 else 1 for shape in made}
    require(len(set(sizes)) == len(channels) == 1, "results differ in shape")
    others = [math.prod(edge["shape"]) for edge in edges[1:reads]]
    require([n == sizes[0] for n in others], "a second tensor has another shape than results")
    if "weights" not in of:
        if step["chain"]:
            require(math.prod(given) == sizes[0], "results have another shape than what is read")
        return int(channels.pop())
    groups, outputs, inputs, window = array(of["weights"]).shape
    g, (batch, height, width) = of["geometry"], of["geometry"]["image"]
    require(min(groups, outputs, inputs, window) > 0, "a layer has no weights")
    require(window == g["kernel_h"] * g["kernel_w"], "weights are of another window")
    require(not of.get("each") or groups * outputs * inputs == 1, "weights are not those of every channel by itself")
    every, read = (given[1], given[1]) if of.get("each") else (groups * outputs, groups * inputs)
    require(every in channels, "weights are of other channels than results")
    padding = (-given[1] % 64) * math.prod(given[2:]) if height == width == 1 and len(given) > 2 else 0
    require(
        batch * height * width * read in (math.prod(given), math.prod(given) + batch * padding),
        "it reads another image",
    )
    places = [
        (size + g[f"pad_{before}"] + g[f"pad_{after}"] - g[f"dilation_{way}"] * (g[f"kernel_{way}"] - 1) - 1)
        // g[f"stride_{way}"]
        + 1
        for way, size, before, after in (("h", height, "top", "bottom"), ("w", width, "left", "right"))
    ]
    require(batch * math.prod(places) * every == sizes[0], "results are not those of the window")
    require(
        of["padded"] == any(g[f"pad_{side}"] for side in ("top", "left", "bottom", "right")),
        "padding is not that of the window",
    )
    return int(every)


# 5. Prove a step.


class Task(NamedTuple):
    """The facts that are proved of a step.

    Attributes:
        chain: What the network makes of sums.
        claims: How C makes each result, arrays decoded.
        sums: The sums that there may be.
        other: The least and the greatest integer of a second tensor, (channels, 1) or (1, 1); 0 if there is none.
        codes: How far apart its integers are, and which one code 0 stands for.
    """

    chain: StepChain
    claims: list[dict[str, Any]]
    sums: SumRange
    other: tuple[Any, Any]
    codes: tuple[int, int]


def make_chain(step: dict[str, Any], edges: list[Any], exact: bool) -> StepChain:
    """Return a step's chain with its constants, all finite but for limits that max and min keep to."""
    ops, grids = step["chain"], {}
    for i, edge in enumerate(edges[: len(step["inputs"])]):
        for k in ("scale", "zero"):
            given = array(edge.get(k, 1))
            require(is_by_channel(given, edge), "scales or zero points differ along other axes than channels")
            grids[f"{k}{i}"] = given.reshape(-1, 1) * 1.0
    names = {*step["constants"], *grids, "sum", "other"}
    require(len(names) == len(step["constants"]) + len(grids) + 2, "a constant has the name of another value")
    constants: dict[str, Any] = {k: np.atleast_2d(array(x) * 1.0) for k, x in step["constants"].items()} | grids
    constants = {k: x.astype(float) for k, x in constants.items()} if exact else constants
    limits, others = (
        {name for op in ops if (op["op"] in ("max", "min")) == is_limit for name in op["of"]}
        for is_limit in (True, False)
    )
    for name, x in constants.items():
        finite = np.isfinite(x) | (name in limits - others) & ~np.isnan(x)
        require(finite, f"the constant {name} is not finite")
    return StepChain(ops, exact, constants)


def make_task(step: dict[str, Any], buffers: list[Any], edges: list[Any], exact: bool) -> Task:
    """Return what is to be proved of a step, if all of its arrays have one row for all channels or one for each.

    Arguments are those of `prove`. Nothing is evaluated. Only levels, which "count", have columns in a chain; rows of a
    curve's table are cells.
    """
    reads, claims = len(step["inputs"]), [decode_claim(claim) for claim in step["claims"]]
    require(0 < reads < 3, f"it reads {reads} buffers; want one or two")
    sums, channels = bound_sums(step, buffers[0], edges[0]), check_shapes(step, edges)
    several = {1, channels, *edges[0]["shape"][1:2]}
    require(len(sums.low) in several and len(column(step["sums"]["bias"])) in several, "sums are of other channels")
    chain, counted = make_chain(step, edges, exact), {op["of"][-1] for op in step["chain"] if op["op"] == "count"}
    for name, x in chain.constants.items():
        require(x.size and (len(x) if name in counted else x.size) in several, f"{name} is of other channels")
    for claim in claims:
        own = [x for line in claim["values"] for x in map(column, line)] if claim["by"] == "lines" else []
        cells = ("gate", "table", "turns") if claim["by"] == "curve" else ("gate",)
        own += [x for k, x in claim.items() if isinstance(x, np.ndarray) and k not in cells]
        require([len(x) in several for x in own], "a claim has numbers for other channels")
    edge, (apart, first) = (
        (edges[1], buffers[1]["operand"]) if reads > 1 else ({"shape": [], "low": 0, "high": 0}, (1, 0))
    )
    least, most = ends_of(edge)
    require(((least - first) % apart == 0) & (least <= most), "no code stands for the least integer of a second tensor")
    return Task(chain, claims, sums, (least, most), (apart, first))


def prove(step: dict[str, Any], buffers: list[Any], edges: list[Any], exact: bool) -> None:
    """Raise AssertionError unless each result of a step is what its chain gives, for all integers it can read.

    Args:
        step: A step that has claims.
        buffers: Those it reads, then those it writes, in order.
        edges: Their edges.
        exact: Whether the reference is "exact".
    """
    if [claim["by"] for claim in step["claims"]] == ["conversion"]:
        check_conversion(step, buffers, edges)
        return
    task, reads, points = make_task(step, buffers, edges, exact), len(step["inputs"]), 0
    (least, most), (apart, first), (low, high, grid) = task.other, task.codes, task.sums
    require(int(most.max()) - int(least.min()) < MAX_POINTS, "there is too much to check")
    for integer in range(least.min(), most.max() + 1, apart):
        element = (integer - first) // apart
        for claim, buffer, edge in zip(task.claims, buffers[reads:], edges[reads:], strict=True):
            at = find_deciding_sums(claim, low, high, grid, element)
            points += at.size * (1 + len(step["chain"]))
            require(points < MAX_POINTS, "there is too much to check")
            # Anything may be made of sums that a channel never has, and of integers that the second tensor never has.
            is_never = (integer < least) | (integer > most) | (at < low) | (at > high)
            if claim["is"] == "sum" and claim["by"] != "numbers":
                check_grid(step["sums"], edges[0], edge)
            shown = places_to_floats(at) if "places" in step["sums"] else at - column(step["sums"]["bias"])
            given = shown * (np.ones((1, 1)) if exact else 1.0), np.full((1, 1), float(integer))
            if claim["by"] == "numbers":
                types = {edge["type"]} if "scale" in edge else {edge["type"], "float64"}
                require(
                    buffer["role"] != "output" or buffer["type"] in types, "a result has another type than the file's"
                )
                made = compute_numbers(task.chain, claim, edge, at, given)
            else:
                made = buffer["operand"][1] + buffer["operand"][0] * evaluate_formula(claim, at, element)
                is_equal, is_open = task.chain.agrees(*given, claim["is"], made)
                # The direction matters for sums between those of `at` alone: of these formulas `at` has all sums.
                proved = is_equal & (~is_open | (claim["by"] in ("table", "gate", "curve")))
                if claim["by"] == "sums":  # of which `at` has both ends alone
                    is_line = "places" not in step["sums"] and task.chain.is_line(*given)
                    require(is_line, "the chain and C's formula differ: it is no line")
                require(is_never | proved, "the chain and C's formula differ")
            lower, upper = ends_of(edge, inner=True)
            require((lower <= made) & (made <= upper) | is_never, "results leave their range")


def check_grid(of: dict[str, Any], read: dict[str, Any], made: dict[str, Any]) -> None:
    """Raise AssertionError unless sums, or elements, that are given as they are mean the same as before.

    Elements keep scale and zero point. Sums of products have the product of both scales, and no zero point.
    """
    for k, times in (("scale", of.get("scale", 1)), ("zero", int("weights" not in of))):
        same = np.all(array(read.get(k, 0)).ravel() * array(times).ravel() == array(made.get(k, 0)).ravel())
        require(same, "elements mean something else")


def compute_numbers(
    chain: StepChain, claim: dict[str, Any], edge: dict[str, Any], at: Any, given: tuple[Any, Any]
) -> Any:
    """Return the real numbers that C computes in float64, if they are as near to the chain's as is claimed.

    An edge with a scale has integers, `at`, which the caller gets as scale * (n - zero): these are returned then.
    """
    require(chain.exact, "C may be farther off")
    if "scale" in edge and edge["type"] not in EPSILONS:  # the caller gets integers, as they are
        low, high = input_range(edge, None)
        is_whole = [np.all(array(edge["scale"]) == 1), np.all((low <= at) & (at <= high))]
        require(is_whole, "integers of a result are on a scale, or leave their type")
    numbers, _, off = chain.at(*given, claim["is"])
    along = [is_by_channel(array(edge.get(k, 1)), edge) for k in ("scale", "zero")]
    require(along, "scales or zero points differ along other axes than channels")
    own = (at - column(edge["zero"])) * column(edge["scale"]) if "scale" in edge else numbers
    require((abs(numbers - own) <= off) & (off <= claim["off"]) & (claim["off"] < np.inf), "C may be farther off")
    return at if "scale" in edge else numbers


def places_to_floats(places: Any) -> Any:
    """Return the float32 numbers at places in their order: 0 at 0, the least above it at 1, its negative at -1."""
    return abs(places).astype("<i4").view("<f4") * np.sign(places, dtype="<f4")


def check_conversion(step: dict[str, Any], buffers: list[Any], edges: list[Any]) -> None:
    """Raise AssertionError unless a step gives one edge's integers in another form.

    The caller has scale * (n - zero), rounded to the type of the file, for an integer n. Of results this is what they
    mean. Of an input C finds n again: the integer nearest to number / scale + zero. It refuses numbers that are farther
    from scale * (n - zero) than two units in the last place, and integers that are not declared.
    """
    require(len(step["inputs"]) == 1 and len(edges) == 2 and edges[0] == edges[1], "a conversion is of one edge")
    require(not step["chain"] and not step["constants"] and step["sums"]["bias"] == 0, "a conversion has no chain")
    require(step["claims"][0]["is"] == "sum", "a conversion has no chain")
    edge = edges[0]
    for buffer in buffers:
        is_of_file = buffer["role"] == "arena" or (buffer["type"], buffer["layout"]) == (edge["type"], "plain")
        require(is_of_file, "a conversion reads or gives another form than the file's")
    if buffers[0]["role"] != "input":
        require(buffers[1]["role"] == "output", "a conversion is to or from the caller's numbers")
        return
    scale, zero = column(edge["scale"]).astype(float), column(edge["zero"]).astype(float)
    low, high = ends_of(edge)
    require(int(high.max()) - int(low.min()) < MAX_POINTS >> 8, "there is too much to check")
    integers = np.arange(low.min(), high.max() + 1, whole(edge.get("step", 1)))[None]
    real = (integers - zero) * scale
    numbers = real.astype(edge["type"]).astype(float)
    found = np.rint(numbers / scale + zero)
    near = abs(numbers - real) <= abs(real) * 2 * EPSILONS[edge["type"]]
    require((found == integers) & near | (integers < low) | (integers > high), "numbers become other codes")


# 6. Files, order, memory.


def check_digest(given: dict[str, Any]) -> None:
    """Raise AssertionError unless the certificate's own digest is that of all the rest of it."""
    rest = json.dumps({**given, "digest": ""}, sort_keys=True, separators=(",", ":")).encode()
    require(given["digest"] == hashlib.sha256(rest).hexdigest(), "the certificate was changed")


def check_header(given: dict[str, Any]) -> None:
    """Raise AssertionError unless what comments of the C show are plain names, and numbers are those of a library."""
    for key in ("isa", "cpu", "reference"):
        require(re.fullmatch(r"[a-z0-9_]*", given[key]) is not None, f"{key} is {given[key]!r}, which is no name")
    require(
        given["reference"] in {"exact", "onnxruntime", "onnx", "tflite"}, f"there is no reference {given['reference']}"
    )
    require(0 < whole(given["threads"]) < INT32, f"it is for {given['threads']} threads")
    require(0 <= whole(given["arena"]["bytes"]) < WHOLE, f"its arena has {given['arena']['bytes']} bytes")
    for key in ("inputs", "outputs"):
        require(len(set(given[key])) == len(given[key]), f"one of its {key} is listed twice")


def check_files(files: dict[str, str], folder: Path) -> None:
    """Raise AssertionError unless files of these digests lie in a folder, none of them elsewhere."""
    for name, digest in files.items():
        require(Path(name).name == name and (folder / name).is_file(), f"there is no file {name}")
        require(hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, f"{name} was changed")


def check_ranges(given: dict[str, Any]) -> None:
    """Raise AssertionError unless ranges are ordered, and those of inputs are all that the caller may give.

    An input of real numbers has all finite float32. One of integers has all of its type, or the codes
    that the file was read with, of `bits` bits, which the same text of C compares each number with.
    """
    for name, edge in given["edges"].items():
        require([whole(n) >= 0 for n in edge["shape"]], f"{name} has a size below 0")
        if "low" in edge or "high" in edge:
            low, high = array(edge["low"]), array(edge["high"])
            require(low.size and high.size and (low <= high), f"the range of {name} is empty")
        if "scale" in edge:
            scale, zero, shape = array(edge["scale"]), array(edge["zero"]), tuple(edge["shape"])
            what = f"the numbers of {name} are of another shape than its elements"
            require([np.broadcast_shapes(x.shape, shape) == shape for x in (low, high, scale, zero)], what)
            require(scale.size and zero.size and np.isfinite(scale) & (scale != 0), f"{name} is on no grid")
            require(np.isfinite(zero), f"{name} is on no grid")
    for name in given["inputs"]:
        edge = given["edges"][given["buffers"][name]["edge"]]
        low, high = input_range(edge, given["reading"].get("codes"))
        require(
            [array(edge["low"]) == low, array(edge["high"]) == high], f"the range of {name} is not that of its type"
        )


def input_range(edge: dict[str, Any], codes: Any) -> tuple[int, int]:
    """Return the least and the greatest integer, or place of a float32, that an input may have.

    `codes` are those that floats were declared to be, {"bits", "encoding", "scale"}, or None.
    """
    if "scale" not in edge:
        return PLACES
    if kind := re.fullmatch(r"(u?)int(\d+)", edge["type"]):
        bits = int(kind[2])
        low, high = (0, (1 << bits) - 1) if kind[1] else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return max(low, -WHOLE), min(high, WHOLE)
    if edge["type"] == "bool":
        return 0, 1
    require(codes is not None, "an input of floats was not declared to be codes")
    half = 1 << whole(codes["bits"]) - 1
    ranges = {
        "unsigned": (0, 2 * half - 1),
        "signed": (-half, half - 1),
        "bipolar": (1 - 2 * half, 2 * half - 1),
        "ternary": (1 - half, half - 1),
        "narrow": (1 - half, half - 1),
    }
    scale = array(edge["scale"])
    require(
        scale.size > 1 or np.float32(scale) == np.float32(codes["scale"]),
        "an input is on another scale than was declared",
    )
    return ranges[codes["encoding"]]


def check_order(given: dict[str, Any]) -> dict[str, list[int]]:
    """Return the first and the last step that uses each buffer, if each is written once, before it is read.

    A buffer with an alias is the memory of another one.
    """
    buffers, kernels = given["buffers"], {kernel["name"] for kernel in given["kernels"]}
    require(bool(given["steps"] and given["outputs"]), "it has no steps")
    life = {name: [0, 0] for name in given["inputs"]}
    for place, step in enumerate(given["steps"]):
        require(bool(step["claims"]) != bool(step["unclaimed"]), f"step {place} says nothing of why it claims nothing")
        require(step["kind"] != "layer" or bool(step["kernels"]), f"step {place} is a layer without a kernel")
        for name in step["kernels"]:
            require(name in kernels, f"it does not list the kernel {name} of step {place}")
        require(step["kind"] in {"layer", "glue", "plain"}, f"step {place} is of no known kind")
        require(bool(step["outputs"]), f"step {place} writes nothing")
        for name in step["inputs"]:
            home = home_of(buffers, name)
            require(home in life, f"step {place} reads what nothing wrote")
            life[home][1] = place
        for name in step["outputs"]:
            require(home_of(buffers, name) == name and name not in life, f"step {place} writes a buffer again")
            life[name] = [place, place]
    require([home_of(buffers, name) in life for name in given["outputs"]], "nothing writes an output")
    return life


def home_of(buffers: dict[str, Any], name: str) -> str:
    """Return the buffer in whose memory a buffer lies: itself, or the one that `alias` names."""
    home = buffers[name]["alias"] or name
    require(buffers[home]["alias"] == "", f"{name} is an alias of {home}, which is an alias itself")
    return str(home)


def check_buffers(given: dict[str, Any], life: dict[str, list[int]]) -> None:
    """Raise AssertionError unless buffers have room for their elements, and aliases the elements of their memory."""
    buffers, edges = given["buffers"], given["edges"]
    for name, buffer in buffers.items():
        (apart, first), (least, most) = map(whole, buffer["operand"]), map(whole, buffer["holds"])
        edge, home = edges[buffer["edge"]], buffers[home_of(buffers, name)]
        require(buffer["role"] in {"arena", "input", "output"}, f"{name} has an unknown role {buffer['role']}")
        for role in ("input", "output"):
            is_listed = name in given[role + "s"]
            require(
                (buffer["role"] == role) == is_listed, f"{name} has the role {buffer['role']}, {role}s say otherwise"
            )
        # Nothing says how long the memory of another buffer is in use after the last step that reads it.
        require(
            buffer["role"] == "arena" or buffer["alias"] == "", f"{name} is an {buffer['role']} in memory of another"
        )
        what = f"codes of {name} are {apart} apart from {first} on: want 1 to 255 apart, from an int32 on"
        require(0 < apart < 256 and abs(first) < INT32, what)
        bits, width = whole(buffer["bits"]), bits_of(buffer["type"])
        require(buffer["layout"] in {"plain", "NHWC", "packed"}, f"{name} has an unknown layout {buffer['layout']}")
        is_packed = buffer["layout"] == "packed"
        require(
            0 < bits <= 8 and width == 64 if is_packed else bits == width,
            f"{name} has elements of {bits} bits in words of {width}",
        )
        require(whole(home["bytes"]) * 8 >= math.prod(edge["shape"]) * bits, f"{name} has too few bytes")
        if buffer["role"] == "arena" and "scale" in edge:
            least_code = -(1 << bits - 1) if buffer["type"].startswith("int") and not is_packed else 0
            is_held = least_code <= (least - first) // apart and (most - first) // apart < least_code + (1 << bits)
            require(is_held or buffer["type"].startswith("float"), f"{name} holds more than its bits")
        is_held = (array(edge.get("low", least)) >= least) & (array(edge.get("high", most)) <= most)
        require(is_held, f"{name} is too narrow for its range: its elements hold {least} to {most}")
        if buffer["alias"]:
            _check_alias(name, buffer, home, edge, edges[home["edge"]])
        else:
            require(
                buffer["life"] == life.get(name),
                f"{name} is in use from first to last step {life.get(name)}, not {buffer['life']}",
            )


def bits_of(kind: str) -> int:
    """Return the bits that an element of a type takes in memory: whole bytes."""
    digits = re.search(r"\d+$", kind)
    return max(8, int(digits[0])) if digits else 8


def _check_alias(name: str, buffer: dict[str, Any], home: dict[str, Any], edge: Any, other: Any) -> None:
    """Raise AssertionError unless memory that has two names has the same elements by both: as many, of one meaning.

    The range by the second name may be wider, as one range for all channels is. What integers stand for may change
    `through` nodes of the network, which `regrid_aliases` looks at.
    """
    what = f"{name} is of other integers"
    require([buffer[k] == home[k] for k in ("operand", "bits", "type", "holds")], what)
    require(math.prod(edge["shape"]) == math.prod(other["shape"]), what)
    require([(key in edge) == (key in other) for key in ("scale", "zero")], what)
    real = "scale" not in edge  # the range of real numbers may be unknown by the second name
    require([(key in edge) == (key in other) or (real and key not in edge) for key in ("low", "high")], what)
    if "low" in edge:
        (low, least), (high, most) = (elements_of(edge, other, buffer, home, end) for end in ("low", "high"))
        require((low <= least) & (most <= high), what)
    if "scale" in edge and "through" not in buffer:
        for key in ("scale", "zero"):
            own, its = elements_of(edge, other, buffer, home, key)
            require(own == its, what)


def elements_of(edge: Any, other: Any, buffer: Any, home: Any, key: str) -> list[Any]:
    """Return a number for each element of two edges, in the order in which they lie in memory.

    Both are one number long if all elements have the same. A layout other than "plain" has axis 1 last.
    """
    numbers = [array(edge[key]), array(other[key])]
    if all(x.size == 1 for x in numbers):
        return [x.ravel() for x in numbers]
    shapes = [edge["shape"], other["shape"]]
    every = [np.broadcast_to(x, shape) for x, shape in zip(numbers, shapes, strict=True)]
    layouts = [buffer["layout"], home["layout"]]
    lying = [
        x if how == "plain" or x.ndim < 2 else np.moveaxis(x, 1, -1) for x, how in zip(every, layouts, strict=True)
    ]
    return [x.ravel() for x in lying]


def check_arena(given: dict[str, Any]) -> None:
    """Raise AssertionError unless buffers of the arena lie in it, at multiples of 64 bytes, none on another in use.

    Two are both in use at some step if each begins before the other ends. The most bytes in use at one step are the
    least that any plan takes, `bound`.
    """
    rows = []
    for name, buffer in given["buffers"].items():
        if buffer["alias"] == "" and name not in given["inputs"] + given["outputs"]:
            size = -(-whole(buffer["bytes"]) // 64) * 64
            rows.append((*map(whole, buffer["life"]), whole(buffer["offset"]), size))
    first, last, start, size = np.array(rows, object).reshape(-1, 4).T[..., None]
    both = (first <= last.T) & (first.T <= last) & (start < (start + size).T) & (start.T < start + size)
    require(both <= np.eye(len(both), dtype=bool), "two buffers in use at one step lie in the same memory")
    is_inside = (start == abs(start) // 64 * 64) & (start + size <= whole(given["arena"]["bytes"]))
    require(is_inside, "outside of the arena")
    bound = max([0, *(size[(first <= place) & (place <= last)].sum() for place in first.ravel())])
    require(bound == given["arena"]["bound"], f"the lower bound of the arena is {bound} bytes")


def check(given: dict[str, Any], folder: Path) -> None:
    """Raise AssertionError, which says what does not hold, of a certificate whose files lie in a folder."""
    check_digest(given)
    if given["format"] != FORMAT:
        raise ValueError(f"a certificate of format {given['format']}, not {FORMAT}")
    check_header(given)
    check_files(given["files"], folder)
    check_ranges(given)
    life = check_order(given)
    check_buffers(given, life)
    check_arena(given)
    steps = {f"step {place}": step for place, step in enumerate(given["steps"])}
    for what, step in {**steps, **regrid_aliases(given["buffers"])}.items():
        if step["claims"]:
            used = [given["buffers"][name] for name in step["inputs"] + step["outputs"]]
            try:
                prove(step, used, [given["edges"][b["edge"]] for b in used], given["reference"] == "exact")
            except AssertionError as why:
                raise AssertionError(f"{what}: {why}") from None


def regrid_aliases(buffers: dict[str, Any]) -> dict[str, Any]:
    """Return aliases on another scale than their memory, by name, each as a step that makes it of that.

    The nodes of the network between them are named. If they are views and reshapes, integers have the meaning that the
    file gives them. Others have a chain and a claim that it leaves each integer as it is, or `unclaimed` says why not.
    """
    made = {}
    for name, buffer in buffers.items():
        if buffer["alias"] and "through" in buffer:
            step = {**buffer["through"], "inputs": [home_of(buffers, name)], "outputs": [name]}
            operators = {operator for _, operator in step["nodes"]}
            is_view = "view" in operators <= {"view", "reshape"}
            has_one_reason = bool(step["claims"]) + bool(step["unclaimed"]) + is_view == 1
            require(has_one_reason, f"{name} says nothing of why its integers mean something else")
            made[name] = step
    return made


def main(arguments: list[str]) -> int:
    """Check a certificate, by default that of this script's network, and say what of it was checked; an exit code."""
    own = Path(__file__)
    path = Path(arguments[0]) if arguments else own.with_name(own.name.replace("_check.py", ".certificate.json"))
    try:
        given = json.loads(path.read_bytes())
        check(given, path.parent)
        proved = sum(bool(step["claims"]) for step in given["steps"])
        left = sorted({file.name for file in path.parent.iterdir()} - {*given["files"], path.name})
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1 if isinstance(error, AssertionError) else 2
    print(f"all that is claimed holds: {proved} of {len(given['steps'])} steps, {len(given['files'])} files")
    if left:
        print(f"not of this certificate: {', '.join(left)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
