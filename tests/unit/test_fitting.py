"""Affine fits: the best factor against many tried, and how far factors may go."""

from __future__ import annotations

import numpy as np
import pytest

from bitsynth.network.formulas.fitting import AffineFit


def _lines(seed: int) -> AffineFit:
    """Codes of random lines at the elements around each of their turns."""
    rng = np.random.default_rng(seed)
    channels, last = 3, int(rng.choice([1, 3, 15, 255]))
    factor = rng.uniform(1e-3, 1, channels) * rng.choice([-1, 1], channels)
    start = rng.uniform(-last, last, channels)
    breakpoints = np.rint((np.arange(last)[:, None] + 0.5 - start) / factor).astype(np.int64)
    elements = np.concatenate([breakpoints - 1, breakpoints, breakpoints + 1, np.full((2, channels), 9)])
    codes = np.rint(elements * factor + start).clip(0, last).astype(np.int64)
    return AffineFit(elements.astype(np.float64), codes, (0, last))


@pytest.mark.parametrize("seed", range(30))
def test_no_factor_leaves_more_room_than_the_best(seed: int) -> None:
    lines = _lines(seed)
    most = lines.room(lines.best)
    for part in np.concatenate(
        [np.linspace(-3, 3, 301), 1 + np.geomspace(1e-9, 0.1, 50), 1 - np.geomspace(1e-9, 0.1, 50)]
    ):
        assert (lines.room(lines.best * part) <= most + 1e-9).all()
    assert (most > 0).all()


@pytest.mark.parametrize("seed", range(30))
def test_factors_leave_room_and_summands_give_the_codes(seed: int) -> None:
    lines = _lines(seed)
    for factor in lines.factors():
        assert (lines.room(factor) >= -1e-9).all()
    summand = next(lines.summands(lines.best))
    assert (np.rint(lines.elements * lines.best + summand).clip(*lines.ends) == lines.codes).all()


def test_codes_of_no_line_leave_no_room() -> None:
    elements, codes = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[0], [3], [0], [3]])
    lines = AffineFit(elements, codes, (0, 3))
    assert lines.room(lines.best)[0] < 0
    assert len([*lines.factors()]) > 0
