"""The base of proved types: objects that only a proof can construct."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self


class Sealed:
    """The base of frozen dataclasses that stand for a proof: made by methods of their own alone.

    Kinds say how they are `made`, have `__slots__` and no kinds themselves. They are not pickled: whoever could write a
    pickle could write a proof.
    """

    # Not slots=True: before Python 3.11.3 that puts a `__setstate__` of its own in the place of the one below.
    __slots__ = ()
    _made: ClassVar[str]

    def __init__(self) -> None:
        raise TypeError(self._made)

    def __init_subclass__(cls, made: str = "") -> None:
        if Sealed not in cls.__bases__:
            raise TypeError("a proof has no other kinds")
        cls._made = made

    @classmethod
    def _of(cls, **fields: Any) -> Self:
        """Return the proof with these fields, once it is one."""
        sealed = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(sealed, name, value)
        return sealed

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a proof is not pickled; pickle what it is of, which is checked again where it is read")

    def __setstate__(self, state: object) -> NoReturn:
        raise TypeError("a proof is not unpickled")
