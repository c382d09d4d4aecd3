"""Loop nests in C over the elements of a shape: what lies where by strides, merged where it lies together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bitsynth.graph.types import Shape, Tensor

AxisStep = int | str
"""From one place of an axis to the next: elements, or C that has the place `{i}` and gives elements."""

_WORD = re.compile(r"\b[a-z]+\d+\b")


class ConstantArrays:
    """The arrays `k0`, `k1` ... of a step; equal ones once."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[np.generic]] = []
        self._names: dict[tuple[str, bytes], str] = {}

    def add(self, array: Tensor) -> str:
        """The name of an array, flat."""
        flat = np.ascontiguousarray(array).reshape(-1)
        key = (str(flat.dtype), flat.tobytes())
        if key not in self._names:
            self._names[key] = f"k{len(self.arrays)}"
            self.arrays.append(flat)
        return self._names[key]


@dataclass
class Loops:
    """A loop nest over the elements of `shape`, statement by statement.

    Statements that nothing needs are left out, so that whoever makes them may make too many.
    """

    shape: Shape
    constants: ConstantArrays
    places: list[tuple[tuple[AxisStep, ...], int]] = field(default_factory=list)
    order: Sequence[AxisStep] = ()
    """The steps by which axes are ordered, the longest outside: those of what is written."""
    _statements: list[tuple[str, str]] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def at(self, name: str, steps: Sequence[AxisStep], offset: int = 0) -> str:
        """The element of an array that lies by `steps`, one an axis, from `offset` on."""
        return f"{name}[{self.place(steps, offset)}]"

    def place(self, steps: Sequence[AxisStep], offset: int = 0) -> str:
        """Where that lies: C of elements from the array's first."""
        self.places.append((tuple(steps), offset))
        return f"@{len(self.places) - 1}@"

    def value(self, c_type: str, code: str) -> str:
        """The name of a value; of the same code the same."""
        key = f"{c_type} {code}"
        if key not in self._known:
            self._known[key] = f"t{len(self._statements)}"
            self._statements.append((self._known[key], f"const {c_type} {self._known[key]} = {code};"))
        return self._known[key]

    def named(self, code: str) -> str:
        """The name of a value that statements give, `{0}` in them."""
        name = f"t{len(self._statements)}"
        self._statements.append((name, code.format(name)))
        return name

    def do(self, code: str) -> None:
        """A statement that stays."""
        self._statements.append(("", code))

    def render(self) -> str:
        """The C."""
        axes = _merged(self.shape, [steps for steps, _ in self.places], self.order)
        indices = [
            _index([row[k] for _, row in axes], [f"i{a}" for a in range(len(axes))], offset)
            for k, (_, offset) in enumerate(self.places)
        ]
        inner = [re.sub(r"@(\d+)@", lambda m: indices[int(m[1])], line) for line in self._needed()]
        heads = [f"for (size_t i{a} = 0; i{a} < {n}; ++i{a})" for a, (n, _) in enumerate(axes)]
        return "\n".join([*heads, "{", *inner, "}"])

    def _needed(self) -> list[str]:
        kept: list[str] = []
        used: set[str] = set()
        for name, line in reversed(self._statements):
            if not name or name in used:
                used |= set(_WORD.findall(line))
                kept.append(line)
        return kept[::-1]


def _merged(
    shape: Shape, steps: list[tuple[AxisStep, ...]], order: Sequence[AxisStep]
) -> list[tuple[int, list[AxisStep]]]:
    """Axes with the steps of each array: none of one element at 0, those that lie together as one, by `order`."""
    axes = [(n, [row[k] for row in steps]) for k, n in enumerate(shape)]
    if order:
        size = [step if isinstance(step, int) else 0 for step in order]
        axes = [axes[k] for k in sorted(range(len(axes)), key=lambda k: -abs(size[k]))]
    axes = [(n, row) for n, row in axes if n != 1 or any(isinstance(step, str) for step in row)]
    made: list[tuple[int, list[AxisStep]]] = []
    for n, row in axes:
        if made and all(
            isinstance(a, int) and isinstance(b, int) and a == b * n for a, b in zip(made[-1][1], row, strict=True)
        ):
            made[-1] = (made[-1][0] * n, row)
        else:
            made.append((n, row))
    return made


def _index(steps: list[AxisStep], names: list[str], offset: int) -> str:
    terms = [] if offset == 0 else [str(offset)]
    for step, name in zip(steps, names, strict=True):
        if isinstance(step, str):
            terms.append("(" + step.format(i=name) + ")")
        elif step:
            terms.append(name if step == 1 else f"{name} * {step}" if step > 0 else f"- {name} * {-step}")
    return " + ".join(terms).replace("+ - ", "- ") or "0"


def aligned_steps(steps: Sequence[int], shape: Shape, to: Shape) -> tuple[int, ...]:
    """The steps of an array of `shape` that broadcasts to another: 0 along axes that repeat it."""
    own = [0 if n == 1 else step for n, step in zip(shape, steps, strict=True)]
    return (0,) * (len(to) - len(shape)) + tuple(own)


def dense_steps(shape: Shape) -> tuple[int, ...]:
    """The steps of an array in the order of its axes."""
    return tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
