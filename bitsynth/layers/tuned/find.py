"""The tuned schedule that a layer takes.

A schedule changes speed and never results, so a record is taken as it is if it was measured on this kind of processor
and with the kernels that are cached. A file that is not of this form is passed over with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bitsynth import paths
from bitsynth.errors import NoKernel, SpecError
from bitsynth.host.placement import runs_natively
from bitsynth.host.sets import sets_of
from bitsynth.isa.load import load
from bitsynth.kernel.program import Kernel
from bitsynth.kernel.wellformed import MAX_UNROLL
from bitsynth.layers.candidates import runs_here
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned.files import path_of, read, warn
from bitsynth.layers.tuned.record import TuningRecord, TuningTask
from bitsynth.store.entry import Entry

_REMEDY = "`bitsynth tune` makes it anew"


def known_for(task: TuningTask, cpu: str = "") -> Iterator[tuple[TuningRecord, str]]:
    """The user's and the shipped records of `task`, the newest first, each with why it is not taken, or "".

    If this processor runs the instruction set, only those of its own kind are: what is fast on one need not be on
    another. If layers are for a processor `cpu`, only those of one of that name. Warns of what is damaged.
    """
    for folder in (paths.user_schedules(), paths.shipped_schedules()):
        path = path_of(folder, task)
        try:
            found = read(path)
        except SpecError as why:
            warn(f"{why}; {_REMEDY}")
            continue
        yield from ((known, _why_not(path, known, cpu)) for known in found if known.task == task)


def _why_not(path: Path, known: TuningRecord, cpu: str) -> str:
    """The reason why the record is not taken, in words, or ""."""
    if not (known.cpu == cpu if cpu else _is_for_here(known)):
        return "is for that alone"
    try:
        mine, default = (timed_kernel(known, schedule) for schedule in (known.schedule, known.default))
        if (mine.kernel.digest, default.kernel.digest) != (known.digest, known.default_digest):
            return "is older than its kernels"
        if not has_form(mine.kernel, known.schedule):
            raise SpecError("no kernel has that form")
    except NoKernel:
        return "is older than its kernels"
    except SpecError as why:
        warn(f"{path}: {known.kernel} cannot be run as {known.schedule}: {why}; {_REMEDY}")
        return "cannot be run"
    return "" if runs_here(mine) else "needs what this processor lacks"


def _is_for_here(known: TuningRecord) -> bool:
    """Whether it was measured on the kind of processor that will run it; one that only emulates it is of no kind."""
    if not runs_natively(load(known.task.isa).table):
        return True
    from bitsynth.host.facts import here

    return known.processor == here().kind


def timed_kernel(known: TuningRecord, schedule: LayerSchedule) -> Entry:
    """The cached kernel of a schedule that was timed; NoKernel if there is none, SpecError if none can be.

    Its certificate is checked when a layer takes it.
    """
    if schedule.isa not in sets_of(known.task.isa):
        raise SpecError(f"{known.task.isa} has no kernels of {schedule.isa}")
    return known.task.entry(schedule)


def has_form(kernel: Kernel, schedule: LayerSchedule) -> bool:
    """Whether the kernel comes in the form of the schedule."""
    has_rows = schedule.rows <= kernel.rows and schedule.rows % kernel.together == 0
    return has_rows and schedule.unroll <= MAX_UNROLL and schedule.bit_axis in kernel.bit_axes
