"""The search for formulas: each channel keeps the first candidate that is right, however channels are grouped."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitsynth.graph.types import Tensor
from bitsynth.network.formulas.search import NEAREST_PAIRS, ByChannel, find_by_channel, find_together


@dataclass(frozen=True, eq=False)
class Tried(ByChannel):
    """A number and two more for each channel, and a name that channels share."""

    number: Tensor
    pair: Tensor
    absent: Tensor | None = None
    name: str = "tried"


def tried(number: int, channels: int) -> Tried:
    numbers = number * 1000 + np.arange(channels)
    return Tried(numbers, np.stack([numbers, -numbers]))


@given(st.integers(0, 200), st.lists(st.integers(0, 90), min_size=1, max_size=40))
def test_each_channel_keeps_its_first_right_candidate(count, rights):
    """Candidate k is right in a channel if it is at least the channel's number, and a multiple of it."""
    wanted = np.array(rights)

    def gives(one: Tried, channels: Tensor) -> Tensor:
        assert (one.number % 1000 == channels).all()
        assert (one.pair == [one.number, -one.number]).all()
        number = one.number // 1000
        return np.asarray((number >= wanted[channels]) & (number % np.maximum(wanted[channels], 1) == 0))

    found = find_by_channel((tried(k, len(wanted)) for k in range(count)), gives)
    if wanted.max() >= count:
        assert found is None
    else:
        assert found is not None
        assert (found.number == wanted * 1000 + np.arange(len(wanted))).all()
        assert (found.pair == [found.number, -found.number]).all()
        assert (found.name, found.absent) == ("tried", None)


def test_a_channel_without_candidates_ends_the_search():
    judged = list[int]()

    def gives(one: Tried, channels: Tensor) -> Tensor:
        judged.extend(channels)
        return np.zeros(len(channels), bool)

    assert find_by_channel((tried(k, 100) for k in range(50)), gives) is None
    assert len(judged) == 100 + 8 * 49, "all channels once, and the first few with every candidate"


@pytest.mark.parametrize(("share", "found"), [(0.5, True), (0.4, False)])
def test_candidates_that_are_judged_together(share, found):
    """Half of the channels want candidate 1: the first leaves a share of 0.5 wrong."""
    wanted = np.arange(8) % 2

    def gives(one: Tried, missing: Tensor) -> Tensor:
        assert (one.number // 1000)[~missing].tolist() == wanted[~missing].tolist(), "what is right stays"
        return np.asarray(one.number // 1000 == wanted)

    result = find_together((tried(k, 8) for k in range(3)), gives, share)
    assert (result is not None) == found
    assert result is None or (result.number // 1000 == wanted).all()


def test_nearest_pairs_begin_with_none():
    assert NEAREST_PAIRS[0] == (0, 0)
    assert sorted(NEAREST_PAIRS[1:5]) == [(-1, 0), (0, -1), (0, 1), (1, 0)]
