"""The constants of elementwise programs in memory: values of channels, unit by unit, and what all elements share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec


class UnitConstants:
    """The constants of a program of `spec` that takes `unit` channels at a time.

    Position p of input n belongs to channel orders[n][p] of the unit.
    """

    __slots__ = ()
    spec: ElementwiseSpec
    unit: int

    @property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """For each input the channel at each position of the unit; channel order unless a program overrides it."""
        return find_unmoved(self.spec, self.unit)

    @property
    def order(self) -> tuple[int, ...]:
        """The channels of the unit in the order that inputs of elements have."""
        return self.orders[0]

    @property
    def is_ordered(self) -> bool:
        """Whether elements lie in channel order."""
        return self.order == tuple(range(self.unit))

    @property
    def constant_bytes(self) -> int:
        """Bytes of a unit's values of channels, input by input, value by value."""
        shared = [x for x in self.spec.inputs if x.per == "channel"]
        return sum(x.values * x.lane.bits * self.unit // 8 for x in shared)

    def offset(self, name: str) -> int:
        """Return the bytes before input `name` in a unit's constants, or in the numbers that elements share."""
        per = next(x.per for x in self.spec.inputs if x.name == name)
        out = 0
        for x in self.spec.inputs:
            if x.name == name:
                break
            if (x.per == "channel") == (per == "channel") and x.per not in ("element", "row"):
                out += self.shared_bytes(x)
        return out

    def shared_bytes(self, input_: ElementInput) -> int:
        """Return bytes of an input in a unit's constants, or in the numbers."""
        return input_.values * input_.lane.bits // 8 * (self.unit if input_.per == "channel" else 1)

    def pack(self, channels: int, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
        """Return the constants of `channels` channels in whole units, from arrays (values, channels) by input name.

        Positions after the last channel repeat its values.
        """
        units = -(-channels // self.unit)
        out = np.zeros((units, self.constant_bytes), np.uint8)
        for x, order in zip(self.spec.inputs, self.orders, strict=True):
            if x.per != "channel":
                continue
            places = np.minimum(np.arange(units)[:, None] * self.unit + np.array(order), channels - 1)
            given = np.asarray(arrays[x.name]).reshape(x.values, channels)[:, places].transpose(1, 0, 2)
            part = np.ascontiguousarray(given.astype(_stored_type(x))).view(np.uint8).reshape(units, -1)
            start = self.offset(x.name)
            out[:, start : start + part.shape[1]] = part
        return out


def find_unmoved(spec: ElementwiseSpec, unit: int) -> tuple[tuple[int, ...], ...]:
    """Return the orders of inputs whose positions are channels; none of what no position has of its own."""
    return tuple(() if x.is_shared else tuple(range(unit)) for x in spec.inputs)


def shared_numbers(spec: ElementwiseSpec, values: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return the numbers that all elements of `spec` share, as programs read them."""
    numbers = [np.asarray(values[x.name]).astype(_stored_type(x)) for x in spec.inputs if x.per == "all"]
    return np.frombuffer(b"".join(x.tobytes() for x in numbers), np.uint8)


def _stored_type(input_: ElementInput) -> str:
    """Return the numpy type that values of an input have in memory."""
    return f"<{'f' if input_.lane.sign == 'f' else 'i' if input_.lane.sign == 's' else 'u'}{input_.lane.bits // 8}"
