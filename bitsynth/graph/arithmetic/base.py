"""What an arithmetic can do, beside `+ - * /` of its numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from bitsynth.graph.types import Edge, Shape, Tensor

Quantity = Any
"""An array of the arithmetic's numbers."""


class Arithmetic(ABC):
    """Functions of numbers: arrays, or intervals of arrays, of any shape."""

    reference: str

    @property
    def of_integers(self) -> Arithmetic | None:
        """An arithmetic of the same kind of numbers that is exact for integers, if it has one of its own."""
        return None

    @abstractmethod
    def number(self, value: Tensor, edge: Edge) -> Quantity:
        """The numbers that a value of an edge stands for: of integers scale * (n - zero)."""

    @abstractmethod
    def constant(self, value: Any) -> Quantity:
        """The numbers of an array of floats, exactly."""

    @abstractmethod
    def typed(self, number: Quantity, dtype: str) -> Quantity:
        """The numbers as the type of the file has them: floats are rounded to it, real numbers stay what they are."""

    @abstractmethod
    def move(self, apply: Callable[..., Tensor], *numbers: Quantity) -> Quantity:
        """What `apply`, which only moves and repeats elements, makes of the arrays."""

    @abstractmethod
    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """`function`, a staircase that never falls, of the numbers; `exactly` gives fractions where a mask says so."""

    @abstractmethod
    def matmul(self, a: Quantity, b: Quantity) -> Quantity:
        """The matrix product of the last two axes, sums rounded once."""

    @abstractmethod
    def maximum(self, a: Quantity, b: Quantity) -> Quantity:
        """The greater of each two."""

    @abstractmethod
    def minimum(self, a: Quantity, b: Quantity) -> Quantity:
        """The lesser of each two."""

    @abstractmethod
    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        """Sums along axes, which stay as 1."""

    @abstractmethod
    def max(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        """The greatest along axes, which stay as 1."""

    @abstractmethod
    def call(self, name: str, a: Quantity) -> Quantity:
        """A function of one number by name: sqrt, exp, log, tanh, sigmoid or erf."""

    def shape(self, a: Quantity) -> Shape:
        """The shape of the numbers."""
        found: Shape = a.shape
        return found

    def min(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        """The least along axes, which stay as 1."""
        return -self.max(-a, axes)

    def clip(self, a: Quantity, low: Quantity | None, high: Quantity | None) -> Quantity:
        """The numbers, none below `low`, then none above `high`."""
        a = a if low is None else self.maximum(a, low)
        return a if high is None else self.minimum(a, high)
