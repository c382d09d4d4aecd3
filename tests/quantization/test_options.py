"""Options of the quantizer that are checked before anything is run: goals, and the length of fine-tuning."""

import pytest

from bitsynth.errors import SpecError
from bitsynth.quantization import FineTuning
from bitsynth.quantization.goal import goal_of


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ({}, ("cycles", 0.01)),
        ({"loss": 0.1}, ("cycles", 0.1)),
        ({"cycles": 10}, ("loss", None)),
        ({"bytes": 10, "loss": 0.2}, ("cycles", 0.2)),
        ({"bytes": 10, "minimize": "cycles"}, ("cycles", 0.01)),
        ({"cycles": 10, "loss": 0.2, "minimize": "loss"}, ("loss", 0.2)),
    ],
)
def test_what_is_minimized(bounds, wanted):
    goal = goal_of(**bounds)
    assert (goal.minimize, goal.loss) == wanted


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"loss": 1.5}, "the loss allowed is 1.5"),
        ({"cycles": 0}, "the cycles allowed are 0"),
        ({"bytes": float("nan")}, "the bytes allowed are nan"),
        ({"minimize": "loss"}, "give a bound of cycles or bytes too"),
    ],
)
def test_goals_that_mean_nothing_are_refused(bounds, message):
    with pytest.raises(SpecError, match=message):
        goal_of(**bounds)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10", FineTuning(minutes=10)),
        ("0.5", FineTuning(minutes=0.5)),
        ("2000steps", FineTuning(steps=2000)),
        ("1 step", FineTuning(steps=1)),
    ],
)
def test_the_length_of_fine_tuning_is_minutes_or_steps(text, length):
    assert FineTuning.parse(text) == length


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e3", "1.5steps", "10 minutes", "\u0661", "12345678"])
def test_other_lengths_are_refused(text):
    with pytest.raises(SpecError, match=f"--finetune: want minutes, .*, not {text!r}"):
        FineTuning.parse(text)


@pytest.mark.parametrize("text", ["0", "0.0", "0steps"])
def test_a_length_of_0_is_refused(text):
    with pytest.raises(SpecError, match="a number of minutes, or of steps, above 0"):
        FineTuning.parse(text)


@pytest.mark.parametrize("lengths", [{}, {"minutes": 1.0, "steps": 1}, {"minutes": float("inf")}])
def test_a_length_is_one_number(lengths):
    with pytest.raises(SpecError, match="a number of minutes, or of steps, above 0"):
        FineTuning(**lengths)


def test_the_share_that_is_over():
    assert FineTuning(minutes=2).share(30, 1000) == 0.25
    assert FineTuning(steps=200).share(1e9, 50) == 0.25
