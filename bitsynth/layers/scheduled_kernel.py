"""The kernel that a schedule names, with its instructions ordered for the processor."""

from __future__ import annotations

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.layers import depthwise
from bitsynth.layers.depthwise import DepthwiseKernel
from bitsynth.layers.schedule import DEPTHWISE, LayerSchedule, gathers
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.weight_zeros import plain_product
from bitsynth.layers.widening import widen_operands
from bitsynth.matmul import MatmulKernel, cached_kernel
from bitsynth.schedule.quickest import quickest
from bitsynth.spec.matmul import MatmulOperand, MatmulSpec

LayerKernel = MatmulKernel | DepthwiseKernel
"""A kernel that a layer may have."""


def scheduled_kernel(schedule: LayerSchedule, act: MatmulOperand, wgt: MatmulOperand, cpu: str) -> LayerKernel:
    """Return the cached kernel, checked again if schedule or `cpu` change it; raise SpecError if there is none."""
    if schedule.method == DEPTHWISE:
        return depthwise.kernel_for(schedule.isa, act, wgt, cpu)
    plain = MatmulSpec(schedule.isa, MatmulOperand(act.bits, act.encoding), MatmulOperand(wgt.bits, wgt.encoding))
    kernel = cached_kernel(plain, schedule.kernel_options)
    if schedule.gather not in (allowed := gathers(pairs=kernel.entry.kernel.together > 1)):
        raise SpecError(f"{kernel.name} reads rows in pairs: gather is {' or '.join(allowed)}, not {schedule.gather}")
    if wgt.zero:
        kernel = _without_zero(kernel, MatmulSpec(schedule.isa, act, wgt))
    kernel = kernel.with_rows(schedule.rows) if schedule.rows else kernel
    kernel = kernel.with_flushes(schedule.flush_steps) if schedule.flush_steps else kernel
    kernel = kernel.with_unroll(schedule.unroll).with_bit_axis(schedule.bit_axis)
    return kernel.with_order(cpu) if cpu in load(schedule.isa).table.in_order else kernel


def _without_zero(kernel: MatmulKernel, spec: MatmulSpec) -> MatmulKernel:
    """Return the kernel for `spec`, whose weights have a zero point: its sums differ only by the rows' addends."""
    if (plain := plain_product(kernel.entry.kernel, spec)) is None:
        raise SpecError(f"{kernel.name} has no sums of rows, which {spec.wgt} weights want")
    return MatmulKernel(kernel.proved_entry, plain)


def with_quickest_rows(spec: LayerSpec, schedule: LayerSchedule, cpu: str) -> LayerSchedule:
    """Return the schedule with as many of its rows as are quickest in the order of `cpu`, which wants registers too."""
    if schedule.method == DEPTHWISE or cpu not in load(schedule.isa).table.in_order:
        return schedule
    computed = widen_operands(spec, schedule.operands)
    kernel = scheduled_kernel(schedule, computed.act, computed.wgt, cpu)
    assert isinstance(kernel, MatmulKernel)
    return msgspec.structs.replace(schedule, rows=quickest(kernel.entry.kernel, cpu).rows)
