"""Tuned schedules as text: a JSON file for an instruction set and widths, a user's folder over the shipped one.

A schedule changes speed and never results, so what a file says is taken as it is, as long as the kernel
it was tuned with is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from bitsynth import cache, paths
from bitsynth.build.runners import runs_natively
from bitsynth.cache import Entry
from bitsynth.choice import Choice
from bitsynth.errors import SpecError, ToolError
from bitsynth.files import locked, replace_file, unwritable
from bitsynth.isa.load import load
from bitsynth.layers.default import default_schedule, home_of, runs, sets_of
from bitsynth.layers.geometry import Geometry
from bitsynth.program import Kernel
from bitsynth.schedule.layer import LayerSchedule
from bitsynth.spec import Encoding, MatmulSpec, Operand
from bitsynth.wellformed import MAX_UNROLL

FORMAT = 1
_LEAST_NS, _MOST_NS = 1.0, 1e15
_REMEDY = "delete it, or run `bitsynth tune` again"


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class Tuned(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The best schedule found, for the kernel called `kernel`, and its time and the default one's in one run.

    Where a board was measured, `processor` is its kind and `board` what it was like; this machine was where they are
    empty.
    """

    problem: Problem
    schedule: LayerSchedule
    kernel: str
    nanoseconds: float
    default_nanoseconds: float
    compiler: str
    processor: str = ""
    board: str = ""

    def __post_init__(self) -> None:
        times = self.nanoseconds, self.default_nanoseconds
        if not all(_LEAST_NS <= t <= _MOST_NS for t in times):
            raise SpecError(f"times of a call in nanoseconds are {_LEAST_NS:g} to {_MOST_NS:g}, not {times}")
        words = self.problem.isa, self.kernel, self.compiler, self.processor
        if unprintable := [word for word in words if not word.isprintable()]:
            raise SpecError(f"names are printable, not {unprintable[0]!r}")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    tuned: tuple[Tuned, ...]


def user_folder() -> Path:
    """Where the user's results are: in BITSYNTH_CACHE, else in the platform's cache folder."""
    chosen = os.environ.get("BITSYNTH_CACHE")
    return (Path(chosen) if chosen else paths.user_cache()) / "tuned"


def schedule_for(
    act: Operand, wgt: Operand, geometry: Geometry, image: tuple[int, int], isa: str, threads: int
) -> tuple[LayerSchedule, str]:
    """The tuned schedule where one is known, else that of one thread, else the default; which it is, in words."""
    default = default_schedule(act, wgt, geometry, image, isa)
    here = home_of(default.isa) if isa == "auto" else isa
    problem = Problem(here, act.bits, wgt.bits, geometry, image, threads)
    found = find(problem)
    if found is None and threads > 1:
        found = find(msgspec.structs.replace(problem, threads=1))
    if found is None:
        return default.among(threads, problem.out_rows), "default"
    where = f" on {found.processor}" if found.processor else ""
    said = f"tuned{where}, {found.nanoseconds / found.default_nanoseconds:.2f} of the default's time"
    if found.problem == problem:
        return found.schedule, said
    return found.schedule.among(threads, problem.out_rows), f"{said} with one thread"


def find(problem: Problem) -> Tuned | None:
    """The user's or the shipped result for `problem` whose kernel is cached; SpecError where a file is broken.

    Where this processor runs the instruction set, one of a board of its own kind; else of any, the newest.
    """
    for folder in (user_folder(), paths.shipped_schedules()):
        path = _path(folder, problem)
        for known in _read(path):
            if known.problem == problem and _is_for_here(known) and _fits(path, known):
                return known
    return None


def entry_of(problem: Problem, schedule: LayerSchedule) -> Entry | None:
    """The cached kernel that `schedule` runs; None where there is none that runs here."""
    entry = any_entry_of(problem, schedule)
    return entry if entry and runs(entry) else None


def any_entry_of(problem: Problem, schedule: LayerSchedule) -> Entry | None:
    """The cached kernel that `schedule` runs, wherever that may be; None where there is none."""
    spec = msgspec.structs.replace(problem, isa=schedule.isa).spec()
    choice = Choice(schedule.method, schedule.sketch, channels=schedule.channels)
    path = cache.find(spec, choice.variant)
    return cache.load_entry(path) if path else None


def store(tuned: Tuned, folder: Path) -> Path:
    """Write one result, in one step and beside those of other processes; ToolError where that fails.

    It replaces that of the same problem and kind of processor, and comes before those of other kinds.
    """
    path = _path(folder, tuned.problem)
    with locked(user_folder() / "locks" / f"{path.parent.name}-{path.stem}.lock", partial(unwritable, path)):
        mine = tuned.problem, tuned.processor
        others = [known for known in _read(path) if (known.problem, known.processor) != mine]
        content = _File(FORMAT, tuple(sorted([tuned, *others], key=lambda known: msgspec.json.encode(known.problem))))
        replace_file(path, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    return path


def _path(folder: Path, problem: Problem) -> Path:
    return folder / problem.isa / f"a{problem.act_bits}w{problem.w_bits}.json"


def _is_for_here(known: Tuned) -> bool:
    """Whether it was measured on a processor of the kind that will run it, as far as that is known."""
    if not known.processor or not runs_natively(load(known.problem.isa).table):
        return True
    from bitsynth.device.facts import here

    return known.processor == here().kind


def _fits(path: Path, known: Tuned) -> bool:
    """Whether the kernel it was tuned with is the cached one; SpecError where that cannot be run so."""
    reachable = known.schedule.isa in sets_of(known.problem.isa)
    try:
        entry = entry_of(known.problem, known.schedule) if reachable else None
    except SpecError as why:
        raise SpecError(f"{path}: {known.schedule} cannot be run: {why}; {_REMEDY}") from None
    if reachable and (entry is None or entry.name != known.kernel):
        return False
    if entry is None or not _has_form(entry.kernel, known.schedule):
        raise SpecError(f"{path}: {known.kernel} cannot be run as {known.schedule}; {_REMEDY}")
    return True


def _has_form(kernel: Kernel, schedule: LayerSchedule) -> bool:
    """Whether the kernel comes in the form of the schedule."""
    fits = schedule.rows <= kernel.rows and schedule.unroll <= MAX_UNROLL
    return fits and schedule.bit_axis in kernel.bit_axes


def _read(path: Path) -> Iterator[Tuned]:
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}; {_REMEDY}") from None
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SpecError) as error:
        raise SpecError(f"{path} has no tuned schedules of this version ({error}); {_REMEDY}") from None
    if file.format != FORMAT:
        raise SpecError(f"{path} has format {file.format}, this version reads {FORMAT}; {_REMEDY}")
    yield from file.tuned
