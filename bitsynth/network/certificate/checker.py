"""Check the certificate of a compiled network: `python NAME_check.py [NAME.certificate.json]`. It needs numpy alone.

Exit code 0: all that is claimed holds. 1: something does not. 2: the file is no certificate that can be read.

What a certificate has. C runs a list of `steps`. A step reads `buffers` and writes others. A buffer is memory for the
elements of an *edge* of the network: integers n, from `low` to `high`, that stand for scale * (n - zero). In memory an
integer is a code: n = first + apart * code, where `operand` is [apart, first]. For most steps the file has

* `sums`: the integers that the step starts from. A layer's are sums of products with weights, plus a bias; its weights
  are in the file, or the elements of the second buffer that it reads. Other steps start from the elements that they
  read;
* `chain`: the operations by which the network computes a result from a sum, in the arithmetic of its reference;
* `claims`: for each result the formula by which C computes it from the same sum.

Theorem. If the check succeeds, then for all inputs that the caller may give: each result of a step with claims has the
value of the chain, lies in the range of its edge, and fits its buffer; each step reads what was written before; and no
buffer is overwritten while it is in use. One function checks each claim:

    check_digest, check_files  the certificate and the files next to it are as they were written
    check_header               names and numbers of the library are possible
    check_ranges               the range of an input has all that the caller may give
    check_order                each step reads what was written before it, and nothing is written twice
    check_buffers, check_alias a buffer has room for its elements; memory by two names has the same elements
    check_arena                no two buffers in use at one step overlap
    bound_sums, check_shapes   a step's sums lie in the stated range; weights, window and results fit each other
    prove_formula              C's formula gives what the chain gives, for all integers that the step can read
    prove_numbers              C's real numbers are as near to the chain's as is claimed
    prove_conversion           the caller's numbers become the integers that they stand for, or the reverse

The file says nothing of the C text itself, because that needs the compiler's sources: `bitsynth verify` compares it.

How `prove_formula` covers millions of sums with few evaluations. Let g be C's formula and f the chain, of one channel,
as functions of the sum. Both are monotonic: g because it counts thresholds or rounds a line, f because each of its
operations is, in a direction that is followed from the sum to the result (`find_direction`). So the sums fall into
intervals on which g is constant. If f = g at both ends of such an interval, then f, which lies between its values at
the ends, is the same constant inside. For thresholds 3 and 7 on sums from 0 to 9 the ends are 0, 3, 4, 7, 8 and 9
(`find_deciding_sums`). Where g is the sum itself, f must be a straight line (`StepChain.is_line`), and two points
decide. Where g is a table or may change direction, all sums are evaluated, and nothing is assumed of f.

Numbers of the reference "exact" are real numbers. They are evaluated in float64, with a bound on the distance to the
real number (`bound_error`). Where the bound leaves open how a number is rounded, it is evaluated again in fractions.
Numbers of other references are evaluated in their own floats, operation by operation.

Two assumptions: numpy's float32 and float64 are IEEE 754's, rounded to nearest even; and its sigmoid, tanh and erf are
off by 2^-48 at most (`CURVES`).

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
TYPES = r"u?int(8|16|32|64)|float(16|32|64)|bool"
"""Of elements in memory."""
FIXED_SHIFT = 23
"""Bits that lines of integers are shifted to the right by."""
MAX_WORD, MAX_MESSAGE = 80, 400
"""Characters of a word and of a message that are printed: a forged certificate may have names of any length."""
EPSILONS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


def require(holds: Any, what: str) -> None:
    """Raise AssertionError, which says `what` is wrong, unless `holds`; of a list or array, unless all of it does."""
    if not all(np.all(part) for part in holds) if isinstance(holds, list) else not np.all(holds):
        raise AssertionError(what)


def cut_words(message: str) -> str:
    """Return a message of at most `MAX_MESSAGE` characters, whose words have at most `MAX_WORD`."""
    return re.sub(rf"(\S{{{MAX_WORD - 3}}})\S{{4,}}", r"\1...", message)[:MAX_MESSAGE]


# 1. Decode: numbers, arrays and columns of the JSON text.


def whole(number: Any) -> int:
    """Return an integer of the file; TypeError for anything else, as floats, which compare equal to integers."""
    if type(number) is not int:
        raise TypeError(f"{number!r} is no integer")
    return number


def array(encoded: Any) -> Any:
    """Return an array: an integer as an array without axes, or the numbers that an object has in base64.

    Such an object has a `shape` and either a `type`, of little-endian numbers one after another, or `bits`: codes of 1,
    2, 4 or 8 bits packed into bytes, the first lowest, which stand for low + step * code. For example
    {"bits": 2, "low": -1, "step": 1, "shape": [3], "data": "JA=="} has the byte 0x24, the codes 0, 1, 2: the array
    [-1, 0, 1]. Integers beyond 2^53 become 2^53: no range, weight or threshold of C is that great.
    """
    if not isinstance(encoded, dict):
        return np.asarray(whole(encoded), np.int64).clip(-WHOLE, WHOLE)
    if encoded.keys() not in ({"type", "shape", "data"}, {"bits", "low", "step", "shape", "data"}):
        raise ValueError(f"no array has the fields {', '.join(sorted(encoded))}")
    data = base64.b64decode(encoded["data"], validate=True)
    shape = [whole(n) for n in encoded["shape"]]
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count > 8 * max(1, len(data)):
        raise ValueError(f"{len(data)} bytes hold no array of shape {shape}")
    if "type" in encoded:
        numbers = np.frombuffer(data, encoded["type"]).reshape(shape)
        if numbers.dtype.kind not in "if":
            raise ValueError(f"type {encoded['type']} is none of integers with a sign or floats")
        return numbers if numbers.dtype.kind == "f" else numbers.astype(np.int64).clip(-WHOLE, WHOLE)
    bits, low, step = whole(encoded["bits"]), whole(encoded["low"]), whole(encoded["step"])
    if bits not in (1, 2, 4, 8) or max(abs(low), abs(step)) > WHOLE or len(data) != -(-count * bits // 8):
        raise ValueError(f"{len(data)} bytes hold no {count} codes of {bits} bits")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (np.frombuffer(data, np.uint8)[:, None] >> shifts & (1 << bits) - 1).ravel()[:count]
    return (low + step * codes.astype(np.int64)).clip(-WHOLE, WHOLE).reshape(shape)


def column(encoded: Any) -> Any:
    """Return numbers (channels, 1), a number a channel, or (1, 1), one for all channels."""
    return array(encoded).reshape(-1, 1)


def is_by_channel(numbers: Any, edge: dict[str, Any]) -> bool:
    """Return whether numbers that broadcast to the shape of an edge are one for all, or differ along axis 1 alone."""
    rank = len(edge["shape"])
    return bool(numbers.size == 1 or (numbers.ndim >= rank - 1 > 0 and numbers.shape[1 - rank] == numbers.size))


def grid_column(edge: dict[str, Any], key: str) -> Any:
    """Return the scale or the zero point of an edge, 1 if it has none, by channel: (channels, 1) or (1, 1)."""
    numbers = array(edge.get(key, 1))
    require(is_by_channel(numbers, edge), "scales or zero points differ along other axes than channels")
    return numbers.reshape(-1, 1)


def ends_of(edge: dict[str, Any], *, inner: bool = False) -> tuple[Any, Any]:
    """Return the least and the greatest integer of an edge, each (channels, 1), or (1, 1) for all channels.

    Ranges that differ along other axes than channels become one range for all. For an edge that is read this is the
    range that contains all elements' ranges. For an edge that is written it is the `inner` range, which all elements
    have in common. For example elements from 0 to 9 and from 2 to 5 are 0 to 9 to read, and 2 to 5 to write.
    """
    low, high = array(edge["low"]), array(edge["high"])
    if is_by_channel(low, edge) and is_by_channel(high, edge):
        by_channel = np.broadcast_arrays(low.reshape(-1, 1), high.reshape(-1, 1))
        return by_channel[0], by_channel[1]
    if inner:
        return low.max().reshape(1, 1), high.min().reshape(1, 1)
    return low.min().reshape(1, 1), high.max().reshape(1, 1)


# 2. The network's side: evaluate a chain of operations.


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


OF_TWO: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
AFFINE = {"add", "sub", "mul", "div"}
"""Operations that leave a straight line of sums straight, if their second operand is a constant."""
CURVES: dict[str, Any] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x.clip(-700))),
    "tanh": np.tanh,
    "erf": lambda x: np.asarray(np.frompyfunc(math.erf, 1, 1)(x), float),
}
"""Functions that rise, by less than 8/7 of what their argument rises by, and lie between -1 and 1.

In float64 they are assumed to be off by 8 * LOST = 2^-48 at most."""
ROUNDED: dict[str, Any] = {"floor": (np.floor, math.floor), "ceil": (np.ceil, math.ceil), "round": (np.rint, round)}
"""Functions that round arrays of floats, and one `Fraction`."""
fractions = np.frompyfunc(lambda x: Fraction(x) if math.isfinite(x) else x, 1, 1)
"""Make float64 numbers the fractions that they are; limits of max and min may be infinite."""


def evaluate(
    chain: list[Any], start: dict[str, Any], exact: bool, levels: dict[str, Any] | None = None
) -> dict[str, Bounded]:
    """Return the value of every name in a chain, evaluated in order from the values at the `start`.

    Args:
        chain: Operations: {"op": what it does, "of": names of one or two values, "is": the name of its result}.
        start: The sums, "sum", other values that are read, and constants, by name: (numbers, rises, off) each.
        exact: Whether numbers are real numbers; else each operation is rounded in the type its operands have.
        levels: Constants (channels, levels) by name; "count" counts how many of them are reached.

    Raises:
        AssertionError: A name is there already, so that which value it stands for would depend on the order; or a
            fraction that is not known exactly is beyond floats.
        KeyError: There is no such name or operation.
    """
    values = {name: Bounded(*value) for name, value in start.items()}
    for op in chain:
        require(op["is"] not in values, f"two values of a chain are called {op['is']}")
        a, b = values[op["of"][0]], values[op["of"][-1]]
        own_levels = (levels or {}).get(op["of"][-1])
        with np.errstate(all="ignore"):  # what leaves floats is infinite or nan, and no code
            try:
                numbers = compute(op, a.numbers, b.numbers, own_levels, exact)
                off = bound_error(op["op"], a, b, numbers, own_levels) if exact else 0
            except OverflowError:
                raise AssertionError(f"{op['is']} of a chain is beyond floats") from None
            rises = find_direction(op["op"], a, b)
            if not exact:
                rises = np.where(stays_finite(op["op"], a, b, numbers), rises, np.nan)
        values[op["is"]] = Bounded(numbers, rises, off)
    return values


def compute(op: dict[str, Any], a: Any, b: Any, levels: Any, exact: bool) -> Any:
    """Return the numbers of one operation of `a`, or of `a` and `b`; in floats of the type that these have."""
    name = op["op"]
    if name in OF_TWO:
        return OF_TWO[name](a, b)
    if name == "type":  # rounds to a type of floats, which real numbers have not
        return a if exact else a.astype(f"<f{whole(op['bytes'])}")
    if name == "root" or (name in CURVES and exact):
        function = np.sqrt if name == "root" else CURVES[name]
        return fractions(function(a.astype(float))) if a.dtype == object else function(a)
    return make_whole(name, a, levels)


def make_whole(name: str, numbers: Any, levels: Any) -> Any:
    """Return numbers rounded down, up or to nearest even, or how many of a channel's levels each of them reaches."""
    if name == "count":  # levels (channels, how many) against numbers (channels, points)
        reached = sum((numbers >= level for level in levels.T[..., None]), np.zeros(numbers.shape, int))
        return fractions(reached) if numbers.dtype == object else reached
    of_floats, of_fraction = ROUNDED[name]
    if numbers.dtype != object:
        return of_floats(numbers)
    # nan, an unknown number, stays.
    return np.frompyfunc(lambda x: of_fraction(x) if isinstance(x, Fraction) or math.isfinite(x) else x, 1, 1)(numbers)


def find_direction(name: str, a: Bounded, b: Bounded) -> Any:
    """Return how the result of an operation changes as the sum grows: 1, -1, 0 or nan, as in `Bounded.rises`.

    Sums, maxima and minima rise where both operands rise, or one rises and the other is constant; of a difference the
    second operand counts with the opposite direction. Products and quotients have a direction if the second operand is
    a constant whose sign is known: x * -2 falls where x rises. All other operations keep the order of their operand.
    """
    if name in ("add", "sub", "max", "min"):
        second = -b.rises if name == "sub" else b.rises
        is_one_way = (second == 0) | (a.rises == second)
        return np.where(a.rises == 0, second, np.where(is_one_way, a.rises, np.nan))
    if name in ("mul", "div"):
        has_sign = (b.rises == 0) & ((b.off == 0) | (abs(b.numbers) - b.off > 0))
        return np.where(has_sign, a.rises * np.sign(b.numbers).astype(float), np.nan)
    return a.rises


def stays_finite(name: str, a: Bounded, b: Bounded, numbers: Any) -> Any:
    """Return where an operation in floats has the direction of the same operation of real numbers.

    Floats may be infinite, and may change direction where real numbers do not: 0 * inf and inf - inf are nan, which
    "count" takes for less than each level, and -1 / 0 and 1 / 0 lie far apart. None of this can be between two sums at
    which a factor or divisor is finite, and a divisor not 0; or at which both summands are finite, or one is a finite
    constant.
    """
    is_number, a_is_finite, b_is_finite = ~np.isnan(numbers), np.isfinite(a.numbers), np.isfinite(b.numbers)
    if name == "mul":
        return is_number & b_is_finite
    if name == "div":
        return is_number & b_is_finite & (b.numbers != 0)
    if name in ("add", "sub"):
        both = a_is_finite & b_is_finite
        return is_number & (both | b_is_finite & (b.rises == 0) | a_is_finite & (a.rises == 0))
    return is_number


def bound_error(name: str, a: Bounded, b: Bounded, numbers: Any, levels: Any) -> Any:
    """Return a bound on the distance between the `numbers` of an operation and the real numbers.

    The operands are off by `a.off` and `b.off`. The operation itself loses `lost` of its result in float64, and nothing
    in fractions.
    """
    lost = 0 if numbers.dtype == object else LOST
    if name in OF_TWO:
        return bound_error_of_two(name, a, b, numbers, lost)
    if name == "type":
        return a.off
    if name == "root":  # fractions of roots have 50 bits, but where they are exact
        rounding = lost or Fraction(LOST) * (numbers**2 != a.numbers)
        return a.off / np.where(a.off == 0, 1, numbers) + numbers * rounding
    if name in CURVES:  # exact at 0; elsewhere as far off as `CURVES` says, and two of their numbers 2 apart at most
        off = np.minimum(a.off + a.off / 7, 2) + 8 * (lost or Fraction(LOST))
        return np.where((a.numbers == 0) & (a.off == 0), 0 * a.off, off)
    # Whole numbers are exact where all real numbers within the bound give the same one, and not known elsewhere:
    # 2.4 +- 0.01 is 2 to nearest, 2.5 +- 0.01 is not known.
    off = a.off + lost * (1 + abs(a.numbers)) if lost else a.off
    least, most = make_whole(name, a.numbers - off, levels), make_whole(name, a.numbers + off, levels)
    return np.where((least == most) & (off < np.inf), 0 * least, np.nan)


def bound_error_of_two(name: str, a: Bounded, b: Bounded, numbers: Any, lost: float) -> Any:
    """Return the bound of an operation of two operands; arguments are as in `bound_error`, with its `lost`."""
    if name in ("max", "min"):  # max(-3 +- 1, 0) is 0, whatever the first number is
        least, most = (OF_TWO[name](a.numbers + sign * a.off, b.numbers + sign * b.off) for sign in (-1, 1))
        return (a.off + b.off) * (least != most)
    if name in ("add", "sub"):  # sums of whole numbers below 2^53 lose nothing
        off = a.off + b.off
        is_whole = (off == 0) & (a.numbers % 1 == 0) & (b.numbers % 1 == 0) & (abs(numbers) < WHOLE)
        return off + lost * abs(numbers) * ~is_whole
    if name == "mul":
        off = abs(a.numbers) * b.off + (abs(b.numbers) + b.off) * a.off
    else:  # infinite or nan where the divisor may be 0
        off = (a.off + abs(numbers) * b.off) / (abs(b.numbers) - b.off).clip(0)
    underflow = 2.0**-900 * (a.numbers != 0) * (b.numbers != 0)  # of results too small for float64's usual precision
    return off + lost * (abs(numbers) + underflow) if lost else off


class StepChain(NamedTuple):
    """The chain of a step, and its values other than sums.

    Attributes:
        ops: Its operations.
        exact: Whether the reference is "exact".
        constants: Numbers (channels, how many) or (1, how many) by name: the step's own, and scale and zero point of
            each edge that it reads, called scale0, zero0, scale1, zero1. Only levels that "count" reads have several
            columns.
    """

    ops: list[Any]
    exact: bool
    constants: dict[str, Any]

    def values(self, sums: Any, other: Any) -> dict[str, Bounded]:
        """Return all values by name for `sums` (channels, points) and an integer of a second tensor (1, 1)."""
        start = {k: Bounded(x.reshape(-1, 1)) for k, x in self.constants.items()}
        start |= {"sum": Bounded(sums, 1.0), "other": Bounded(other)}
        return evaluate(self.ops, start, self.exact, self.constants)

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

    def agrees(self, sums: Any, other: Any, name: str, wanted: Any) -> tuple[Any, Any]:
        """Return where a value is what is `wanted`, and where its direction is not known, both (channels, points).

        Points that float64 leaves open are evaluated in fractions, each as a channel of its own with one sum. For
        example 0.1 * 25 = 2.5 is a tie to "round": float64 gives 2.5 +- 1e-15, which may be 2 or 3; fractions decide.
        """
        value = self.values(sums, other)[name]
        numbers, wanted, is_open = np.broadcast_arrays(value.numbers, wanted, value.off != 0)
        is_equal = (numbers == wanted) & ~is_open
        rows, points = is_open.nonzero()
        if rows.size:
            has_curve = not {op["op"] for op in self.ops}.isdisjoint(CURVES)
            most = MAX_CURVE_FRACTIONS if has_curve else MAX_FRACTIONS
            require(rows.size * (1 + len(self.ops)) < most, "there is too much to check in fractions")
            in_fractions = self._replace(constants={k: fractions(x[rows % len(x)]) for k, x in self.constants.items()})
            open_sums = fractions(sums[rows % len(sums), points])[:, None]
            real = in_fractions.values(open_sums, fractions(other))[name]
            is_equal[is_open] = ((real.numbers == wanted[is_open][:, None]) & (real.off == 0))[:, 0]
        return is_equal, np.isnan(value.rises)


# 3. C's side: evaluate a formula.


def evaluate_formula(claim: dict[str, Any], sums: Any, element: int) -> Any:
    """Return the codes or integers that C makes of sums (channels, points) and the `element` of a second tensor, or 0.

    All formulas but tables first add factor * (element - of_zero) to the sum. AssertionError if anything leaves int32.
    """
    kind = claim["by"]
    if kind == "table":
        return look_up(claim, sums, element)
    of_element = np.asarray(claim["factor"] * float(element - whole(claim["of_zero"])))
    require((abs(sums + 0.5) < INT32) & (abs(sums + of_element + 0.5) < INT32), "sums leave int32")
    if kind in ("rescale", "gate", "curve"):
        real = claim["scale"].dtype  # float32 or float64, in which each operation is rounded
        require(np.isfinite(claim["scale"]) & np.isfinite(claim["bias"]), "a formula has factors that are not finite")
        numbers = sums.astype(real) * claim["scale"] + claim["bias"] + of_element.astype(real)
        return find_cell(claim, numbers) if kind == "curve" else round_numbers(claim, numbers)
    return OF_INTEGERS[kind](claim, sums + of_element)


def look_up(claim: dict[str, Any], sums: Any, element: int) -> Any:
    """Return the entries of a table: one for each sum, or `width` of them, one for each element."""
    require(whole(claim["apart"]) > 0, "entries of a table are not apart")
    entries = (sums[0] - whole(claim["first"])) // claim["apart"] * whole(claim["width"]) + element
    return claim["table"][:, np.uint64(entries)]  # an entry below 0 is beyond every table


def count_thresholds(claim: dict[str, Any], sums: Any) -> Any:
    """Return how many of a channel's thresholds lie below the sum, or above it where the channel is falling."""
    passed = [np.where(claim["rising"], sums > t, sums < t) for t in np.array(claim["values"]).T[..., None]]
    return sum(passed, np.zeros_like(sums))


def shift_lines(claim: dict[str, Any], sums: Any) -> Any:
    """Return (x * factor + summand) >> FIXED_SHIFT in int32, x kept between two ends; for each line after the other."""
    for line in claim["values"]:
        low, high, factor, summand = (column(x) for x in line)
        product = sums.clip(low, high) * 1.0 * factor + summand
        require(abs(product + 0.5) < INT32, "products leave int32")
        sums = product // (1 << FIXED_SHIFT)
    return sums


def divide_twice(claim: dict[str, Any], sums: Any) -> Any:
    """Return sum * multiplier / 2**31, rounded half up, over 2**right, rounded half away from 0, between two codes."""
    multiplier, right = claim["multiplier"], claim["right"]
    require([0 <= multiplier, multiplier < INT32, 0 <= right, right < 32], "a multiplier or shift is out of range")
    require([multiplier % 1 == 0, right % 1 == 0], "a multiplier or shift is not whole")
    require(sums % 1 == 0, "a sum that is multiplied and shifted is no integer")
    quotient = (sums.astype(int) * multiplier + 2**30) // 2**31
    nearest = (2 * abs(quotient) + 2**right) // (2 * 2**right)
    codes: Any = np.sign(quotient) * nearest + whole(claim["zero"])
    return codes.clip(whole(claim["low"]), whole(claim["high"]))


def round_numbers(claim: dict[str, Any], numbers: Any) -> Any:
    """Return scale * sum + bias rounded to nearest even, between two codes.

    A gate first multiplies it by a second line of the same number, between 0 and 1, as hard swish does.
    """
    if claim["by"] == "gate":
        numbers = numbers * (numbers * claim["gate"][0] + claim["gate"][1]).clip(0, 1)
    zero = whole(claim["zero"])
    low, high = whole(claim["low"]) - zero, whole(claim["high"]) - zero
    return np.rint(numbers.clip(low, high)).astype(int) + zero


def find_cell(claim: dict[str, Any], numbers: Any) -> Any:
    """Return codes of a curve: scale * sum + bias, rounded down, is a row of a table with two columns.

    The second column counts where the number is at least the breakpoint that `turns` has for that row.
    """
    place = numbers.clip(0, len(claim["turns"]) - 1)
    row = place.astype(int)
    return claim["table"][row, (place >= claim["turns"][row, 0]) * 1]


OF_INTEGERS: dict[str, Any] = {
    "sums": lambda _, sums: sums,
    "thresholds": count_thresholds,
    "lines": shift_lines,
    "multiply_shift": divide_twice,
}
ALL_SUMS = ("table", "gate", "curve", "numbers")
"""Formulas that may change direction: they are evaluated at all sums."""


def find_deciding_sums(claim: dict[str, Any], low: Any, high: Any, grid: int, element: int) -> Any:
    """Return sums (channels, points) from `low` to `high` that decide whether C's formula is the chain.

    Of "sums", which is a straight line, these are both ends. Of formulas that may change direction they are all sums,
    or every `grid`-th if there are no others. Of a formula that steps they are both ends of each interval on which it
    is constant: for each level between its first and its last code, the first sum that reaches it, found by bisection,
    and the sum before that.
    """
    if claim["by"] == "sums":
        return np.c_[low, high]
    if claim["by"] in ALL_SUMS:
        require(int(high.max()) - int(low.min()) < MAX_POINTS, "there is too much to check")
        return np.arange(low.min(), high.max() + 1, grid)[None]
    first_code, last_code = evaluate_formula(claim, low, element), evaluate_formula(claim, high, element)
    first_code, last_code, low, high = np.broadcast_arrays(first_code, last_code, low, high)
    direction = np.sign(last_code - first_code)
    before, at, levels = np.broadcast_arrays(low, high, np.arange(1, 1 + abs(last_code - first_code).max())[None])
    while (before < at).any():  # the first sum that reaches a level lies between both
        middle = (before + at) >> 1
        is_reached = direction * (evaluate_formula(claim, middle, element) - first_code) >= levels
        before, at = np.where(is_reached, before, np.minimum(middle + 1, at)), np.where(is_reached, middle, at)
    return np.hstack([low, high, np.maximum(at - 1, low), at])


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


SUMS_OF_ELEMENTS = {"bias", "low", "high", "rows", "places"}
SUMS_OF_PRODUCTS = {"weights", "padded", "reads", "bias", "geometry", "each", "scale", "low", "high"}
SUMS_OF_MATRICES = {"matrices", "reads", "bias", "low", "high"}


def bound_sums(step: dict[str, Any], buffers: list[Any], edges: list[Any]) -> SumRange:
    """Return the range of a step's sums, products or elements, with their bias.

    It is computed again; the range that the step states, without the bias, must be the same.
    """
    of = step["sums"]
    keys = SUMS_OF_PRODUCTS if "weights" in of else SUMS_OF_MATRICES if "matrices" in of else SUMS_OF_ELEMENTS
    require({*of} <= keys, f"it says {', '.join(sorted({*of} - keys))} of sums, which has no meaning")
    if "matrices" in of:
        sums, start = bound_matrices(of, buffers, edges), 0
    else:
        sums, start = (bound_products if "weights" in of else bound_elements)(of, buffers[0], edges[0])
    for key, end in (("low", sums.low), ("high", sums.high)):
        require(key not in of or array(of[key]) == end[:, 0], "ranges differ")
    bias = column(of["bias"])
    require("weights" in of or "matrices" in of or not bias.any(), "elements have no bias")
    low, high = sums.low + bias, sums.high + bias
    require(low.size > 0, "it has no sums")
    is_on_grid = np.all((start + bias - low.min()) % sums.grid == 0)
    return SumRange(low, high, sums.grid if is_on_grid else 1)


def bound_products(of: dict[str, Any], buffer: dict[str, Any], edge: dict[str, Any]) -> tuple[SumRange, int]:
    """Return the range of sums of products with weights (groups, channels, inputs, window), and one of these sums.

    For example weights [2, -1] on activations from 0 to 3 give sums from -3 to 6. Padding is a 0 of the activations.
    All terms of a sum must be on one scale.
    """
    weights, zero, (apart, first) = array(of["weights"]).astype(float), edge["zero"], buffer["operand"]
    groups, channels, inputs, window = weights.shape
    require(type(zero) is int, "codes have several zero points, or none that is whole")
    require(weights % 1 == 0, "weights are not whole")
    require(array(edge["scale"]).size == 1 or channels * inputs == 1, "codes mean other integers")
    require(of["reads"] == [apart, first - zero], "codes mean other integers")
    low, high = (spread_over_inputs(end, edge, groups * inputs, first) - zero for end in ends_of(edge))
    if of["padded"]:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    at_low, at_high = (weights * end.reshape(groups, 1, inputs, 1) for end in (low, high))
    require(np.abs([at_low, at_high]).sum() < WHOLE, "sums leave int64")
    least = np.minimum(at_low, at_high).sum((2, 3)).reshape(-1, 1).astype(int)
    most = np.maximum(at_low, at_high).sum((2, 3)).reshape(-1, 1).astype(int)
    if np.all(weights == 1) and not of["padded"]:  # sums of codes, which are as far apart as codes
        return SumRange(least, most, apart), (first - zero) * inputs * window
    return SumRange(least, most, 1), 0


def bound_matrices(of: dict[str, Any], buffers: list[Any], edges: list[Any]) -> SumRange:
    """Return the range of sums of products of the elements of two edges, one for all sums.

    `matrices` are [how many, rows, depth, columns]: a sum has `depth` products. For example 3 products of elements
    from -2 to 3 and from 0 to 5 give sums from -30 to 45.
    """
    ends = []
    for buffer, edge, reads in zip(buffers[:2], edges[:2], of["reads"], strict=True):
        zero, (apart, first) = edge["zero"], buffer["operand"]
        require(type(zero) is int, "codes have several zero points, or none that is whole")
        require(array(edge["scale"]).size == 1, "codes mean other integers")
        require(reads == [apart, first - zero], "codes mean other integers")
        low, high = ends_of(edge)
        ends.append((int(low.min()) - zero, int(high.max()) - zero))
    least, most = bound_products_of_ends(ends[0], ends[1], whole(of["matrices"][2]))
    require(max(abs(least), abs(most)) < WHOLE, "sums leave int64")
    return SumRange(np.full((1, 1), least), np.full((1, 1), most), 1)


def bound_products_of_ends(one: Any, other: Any, depth: int) -> tuple[int, int]:
    """Return the least and the greatest sum of `depth` products of factors between two ends each."""
    products = [a * b for a in one for b in other]
    return depth * min(products), depth * max(products)


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


def bound_elements(of: dict[str, Any], buffer: dict[str, Any], edge: dict[str, Any]) -> tuple[SumRange, int]:
    """Return the range of the elements of the edge that a step reads, and one of these elements.

    `rows` are the channels read if they are not all in order. `places` says that the elements are the caller's float32
    numbers: the integers are their places in the order of float32 then.
    """
    low, high = ends_of(edge)
    apart, first = buffer["operand"]
    is_float = "scale" not in edge and buffer["role"] == "input" and buffer["type"] == edge["type"] == "float32"
    require("places" not in of or is_float, "places are for the caller's float32 numbers alone")
    if "rows" in of:
        require([array(edge.get(k, 0)).size == 1 for k in ("scale", "zero")], "channels it reads are on several scales")
        is_there = [0 <= whole(row) < len(low) for row in of["rows"]]
        require(is_there, f"it reads one of {len(low)} channels by another number")
        low, high = low[of["rows"]], high[of["rows"]]
    return SumRange(low, high, apart), first


def check_shapes(step: dict[str, Any], edges: list[Any]) -> int:
    """Return how many channels a step's results have, if its inputs, its weights and its results fit each other."""
    of, reads = step["sums"], len(step["inputs"])
    results = [edge["shape"] for edge in edges[reads:]]
    sizes = [math.prod(shape) for shape in results]
    channels = {shape[1] if len(shape) > 1 else 1 for shape in results}
    require(len(set(sizes)) == len(channels) == 1, "results differ in shape")
    for edge in edges[count_factors(of) : reads]:
        require(math.prod(edge["shape"]) == sizes[0], "a second tensor has another shape than results")
    if "weights" in of:
        own_channels, size = check_window(of, edges[0]["shape"])
        require(own_channels in channels, "weights are of other channels than results")
        require(size == sizes[0], "results do not fit the window")
    elif "matrices" in of:
        check_matrices(of, [edge["shape"] for edge in edges[:2]], results[0])
    elif step["chain"]:
        require(math.prod(edges[0]["shape"]) == sizes[0], "results have another shape than the input")
    return int(channels.pop())


def count_factors(of: dict[str, Any]) -> int:
    """Return how many of the buffers that a step reads its sums are of: two if these are products of two edges."""
    return 2 if "matrices" in of else 1


def check_matrices(of: dict[str, Any], shapes: list[list[int]], result: list[int]) -> None:
    """Raise AssertionError unless two factors of these shapes have matrices whose products make up a result.

    Both factors have an axis along which sums are, the second one another axis of columns. Columns lie along the last
    axis of the result, or along axis 1. Several products may have one factor in common.
    """
    count, rows, depth, columns = map(whole, of["matrices"])
    require(min(count, rows, depth, columns) > 0, "a factor has no elements")
    require(count * rows * columns == math.prod(result), "results do not fit the matrices")
    require(columns in (result[-1], *result[1:2]), "columns of the matrices do not fit the results")
    for shape, vectors in zip(shapes, (rows, columns), strict=True):
        own, rest = divmod(math.prod(shape), vectors * depth)
        require(rest == 0 < own and count % own == 0, "a factor has other matrices")
        require(depth in shape, "sums are along no axis of a factor")
    require(shapes[1].count(columns) > (columns == depth), "columns of the matrices are no axis of the second factor")


def check_window(of: dict[str, Any], shape: list[int]) -> tuple[int, int]:
    """Return the channels and the elements of the results of a window that moves over elements of a shape.

    Weights (groups, channels, inputs, window) read all channels of the image, and give a result for each channel and
    place of the window. Sums with `each` are sums of every channel by itself.
    """
    groups, outputs, inputs, window = array(of["weights"]).shape
    g, is_each = of["geometry"], bool(of.get("each"))
    batch, height, width = g["image"]
    require(min(groups, outputs, inputs, window) > 0, "a layer has no weights")
    require(window == g["kernel_h"] * g["kernel_w"], "weights are of another window")
    require(not is_each or groups * outputs * inputs == 1, "weights are not of every channel by itself")
    results, read = (shape[1], shape[1]) if is_each else (groups * outputs, groups * inputs)
    pixels = batch * height * width
    # A product of a whole image reads packed words, each pixel's channels filled up to a multiple of 64.
    idle = batch * (-shape[1] % 64) * math.prod(shape[2:]) if height == width == 1 and len(shape) > 2 else 0
    require(pixels * read in (math.prod(shape), math.prod(shape) + idle), "it reads another image")
    places = 1
    for way, size, before, after in (("h", height, "top", "bottom"), ("w", width, "left", "right")):
        padded = size + g[f"pad_{before}"] + g[f"pad_{after}"]
        places *= (padded - g[f"dilation_{way}"] * (g[f"kernel_{way}"] - 1) - 1) // g[f"stride_{way}"] + 1
    is_padded = any(g[f"pad_{side}"] for side in ("top", "left", "bottom", "right"))
    require(of["padded"] == is_padded, "padding does not fit the window")
    return results, batch * places * results


# 5. Prove a step.


class Task(NamedTuple):
    """The facts that are proved of a step.

    Attributes:
        chain: What the network makes of sums.
        claims: How C makes each result, arrays decoded.
        sums: The sums that there may be.
        other: The least and the greatest integer of a second tensor, (channels, 1) or (1, 1); 0 if there is none.
        operand: For codes of the second tensor, the distance of neighbouring codes' integers, and the integer of code
            0.
    """

    chain: StepChain
    claims: list[dict[str, Any]]
    sums: SumRange
    other: tuple[Any, Any]
    operand: tuple[int, int]


class Examined(NamedTuple):
    """The sums at which a formula is compared with the chain, together with one integer of a second tensor.

    Attributes:
        sums: (channels, points), the integers that C has.
        start: The numbers that the chain starts from: "sum", which lacks C's bias, and "other".
        element: The code of the integer of the second tensor.
        is_never: Where a channel never has this sum, or the second tensor this integer: C may do anything there.
    """

    sums: Any
    start: tuple[Any, Any]
    element: int
    is_never: Any


def prove(step: dict[str, Any], buffers: list[Any], edges: list[Any], exact: bool) -> None:
    """Raise AssertionError unless each result of a step is what its chain gives, for all integers it can read.

    Args:
        step: A step that has claims.
        buffers: The buffers that the step reads, then the buffers that it writes, in order.
        edges: The edges of these buffers.
        exact: Whether the reference is "exact".
    """
    if [claim["by"] for claim in step["claims"]] == ["conversion"]:
        prove_conversion(step, buffers, edges)
        return
    task, reads, operations = make_task(step, buffers, edges, exact), len(step["inputs"]), 0
    least, most = (int(end) for end in (task.other[0].min(), task.other[1].max()))
    require(most - least < MAX_POINTS, "there is too much to check")
    for integer in range(least, most + 1, task.operand[0]):
        for claim, buffer, edge in zip(task.claims, buffers[reads:], edges[reads:], strict=True):
            examined = examine(step, task, claim, integer)
            operations += examined.sums.size * (1 + len(step["chain"]))
            require(operations < MAX_POINTS, "there is too much to check")
            if claim["by"] == "numbers":
                results = prove_numbers(task.chain, claim, buffer, edge, examined)
            else:
                if claim["is"] == "sum":
                    check_grid(step["sums"], edges, edge)
                results = prove_formula(task.chain, claim, buffer, examined, is_of_floats="places" in step["sums"])
            low, high = ends_of(edge, inner=True)
            require((low <= results) & (results <= high) | examined.is_never, "results leave their range")


def make_task(step: dict[str, Any], buffers: list[Any], edges: list[Any], exact: bool) -> Task:
    """Return what is to be proved of a step, if all of its arrays have one row for all channels or one for each.

    Arguments are as for `prove`. Nothing is evaluated. Only levels, which "count", have columns in a chain; rows of a
    curve's table are cells.
    """
    reads, claims = len(step["inputs"]), [decode_claim(claim) for claim in step["claims"]]
    factors = count_factors(step["sums"])
    require(factors <= reads <= factors + 1, f"it reads {reads} buffers; want {factors} or {factors + 1}")
    sums, channels = bound_sums(step, buffers, edges), check_shapes(step, edges)
    rows = {1, channels, *edges[0]["shape"][1:2]}
    if "matrices" in step["sums"]:  # columns lie along the last axis of results: axis 1, as channels, only of two
        rows = {1, channels} if len(edges[-1]["shape"]) == 2 else {1}
    require(len(sums.low) in rows and len(column(step["sums"]["bias"])) in rows, "sums are of other channels")
    chain, counted = make_chain(step, edges, exact), {op["of"][-1] for op in step["chain"] if op["op"] == "count"}
    for name, x in chain.constants.items():
        require(x.size and (len(x) if name in counted else x.size) in rows, f"{name} is of other channels")
    for claim in claims:
        cells = ("gate", "table", "turns") if claim["by"] == "curve" else ("gate",)
        own = [x for key, x in claim.items() if isinstance(x, np.ndarray) and key not in cells]
        if claim["by"] == "lines":
            own += [column(x) for line in claim["values"] for x in line]
        require([len(x) in rows for x in own], "a claim has numbers for other channels")
    if reads == factors:
        nothing = np.zeros((1, 1), int)
        return Task(chain, claims, sums, (nothing, nothing), (1, 0))
    (least, most), (apart, first) = ends_of(edges[factors]), buffers[factors]["operand"]
    require(((least - first) % apart == 0) & (least <= most), "no code stands for the least integer of a second tensor")
    return Task(chain, claims, sums, (least, most), (apart, first))


def decode_claim(claim: dict[str, Any]) -> dict[str, Any]:
    """Return a claim with its arrays decoded: columns, except arrays with several numbers a channel."""
    tables = ("table", "values")
    arrays = {k: array(x) if k in tables else column(x) for k, x in claim.items() if isinstance(x, dict)}
    return claim | arrays


def make_chain(step: dict[str, Any], edges: list[Any], exact: bool) -> StepChain:
    """Return a step's chain with its constants, all finite but for limits that max and min keep to."""
    read = list(enumerate(edges[: len(step["inputs"])]))
    grids = {f"{key}{i}": grid_column(edge, key) * 1.0 for i, edge in read for key in ("scale", "zero")}
    own = {name: np.atleast_2d(array(x) * 1.0) for name, x in step["constants"].items()}
    require({*grids, "sum", "other"}.isdisjoint(own), "a constant has the name of another value")
    constants = {name: x.astype(float) if exact else x for name, x in {**own, **grids}.items()}
    limits = {name for op in step["chain"] if op["op"] in ("max", "min") for name in op["of"]}
    others = {name for op in step["chain"] if op["op"] not in ("max", "min") for name in op["of"]}
    for name, x in constants.items():
        is_limit = name in limits - others
        require(np.isfinite(x) | (is_limit & ~np.isnan(x)), f"the constant {name} is not finite")
    return StepChain(step["chain"], exact, constants)


def examine(step: dict[str, Any], task: Task, claim: dict[str, Any], integer: int) -> Examined:
    """Return the sums that decide a claim where the element of the second tensor is an `integer`."""
    (low, high, grid), (least, most), (apart, first) = task.sums, task.other, task.operand
    element = (integer - first) // apart
    sums = find_deciding_sums(claim, low, high, grid, element)
    numbers = places_to_floats(sums) if "places" in step["sums"] else sums - column(step["sums"]["bias"])
    start = numbers * (np.ones((1, 1)) if task.chain.exact else 1.0), np.full((1, 1), float(integer))
    is_never = (sums < low) | (sums > high) | (integer < least) | (integer > most)
    return Examined(sums, start, element, is_never)


def places_to_floats(places: Any) -> Any:
    """Return the float32 numbers at places in their order: 0 at 0, the least above it at 1, its negative at -1."""
    return abs(places).astype("<i4").view("<f4") * np.sign(places, dtype="<f4")


def prove_formula(
    chain: StepChain, claim: dict[str, Any], buffer: dict[str, Any], examined: Examined, is_of_floats: bool
) -> Any:
    """Return the integers that C computes, if they equal the chain's."""
    apart, first = buffer["operand"]
    integers = first + apart * evaluate_formula(claim, examined.sums, examined.element)
    is_equal, has_no_direction = chain.agrees(*examined.start, claim["is"], integers)
    if claim["by"] == "sums":  # both ends were examined alone
        is_line = not is_of_floats and chain.is_line(*examined.start)
        require(is_line, "the chain and C's formula differ: it is no line")
    if claim["by"] not in ALL_SUMS:  # between the sums examined the chain stays between its values
        is_equal &= ~has_no_direction
    require(examined.is_never | is_equal, "the chain and C's formula differ")
    return integers


def check_grid(of: dict[str, Any], edges: list[Any], result: dict[str, Any]) -> None:
    """Raise AssertionError unless sums, or elements, that are given as they are mean the same as before.

    Elements keep scale and zero point. Sums of products have the product of both scales, and no zero point.
    """
    of_products = "weights" in of or "matrices" in of
    second = edges[1]["scale"] if "matrices" in of else of.get("scale", 1)
    for key, factor in (("scale", second), ("zero", int(not of_products))):
        meant = array(edges[0].get(key, 0)).ravel() * array(factor).ravel()
        require(meant == array(result.get(key, 0)).ravel(), "elements mean something else")


def prove_numbers(
    chain: StepChain, claim: dict[str, Any], buffer: dict[str, Any], edge: dict[str, Any], examined: Examined
) -> Any:
    """Return the real numbers that C computes in float64, if they are as near to the chain's as is claimed.

    An edge with a scale has integers, which the caller gets as scale * (n - zero): these integers are returned then.
    """
    require(chain.exact, "C may be farther off")
    has_integers = "scale" in edge
    types = {edge["type"]} if has_integers else {edge["type"], "float64"}
    require(buffer["role"] != "output" or buffer["type"] in types, "a result has another type than the file's")
    numbers, _, off = chain.values(*examined.start)[claim["is"]]
    own = numbers
    if has_integers:
        scale, zero = grid_column(edge, "scale"), grid_column(edge, "zero")
        own = (examined.sums - zero) * scale
        if edge["type"] not in EPSILONS:  # the caller gets the integers as they are
            low, high = input_range(edge, None)
            is_in_type = (low <= examined.sums) & (examined.sums <= high)
            require([scale == 1, is_in_type], "integers of a result are on a scale, or leave their type")
    require((abs(numbers - own) <= off) & (off <= claim["off"]) & (claim["off"] < np.inf), "C may be farther off")
    return examined.sums if has_integers else numbers


def prove_conversion(step: dict[str, Any], buffers: list[Any], edges: list[Any]) -> None:
    """Raise AssertionError unless a step gives one edge's integers in another form.

    The caller has scale * (n - zero), rounded to the type of the file, for an integer n. Of results this is what they
    mean. Of an input C finds n again: the integer nearest to number / scale + zero. It refuses numbers that are farther
    from scale * (n - zero) than two units in the last place, and integers that are not declared.
    """
    require(len(step["inputs"]) == 1 and len(edges) == 2 and edges[0] == edges[1], "a conversion is of one edge")
    require(not step["chain"] and not step["constants"] and step["sums"]["bias"] == 0, "a conversion has no chain")
    require(step["claims"][0]["is"] == "sum", "a conversion has no chain")
    edge, (source, result) = edges[0], buffers
    for buffer in buffers:
        is_of_file = buffer["role"] == "arena" or (buffer["type"], buffer["layout"]) == (edge["type"], "plain")
        require(is_of_file, "a conversion reads or gives another form than the file's")
    if source["role"] != "input":
        require(result["role"] == "output", "a conversion is to or from the caller's numbers")
        return
    scale, zero = column(edge["scale"]).astype(float), column(edge["zero"]).astype(float)
    low, high = ends_of(edge)
    require(int(high.max()) - int(low.min()) < MAX_POINTS >> 8, "there is too much to check")
    integers = np.arange(low.min(), high.max() + 1, whole(edge.get("step", 1)))[None]
    real = (integers - zero) * scale
    numbers = real.astype(edge["type"]).astype(float)
    is_near = abs(numbers - real) <= abs(real) * 2 * EPSILONS[edge["type"]]
    is_same = (np.rint(numbers / scale + zero) == integers) & is_near
    require(is_same | (integers < low) | (integers > high), "numbers become other codes")


# 6. Files, order, memory.


def check_digest(given: dict[str, Any]) -> None:
    """Raise AssertionError unless the certificate's own digest is the digest of everything else in it."""
    rest = json.dumps({**given, "digest": ""}, sort_keys=True, separators=(",", ":")).encode()
    require(given["digest"] == hashlib.sha256(rest).hexdigest(), "the certificate was changed")


def check_files(files: dict[str, str], folder: Path) -> None:
    """Raise AssertionError unless files of these digests lie in a folder, none of them elsewhere."""
    for name, digest in files.items():
        require(Path(name).name == name and (folder / name).is_file(), f"there is no file {name}")
        require(hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, f"{name} was changed")


def check_header(given: dict[str, Any]) -> None:
    """Raise AssertionError unless texts in comments of the C are plain names, and numbers are possible for a
    library."""
    for key in ("isa", "cpu", "reference"):
        require(re.fullmatch(r"[a-z0-9_]*", given[key]) is not None, f"{key} is {given[key]!r}, which is no name")
    is_reference = given["reference"] in {"exact", "onnxruntime", "onnx", "tflite"}
    require(is_reference, f"there is no reference {given['reference']}")
    require(0 < whole(given["threads"]) < INT32, f"it is for {given['threads']} threads")
    require(0 <= whole(given["arena"]["bytes"]) < WHOLE, f"its arena has {given['arena']['bytes']} bytes")
    for key in ("inputs", "outputs"):
        require(len(set(given[key])) == len(given[key]), f"one of its {key} is listed twice")


def check_ranges(given: dict[str, Any]) -> None:
    """Raise AssertionError unless ranges are ordered, and ranges of inputs have all that the caller may give."""
    for name, edge in given["edges"].items():
        require([whole(n) >= 0 for n in edge["shape"]], f"{name} has a size below 0")
        if "low" in edge or "high" in edge:
            low, high = array(edge["low"]), array(edge["high"])
            require(low.size and high.size and (low <= high), f"the range of {name} is empty")
        if "scale" in edge:
            scale, zero, shape = array(edge["scale"]), array(edge["zero"]), tuple(edge["shape"])
            is_of_shape = [np.broadcast_shapes(x.shape, shape) == shape for x in (low, high, scale, zero)]
            require(is_of_shape, f"the numbers of {name} are of another shape than its elements")
            require(scale.size and zero.size and np.isfinite(scale) & (scale != 0), f"{name} is on no grid")
            require(np.isfinite(zero), f"{name} is on no grid")
    for name in given["inputs"]:
        edge = given["edges"][given["buffers"][name]["edge"]]
        low, high = input_range(edge, given["reading"].get("codes"))
        is_whole_range = [array(edge["low"]) == low, array(edge["high"]) == high]
        require(is_whole_range, f"the range of {name} is not the range of its type")


def input_range(edge: dict[str, Any], codes: Any) -> tuple[int, int]:
    """Return the least and the greatest integer that an input may have.

    An input of real numbers has all finite float32, and the ends are their places. An input of integers has all of its
    type. An input of floats with a scale has the `codes` that the file was read with, {"bits", "encoding", "scale"},
    which the same text of C compares each number with; None if there are none.
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
    scale, half = array(edge["scale"]), 1 << whole(codes["bits"]) - 1
    is_declared = scale.size > 1 or np.float32(scale) == np.float32(codes["scale"])
    require(is_declared, "an input is on another scale than was declared")
    ranges = {
        "unsigned": (0, 2 * half - 1),
        "signed": (-half, half - 1),
        "bipolar": (1 - 2 * half, 2 * half - 1),
        "ternary": (1 - half, half - 1),
        "narrow": (1 - half, half - 1),
    }
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
        require(step["kind"] in {"layer", "glue", "plain"}, f"step {place} is of no known kind")
        require(step["kind"] != "layer" or bool(step["kernels"]), f"step {place} is a layer without a kernel")
        for name in step["kernels"]:
            require(name in kernels, f"it does not list the kernel {name} of step {place}")
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
        edge, home = edges[buffer["edge"]], buffers[home_of(buffers, name)]
        check_role(given, name, buffer)
        check_room(name, buffer, edge, whole(home["bytes"]))
        if buffer["alias"]:
            check_alias(name, buffer, home, edge, edges[home["edge"]])
        else:
            used = life.get(name)
            require(buffer["life"] == used, f"{name} is in use from first to last step {used}, not {buffer['life']}")


def check_role(given: dict[str, Any], name: str, buffer: dict[str, Any]) -> None:
    """Raise AssertionError unless a buffer of the caller's is listed, and no other one is."""
    role = buffer["role"]
    require(role in {"arena", "input", "output"}, f"{name} has an unknown role {role}")
    for listed in ("input", "output"):
        is_listed = name in given[listed + "s"]
        require((role == listed) == is_listed, f"{name} has the role {role}, {listed}s say otherwise")
    # Nothing says how long the memory of another buffer is in use after the last step that reads it.
    require(role == "arena" or buffer["alias"] == "", f"{name} is an {role} in memory of another")


def check_room(name: str, buffer: dict[str, Any], edge: dict[str, Any], size: int) -> None:
    """Raise AssertionError unless the memory of a buffer, of `size` bytes, has room for all elements of its edge."""
    (apart, first), (least, most) = map(whole, buffer["operand"]), map(whole, buffer["holds"])
    wanted = f"codes of {name} are {apart} apart from {first} on: want 1 to 255 apart, from an int32 on"
    require(0 < apart < 256 and abs(first) < INT32, wanted)
    if buffer["role"] == "input":
        # Integers, or codes from the least integer on. Only bipolar ones, as -3, -1, 1, 3, are further apart.
        ends = array(edge.get("low", 0)).min(), array(edge.get("high", 0)).max()
        is_plain = apart == 1 and first in (0, ends[0])
        is_bipolar = apart == 2 and first == ends[0] == -ends[1]
        require(is_plain or is_bipolar, f"{name} is what the caller gives: not all of its integers have a code")
    require(re.fullmatch(TYPES, buffer["type"]), f"{name} has elements of an unknown type {buffer['type']}")
    bits, width, is_packed = whole(buffer["bits"]), bits_of(buffer["type"]), buffer["layout"] == "packed"
    require(buffer["layout"] in {"plain", "NHWC", "packed"}, f"{name} has an unknown layout {buffer['layout']}")
    is_of_width = 0 < bits <= 8 and width == 64 if is_packed else bits == width
    require(is_of_width, f"{name} has elements of {bits} bits in words of {width}")
    require(size * 8 >= math.prod(edge["shape"]) * bits, f"{name} has too few bytes")
    if buffer["role"] == "arena" and "scale" in edge and not buffer["type"].startswith("float"):
        least_code = -(1 << bits - 1) if buffer["type"].startswith("int") and not is_packed else 0
        fits = least_code <= (least - first) // apart and (most - first) // apart < least_code + (1 << bits)
        require(fits, f"{name} holds more than its bits")
    is_held = (array(edge.get("low", least)) >= least) & (array(edge.get("high", most)) <= most)
    require(is_held, f"{name} is too narrow for its range: its elements hold {least} to {most}")


def bits_of(kind: str) -> int:
    """Return the bits that an element of a type takes in memory: whole bytes."""
    digits = re.search(r"\d+$", kind)
    return max(8, int(digits[0])) if digits else 8


def check_alias(name: str, buffer: dict[str, Any], home: dict[str, Any], edge: Any, other: Any) -> None:
    """Raise AssertionError unless memory that has two names has the same elements by both: as many, of one meaning.

    The range by the second name may be wider, as one range for all channels is. What integers stand for may change
    `through` nodes of the network, which `regrid_aliases` looks at.
    """
    what = f"{name} is of other integers"
    require([buffer[key] == home[key] for key in ("operand", "bits", "type", "holds")], what)
    require(math.prod(edge["shape"]) == math.prod(other["shape"]), what)
    require([(key in edge) == (key in other) for key in ("scale", "zero")], what)
    is_real = "scale" not in edge  # the range of real numbers may be unknown by the second name
    require([(key in edge) == (key in other) or (is_real and key not in edge) for key in ("low", "high")], what)
    if "low" in edge:
        low, home_low = elements_of(edge, other, buffer, home, "low")
        high, home_high = elements_of(edge, other, buffer, home, "high")
        require((low <= home_low) & (home_high <= high), what)
    if "scale" in edge and "through" not in buffer:
        for key in ("scale", "zero"):
            own, its = elements_of(edge, other, buffer, home, key)
            require(own == its, what)


def elements_of(edge: Any, other: Any, buffer: Any, home: Any, key: str) -> list[Any]:
    """Return a number for each element of two edges, in the order in which they lie in memory.

    Both are one number long if all elements have the same. A layout other than "plain" has axis 1 last.
    """
    pairs = [(array(edge[key]), edge, buffer), (array(other[key]), other, home)]
    if all(numbers.size == 1 for numbers, _, _ in pairs):
        return [numbers.ravel() for numbers, _, _ in pairs]
    in_memory = []
    for numbers, of, memory in pairs:
        each = np.broadcast_to(numbers, of["shape"])
        in_memory.append(each if memory["layout"] == "plain" or each.ndim < 2 else np.moveaxis(each, 1, -1))
    return [each.ravel() for each in in_memory]


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
    end = start + size
    in_use_together, overlap = (first <= last.T) & (first.T <= last), (start < end.T) & (start.T < end)
    is_itself = np.eye(len(rows), dtype=bool)
    require((in_use_together & overlap) <= is_itself, "two buffers in use at one step lie in the same memory")
    require(start == abs(start) // 64 * 64, "outside of the arena")
    require(end <= whole(given["arena"]["bytes"]), "outside of the arena")
    bound = max([0, *(size[(first <= place) & (place <= last)].sum() for place in first.ravel())])
    require(bound == given["arena"]["bound"], f"the lower bound of the arena is {bound} bytes")


def regrid_aliases(buffers: dict[str, Any]) -> dict[str, Any]:
    """Return aliases on another scale than their memory, by name, each as a step that makes it of that.

    The nodes of the network between them are named. If they are views and reshapes, integers have the meaning that the
    file gives them. Others have a chain and a claim that it leaves each integer as it is, or `unclaimed` says why not.
    """
    steps = {}
    for name, buffer in buffers.items():
        if buffer["alias"] and "through" in buffer:
            step = {**buffer["through"], "inputs": [home_of(buffers, name)], "outputs": [name]}
            operators = {operator for _, operator in step["nodes"]}
            is_view = "view" in operators <= {"view", "reshape"}
            has_one_reason = bool(step["claims"]) + bool(step["unclaimed"]) + is_view == 1
            require(has_one_reason, f"{name} says nothing of why its integers mean something else")
            steps[name] = step
    return steps


# 7. Check all.


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
            buffers = [given["buffers"][name] for name in step["inputs"] + step["outputs"]]
            edges = [given["edges"][buffer["edge"]] for buffer in buffers]
            try:
                prove(step, buffers, edges, given["reference"] == "exact")
            except AssertionError as why:
                raise AssertionError(f"{what}: {why}") from None


def main(arguments: list[str]) -> int:
    """Check a certificate, by default the one of this script's network, and print what was checked; return an exit
    code."""
    own = Path(__file__)
    path = Path(arguments[0]) if arguments else own.with_name(own.name.replace("_check.py", ".certificate.json"))
    try:
        given = json.loads(path.read_bytes())
        check(given, path.parent)
        proved = sum(bool(step["claims"]) for step in given["steps"])
        left = sorted({file.name for file in path.parent.iterdir()} - {*given["files"], path.name})
    except Exception as error:
        sys.stderr.write(f"{cut_words(f'{type(error).__name__}: {error}')}\n")
        return 1 if isinstance(error, AssertionError) else 2
    print(f"all that is claimed holds: {proved} of {len(given['steps'])} steps, {len(given['files'])} files")
    if left:
        print(f"not of this certificate: {', '.join(left)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
