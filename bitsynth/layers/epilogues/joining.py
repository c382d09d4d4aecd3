"""Pixels whose sums fill whole units of an epilogue's program together, where channels alone do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.layer_program import BLOCK
from bitsynth.kernel.elementwise.plain import EpilogueProgram
from bitsynth.layers.spec import LayerSpec

LONGEST_PERIOD = 512
"""Sums, as the runtime has it."""


def joined_pixels(spec: LayerSpec, programs: Sequence[EpilogueProgram]) -> int:
    """So many that the layer's pixels are best joined, 0 if they are not to be.

    Results lie pixel by pixel, and programs take elements in the order of channels, make no words and read nothing
    that a row has of its own.
    """
    g = spec.geometry
    if not programs or g.groups > 1 or spec.out_layout == "NCHW" or not all(map(_can_join, programs)):
        return 0
    unit, channels = max(p.unit for p in programs), g.out_channels
    period = math.lcm(channels, *(p.unit for p in programs))
    pixels = math.prod(g.output(*spec.typical_image))
    count = period // channels
    apart = pixels * -(-channels // unit) * unit
    return count if period <= LONGEST_PERIOD and -(-pixels // count) * period < apart else 0


def _can_join(program: EpilogueProgram) -> bool:
    one = program.spec
    return program.is_ordered and not one.planes and all(x.per != "row" for x in one.inputs)


def by_fours(order: Sequence[int]) -> bool:
    """Whether places of each block have channels after each other, which are brought there together."""
    return all(channel == order[place // BLOCK * BLOCK] + place % BLOCK for place, channel in enumerate(order))


def of_period(values: NDArray[Any], pixels: int) -> NDArray[Any]:
    """Values (count, channels) of each of a period's sums."""
    return np.tile(values, pixels)
