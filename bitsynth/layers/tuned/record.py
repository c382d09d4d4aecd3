"""The task of tuning and the record of its result, as files have them."""

from __future__ import annotations

import msgspec

from bitsynth.errors import NoKernel, SpecError
from bitsynth.isa import architecture
from bitsynth.isa.load import load
from bitsynth.layers.candidates import cached_entry
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.widening import widened
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.store.entry import Entry

_LEAST_NS, _MOST_NS = 1.0, 1e15


class TuningTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The layer that a schedule is tuned for; encodings make no difference."""

    isa: str
    act_bits: int
    w_bits: int
    geometry: Geometry
    image: tuple[int, int]
    threads: int

    def spec(self) -> MatmulSpec:
        """The widths, under the encodings of the cache."""
        act, wgt = MatmulOperand(self.act_bits, Encoding.UNSIGNED), MatmulOperand(self.w_bits, Encoding.BIPOLAR)
        return MatmulSpec(self.isa, act, wgt)

    def layer(self) -> LayerSpec:
        """The layer, under the encodings of the cache."""
        spec = self.spec()
        return LayerSpec(spec.act, spec.wgt, self.geometry, image=self.image)

    def entry(self, schedule: LayerSchedule) -> Entry:
        """The cached kernel that `schedule` runs, wherever that may be; NoKernel if there is none."""
        layer = widened(self.layer(), schedule.operands)
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
        """The processor among those that the instruction set names; "" if it is none of them."""
        table = load(self.task.isa).table
        told = architecture.named(table.arch).processors.get(self.processor)
        return next((name for name in table.cpu if name == told or name in self.processor.lower()), "")

    def __post_init__(self) -> None:
        times = self.nanoseconds, self.default_nanoseconds
        if not all(_LEAST_NS <= t <= _MOST_NS for t in times):
            raise SpecError(f"times of a call in nanoseconds are {_LEAST_NS:g} to {_MOST_NS:g}, not {times}")
        words = self.task.isa, self.kernel, self.compiler, self.processor
        if unprintable := [word for word in words if not word.isprintable()]:
            raise SpecError(f"names are printable, not {unprintable[0]!r}")
