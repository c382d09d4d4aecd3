"""Where levels of monotone functions turn, against counting them one by one; and in how few evaluations."""

from __future__ import annotations

import numpy as np
import pytest

from bitsynth.graph.types import Tensor
from bitsynth.network.formulas.step_functions import find_breakpoints


class _Levels:
    """Levels by thresholds (m, channels) of rising or falling channels; it counts how often it is asked."""

    def __init__(self, thresholds: Tensor, rising: Tensor) -> None:
        self.thresholds, self.rising, self.asked = thresholds, rising, 0

    def __call__(self, elements: Tensor) -> Tensor:
        assert len(elements)
        self.asked += 1
        after = elements[:, None] >= self.thresholds
        return np.asarray(np.where(self.rising, after, ~after).sum(1))


@pytest.mark.parametrize("seed", range(20))
def test_thresholds_are_found_wherever_they_lie(seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels, m = int(rng.integers(1, 5)), int(rng.choice([1, 2, 3, 15, 255]))
    low = rng.integers(-1 << 40, 1 << 20, channels)
    high = low + rng.integers(0, [3, 1 << 9, 1 << 41][seed % 3], channels)
    rising = rng.integers(0, 2, channels) == 1
    found = np.sort(rng.integers(low - 2, high + 3, (m, channels)), axis=0)
    levels = _Levels(np.where(rising, found, found[::-1]), rising)
    breakpoints, rises = find_breakpoints(levels, low, high, m)
    ends = levels(np.stack([low, high]))
    flat = ends[0] == ends[1]
    assert (rises == (rising | flat)).all()
    want = np.where(rises, np.sort(levels.thresholds, 0), np.sort(levels.thresholds, 0)[::-1])
    same = np.clip(breakpoints, low, high + 1) == np.clip(want, low, high + 1)
    assert (same | flat).all()
    for near in (
        breakpoints,
        breakpoints + rng.integers(-5, 6, breakpoints.shape),
        rng.integers(-1 << 50, 1 << 50, breakpoints.shape),
    ):
        assert (find_breakpoints(levels, low, high, m, near)[0] == breakpoints).all()


def test_levels_near_those_that_are_given_take_few_evaluations() -> None:
    """As many as there are channels: of a search without, each asks for 64 parts of what is between."""
    rng = np.random.default_rng(1)
    low, high = np.full(500, -(1 << 20)), np.full(500, 1 << 20)
    thresholds = np.sort(rng.integers(-1 << 20, 1 << 20, (3, 500)), axis=0)
    levels = _Levels(thresholds, np.ones(500, bool))
    breakpoints, _ = find_breakpoints(levels, low, high, 3, thresholds + rng.integers(-1, 2, thresholds.shape))
    assert (breakpoints == thresholds).all()
    assert levels.asked <= 4


def test_the_places_of_all_float64_are_searched_without_leaving_int64() -> None:
    far = (1 << 62) + 12345
    low, high = np.array([-far]), np.array([far])
    levels = _Levels(np.array([[-far + 7], [0], [far - 3]]), np.array([True]))
    breakpoints, _ = find_breakpoints(levels, low, high, 3)
    assert breakpoints[:, 0].tolist() == [-far + 7, 0, far - 3]


def test_levels_on_a_line_take_few_evaluations() -> None:
    slope, start = np.array([0.00037, 0.0011]), np.array([3.3, -40.2])
    thresholds = np.ceil((np.arange(1, 256)[:, None] - 0.5 - start) / slope).astype(np.int64)
    levels = _Levels(thresholds, np.array([True, True]))
    breakpoints, _ = find_breakpoints(levels, np.array([-(1 << 20)] * 2), np.array([1 << 20] * 2), 255)
    assert (breakpoints == np.clip(thresholds, -(1 << 20), (1 << 20) + 1)).all()
    assert levels.asked <= 9
