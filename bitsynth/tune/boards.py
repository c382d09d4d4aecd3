"""Tuning on boards, each in a thread: all work on one study, and one that fails is left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bitsynth.device import Device, Facts, LayerTimes
from bitsynth.device.device import RunFailed
from bitsynth.device.job import Sampling, Work
from bitsynth.device.program import Program, compile_program
from bitsynth.device.ssh import ANSWER_SECONDS, TimedOut
from bitsynth.errors import NoKernel, SpecError, ToolError
from bitsynth.host.placement import no_times
from bitsynth.isa.load import load
from bitsynth.kernel.straight_line import needs
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningTask
from bitsynth.processes.tool import deadline
from bitsynth.progress import Progress
from bitsynth.store.entry import Entry
from bitsynth.tune.loop import (
    Share,
    TuningResult,
    TuningRun,
    best_record,
    choose,
    compiler,
    explore,
    store_record,
    study_file,
)
from bitsynth.tune.measurer import TaskOperands, Timing, TrialFailed
from bitsynth.tune.space import space
from bitsynth.tune.study import Study, open_study

T = TypeVar("T")
SAMPLE_NS = 1_000_000


class Boards:
    """Boards of one kind; `lost` has the reason of each that failed, `on_lost` is called at once if others go on."""

    def __init__(self, devices: Sequence[Device], on_lost: Callable[[str], object]) -> None:
        self.devices, self.lost, self._on_lost = tuple(devices), dict[Device, str](), on_lost
        self.kind = _kind(self.devices)

    @property
    def left(self) -> list[Device]:
        """The boards that are not lost."""
        return [d for d in self.devices if d not in self.lost]

    def have(self, entry: Entry) -> bool:
        """Return whether all boards have the features that the kernel needs."""
        isa = load(entry.kernel.isa)
        wanted = needs(entry.kernel).host
        return not any(d.facts().lacking(isa.table.arch, wanted) for d in self.devices)

    def cpu(self, isa: str) -> str:
        """Return the common processor's name in the instruction set; "" if the set does not name it."""
        return self.devices[0].facts().cpu(load(isa).table)

    def each(self, work: Callable[[Device], object]) -> None:
        """Do `work` with every board that is left, at once; ToolError if then none is.

        A board whose work ends in a ToolError is lost; any other exception ends the work of all.
        """
        with ThreadPoolExecutor(len(self.left)) as threads:
            working = {threads.submit(work, device): device for device in self.left}
            try:
                for done in as_completed(working):
                    self._note(working[done], done)
            except BaseException:
                self._stop()
                raise
        if not self.left:
            raise self._none_left()

    def one(self, work: Callable[[Device], T]) -> T:
        """Do `work` with a board that is left, with the next if that one is lost; ToolError if all are."""
        for device in self.left:
            try:
                return work(device)
            except ToolError as why:
                self._lose(device, why)
        raise self._none_left()

    def _stop(self) -> None:
        for device in self.devices:
            device.stop()

    def _note(self, device: Device, done: Future[object]) -> None:
        try:
            done.result()
        except ToolError as why:
            self._lose(device, why)

    def _lose(self, device: Device, why: ToolError) -> None:
        self.lost[device] = str(why)
        if self.left:
            self._on_lost(str(why))

    def _none_left(self) -> ToolError:
        reasons = dict.fromkeys(self.lost.values())
        return ToolError(f"{'no board is left: ' if len(reasons) > 1 else ''}{'; '.join(reasons)}")


@contextmanager
def open_boards(
    hosts: Sequence[str], isa: str, on_lost: Callable[[str], object], emulator: str = ""
) -> Iterator[Boards]:
    """Yield boards that run `isa`; ToolError if one cannot be reached or lacks it, SpecError if one only emulates."""
    with ExitStack() as stack:
        devices = [stack.enter_context(Device(host, emulator=emulator)) for host in dict.fromkeys(hosts)]
        for device in devices:
            if device.emulated_by:
                raise no_times(
                    f"{device.host} runs programs by {device.emulated_by}",
                    f"name a board whose own processor runs {isa}",
                )
            device.require(isa, load(isa).requirements())
        _require_apart(devices)
        yield Boards(devices, on_lost)


def _require_apart(devices: Sequence[Device]) -> None:
    """Raise SpecError if two are one, by what a system says of its start: no other has the same."""
    first = dict[str, Device]()
    for device in devices:
        boot = device.facts().boot
        if boot and (other := first.setdefault(boot, device)) is not device:
            raise SpecError(
                f"{other.host} and {device.host} are one board: what runs for one makes the other's times useless; "
                "name it once"
            )


def _kind(devices: Sequence[Device]) -> str:
    """Return the kind of processor they have; SpecError if they differ."""
    first = devices[0].facts().kind
    for other in devices[1:]:
        if (kind := other.facts().kind) != first:
            raise SpecError(
                f"{devices[0].host} has {first}, {other.host} {kind}: what is fast on one need not be on the other; "
                "tune them one after the other"
            )
    return first


def default_work(operands: TaskOperands, schedule: LayerSchedule) -> Work:
    """Return the default schedule's layer and its output, which all others must give too."""
    return Work("the default schedule", operands.layer(schedule), operands.codes, operands.exact())


class BoardMeasurer:
    """A measurer on `device`; `measured` counts the schedules. ToolError if the board is at fault."""

    def __init__(self, device: Device, operands: TaskOperands, default: Work, timeout_s: float) -> None:
        self.device, self.operands, self.default, self.timeout_s = device, operands, default, timeout_s
        self.measured = 0

    @property
    def longest_s(self) -> float:
        """Seconds after which `measure` is through."""
        return self.timeout_s + ANSWER_SECONDS

    def measure(self, schedule: LayerSchedule, rounds: int) -> Timing:
        """Return the fastest of `rounds` alternating samples of each, which other load on the board disturbs least."""
        end = time.monotonic() + self.timeout_s
        work, program = self._compile(schedule, end)
        try:
            default, mine = self._run(program, work, rounds, end)
        except RunFailed as why:
            raise TrialFailed(str(why)) from None
        except TimedOut:
            self.device.facts_now()  # A board that is gone says nothing about the schedule.
            raise TrialFailed(f"{self.device.host}: took longer than {self.timeout_s:g} s") from None
        self.measured += 1
        return Timing(min(mine.ns), min(default.ns))

    def _run(self, program: Program, work: Sequence[Work], rounds: int, end: float) -> list[LayerTimes]:
        sampling = Sampling(rounds, together=len(work), sample_ns=SAMPLE_NS, times_float=False)
        return self.device.run(program, work, self.operands.task.threads, sampling, end)

    def _compile(self, schedule: LayerSchedule, end: float) -> tuple[Sequence[Work], Program]:
        try:
            work = self.default, self._work(schedule)
            with deadline(end):
                return work, compile_program(w.layer for w in work)
        except (SpecError, NoKernel, ToolError) as why:
            raise TrialFailed(str(why)) from None

    def _work(self, schedule: LayerSchedule) -> Work:
        return Work(str(schedule), self.operands.layer(schedule), self.operands.codes, self.default.output)


def require_measurable(boards: Boards, task: TuningTask) -> None:
    """Raise NoKernel if no kernel is for all of `boards`."""
    space(task, boards.have, boards.cpu(task.isa))


def tune_task(
    boards: Boards,
    task: TuningTask,
    trials: int,
    timeout_s: float,
    study: Path | None,
    folder: Path | None,
    progress: Progress,
) -> TuningRun:
    """Work on the study of `task` until it has `trials`, and store its best in `folder`, the user's by default.

    The study is of one kind of processor. A board that disappears loses its trial; ToolError if none is left.
    """
    cpu = boards.cpu(task.isa)
    schedules, path = space(task, boards.have, cpu), study or study_file(task, boards.kind)
    opened = open_study(path, task, schedules, f"{schedules.fingerprint} {compiler(task)} {boards.kind}")
    opened.enqueue_priors()
    work = _Work(opened, TaskOperands(task, cpu), trials, timeout_s, progress)
    boards.each(work.explore)
    result, facts = boards.one(work.choose)
    mine = best_record(task, result, schedules.priors[0], boards.kind, str(facts))
    return TuningRun(mine, result, store_record(mine, folder), path, work.shares(boards.lost))


class _Work:
    """The work of every board, in a thread of its own."""

    def __init__(self, study: Study, operands: TaskOperands, trials: int, timeout_s: float, progress: Progress) -> None:
        self.study, self.operands, self.trials, self.timeout_s = study, operands, trials, timeout_s
        self.progress, self._shares = progress, dict[Device, Share]()
        self._default = default_work(operands, study.space.priors[0])

    def explore(self, device: Device) -> None:
        """Run trials until there are enough."""
        share = self._shares[device] = Share(device.host)
        share.before = share.after = device.facts_now()
        measurer = self._measurer(device)
        try:
            explore(self.study, measurer, self.trials, self._progress_of(device))
        finally:
            share.trials = measurer.measured
        share.after = device.facts_now()

    def choose(self, device: Device) -> tuple[TuningResult, Facts]:
        """Return the result, and the facts of the board after it."""
        return choose(self.study, self._measurer(device), self.trials, self._progress_of(device)), device.facts_now()

    def shares(self, lost: Mapping[Device, str]) -> tuple[Share, ...]:
        """Return the share of each board."""
        return tuple(replace(share, lost=lost.get(device, "")) for device, share in self._shares.items())

    def _measurer(self, device: Device) -> BoardMeasurer:
        return BoardMeasurer(device, self.operands, self._default, self.timeout_s)

    def _progress_of(self, device: Device) -> Progress:
        return lambda message, done=0, total=None: self.progress(f"{device.host}: {message}", done, total)
