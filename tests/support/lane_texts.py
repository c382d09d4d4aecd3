"""Texts of the lane language, evaluated on numbers."""

from typing import Any

import numpy as np

from bitsynth.isa import lane
from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.concrete import ConcreteDomain


def evaluated(text: str, given: dict[str, Any]) -> Any:
    """Return the value of a text; inputs are float64, (integers, bits), or a list of either for a table."""
    values = {name: [_bits(x) for x in one] if isinstance(one, list) else _bits(one) for name, one in given.items()}
    (value,) = lane.compile_lanes(lane.parse("test", text, values), 1, [*values])(*values.values())
    return value.v


def _bits(given: Any) -> Bits:
    if isinstance(given, tuple):
        integers, bits = given
        return Bits(ConcreteDomain(), bits, np.asarray(integers).astype(np.uint64) & np.uint64((1 << bits) - 1))
    return Bits(ConcreteDomain(), 64, np.asarray(given, np.float64).view(np.uint64))
