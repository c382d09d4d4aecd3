"""A study: trials of schedules in a file of text, which several processes may work on and any may leave.

optuna keeps the file, its journal of a line of JSON an operation, and proposes the schedules. Every trial says until
when it may take; one that still runs after that was left alone by its process, and failed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import Annotated, Any, cast

import msgspec
import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from bitsynth.errors import SpecError, ToolError
from bitsynth.files import hold_lock, read_file, unwritable
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningTask
from bitsynth.tune.measurer import Timing
from bitsynth.tune.space import Space

FORMAT = 3
SEED = 2020
GRACE_S = 30
"""For a trial that takes the longest to end what it started."""
_DRAWS = 64
"""Schedules drawn in a row that were tried before, the latter half at random, until there is nothing left to try."""
_EI_CANDIDATES = 4
"""Few, or the sampler draws its favourite again and again: the space is small, and no schedule is tried twice."""
_SCHEDULE, _TIMING, _WHY, _UNTIL = "schedule", "timing", "why", "until"
_ADVICE = "name another file with --study"
_MAX_BYTES = 1 << 30
_LAST_CODE = 10
_START = b'{"op_code":'


class _Operation(msgspec.Struct):
    """The fields that every line has."""

    op_code: Annotated[int, msgspec.Meta(ge=0, le=_LAST_CODE)]
    worker_id: str


@contextmanager
def _open_journal(path: Path) -> Iterator[JournalStorage]:
    """Yield the studies of the file, created if there is none; only this process writes to it within the block.

    An empty file is one without studies. A last line that was cut off as it was written is dropped.
    SpecError for any other file, which stays as it is, and for what the block finds wrong in the studies; ToolError
    if the file cannot be written.
    """
    try:
        _whole_bytes(path)  # Before a lock is created next to it.
        with hold_lock(Path(f"{path}.lock"), lambda error: unwritable(path, error, _ADVICE)) as lock:
            whole = _whole_bytes(path)
            with _refuse_foreign_objects(path):
                storage = JournalStorage(_JournalFile(str(path), cast(Any, lock)))
                for study in storage.get_all_studies():
                    msgspec.json.decode(study.study_name, type=TuningTask)
                if os.path.getsize(path) > whole:
                    os.truncate(path, whole)
                yield storage
    except OSError as error:
        raise unwritable(path, error, _ADVICE) from None


class _JournalFile(JournalFileBackend):
    """A file that says which one cannot be written."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations; ToolError if the file cannot be written."""
        try:
            super().append_logs(logs)
        except OSError as error:
            raise unwritable(Path(self._file_path), error, _ADVICE) from None


def _whole_bytes(path: Path) -> int:
    """Return bytes up to the end of the last whole line.

    SpecError if a line is not an operation, or the file is a link.
    """
    if path.is_symlink():
        raise SpecError(f"{path} is a link; name the file itself with --study")
    try:
        data = read_file(path, _MAX_BYTES)
    except FileNotFoundError:
        return 0
    *lines, cut = data.split(b"\n")
    with _refuse_foreign_objects(path):
        for line in lines:
            msgspec.json.decode(line, type=_Operation)
        if cut and not (lines and (cut.startswith(_START) or _START.startswith(cut))):
            raise ValueError("its last line is neither whole nor the beginning of an operation")
    return len(data) - len(cut)


@contextmanager
def _refuse_foreign_objects(path: Path) -> Iterator[None]:
    """Raise SpecError for objects in a file that are not optuna's: optuna would trust them."""
    try:
        yield
    except (OSError, ToolError):
        raise
    except Exception as error:
        raise SpecError(f"{path} is not a study ({type(error).__name__}: {error}); {_ADVICE}") from None


class Study:
    """The trials of one task: `finished` of them so far, the best first in `rank`. Threads may share it."""

    def __init__(self, study: optuna.Study, space: Space) -> None:
        self._study, self.space = study, space
        seed = SEED + len(study.get_trials(deepcopy=False))
        self._turn, self._running = Condition(), 0
        self._samplers = TPESampler(seed=seed, n_ei_candidates=_EI_CANDIDATES), RandomSampler(seed)

    @property
    def finished(self) -> int:
        """The number of trials that were measured, or failed."""
        return sum(_is_finished(t) for t in self._study.get_trials(deepcopy=False))

    @property
    def failures(self) -> list[str]:
        """The reasons why trials failed."""
        return [t.user_attrs[_WHY] for t in self._study.get_trials(deepcopy=False) if _WHY in t.user_attrs]

    def rank(self) -> list[tuple[LayerSchedule, Timing]]:
        """Return the schedules that were measured and their times, the least ratio to the default first."""
        done = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [(_schedule(t), Timing(*t.user_attrs[_TIMING])) for t in sorted(done, key=lambda t: t.value or 0.0)]

    def enqueue_priors(self) -> None:
        """Enqueue the schedules the cost model would try first, as far as no trial has them."""
        self._fail_stale()
        tried = {_schedule(t) for t in self._study.get_trials(deepcopy=False) if _is_taken(t)}
        waiting = [t.system_attrs.get("fixed_params") for t in self._study.get_trials(False, (TrialState.WAITING,))]
        for schedule in self.space.priors:
            params = self.space.params(schedule)
            if schedule not in tried and params not in waiting:
                self._study.enqueue_trial(params)

    @contextmanager
    def trial(self, most: int, longest_s: float) -> Iterator[RunningTrial | None]:
        """Yield a trial of a schedule that no other trial has, None if `most` are finished or nothing is left.

        It failed unless it is `done`. Threads wait for one another if all that are wanted run; processes do not,
        as one that was killed would be waited for, so that each may end a trial after `most`.
        """
        with self._turn:
            self._turn.wait_for(lambda: not self.finished < most <= self.finished + self._running)
            running = self._begin(longest_s) if self.finished < most else None
            self._running += 1
        try:
            yield running
        finally:
            with self._turn:
                if running and not running.reported:
                    running.drop()
                    self.enqueue_priors()
                self._running -= 1
                self._turn.notify_all()

    def _begin(self, longest_s: float) -> RunningTrial | None:
        self._fail_stale()
        return self._ask(time.time() + longest_s + GRACE_S)

    def _ask(self, until: float) -> RunningTrial | None:
        for draw in range(_DRAWS):
            self._study.sampler = self._samplers[draw >= _DRAWS // 2]
            trial = self._study.ask()
            schedule = self.space.suggest(trial)
            trial.set_user_attr(_UNTIL, until)
            trial.set_user_attr(_SCHEDULE, msgspec.to_builtins(schedule))
            running = RunningTrial(self._study, trial, schedule)
            others = (t for t in self._study.get_trials(deepcopy=False) if t.number != trial.number and _is_taken(t))
            if schedule not in {_schedule(t) for t in others}:
                return running
            running.drop()
        return None

    def _fail_stale(self) -> None:
        for left in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            begun = left.datetime_start.timestamp() if left.datetime_start else 0.0
            if left.user_attrs.get(_UNTIL, begun + GRACE_S) < time.time():
                self._study.tell(left.number, state=TrialState.FAIL, skip_if_finished=True)


class RunningTrial:
    """A trial that is to be measured."""

    def __init__(self, study: optuna.Study, trial: optuna.Trial, schedule: LayerSchedule) -> None:
        self._study, self._trial, self.schedule, self.reported = study, trial, schedule, False

    def finish(self, timing: Timing) -> None:
        """Finish the trial with its times."""
        self._end(timing.ratio, _TIMING, [timing.nanoseconds, timing.default_nanoseconds])

    def fail(self, why: str) -> None:
        """Fail the trial, for the reason `why`."""
        self._end(None, _WHY, why)

    def drop(self) -> None:
        """Fail the trial without a reason: it may be tried again."""
        self._end(None)

    def _end(self, ratio: float | None, attribute: str = "", value: Any = None) -> None:
        """Report to the study, unless others thought that this trial was left alone."""
        with suppress(UpdateFinishedTrialError):
            if attribute:
                self._trial.set_user_attr(attribute, value)
            self._study.tell(self._trial, ratio, None if ratio else TrialState.FAIL, skip_if_finished=True)
        self.reported = True


def _is_finished(trial: FrozenTrial) -> bool:
    return trial.state is TrialState.COMPLETE or _WHY in trial.user_attrs


def _is_taken(trial: FrozenTrial) -> bool:
    return _SCHEDULE in trial.user_attrs and (_is_finished(trial) or trial.state is TrialState.RUNNING)


def _schedule(trial: FrozenTrial) -> LayerSchedule:
    return msgspec.convert(trial.user_attrs[_SCHEDULE], LayerSchedule)


def open_study(path: Path, task: TuningTask, space: Space, fingerprint: str) -> Study:
    """Return the study of `task` in the file, which may hold other tasks' studies; begin it if there is none.

    SpecError if the file is not such a file, or the study has another `fingerprint`; ToolError if it cannot be written.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    name, about = msgspec.json.encode(task).decode(), {"format": FORMAT, "seal": fingerprint}
    with _open_journal(path) as storage:
        known = name in {s.study_name for s in storage.get_all_studies()}
        optuna_study = (optuna.load_study if known else optuna.create_study)(study_name=name, storage=storage)
        study = Study(optuna_study, space)
        study.rank()
        if optuna_study.user_attrs.items() <= about.items():
            for key in about.keys() - optuna_study.user_attrs.keys():
                optuna_study.set_user_attr(key, about[key])
    if optuna_study.user_attrs != about:
        raise SpecError(
            f"{path} has a study of this layer made with another compiler, other kernels, another processor or "
            f"another version; {_ADVICE}"
        )
    return study
