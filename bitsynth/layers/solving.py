"""Kernels for layers that are not cached: the command that solves one, or solving it here."""

from __future__ import annotations

from bitsynth.host.sets import widest
from bitsynth.layers.candidates import CHANNELS, cached_entry, candidates
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.widening import widened
from bitsynth.progress import Progress
from bitsynth.spec.options import KernelOptions, synth_command
from bitsynth.store import kernels

OPTIONS = KernelOptions(channels=CHANNELS[0])
"""Of a kernel that any layer can have: the cheapest of all methods."""


def advice(spec: LayerSpec, isa: str) -> str:
    """What to do if layers of these widths have no kernel on `isa`, which may be "auto"."""
    command = synth_command(spec.product(widest(isa)), OPTIONS)
    return f"run `{command}`, or make the layer with solve=True"


def solve_missing(spec: LayerSpec, isa: str, schedule: LayerSchedule | None, progress: Progress) -> None:
    """Find, prove and cache the kernel of `schedule`, or one for `spec` if it has none on `isa`.

    NoKernel if no sketch has one, Undecided if the solver's budget is spent.
    """
    if schedule:
        wanted = schedule.isa, schedule.kernel_options
        spec = widened(spec, schedule.operands)
        known = cached_entry(schedule, spec.act, spec.wgt) is not None
    else:
        wanted = widest(isa), OPTIONS
        known = any(True for _ in candidates(spec.act, spec.wgt, isa))
    if known:
        return
    progress(f"solving {spec.act} x {spec.wgt} for layers on {wanted[0]}")
    from bitsynth.synth.synthesize import synthesize

    found = synthesize(spec.product(wanted[0]), wanted[1], progress=progress)
    kernels.store(found.proved_entry)
