"""The kernel that a schedule names, in the form it wants."""

from __future__ import annotations

from bitsynth.layers.schedule import LayerSchedule
from bitsynth.matmul import MatmulKernel, get_kernel
from bitsynth.spec.matmul import MatmulOperand


def scheduled_kernel(schedule: LayerSchedule, act: MatmulOperand, wgt: MatmulOperand) -> MatmulKernel:
    """The cached kernel, checked again if the schedule changes it; SpecError if there is none such."""
    kernel = get_kernel(
        schedule.isa,
        act.bits,
        wgt.bits,
        act.encoding,
        wgt.encoding,
        method=schedule.method,
        channels=schedule.channels,
        sketch=schedule.sketch,
    )
    kernel = kernel.with_rows(schedule.rows) if schedule.rows else kernel
    kernel = kernel.with_flushes(schedule.flush_steps) if schedule.flush_steps else kernel
    return kernel.with_unroll(schedule.unroll).with_bit_axis(schedule.bit_axis)
