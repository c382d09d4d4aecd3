"""Tuned schedules as text: a JSON file for an instruction set and widths, a user's folder over the shipped one.

A schedule changes speed and never results, so what a file says is taken as it is if it was measured on this kind of
processor and with the kernels that are cached. A file that is not of this form is passed over with a warning.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from bitsynth import paths
from bitsynth.errors import BitsynthWarning, NoKernel, SpecError
from bitsynth.files import locked, read_file, replace_file, set_aside, unwritable
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import load
from bitsynth.kernel.program import Kernel
from bitsynth.kernel.wellformed import MAX_UNROLL
from bitsynth.layers.default import default_schedule, home_of, runs, sets_of
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.spec.matmul import Encoding, MatmulSpec, Operand
from bitsynth.spec.options import KernelOptions
from bitsynth.store import kernels
from bitsynth.store.entry import Entry

FORMAT = 2
_LEAST_NS, _MOST_NS = 1.0, 1e15
_REMEDY = "`bitsynth tune` makes it anew"


class TuningTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a schedule is tuned for; encodings make no difference."""

    isa: str
    act_bits: int
    w_bits: int
    geometry: Geometry
    image: tuple[int, int]
    threads: int

    def spec(self) -> MatmulSpec:
        """The widths, under the encodings of the cache."""
        act, wgt = Operand(self.act_bits, Encoding.UNSIGNED), Operand(self.w_bits, Encoding.BIPOLAR)
        return MatmulSpec(self.isa, act, wgt)

    def default(self) -> LayerSchedule:
        """The schedule it has without tuning."""
        found = default_schedule(self.spec().act, self.spec().wgt, self.geometry, self.image, self.isa)
        return found.among(self.threads, self.out_rows)

    @property
    def out_rows(self) -> int:
        return self.geometry.output(*self.image)[0]


class TuningRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The best schedule found on a kind of `processor`, and its time and the default one's in one run.

    `kernel` is the name of its kernel; `digest` and `default_digest` are of the kernels that were timed
    (`Kernel.digest`), which others must not pass for. Where a board was measured, `board` is what it was like.
    """

    task: TuningTask = msgspec.field(name="problem")
    schedule: LayerSchedule
    kernel: str
    digest: str
    nanoseconds: float
    default: LayerSchedule
    default_digest: str
    default_nanoseconds: float
    compiler: str
    processor: str
    board: str = ""

    @property
    def ratio(self) -> float:
        """Below 1 is faster than the default."""
        return self.nanoseconds / self.default_nanoseconds

    def __post_init__(self) -> None:
        times = self.nanoseconds, self.default_nanoseconds
        if not all(_LEAST_NS <= t <= _MOST_NS for t in times):
            raise SpecError(f"times of a call in nanoseconds are {_LEAST_NS:g} to {_MOST_NS:g}, not {times}")
        words = self.task.isa, self.kernel, self.compiler, self.processor
        if unprintable := [word for word in words if not word.isprintable()]:
            raise SpecError(f"names are printable, not {unprintable[0]!r}")


class _Damaged(SpecError):
    """No version wrote the file so, or one that is no more."""


class _Format(msgspec.Struct, frozen=True):
    format: int


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    tuned: tuple[TuningRecord, ...]


def user_folder() -> Path:
    """Where the user's results are: in BITSYNTH_CACHE, else in the platform's cache folder."""
    chosen = os.environ.get("BITSYNTH_CACHE")
    return (Path(chosen) if chosen else paths.user_cache()) / "tuned"


def schedule_for(
    act: Operand, wgt: Operand, geometry: Geometry, image: tuple[int, int], isa: str, threads: int
) -> tuple[LayerSchedule, str]:
    """The tuned schedule where one is known, else that of one thread, else the default; which and why, in words."""
    default = default_schedule(act, wgt, geometry, image, isa)
    here = home_of(default.isa) if isa == "auto" else isa
    task = TuningTask(here, act.bits, wgt.bits, geometry, image, threads)
    passed_over: dict[str, None] = {}
    for n in dict.fromkeys((threads, 1)):
        for known, why_not in known_for(msgspec.structs.replace(task, threads=n)):
            if why_not:
                passed_over[f"what was tuned on {known.processor} {why_not}"] = None
                continue
            said = f"tuned on {known.processor}, {known.ratio:.2f} of the default's time"
            if n == threads:
                return known.schedule, said
            return known.schedule.among(threads, task.out_rows), f"{said} with one thread"
    return default.among(threads, task.out_rows), "; ".join(["default", *passed_over])


def find(task: TuningTask) -> TuningRecord | None:
    """The user's or the shipped result for `task` that a layer takes, None where it takes the default schedule."""
    return next((known for known, why_not in known_for(task) if not why_not), None)


def known_for(task: TuningTask) -> Iterator[tuple[TuningRecord, str]]:
    """The user's and the shipped results for `task`, the newest first, each with why it is not taken, or "".

    Where this processor runs the instruction set, only those of its own kind are: what is fast on one need not be on
    another. Warns of what is damaged.
    """
    for folder in (user_folder(), paths.shipped_schedules()):
        path = _path(folder, task)
        try:
            found = _read(path)
        except SpecError as why:
            _warn(f"{why}; {_REMEDY}")
            continue
        yield from ((known, _why_not(path, known)) for known in found if known.task == task)


def entry_of(task: TuningTask, schedule: LayerSchedule) -> Entry:
    """The cached kernel that `schedule` runs, wherever that may be; NoKernel where there is none."""
    spec = msgspec.structs.replace(task, isa=schedule.isa).spec()
    options = KernelOptions(schedule.method, schedule.sketch, channels=schedule.channels)
    path = kernels.find(spec, options.variant)
    if path is None:
        raise NoKernel(f"the kernel of {schedule} is gone from the cache; tune again")
    return kernels.load_entry(path).entry


def store(tuned: TuningRecord, folder: Path) -> Path:
    """Write one result, in one step and beside those of other processes; ToolError where that fails.

    It replaces that of the same task and kind of processor, and comes before those of other kinds.
    """
    path = _path(folder, tuned.task)
    with locked(user_folder() / "locks" / f"{path.parent.name}-{path.stem}.lock", partial(unwritable, path)):
        mine = tuned.task, tuned.processor
        others = [known for known in _kept(path) if (known.task, known.processor) != mine]
        content = _File(FORMAT, tuple(sorted([tuned, *others], key=lambda known: msgspec.json.encode(known.task))))
        replace_file(path, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    return path


def _path(folder: Path, task: TuningTask) -> Path:
    return folder / task.isa / f"a{task.act_bits}w{task.w_bits}.json"


def _why_not(path: Path, known: TuningRecord) -> str:
    """Why the result is not taken, in words, or ""."""
    if not _is_for_here(known):
        return "is for that alone"
    try:
        mine, default = (_timed(known, schedule) for schedule in (known.schedule, known.default))
        if (mine.kernel.digest, default.kernel.digest) != (known.digest, known.default_digest):
            return "is older than its kernels"
        if not _has_form(mine.kernel, known.schedule):
            raise SpecError("no kernel has that form")
    except NoKernel:
        return "is older than its kernels"
    except SpecError as why:
        _warn(f"{path}: {known.kernel} cannot be run as {known.schedule}: {why}; {_REMEDY}")
        return "cannot be run"
    return "" if runs(mine) else "needs what this processor lacks"


def _is_for_here(known: TuningRecord) -> bool:
    """Whether it was measured on the kind of processor that will run it; one that only emulates it is of no kind."""
    if not runs_natively(load(known.task.isa).table):
        return True
    from bitsynth.host.facts import here

    return known.processor == here().kind


def _timed(known: TuningRecord, schedule: LayerSchedule) -> Entry:
    """The cached kernel of a schedule that was timed; NoKernel where there is none, SpecError where none can be."""
    if schedule.isa not in sets_of(known.task.isa):
        raise SpecError(f"{known.task.isa} has no kernels of {schedule.isa}")
    return entry_of(known.task, schedule)


def _has_form(kernel: Kernel, schedule: LayerSchedule) -> bool:
    """Whether the kernel comes in the form of the schedule."""
    fits = schedule.rows <= kernel.rows and schedule.unroll <= MAX_UNROLL
    return fits and schedule.bit_axis in kernel.bit_axes


def _kept(path: Path) -> tuple[TuningRecord, ...]:
    """What a file has, none where it is damaged: then it is set aside, and the user told where.

    SpecError for one that cannot be read, or that a newer version wrote: these stay.
    """
    try:
        return _read(path)
    except _Damaged as why:
        _warn(f"{why}; it is kept as {set_aside(path, 'damaged')}")
        return ()


def _read(path: Path) -> tuple[TuningRecord, ...]:
    """What a file has, none where there is none; SpecError if it is not such a file."""
    try:
        data = read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None
    except SpecError as why:
        raise _Damaged(str(why)) from None
    try:
        if (found := msgspec.json.decode(data, type=_Format).format) == FORMAT:
            return msgspec.json.decode(data, type=_File).tuned
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SpecError) as error:
        raise _Damaged(f"{path} has no tuned schedules of this version ({error})") from None
    kind = SpecError if found > FORMAT else _Damaged
    raise kind(f"{path} has no tuned schedules of this version (format {found} is not {FORMAT})")


def _warn(what: str) -> None:
    warnings.warn(what, BitsynthWarning, stacklevel=3)
