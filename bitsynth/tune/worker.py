"""A process that measures: `python -m bitsynth.tune.worker`.

A line of JSON each way. The first line it reads is what is tuned (`Start`), every other one a `Question`,
which it answers. Ends with its input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import msgspec

from bitsynth.errors import BitsynthError, Refuted
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningTask
from bitsynth.processes.worker import take_stdout
from bitsynth.tune.layer_timer import LayerTimer


class Start(msgspec.Struct, frozen=True):
    """The task that is tuned, and the schedule all others are compared with."""

    task: TuningTask
    default: LayerSchedule


class Question(msgspec.Struct, frozen=True):
    """A schedule to be measured."""

    schedule: LayerSchedule
    rounds: int


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Both times, or the reason why there are none."""

    nanoseconds: float = 0
    default_nanoseconds: float = 0
    failed: str = ""
    refuted: str = ""


def serve(lines: Iterable[bytes], answer: Callable[[bytes], object]) -> None:
    """Answer every line after the first."""
    lines = iter(lines)
    start = msgspec.json.decode(next(lines), type=Start)
    timer: LayerTimer | None = None
    for line in lines:
        asked = msgspec.json.decode(line, type=Question)
        try:
            timer = timer or LayerTimer(start.task, start.default)
            timing = timer.measure(asked.schedule, asked.rounds)
            result = Answer(timing.nanoseconds, timing.default_nanoseconds)
        except Refuted as error:
            result = Answer(refuted=str(error))
        except BitsynthError as error:
            result = Answer(failed=str(error))
        answer(msgspec.json.encode(result))


if __name__ == "__main__":
    with take_stdout() as answer:
        serve(sys.stdin.buffer, answer)
