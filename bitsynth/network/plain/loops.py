"""Loop nests in C over the elements of a shape: arrays have strides, and axes contiguous in all are merged."""

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
    """The constant arrays `k0`, `k1` ... of a step; equal ones are stored once."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[np.generic]] = []
        self._names: dict[tuple[str, bytes], str] = {}

    def copy(self) -> ConstantArrays:
        """Return the same arrays, to which others can be added."""
        copied = ConstantArrays()
        copied.arrays, copied._names = [*self.arrays], {**self._names}
        return copied

    def add(self, array: Tensor) -> str:
        """Add an array, flat, and return its name."""
        flat = np.ascontiguousarray(array).reshape(-1)
        key = (str(flat.dtype), flat.tobytes())
        if key not in self._names:
            self._names[key] = f"k{len(self.arrays)}"
            self.arrays.append(flat)
        return self._names[key]


@dataclass
class Loops:
    """A loop nest over the elements of `shape`, written statement by statement.

    Statements that nothing needs are left out, so that whoever makes them may make too many.
    """

    shape: Shape
    constants: ConstantArrays
    places: list[tuple[tuple[AxisStep, ...], int]] = field(default_factory=list)
    order: Sequence[AxisStep] = ()
    """The steps by which axes are ordered, the longest outside: the steps of the result."""
    _statements: list[tuple[str, str]] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def at(self, name: str, steps: Sequence[AxisStep], offset: int = 0) -> str:
        """Return C for the element of an array with strides `steps`, from `offset` on."""
        return f"{name}[{self.place(steps, offset)}]"

    def place(self, steps: Sequence[AxisStep], offset: int = 0) -> str:
        """Return C for the offset of that element from the array's first one."""
        self.places.append((tuple(steps), offset))
        return f"@{len(self.places) - 1}@"

    def value(self, c_type: str, code: str) -> str:
        """Return the name of a value; the same code has the same name."""
        key = f"{c_type} {code}"
        if key not in self._names:
            self._names[key] = f"t{len(self._statements)}"
            self._statements.append((self._names[key], f"const {c_type} {self._names[key]} = {code};"))
        return self._names[key]

    def name_value(self, code: str) -> str:
        """Return the name of a value that statements compute, `{0}` in them."""
        name = f"t{len(self._statements)}"
        self._statements.append((name, code.format(name)))
        return name

    def do(self, code: str) -> None:
        """Add a statement with a side effect."""
        self._statements.append(("", code))

    def render(self, until: str = "") -> str:
        """Return the C of the loop nest; the outermost of several loops ends where C is true."""
        axes = _merge(self.shape, [steps for steps, _ in self.places], self.order)
        indices = [
            _index([row[k] for _, row in axes], [f"i{a}" for a in range(len(axes))], offset)
            for k, (_, offset) in enumerate(self.places)
        ]
        inner = [re.sub(r"@(\d+)@", lambda m: indices[int(m[1])], line) for line in self._find_needed()]
        heads = [f"for (size_t i{a} = 0; i{a} < {n}; ++i{a})" for a, (n, _) in enumerate(axes)]
        if until and len(heads) > 1:
            return "\n".join([heads[0], "{", *heads[1:], "{", *inner, "}", f"if ({until})\nbreak;", "}"])
        return "\n".join([*heads, "{", *inner, "}"])

    def _find_needed(self) -> list[str]:
        needed: list[str] = []
        used: set[str] = set()
        for name, line in reversed(self._statements):
            if not name or name in used:
                used |= set(_WORD.findall(line))
                needed.append(line)
        return needed[::-1]


def _merge(
    shape: Shape, steps: list[tuple[AxisStep, ...]], order: Sequence[AxisStep]
) -> list[tuple[int, list[AxisStep]]]:
    """Return axes with the strides of each array, in `order`: without axes of one element, contiguous ones merged."""
    axes = [(n, [row[k] for row in steps]) for k, n in enumerate(shape)]
    if order:
        size = [step if isinstance(step, int) else 0 for step in order]
        axes = [axes[k] for k in sorted(range(len(axes)), key=lambda k: -abs(size[k]))]
    axes = [(n, row) for n, row in axes if n != 1 or any(isinstance(step, str) for step in row)]
    merged: list[tuple[int, list[AxisStep]]] = []
    for n, row in axes:
        if merged and all(
            isinstance(a, int) and isinstance(b, int) and a == b * n for a, b in zip(merged[-1][1], row, strict=True)
        ):
            merged[-1] = (merged[-1][0] * n, row)
        else:
            merged.append((n, row))
    return merged


def _index(steps: list[AxisStep], names: list[str], offset: int) -> str:
    terms = [] if offset == 0 else [str(offset)]
    for step, name in zip(steps, names, strict=True):
        if isinstance(step, str):
            terms.append("(" + step.format(i=name) + ")")
        elif step:
            terms.append(name if step == 1 else f"{name} * {step}" if step > 0 else f"- {name} * {-step}")
    return " + ".join(terms).replace("+ - ", "- ") or "0"


def align_steps(steps: Sequence[int], shape: Shape, to: Shape) -> tuple[int, ...]:
    """Return the strides of an array of `shape` that broadcasts to another shape: 0 along axes that repeat it."""
    own = [0 if n == 1 else step for n, step in zip(shape, steps, strict=True)]
    return (0,) * (len(to) - len(shape)) + tuple(own)


def dense_steps(shape: Shape) -> tuple[int, ...]:
    """Return the strides of a dense array in the order of its axes."""
    return tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
