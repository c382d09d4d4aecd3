"""A value of a program: what a register holds, or the place in memory that a store writes.

A `Value` is a string: C names a variable so, and files hold lines of such names. No other module reads its text. Its
fields say what the value is; `Value.of` and its methods make others from fields.

    text        fields
    a2          role ROW, number 2: input 2 of the row
    w3_1        role COLUMN, register 3, number 1: input 1 of column register 3 (in depthwise kernels w1, no register)
    acc0_5      role ACCUMULATOR, number 0, row 5 (without a row it belongs to the program of a single row)
    w3_1h_of2   the HIGH part of w3_1, in copy 2 of the step
    s_c1_0      role TILE, number 1, row 0, is_place: where tile register 1 of row 0 is stored
    total       role NAMED: any other identifier

The grammar holds for matmul and depthwise kernels. Elementwise programs name registers after the inputs of their spec,
such as `s0_1`; of these values nothing but the text is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import final

from bitsynth.errors import SpecError


class Role(Enum):
    """The role of a value; the text of a value begins with the text of its role."""

    ROW = "a"
    """An input of the row."""
    COLUMN = "w"
    """An input of the columns."""
    ACCUMULATOR = "acc"
    TILE = "c"
    """A register of the int32 tile."""
    START = "from_c"
    """A tile register plus the term of its row: a flush starts from it."""
    TERM = "more"
    """The term of a row, without a number; its doubles have numbers."""
    CONSTANT = "k"
    TEMPORARY = "t"
    """A value that a program computes."""
    STAGED = "x"
    """The staged codes of a table."""
    NAMED = ""
    """An identifier of another grammar."""


class Part(Enum):
    """The part of a vector register that a value is; a letter in its text.

    LOW and HIGH are halves that are joined: LOW is in a vector register, HIGH in a general-purpose one. LOW_WORD and
    HIGH_WORD are the same halves, in general-purpose registers to be used there.
    """

    WHOLE = ""
    LOW = "l"
    HIGH = "h"
    LOW_WORD = "i"
    HIGH_WORD = "j"

    @property
    def is_high(self) -> bool:
        """Whether it is the high half."""
        return self in (Part.HIGH, Part.HIGH_WORD)

    @property
    def is_word(self) -> bool:
        """Whether it is used in a general-purpose register."""
        return self in WORDS

    @property
    def in_general(self) -> bool:
        """Whether it is in a general-purpose register."""
        return self is Part.HIGH or self in WORDS


HALVES = (Part.LOW, Part.HIGH)
WORDS = (Part.LOW_WORD, Part.HIGH_WORD)


_FIELDS = ("role", "number", "register", "row", "part", "copy", "is_place")


@final
class Value(str):
    """A value of a program; see above for its text.

    Attributes:
        role: The role of the value in its program.
        number: The number among the values of its role; None if it has none.
        register: Of a COLUMN: the column register that it is an input of. Else None.
        row: The row, or group of rows, that it belongs to in a program of all rows; None in a program of one row.
        part: The part of its register.
        copy: The copy of the step that it belongs to; 0 is the first.
        is_place: Whether it is the place in memory to which the value is stored.
    """

    __slots__ = _FIELDS

    role: Role
    number: int | None
    register: int | None
    row: int | None
    part: Part
    copy: int
    is_place: bool

    def __new__(cls, text: str) -> Value:
        """Return the value whose text is `text`, always the same object."""
        return _read(text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"the value {self} does not change")

    def __reduce__(self) -> tuple[Callable[[str], Value], tuple[str]]:
        return Value, (str(self),)

    @staticmethod
    def of(role: Role, number: int | None = None, *, register: int | None = None, row: int | None = None) -> Value:
        """Return the whole value with these fields."""
        return _write(role, number, register, row)

    @property
    def is_column(self) -> bool:
        """Whether it is an input of columns."""
        return self.role is Role.COLUMN

    @property
    def is_input(self) -> bool:
        """Whether it is an input of a step, of the row or of columns."""
        return self.role in (Role.ROW, Role.COLUMN)

    @property
    def is_accumulator(self) -> bool:
        """Whether it is an accumulator, not one of its next values."""
        return self.role is Role.ACCUMULATOR

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant."""
        return self.role is Role.CONSTANT

    @property
    def all_rows_share(self) -> bool:
        """Whether it is the same for all rows: an input of columns, or a constant."""
        return self.role in (Role.COLUMN, Role.CONSTANT)

    def of_row(self, row: int) -> Value:
        """Return the value that a row, or a group of rows, has for this one; itself if all rows share it."""
        return self if self.all_rows_share else _of_row(self, row)

    def of_copy(self, copy: int) -> Value:
        """Return the value that a copy of the step has for this one; itself if it is a constant."""
        return self if self.is_constant or copy == self.copy else self._replace(copy=copy)

    def of_part(self, part: Part) -> Value:
        """Return this part of the value's register."""
        return self if part is self.part else _of_part(self, part)

    @property
    def whole(self) -> Value:
        """The whole register that the value is a part of."""
        return self.of_part(Part.WHOLE)

    @property
    def place(self) -> Value:
        """The place in memory to which the value is stored."""
        return self._replace(is_place=True)

    @property
    def stored(self) -> Value:
        """The value that is stored to the place; itself if it is no place."""
        return self._replace(is_place=False) if self.is_place else self

    def _replace(
        self,
        *,
        row: int | None = None,
        part: Part | None = None,
        copy: int | None = None,
        is_place: bool | None = None,
    ) -> Value:
        """Return the value with other fields; None leaves a field as it is."""
        return _write(
            self.role,
            self.number,
            self.register,
            self.row if row is None else row,
            self.part if part is None else part,
            self.copy if copy is None else copy,
            is_place=self.is_place if is_place is None else is_place,
        )


_ROLES = {role.value: role for role in Role if role.value}
_NUMBER = "0|[1-9][0-9]*"
_TEXT = re.compile(
    rf"(s_)?({'|'.join(_ROLES)})({_NUMBER})?(?:_({_NUMBER}))?([lhij])?(?:_of([1-9][0-9]*))?",
    re.ASCII,
)


@lru_cache(maxsize=1 << 16)
def _read(text: str) -> Value:
    """Return the value whose text is `text`."""
    match = _TEXT.fullmatch(text)
    fields: tuple[object, ...] = Role.NAMED, None, None, None, Part.WHOLE, 0, False
    if match and (match[3] or match[2] == Role.TERM.value):
        role, first, second = _ROLES[match[2]], *(x and int(x) for x in match.group(3, 4))
        numbers = (second, first, None) if role is Role.COLUMN and second is not None else (first, None, second)
        fields = role, *numbers, Part(match[5] or ""), int(match[6] or 0), bool(match[1])
    value = str.__new__(Value, text)
    for name, field in zip(_FIELDS, fields, strict=True):
        object.__setattr__(value, name, field)
    return value


def _write(
    role: Role,
    number: int | None,
    register: int | None,
    row: int | None,
    part: Part = Part.WHOLE,
    copy: int = 0,
    *,
    is_place: bool = False,
) -> Value:
    """Return the value with these fields, by its text; SpecError for a NAMED one, which has no fields."""
    if role is Role.NAMED:
        raise SpecError("only values of kernels have rows, copies and parts")
    digits = [str(x) for x in (register, number) if x is not None]
    text = f"{'s_' * is_place}{role.value}{'_'.join(digits)}"
    text += f"{'' if row is None else f'_{row}'}{part.value}{f'_of{copy}' if copy else ''}"
    return _read(text)


@lru_cache(maxsize=1 << 16)
def _of_row(value: Value, row: int) -> Value:
    return value._replace(row=row)


@lru_cache(maxsize=1 << 16)
def _of_part(value: Value, part: Part) -> Value:
    return value._replace(part=part)
