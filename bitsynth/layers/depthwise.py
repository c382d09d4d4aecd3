"""Layers with few channels a group on depthwise kernels: the choice of a kernel, its cost, its constants.

A kernel may hold smaller weights than the layer has. Then each weight is split into parts that the kernel holds, and
each part is a tap of its own, which reads the same pixel:

Given:   weight 200 of a layer, and a kernel for weights from -128 to 127
Result:  two taps in place of one, with weights 127 and 73
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.depthwise import DepthwiseSource
from bitsynth.emit.layer_program import LayerPrograms
from bitsynth.errors import SpecError
from bitsynth.host import features
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import Requirements, load
from bitsynth.kernel.depthwise import DepthwiseProgram
from bitsynth.kernel.elementwise.program import EpilogueProgram
from bitsynth.kernel.packing import Codes
from bitsynth.kernel.straight_line import needs
from bitsynth.layers.candidates import sets_for
from bitsynth.layers.constants import (
    Constants,
    Offset,
    added_terms,
    pad_code_of,
    padding_sums,
    padding_terms,
    require_int32,
    sizes,
    values_of,
    whole,
)
from bitsynth.layers.schedule import DEPTHWISE, LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.proof.proved import Proved
from bitsynth.schedule.depthwise import METHODS, WIDTHS, unit_cycles
from bitsynth.schedule.price import processors_of
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulOperand, MatmulSpec
from bitsynth.store.depthwise import DEPTHWISE as KIND
from bitsynth.store.depthwise import DepthwiseEntry

MAX_GROUP_CHANNELS = 16
"""Input channels of a group beyond which kernels of tiles are always faster."""
ROW_CYCLES = 150.0
"""Cycles of a call for a row of output; measured on Zen 5, as the other figures here."""
UNIT_CYCLES = 3.0
"""Cycles of a unit of a pixel to compute addresses. Measured on Zen 4."""
COPIED_PER_CYCLE = 16.0
SPREAD_PER_CYCLE = 4.0
"""Bytes a cycle of lines that are copied as they lie, and of those whose channels are spread."""
WRITTEN_PER_CYCLE = 16.0
"""Bytes a cycle of sums beyond the nearest cache."""


class DepthwiseKernel:
    """A proved depthwise kernel under the encodings of `spec`.

    Attributes:
        proved: Program and proof.
        spec: Widths and encodings of the operands, and the instruction set.
        name: The name in C, `bs_dw_...`.
        kind: Its kind in the store.
        field: The field of `struct bs_layer` that points to it.
    """

    kind, field = KIND, DepthwiseSource.field

    def __init__(self, proved: Proved[DepthwiseProgram], spec: MatmulSpec) -> None:
        self.proved, self.spec, self.name = proved, spec, proved.artifact.name

    @property
    def stored(self) -> DepthwiseEntry:
        """The record in the store."""
        return self.entry

    def __repr__(self) -> str:
        return f"<bitsynth kernel {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it is for: it is looked up, and checked, where it is read."""
        return _find_kernel, (self.name, self.spec)

    @property
    def program(self) -> DepthwiseProgram:
        """The program that was proved."""
        return self.proved.artifact

    @cached_property
    def entry(self) -> DepthwiseEntry:
        """The text of the kernel: program, certificate, cost."""
        return KIND.record_of(self.proved)

    @property
    def cost(self) -> Any:
        """The cost per 128 multiply-accumulates of a 3 x 3 window."""
        return self.entry.cost

    @property
    def forms(self) -> set[str]:
        """The instruction forms of its C."""
        return {*self.program.forms}

    def order(self, program: EpilogueProgram | None) -> tuple[int, ...] | None:
        """Return the order of a unit's sums that `program` reads; None if kernel and program have none in common."""
        if program is None or program.is_ordered:
            return self.program.orders[0]
        return program.order if program.order in self.program.orders else None

    def is_read_by(self, program: EpilogueProgram) -> bool:
        """Return whether `program` reads sums in an order that the kernel has."""
        return self.order(program) is not None

    def source_for(self, program: EpilogueProgram | None) -> DepthwiseSource:
        """Return the C texts of a kernel whose sums `program` reads."""
        return DepthwiseSource(self.proved, self.order(program))

    @property
    def header(self) -> str:
        """The C header."""
        return self.source_for(None).header

    @property
    def source(self) -> str:
        """The C source: C11 with intrinsics."""
        return self.source_for(None).source

    @cached_property
    def needs(self) -> Requirements:
        """The requirements of the kernel's instructions on compiler and processor."""
        return needs(self.program)


def _find_kernel(name: str, spec: MatmulSpec) -> DepthwiseKernel:
    proved = KIND.load_named(name)
    assert proved is not None, "a pickled kernel has a name of its kind"
    return DepthwiseKernel(proved, spec)


def kernel_for(isa: str, act: MatmulOperand, wgt: MatmulOperand, cpu: str = "") -> DepthwiseKernel:
    """Return the stored kernel of fewest cycles of `cpu`, or the first processor of the set's, for these operands.

    It runs here if the set does; SpecError if there is none.
    """
    processors = load(isa).table.cpu
    where = cpu if cpu in processors else next(iter(processors))
    stored = [
        x for x in _stored_kernels(isa, act) if where in processors_of(x.artifact) and _runs_here(isa, x.artifact)
    ]
    if not stored:
        raise SpecError(f"no depthwise kernel of {act} x {wgt} on {isa}")
    least, most = weight_range(act, wgt)

    def cycles(proved: Proved[DepthwiseProgram]) -> float:
        return unit_cycles(load(isa), proved.artifact, where, 9 * count_parts(least, most, proved.artifact))

    return DepthwiseKernel(min(stored, key=cycles), MatmulSpec(isa, act, wgt))


def _stored_kernels(isa: str, act: MatmulOperand) -> Iterator[Proved[DepthwiseProgram]]:
    for act_bits, w_bits, method in product((n for n in WIDTHS if n >= act.bits), WIDTHS, METHODS):
        if path := KIND.find(isa, act_bits, w_bits, method):
            yield KIND.load(path)


def _runs_here(isa: str, program: DepthwiseProgram) -> bool:
    return not runs_natively(load(isa).table) or not features.lacking(needs(program).host)


def weight_range(act: MatmulOperand, wgt: MatmulOperand) -> tuple[int, int]:
    """Return the least and the greatest weight that codes of activations are multiplied with, both sides of 0."""
    ends = [act.scale * wgt.value(c) for c in (0, wgt.codes[-1])]
    return min(0, *ends), max(0, *ends)


def count_parts(least: int, most: int, program: DepthwiseProgram) -> int:
    """Return the number of parts into which weights from `least` to `most` are split for the kernel."""
    return max(1, -(-most // program.wgt[1]), -(least // -program.wgt[0]) if least else 1)


@dataclass(frozen=True)
class DepthwiseEstimate:
    """A layer on a depthwise kernel, and its cost in cycles of the processor `cpu`, or the first of the set's."""

    kernel: DepthwiseKernel
    layer: LayerSpec
    cpu: str = ""

    @property
    def schedule(self) -> LayerSchedule:
        """The schedule that runs it so."""
        return LayerSchedule(self.kernel.spec.isa, DEPTHWISE, self.kernel.program.unit, "indirect")

    @property
    def cycles(self) -> float:
        """Predicted cycles: copies of the image's rows, the accumulators of each row of output, and their stores."""
        g, program, isa = self.layer.geometry, self.kernel.program, load(self.kernel.spec.isa)
        high, wide = g.output(*self.layer.typical_image)
        units = -(-g.out_channels // program.unit)
        taps = g.depth * count_parts(*weight_range(self.layer.act, self.layer.wgt), program)
        cpu = self.cpu if self.cpu in isa.table.cpu else next(iter(isa.table.cpu))
        per_unit = unit_cycles(isa, program, cpu, taps) + UNIT_CYCLES
        joined = self._count_joined(wide)
        sums = high * (wide // joined * units * per_unit + ROW_CYCLES + taps)
        plain = g.groups == g.in_channels == g.out_channels
        lines, pixels = self.layer.typical_image
        copied = lines * pixels * units * program.unit // joined * (g.in_channels // g.groups)
        written = 4 * high * wide // joined * units * program.unit / WRITTEN_PER_CYCLE
        return sums + written + copied / (COPIED_PER_CYCLE if plain else SPREAD_PER_CYCLE)

    def _count_joined(self, wide: int) -> int:
        """Return how many pixels are joined where rows of the output have `wide` pixels, as the runtime does."""
        most = count_joined_pixels(
            self.kernel.program, self.layer, Offset(np.zeros(1, np.int64), self.layer.zero_point)
        )
        return next(n for n in range(max(1, most), 0, -1) if wide % n == 0)


def list_estimates(layer: LayerSpec, isa: str, cpu: str = "") -> list[DepthwiseEstimate]:
    """Return the estimates of all stored depthwise kernels that run here, the fastest first."""
    g = layer.geometry
    if g.groups == 1 or g.in_channels // g.groups > MAX_GROUP_CHANNELS:
        return []
    every = []
    for name in _sets(isa):
        with suppress(SpecError):
            every.append(DepthwiseEstimate(kernel_for(name, layer.act, layer.wgt, cpu), layer, cpu))
    return sorted(every, key=lambda x: x.cycles)


def _sets(isa: str) -> list[str]:
    """Return the instruction sets whose kernels layers on `isa` may have, including sets that it extends."""
    extended = "" if isa == "auto" else load(isa).table.extends
    return list(dict.fromkeys([*sets_for(isa), *([extended] if extended else [])]))


def constants(
    kernel: DepthwiseKernel, layer: LayerSpec, weight: Codes, programs: LayerPrograms, offset: Offset, joined: int
) -> Constants:
    """Return the constants of a layer on `kernel` for `programs`; `weight` (OC, IC / groups, KH, KW) holds codes.

    The constants of a channel are repeated for each of the `joined` pixels (`count_joined_pixels`).

    Arrays over the output channels of all groups have room for whole units of both, and the order of sums.
    """
    act, wgt, program, order = layer.act, layer.wgt, kernel.program, kernel.order(programs.reader)
    units = [program.unit, *(p.unit for p in programs.by_field.values())]
    width = max(-(-len(weight) // size) * size for size in units)
    per_tap = weight.transpose(0, 2, 3, 1).reshape(1, len(weight), -1, weight.shape[1])
    values = values_of(wgt)[per_tap].reshape(len(weight), -1)
    split = _split_weights(act.scale * values, program)
    first = (act.offset - act.scale * program.act[0]) * values.sum(axis=1)
    added = added_terms(kernel.spec, weight, offset)
    require_int32(kernel.spec, layer.geometry, weight, offset)
    arrays: dict[str, NDArray[Any]] = {
        "weights": _pack_units(np.tile(split.reshape(len(weight), -1), (max(1, joined), 1)), program),
        "start": _reorder_units(whole(np.tile(first + added, max(1, joined)), width), order),
    }
    terms = padding_terms(act, wgt, layer.geometry, offset)
    if terms.any():
        arrays["padding"] = _reorder_units(padding_sums(width, terms, layer.geometry, per_tap), order)
    numbers = sizes(layer.geometry, act, pad_code_of(act, offset.zero_point))
    return Constants({**numbers, "out_places": width, "factor": 1, "tap_parts": split.shape[2]}, arrays)


def count_joined_pixels(program: DepthwiseProgram, layer: LayerSpec, offset: Offset) -> int:
    """Return how many neighbouring pixels a unit of the kernel holds at most, if more than one; 0 for no joining.

    They are joined if a channel is one of the input and of the output, results lie pixel by pixel, and sums need no
    correction at borders.

    Example: a unit of 64 channels holds 4 pixels of 16, so that a row of 24 pixels takes 6 units in place of 24.
    """
    g = layer.geometry
    if not g.groups == g.in_channels == g.out_channels or layer.out_layout != Layout.NHWC:
        return 0
    if layer.layout == Layout.PACKED or padding_terms(layer.act, layer.wgt, g, offset).any():
        return 0
    pixels = program.unit // g.out_channels
    return pixels if pixels > 1 else 0


def _reorder_units(sums: NDArray[Any], order: Sequence[int] | None) -> NDArray[np.int32]:
    """Return sums (..., channels) with the channels of every unit in `order`."""
    assert order
    units = sums.reshape(*sums.shape[:-1], -1, len(order))
    return np.ascontiguousarray(units[..., order].reshape(sums.shape).astype(np.int32))


def _split_weights(values: NDArray[np.int64], program: DepthwiseProgram) -> NDArray[np.int64]:
    """Return (OC, taps, parts): for each of the layer's weights, `values`, kernel weights that add up to it."""
    parts, rest = list[NDArray[np.int64]](), values
    while not parts or rest.any():
        parts.append(rest.clip(*program.wgt))
        rest = rest - parts[-1]
    return np.stack(parts, axis=2)


def _pack_units(weights: NDArray[np.int64], program: DepthwiseProgram) -> NDArray[np.uint8]:
    """Return (units, steps, registers, bytes) of (OC, taps): zeros up to whole units and steps."""
    channels, taps = weights.shape
    whole = np.pad(weights, ((0, -channels % program.unit), (0, -taps % program.taps)))
    units = whole.reshape(-1, program.unit, whole.shape[1] // program.taps, program.taps).transpose(0, 2, 3, 1)
    places = np.array(program.weights)
    return np.ascontiguousarray(units.reshape(*units.shape[:2], -1)[..., places].astype(np.int8)).view(np.uint8)
