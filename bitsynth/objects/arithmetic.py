"""Instructions on general registers, whose operands are numbers: results and flags."""

from __future__ import annotations

from collections.abc import Callable
from operator import and_, or_, xor

from bitsynth.objects.affine import WORD_BITS, AffineNumber, align_down
from bitsynth.objects.declared import GeneralOperation
from bitsynth.objects.memory import NotShown

GATES: dict[str, Callable[[int, int], int]] = {"and": and_, "or": or_, "xor": xor}
"""Operations that do the same to each bit."""
_LONG, _SHORT = 63, 31
"""Masks of the number of bits to shift by: in registers of 64 bits, and in narrower ones."""


class Flags:
    """The flags zero, carry, sign and overflow, 0 or 1; None where they have no value.

    After a difference of unknown numbers the flags are represented by the two numbers `compared`; after another unknown
    result by the result and 0, and if `zero_only`, the flag zero alone has a value. After operations on data flags have
    no value: `of_data`.
    """

    __slots__ = ("carry", "compared", "of_data", "overflow", "sign", "zero", "zero_only")

    def __init__(self) -> None:
        self.zero: int | None = None
        self.carry: int | None = None
        self.sign: int | None = None
        self.overflow: int | None = None
        self.compared: tuple[AffineNumber | int, AffineNumber | int] | None = None
        self.zero_only = self.of_data = False

    def clear(self) -> None:
        """Leave no flag a value."""
        self.zero = self.carry = self.sign = self.overflow = self.compared = None
        self.zero_only = self.of_data = False


def as_signed(x: int, bits: int) -> int:
    """Return the number with the two's complement `x`."""
    return x - (1 << bits) if x >> bits - 1 & 1 else x


def compute(what: GeneralOperation, a: int, b: int, bits: int, flags: Flags, *, no_borrow: bool = False) -> int:
    """Return the result of an instruction on operands of `bits` bits, and set the flags that it sets.

    The flag carry of a difference says that it borrows or, with `no_borrow`, that it does not.
    """
    every = (1 << bits) - 1
    more = _carry(flags) if what.carry else 0
    carry: int | None = 0
    overflow: int | None = 0
    known = True
    match what.does:
        case "add":
            result, signed = a + b + more, as_signed(a, bits) + as_signed(b, bits) + more
            carry, overflow = int(result > every), _overflows(signed, bits)
        case "subtract":
            result, signed = a - b - more, as_signed(a, bits) - as_signed(b, bits) - more
            carry, overflow = int(result < 0) ^ no_borrow, _overflows(signed, bits)
        case "multiply":
            result = as_signed(a, bits) * as_signed(b, bits)
            carry = overflow = _overflows(result, bits)
            known = False
        case "divide":
            result = a // b if b else 0
        case "and" | "or" | "xor":
            result = GATES[what.does](a, b)
        case "count ones":
            result = b.bit_count()
        case _:
            n = shift_amount(b, bits)
            if n == 0:  # Shifts by 0 leave flags as they are.
                return a
            if what.does == "rotate right":
                flags.carry = flags.overflow = None
                return (a >> n % bits | a << bits - n % bits) & every
            result, carry = _shift(what.does, a, n, bits)
            carry, overflow = carry if n <= bits else None, None
    result &= every
    values = {"zero": int(result == 0), "sign": result >> bits - 1, "carry": carry, "overflow": overflow}
    for name, value in values.items():
        if name not in what.keeps:
            setattr(flags, name, value if known or name in {"carry", "overflow"} else None)
    return result


def affine_result(
    what: GeneralOperation, a: AffineNumber | int, b: AffineNumber | int, bits: int, flags: Flags
) -> AffineNumber | int:
    """Return the result of an instruction on numbers, at least one of them unknown, and set its flags.

    NotShown if it is no sum. Products need the numbers of a call and are the caller's. A number without its lowest bits
    is one where these bits are known, and where it is the place of an aligned frame of the stack.
    """
    if bits == WORD_BITS and what.does == "shift left" and isinstance(b, int) and not b & _LONG:
        return a  # Shifts by 0 leave flags as they are.
    same = a == b
    flags.clear()
    if bits != WORD_BITS or what.carry:
        raise NotShown("a part of a number that depends on sizes is computed with")
    if what.does in {"and", "or"} and same:
        flags.compared = (a, 0)
        return a
    if what.does == "and" and isinstance(a, AffineNumber) and isinstance(b, int):
        size = -as_signed(b, bits)
        down = align_down(a, size) if size > 0 and not size & (size - 1) else None
        if down is not None:
            flags.compared, flags.zero_only = (down, 0), True
            return down
    if what.does == "shift left" and isinstance(b, int):
        return a * (1 << (b & _LONG))
    if what.does not in {"add", "subtract"}:
        raise NotShown("it is no sum of numbers that depend on sizes")
    result = a + b if what.does == "add" else a - b
    if not what.keeps:
        flags.compared = (a, b) if what.does == "subtract" else (result, 0)
        flags.zero_only = what.does == "add"
    else:
        flags.compared, flags.zero_only = (result, 0), True
    return result


def shift_amount(n: int, bits: int) -> int:
    """Return how far a number of `bits` bits is shifted by `n`."""
    return n & (_LONG if bits == _LONG + 1 else _SHORT)


def _overflows(signed: int, bits: int) -> int:
    """Return 1 if a signed number does not fit `bits` bits, else 0: the flag overflow."""
    return int(not -(1 << bits - 1) <= signed < 1 << bits - 1)


def _carry(flags: Flags) -> int:
    if flags.carry is None:
        raise NotShown("it depends on flags that have no value")
    return flags.carry


def _shift(does: str, a: int, n: int, bits: int) -> tuple[int, int]:
    """Return a shift by 1 or more, and the carry: the last bit that leaves."""
    if does == "shift left":
        return a << n, a << n >> bits & 1
    whole = as_signed(a, bits) if does == "shift right signed" else a
    return whole >> n, whole >> n - 1 & 1
