"""The schedules that are tried: every cached kernel for layers, in words of any width, and every way to run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bitsynth.errors import SpecError
from bitsynth.kernel.program import BIT_AXES
from bitsynth.layers.candidates import Candidate, Fits, cpu_for
from bitsynth.layers.cost import Estimate
from bitsynth.layers.planning import rank
from bitsynth.layers.schedule import LayerSchedule, gathers
from bitsynth.layers.tuned import TuningTask, find_tuned

Params = dict[str, Any]
BLOCKS = (0, 32, 64, 128, 256, 512, 1024)
"""Pixels of a block."""
BANDS = (0, 1, 2, 4, 7, 14, 28)
"""Output rows of a band."""
UNROLLS = (0, 2, 4, 8)
"""Times a kernel's loop is unrolled; compilers left to themselves do not unroll it."""
FLUSHES = (2, 4)
"""Divisors of the longest flush interval: after fewer steps, inputs that passes share are still in the cache."""
_PRIORS = 8


class OptunaTrial(Protocol):
    """A trial, as optuna's."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Return the trial's choice among `choices` for the parameter `name`."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """Return the trial's choice from `low` to `high` for the parameter `name`."""


@dataclass(frozen=True)
class Space:
    """The choices for a task: kernels by instruction set and variant, and more."""

    task: TuningTask
    kernels: Mapping[str, Candidate]
    blocks: tuple[int, ...]
    bands: tuple[int, ...]
    priors: tuple[LayerSchedule, ...]
    """Tried first: the default, then what was tuned before or elsewhere, then the cost model's best plans."""
    fingerprint: str
    """The kernels' digests and the default: times of others are not comparable."""

    def suggest(self, trial: OptunaTrial) -> LayerSchedule:
        """Return the schedule of a trial; parameters without an effect are not drawn."""
        name = _choose(trial, "kernel", tuple(self.kernels))
        candidate = self.kernels[name]
        most, together = candidate.entry.kernel.rows, candidate.entry.kernel.together
        gather = _choose(trial, _gather_name(together > 1), gathers(pairs=together > 1))
        rows = together * trial.suggest_int(_own("rows", name), 1, most // together) if most > together else together
        return LayerSchedule(
            candidate.isa,
            candidate.method,
            candidate.channels,
            gather,
            rows if rows < most else 0,
            _choose(trial, "columns_first", (False, True)) if self._direct(candidate).column_tiles > 1 else False,
            _choose(trial, "block_rows", self.blocks),
            _choose(trial, "band_rows", self.bands) if gather != "indirect" else 0,
            flush_steps=_choose(trial, _own("flush", name), (0, *self._flushes(candidate))),
            unroll=_choose(trial, _own("unroll", name), _unrolls(candidate)),
            bit_axis=_choose(trial, "bit_axis", BIT_AXES) if candidate.entry.kernel.bit_axes == BIT_AXES else "inner",
            operands=candidate.operands,
            k_step=candidate.kernel_options.k_step,
            model=candidate.model,
        )

    def proposes(self, schedule: LayerSchedule) -> bool:
        """Return whether a trial may have the schedule; not if no kernel can be as it asks."""
        try:
            return self.suggest(_Fixed(self.params(schedule))) == schedule
        except (LookupError, SpecError):
            return False

    def _direct(self, candidate: Candidate) -> Estimate:
        return Estimate(candidate, self.task.layer(), "direct", candidate.entry.kernel.rows)

    def _flushes(self, candidate: Candidate) -> tuple[int, ...]:
        """Return steps between flushes: fractions of the most that the proof allows and the layer has."""
        most = min(self._direct(candidate).steps, max(p.flush_every for p in candidate.entry.kernel.passes))
        return tuple(most // n for n in FLUSHES if n <= most)

    def params(self, schedule: LayerSchedule) -> Params:
        """Return the parameters for which `suggest` gives `schedule`."""
        name = _name(schedule)
        kernel = self.kernels[name].entry.kernel
        return {
            "kernel": name,
            _gather_name(kernel.together > 1): schedule.gather,
            _own("rows", name): (schedule.rows or kernel.rows) // kernel.together,
            "columns_first": schedule.columns_first,
            "block_rows": schedule.block_rows,
            "band_rows": schedule.band_rows,
            _own("flush", name): schedule.flush_steps,
            _own("unroll", name): schedule.unroll,
            "bit_axis": schedule.bit_axis,
        }


def space(task: TuningTask, fits: Fits | None = None, cpu: str = "") -> Space:
    """Return all choices of kernels that `fits`, by default that run here; NoKernel if none is cached.

    The model's cycles are for `cpu`, or for the processor here.
    """
    estimates = rank(task.layer(), task.isa, fits, cpu or cpu_for(task.isa))
    kernels = {_name(p.candidate): p.candidate for p in estimates}
    height, width = task.geometry.output(*task.image)
    priors = tuple(dict.fromkeys(s.among(task.threads, height) for s in _priors(estimates)))
    whole_space = Space(
        task,
        dict(sorted(kernels.items())),
        tuple(n for n in BLOCKS if n < height * width),
        tuple(sorted({n for n in BANDS if n < height} | {p.band_rows for p in priors})),
        priors,
        " ".join([*sorted(x.entry.kernel.digest[:12] for x in kernels.values()), str(priors[0])]),
    )
    default, *others = priors
    tuned = (record.schedule for record, _ in find_tuned(task) if whole_space.proposes(record.schedule))
    return replace(whole_space, priors=tuple(dict.fromkeys([default, *tuned, *others])))


@dataclass(frozen=True)
class _Fixed:
    """A trial whose parameters are given; LookupError for one that is not a choice."""

    params: Params

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Return the given parameter."""
        return self._one_of(name, choices)

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """Return the given parameter."""
        return int(self._one_of(name, range(low, high + 1)))

    def _one_of(self, name: str, choices: Sequence[Any]) -> Any:
        if self.params[name] not in choices:
            raise LookupError(name)
        return self.params[name]


def _name(what: Candidate | LayerSchedule) -> str:
    """Return the kernel's instruction set and variant."""
    name = f"{what.isa} {what.kernel_options.variant}"
    return f"{name} of {what.operands} bits" if what.operands else name


def _own(what: str, name: str) -> str:
    """Return the name of a parameter that is the kernel's own."""
    return f"{what} of {name}"


def _gather_name(pairs: bool) -> str:
    """Return the name of the parameter that chooses the algorithm, which has the same choices in every trial."""
    return _own("gather", "pairs") if pairs else "gather"


def _unrolls(candidate: Candidate) -> tuple[int, ...]:
    """Return how many times the kernel's innermost loop may be unrolled: at most its trip count."""
    most = max(p.step.trip_count for p in candidate.entry.kernel.passes)
    return tuple(n for n in UNROLLS if n <= most)


def _priors(estimates: list[Estimate]) -> tuple[LayerSchedule, ...]:
    """Return the first schedule of each kernel and algorithm, then the model's next best ones."""
    first = {(_name(p.candidate), p.conv_algorithm): p for p in reversed(estimates)}
    heads = sorted(first.values(), key=lambda p: p.cycles)
    return tuple(dict.fromkeys(p.schedule for p in (*heads, *estimates)))[:_PRIORS]


def _choose(trial: OptunaTrial, name: str, choices: tuple[Any, ...]) -> Any:
    return trial.suggest_categorical(name, choices)
