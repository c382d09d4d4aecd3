"""Tuned schedules: what is tuned and stored, the files they are in, and the schedule found for a layer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from bitsynth import paths
from bitsynth.errors import BitsynthWarning, NoKernel, SpecError
from bitsynth.files import hold_lock, read_file, replace_file, set_aside, unwritable
from bitsynth.host.placement import runs_natively, sets_of
from bitsynth.isa import architecture
from bitsynth.isa.load import load
from bitsynth.kernel.program import Kernel
from bitsynth.kernel.wellformed import MAX_UNROLL
from bitsynth.layers.candidates import cached_entry, runs_here
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.widening import widen_operands
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.store.entry import Entry

_LEAST_NS, _MAX_NS = 1.0, 1e15


class TuningTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The layer that a schedule is tuned for; encodings make no difference."""

    isa: str
    act_bits: int
    w_bits: int
    geometry: Geometry
    image: tuple[int, int]
    threads: int

    def spec(self) -> MatmulSpec:
        """Return the widths, under the encodings of the cache."""
        act, wgt = MatmulOperand(self.act_bits, Encoding.UNSIGNED), MatmulOperand(self.w_bits, Encoding.BIPOLAR)
        return MatmulSpec(self.isa, act, wgt)

    def layer(self) -> LayerSpec:
        """Return the layer, under the encodings of the cache."""
        spec = self.spec()
        return LayerSpec(spec.act, spec.wgt, self.geometry, image=self.image)

    def entry(self, schedule: LayerSchedule) -> Entry:
        """Return the cached kernel that `schedule` runs, wherever that may be; raise NoKernel if there is none."""
        layer = widen_operands(self.layer(), schedule.operands)
        if (entry := cached_entry(schedule, layer.act, layer.wgt)) is None:
            raise NoKernel(f"the kernel of {schedule} is gone from the cache; tune again")
        return entry


class TuningRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The best schedule found on a kind of `processor`, and its time and the default one's in one run.

    `kernel` is the name of its kernel; `digest` and `default_digest` are of the kernels that were timed
    (`Kernel.digest`), which others must not pass for. If a board was measured, `board` has its facts.
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
        """The ratio of the two times, below 1 if faster than the default."""
        return self.nanoseconds / self.default_nanoseconds

    @property
    def cpu(self) -> str:
        """The nearest processor in the instruction set; "" if the set has none."""
        table = load(self.task.isa).table
        nearest = architecture.find_architecture(table.arch).nearest_processor(self.processor, table.cpu)
        return nearest or next((name for name in table.cpu if name in self.processor.lower()), "")

    def __post_init__(self) -> None:
        times = self.nanoseconds, self.default_nanoseconds
        if not all(_LEAST_NS <= t <= _MAX_NS for t in times):
            raise SpecError(f"times of a call in nanoseconds are {_LEAST_NS:g} to {_MAX_NS:g}, not {times}")
        words = self.task.isa, self.kernel, self.compiler, self.processor
        if unprintable := [word for word in words if not word.isprintable()]:
            raise SpecError(f"names are printable, not {unprintable[0]!r}")


FORMAT = 2


class _Damaged(SpecError):
    """A file of a version that is no more, or that no version wrote so."""


class _Format(msgspec.Struct, frozen=True):
    format: int


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    tuned: tuple[TuningRecord, ...]


def path_of(folder: Path, task: TuningTask) -> Path:
    """Return the file in `folder` that has records of `task`, if any."""
    return folder / task.isa / f"a{task.act_bits}w{task.w_bits}.json"


def store(record: TuningRecord, folder: Path) -> Path:
    """Write one record, in one step, next to other processes' records; ToolError if that fails.

    It replaces the record of the same task and kind of processor, and precedes the records of other kinds.
    """
    path = path_of(folder, record.task)
    with hold_lock(
        paths.user_schedules() / "locks" / f"{path.parent.name}-{path.stem}.lock", partial(unwritable, path)
    ):
        mine = record.task, record.processor
        others = [stored for stored in _read_records(path) if (stored.task, stored.processor) != mine]
        content = _File(FORMAT, tuple(sorted([record, *others], key=lambda stored: msgspec.json.encode(stored.task))))
        replace_file(path, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    return path


def _read_records(path: Path) -> tuple[TuningRecord, ...]:
    """Return the records of a file, none if it is damaged: then it is renamed, and a warning names it.

    SpecError for one that cannot be read, or that a newer version wrote: these stay.
    """
    try:
        return read(path)
    except _Damaged as why:
        warn(f"{why}; it is kept as {set_aside(path, 'damaged')}")
        return ()


def read(path: Path) -> tuple[TuningRecord, ...]:
    """Return the records of a file, none if there is none; raise SpecError if it is not such a file."""
    try:
        data = read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None
    except SpecError as why:
        raise _Damaged(str(why)) from None
    try:
        if (number := msgspec.json.decode(data, type=_Format).format) == FORMAT:
            return msgspec.json.decode(data, type=_File).tuned
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SpecError) as error:
        raise _Damaged(f"{path} has no tuned schedules of this version ({error})") from None
    kind = SpecError if number > FORMAT else _Damaged
    raise kind(f"{path} has no tuned schedules of this version (format {number} is not {FORMAT})")


def warn(what: str) -> None:
    """Tell the user of a file that is not as it should be."""
    warnings.warn(what, BitsynthWarning, stacklevel=3)


_REMEDY = "`bitsynth tune` makes it anew"


def find_tuned(task: TuningTask, cpu: str = "") -> Iterator[tuple[TuningRecord, str]]:
    """Yield the user's and the shipped records of `task`, the newest first, each with why it is not taken, or "".

    If this processor runs the instruction set, only records of its own kind are taken: a schedule that is fast on one
    kind need not be fast on another. If layers are for a processor `cpu`, only records of a processor of that name are
    taken. Warns of damaged files.
    """
    for folder in (paths.user_schedules(), paths.shipped_schedules()):
        path = path_of(folder, task)
        try:
            records = read(path)
        except SpecError as why:
            warn(f"{why}; {_REMEDY}")
            continue
        yield from ((record, _why_not(path, record, cpu)) for record in records if record.task == task)


def _why_not(path: Path, record: TuningRecord, cpu: str) -> str:
    """Return the reason why the record is not taken, in words, or ""."""
    if not (record.cpu == cpu if cpu else _is_for_here(record)):
        return "is for that alone"
    try:
        mine, default = (timed_kernel(record, schedule) for schedule in (record.schedule, record.default))
        if (mine.kernel.digest, default.kernel.digest) != (record.digest, record.default_digest):
            return "is older than its kernels"
        if not has_form(mine.kernel, record.schedule):
            raise SpecError("no kernel has that form")
    except NoKernel:
        return "is older than its kernels"
    except SpecError as why:
        warn(f"{path}: {record.kernel} cannot be run as {record.schedule}: {why}; {_REMEDY}")
        return "cannot be run"
    return "" if runs_here(mine, record.task.isa) else "needs what this processor lacks"


def _is_for_here(record: TuningRecord) -> bool:
    """Return whether the schedule was measured on this kind of processor; an emulated one is of no kind."""
    if not runs_natively(load(record.task.isa).table):
        return True
    from bitsynth.host.facts import here

    return record.processor == here().kind


def timed_kernel(record: TuningRecord, schedule: LayerSchedule) -> Entry:
    """Return the cached kernel of a schedule that was timed; raise NoKernel if there is none, SpecError if none can be.

    Its certificate is checked when a layer takes it.
    """
    if schedule.isa not in sets_of(record.task.isa):
        raise SpecError(f"{record.task.isa} has no kernels of {schedule.isa}")
    return record.task.entry(schedule)


def has_form(kernel: Kernel, schedule: LayerSchedule) -> bool:
    """Return whether the kernel comes in the form of the schedule."""
    has_rows = schedule.rows <= kernel.rows and schedule.rows % kernel.together == 0
    return has_rows and schedule.unroll <= MAX_UNROLL and schedule.bit_axis in kernel.bit_axes
