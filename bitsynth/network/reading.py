"""How a model file was read: the options of `graph.read`, as a network, its C and its certificate record them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from bitsynth.graph.read import InputCodes, ReadOptions

_MAX_RECORDED = 64
"""The most numbers of a fixed input that are recorded."""


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options with which a file was read.

    Args:
        batch: The first axis of inputs, where the file leaves it open.
        codes: The codes that float inputs hold.
        fixed: Inputs that became constants, by name: a number or nested lists of numbers; None if these are many.
        shapes: Sizes that the file leaves open, by the name of the input or of the size.
    """

    batch: int | None = None
    codes: InputCodes | None = None
    fixed: dict[str, Any] = {}
    shapes: dict[str, int | list[int]] = {}

    @classmethod
    def of(cls, options: ReadOptions) -> Reading:
        """Return the record of options, with names in order."""
        fixed, shapes = options.get("fixed") or {}, options.get("shapes") or {}
        return cls(
            batch=options.get("batch"),
            codes=options.get("codes"),
            fixed={name: _record(value) for name, value in sorted(fixed.items())},
            shapes={name: size if isinstance(size, int) else list(size) for name, size in sorted(shapes.items())},
        )


def _record(value: Any) -> Any:
    """Return the value of a fixed input: numbers in lists; None if there are many."""
    array = np.asarray(value)
    return array.tolist() if array.size <= _MAX_RECORDED else None
