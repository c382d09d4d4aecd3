"""Runs several boards, each in a thread: one that fails is left out, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from bitsynth.device import Device
from bitsynth.errors import SpecError, ToolError
from bitsynth.host.placement import no_times
from bitsynth.isa.load import load
from bitsynth.kernel.straight_line import needs
from bitsynth.store.entry import Entry

T = TypeVar("T")


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
def opened(hosts: Sequence[str], isa: str, on_lost: Callable[[str], object], emulator: str = "") -> Iterator[Boards]:
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
