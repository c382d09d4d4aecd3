"""The programs that finish a layer: proved programs for its epilogue, else plain C, and the constants they read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.correction_terms import remaining
from bitsynth.emit.layer_program import BLOCK, LayerPrograms
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.constants import shared_numbers
from bitsynth.kernel.elementwise.program import ElementwiseProgram, EpilogueProgram, PlainProgram
from bitsynth.kernel.packing import Codes
from bitsynth.kernel.straight_line import needs
from bitsynth.layers import depthwise
from bitsynth.layers.constants import Offset
from bitsynth.layers.depthwise import DepthwiseKernel
from bitsynth.layers.epilogues.accumulators import (
    Accumulators,
    AskedProgram,
    ProgramInputs,
    accumulators_of_kernel,
    can_fold,
    values_as_accumulators,
)
from bitsynth.layers.epilogues.base import Epilogue, gives_codes
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.packed_codes import WORD_CHANNELS
from bitsynth.layers.scheduled_kernel import LayerKernel
from bitsynth.layers.spec import LayerSpec
from bitsynth.matmul import MatmulKernel
from bitsynth.schedule.price import rank
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import affine
from bitsynth.store.elementwise import ELEMENTWISE, in_order

_Found = tuple[ElementwiseProgram, ProgramInputs]
_LARGEST_UNIT = 128
"""The runtime's BS_LARGEST_UNIT."""


def find_cheapest(kernel: LayerKernel, wanted: Iterable[AskedProgram]) -> _Found | None:
    """Return the stored program of fewest cycles among those wanted, with its inputs; None if none is stored."""
    return min(_find_all(kernel, wanted), key=lambda candidate: rank(candidate[0]), default=None)


def _find_all(kernel: LayerKernel, wanted: Iterable[AskedProgram]) -> Iterator[_Found]:
    """Yield the stored programs of specs, with their inputs."""
    for spec, inputs in wanted:
        if program := find_stored(kernel, spec):
            yield program, inputs


def find_stored(kernel: LayerKernel, spec: ElementwiseSpec) -> ElementwiseProgram | None:
    """Return the program of `spec` for the kernel's instruction set or one it extends; None if none can be used."""
    proved = ELEMENTWISE.find(kernel.spec.isa, spec)
    program = proved.artifact if proved else None
    if program and not kernel.is_read_by(program):
        return None
    if program is None or program.unit > _LARGEST_UNIT or {*needs(program).host} - {*kernel.needs.host}:
        return None
    return program


def find_in_channel_order(program: EpilogueProgram | None) -> EpilogueProgram | None:
    """Return the variant of a program that reads elements in channel order; None if there is none."""
    if not isinstance(program, ElementwiseProgram):
        return program
    proved = ELEMENTWISE.find(program.isa, program.spec)
    ordered = in_order(proved) if proved else None
    return ordered.artifact if ordered else None


LONGEST_PERIOD = 512
"""Accumulators in the longest period of joined pixels: the runtime's BS_LONGEST_PERIOD."""


def count_joined_pixels(spec: LayerSpec, programs: Sequence[EpilogueProgram]) -> int:
    """Return how many pixels are packed together, so that their accumulators fill whole units; 0 for no joining.

    Joining is possible if results lie pixel by pixel, and programs read elements in channel order, write no packed
    words, and read no number of a row.

    Example: 12 channels and units of 16 fill 3 units with 4 joined pixels, where 4 single pixels take 4 units.
    """
    g = spec.geometry
    if not programs or g.groups > 1 or spec.out_layout == Layout.NCHW or not all(map(_can_join, programs)):
        return 0
    unit, channels = max(p.unit for p in programs), g.out_channels
    period = math.lcm(channels, *(p.unit for p in programs))
    pixels = math.prod(g.output(*spec.typical_image))
    count = period // channels
    apart = pixels * -(-channels // unit) * unit
    return count if period <= LONGEST_PERIOD and -(-pixels // count) * period < apart else 0


def _can_join(program: EpilogueProgram) -> bool:
    spec = program.spec
    return program.is_ordered and not spec.planes and all(x.per != "row" for x in spec.inputs)


def keeps_blocks(order: Sequence[int]) -> bool:
    """Return whether each block of four columns holds four consecutive channels, so that a block moves as a whole."""
    return all(channel == order[place // BLOCK * BLOCK] + place % BLOCK for place, channel in enumerate(order))


def repeat_for_period(values: NDArray[Any], pixels: int) -> NDArray[Any]:
    """Return values (count, channels) repeated for each pixel of a period."""
    return np.tile(values, pixels)


@dataclass(frozen=True, eq=False)
class Finishing:
    """The programs that finish a layer, and their constants.

    Attributes:
        program: The program that computes results; None if accumulators are the results.
        inputs: Arrays (values, OC) that it reads, by name, in channel order.
        bits: Bits of a result's code; 0 if results are not codes.
        folds: Whether it reads the microkernel's accumulators, not values.
        residual: The program that adds a residual before it, or None.
        added: Arrays that this program reads.
        joined: Pixels that are packed together to fill units, of programs or of a depthwise kernel; 0 if none are.
    """

    program: EpilogueProgram | None = None
    inputs: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    bits: int = 0
    folds: bool = False
    residual: EpilogueProgram | None = None
    added: ProgramInputs = field(default_factory=dict)
    joined: int = 0

    @property
    def programs(self) -> LayerPrograms:
        """The programs by their fields of `struct bs_layer`."""
        return LayerPrograms(self.program, self.residual)

    @property
    def unit(self) -> int:
        """Channels whose results are computed at once."""
        return 1 if self.joined else max([1, *(p.unit for p in self.programs.by_field.values())])

    def order(self, g: Geometry) -> NDArray[np.intp]:
        """Return the output channel of each column: the program's order in every group, except in partial units.

        With a residual columns lie in channel order, as its elements do.
        """
        count = g.out_channels // g.groups
        columns = np.arange(count)
        if self.program and not self.residual:
            whole = count // self.program.unit * self.program.unit
            starts = np.arange(0, whole, self.program.unit)[:, None]
            columns[:whole] = (starts + np.array(self.program.order)).reshape(-1)
        return (np.arange(g.groups)[:, None] * count + columns).reshape(-1)

    def program_arrays(self, g: Geometry) -> dict[str, NDArray[Any]]:
        """Return the constants of every group's units."""
        arrays = self._constants(self.residual, self.added, g, ("residual_constants", "residual_shared"))
        return arrays | self._constants(self.program, self.inputs, g, ("unit_constants", "shared_constants"))

    def _constants(
        self, program: EpilogueProgram | None, inputs: ProgramInputs, g: Geometry, names: tuple[str, str]
    ) -> dict[str, NDArray[Any]]:
        """Return the two arrays of a program, called `names`: constants of units, and constants of all units."""
        if program is None:
            return {}
        count = g.out_channels // g.groups
        per = {x.name: x.per for x in program.spec.inputs}
        grouped = {n: x.reshape(-1, g.groups, count) for n, x in inputs.items() if per[n] == "channel"}
        own: list[dict[str, NDArray[Any]]] = [{n: x[:, i] for n, x in grouped.items()} for i in range(g.groups)]
        if self.joined:
            own = [{n: repeat_for_period(x, self.joined) for n, x in of.items()} for of in own]
        packed = [program.pack(count * max(1, self.joined), of) for of in own]
        shared = shared_numbers(program.spec, inputs)
        arrays: dict[str, NDArray[Any]] = {names[0]: np.concatenate(packed)}
        return arrays | ({names[1]: shared} if shared.size else {})

    def tail(self, g: Geometry) -> dict[str, NDArray[Any]]:
        """Return the places of columns in a unit that is not full; nothing if the program reads channel order."""
        if self.program is None or self.program.is_ordered:
            return {}
        places = np.argsort(self.program.order)[: g.out_channels // g.groups % self.program.unit]
        return {"tail": places.astype(np.int32)} if places.size else {}


def choose_finishing(
    kernel: LayerKernel,
    spec: LayerSpec,
    weight: Codes,
    bias: NDArray[np.int64],
    epilogue: Epilogue | None,
    *,
    weights_are_given: bool = False,
) -> Finishing:
    """Return the programs that finish a layer on `kernel` with weight codes `weight` (OC, IC / groups, KH, KW).

    A stored program that reads accumulators comes first, then one that reads values, then plain C (fallback code). If
    weights are given at each call, `weight` bounds the sums of any, and no constant of a program depends on it.
    """
    finishing = _choose(kernel, spec, weight, bias, epilogue, weights_are_given)
    ordered = replace(finishing, program=find_in_channel_order(finishing.program) or finishing.program)
    if isinstance(kernel, DepthwiseKernel):
        pixels = depthwise.count_joined_pixels(kernel.program, spec, Offset(bias, spec.zero_point))
        return replace(ordered if finishing.residual else finishing, joined=pixels)
    joined = count_joined_pixels(spec, list(ordered.programs.by_field.values()))
    return (
        replace(ordered, joined=joined) if joined or finishing.residual or finishing.tail(spec.geometry) else finishing
    )


def _choose(
    kernel: LayerKernel,
    spec: LayerSpec,
    weight: Codes,
    bias: NDArray[np.int64],
    epilogue: Epilogue | None,
    weights_are_given: bool,
) -> Finishing:
    """Return the programs before pixels are joined."""
    if epilogue is None:
        return Finishing(folds=_starts_from_columns(kernel))
    own = values_as_accumulators(spec, weight, bias)
    if epilogue.residual is not None:
        return _with_residual(kernel, spec, own, epilogue)
    sums = [(False, own)]
    if isinstance(kernel, MatmulKernel):
        layer = kernel.entry.kernel, spec.product(kernel.spec.isa), spec.geometry, weight, Offset(bias, spec.zero_point)
        # Where sums have a factor, the program adds a number of each column, which depends on its weights.
        depends_on_weights = remaining(kernel.entry.kernel, layer[1]).factor != 1
        if can_fold(*layer) and not (weights_are_given and depends_on_weights):
            sums.insert(0, (True, accumulators_of_kernel(*layer)))
    return _finish_accumulators(kernel, spec, sums, epilogue)


def _starts_from_columns(kernel: LayerKernel) -> bool:
    """Return whether accumulators start from their column's number, so that a row's number and a shift are left."""
    return isinstance(kernel, MatmulKernel) and affine(kernel.spec).factor == 1


def _with_residual(kernel: LayerKernel, spec: LayerSpec, sums: Accumulators, epilogue: Epilogue) -> Finishing:
    """Return a program that adds the residual to values in place, and the program of the epilogue after it."""
    residual_spec, added, after = epilogue.lower_residual(sums)
    program = find_stored(kernel, residual_spec) or _plain(kernel, spec, residual_spec)
    finishing = _finish_accumulators(kernel, spec, [(False, after)], epilogue) if gives_codes(epilogue) else Finishing()
    return replace(finishing, folds=_starts_from_columns(kernel), residual=program, added=added)


def _finish_accumulators(
    kernel: LayerKernel, spec: LayerSpec, sums: Sequence[tuple[bool, Accumulators]], epilogue: Epilogue
) -> Finishing:
    """Return the program for the first kind of `sums`, (whether it folds, accumulators), that has a stored one."""
    every = [(folds, x, n) for folds, x in sums for n in _planes(kernel, spec, epilogue)]
    bits = epilogue.code_bits
    for folds, x, n in every:
        cheapest = find_cheapest(kernel, epilogue.lower(x, n))
        if cheapest and (epilogue.residual is None or keeps_blocks(cheapest[0].order)):
            return Finishing(*cheapest, bits, folds)
    return next(
        Finishing(_plain(kernel, spec, own_spec), inputs, bits, folds)
        for folds, x, n in every
        for own_spec, inputs in epilogue.lower(x, n)
    )


def _plain(kernel: LayerKernel, spec: LayerSpec, program_spec: ElementwiseSpec) -> PlainProgram:
    """Return plain C (fallback code) of a spec."""
    return PlainProgram.of(program_spec, load(kernel.spec.isa).table.vector_bits // 8, spec.geometry.out_channels)


def makes_words(spec: LayerSpec) -> bool:
    """Return whether packed words are computed directly, not from the codes of all groups together."""
    groups, channels = spec.geometry.groups, spec.geometry.out_channels
    return spec.out_layout == Layout.PACKED and (groups == 1 or channels // groups % WORD_CHANNELS == 0)


def _words(kernel: LayerKernel, spec: LayerSpec) -> bool:
    """Return whether a program writes packed words: a depthwise kernel has all channels in one group."""
    return spec.out_layout == Layout.PACKED if isinstance(kernel, DepthwiseKernel) else makes_words(spec)


def _planes(kernel: LayerKernel, spec: LayerSpec, epilogue: Epilogue) -> tuple[int, ...]:
    """Return the planes of words that a program may write; 0 for codes, which the runtime packs."""
    if not _words(kernel, spec):
        return (0,)
    return epilogue.code_bits, 0
