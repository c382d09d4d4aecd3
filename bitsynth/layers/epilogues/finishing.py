"""The programs that finish a layer: proved programs for its epilogue, else plain C, and the constants they read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit import elementwise
from bitsynth.emit.layer_program import BLOCK, LayerPrograms
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.constants import shared_numbers
from bitsynth.kernel.elementwise.plain import EpilogueProgram, PlainProgram
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.kernel.packing import Codes
from bitsynth.layers.constants import Offset
from bitsynth.layers.depthwise import DepthwiseKernel
from bitsynth.layers.epilogues.base import INT32, Residual
from bitsynth.layers.epilogues.kinds import Epilogue, Scale, Thresholds, gives_codes, levels_of
from bitsynth.layers.epilogues.lowering import (
    ProgramInputs,
    Sums,
    accumulators_of_kernel,
    can_fold,
    fold_thresholds,
    lower_epilogue,
    lower_residual,
    values_as_accumulators,
)
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.scheduled import LayerKernel
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.words import WORD_CHANNELS
from bitsynth.matmul import MatmulKernel
from bitsynth.schedule.element_cost import price
from bitsynth.spec import elementwise as specs
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.matmul import affine
from bitsynth.store import elementwise as store

AskedProgram = tuple[ElementwiseSpec, ProgramInputs]
"""A spec, and what its program is to read."""
_Found = tuple[ElementwiseProgram, ProgramInputs]
_LARGEST_UNIT = 128
"""The runtime's BS_LARGEST_UNIT."""


def find_cheapest(kernel: LayerKernel, wanted: Iterable[AskedProgram]) -> _Found | None:
    """The stored program of fewest cycles, with its inputs."""
    return min(_find_all(kernel, wanted), key=lambda found: price(found[0]), default=None)


def _find_all(kernel: LayerKernel, wanted: Iterable[AskedProgram]) -> Iterator[_Found]:
    """The stored programs of specs, with their inputs."""
    for spec, inputs in wanted:
        if program := find_stored(kernel, spec):
            yield program, inputs


def find_stored(kernel: LayerKernel, spec: ElementwiseSpec) -> ElementwiseProgram | None:
    """The program of `spec` for the kernel's instruction set, or the one that set extends; None if none can be used."""
    proved = store.find(kernel.spec.isa, spec)
    found = proved.program if proved else None
    if found and isinstance(kernel, DepthwiseKernel) and not kernel.order(found):
        return None
    if found is None or found.unit > _LARGEST_UNIT or {*elementwise.needs(found).host} - {*kernel.needs.host}:
        return None
    return found


def find_in_channel_order(program: EpilogueProgram | None) -> EpilogueProgram | None:
    """The program for elements in the order of channels; None if there is none."""
    if not isinstance(program, ElementwiseProgram):
        return program
    proved = store.find(program.isa, program.spec)
    found = store.in_order(proved) if proved else None
    return found.program if found else None


LONGEST_PERIOD = 512
"""Sums, as the runtime has it."""


def joined_pixels(spec: LayerSpec, programs: Sequence[EpilogueProgram]) -> int:
    """So many that the layer's pixels are best joined, 0 if they are not to be.

    Results lie pixel by pixel, and programs take elements in the order of channels, make no words and read nothing
    that a row has of its own.
    """
    g = spec.geometry
    if not programs or g.groups > 1 or spec.out_layout == "NCHW" or not all(map(_can_join, programs)):
        return 0
    unit, channels = max(p.unit for p in programs), g.out_channels
    period = math.lcm(channels, *(p.unit for p in programs))
    pixels = math.prod(g.output(*spec.typical_image))
    count = period // channels
    apart = pixels * -(-channels // unit) * unit
    return count if period <= LONGEST_PERIOD and -(-pixels // count) * period < apart else 0


def _can_join(program: EpilogueProgram) -> bool:
    one = program.spec
    return program.is_ordered and not one.planes and all(x.per != "row" for x in one.inputs)


def keeps_blocks(order: Sequence[int]) -> bool:
    """Whether places of each block have channels after each other, which are brought there together."""
    return all(channel == order[place // BLOCK * BLOCK] + place % BLOCK for place, channel in enumerate(order))


def repeat_for_period(values: NDArray[Any], pixels: int) -> NDArray[Any]:
    """Values (count, channels) of each of a period's sums."""
    return np.tile(values, pixels)


_MAX_NARROW_LEVEL = 32766
"""The greatest threshold of programs that compare in 16 bits."""
_MAX_SHORT_SUM = 32767
"""The greatest sum, without signs, of programs that take its low 16 bits alone."""


@dataclass(frozen=True, eq=False)
class Finishing:
    """The program of an epilogue, which reads `inputs`, arrays (values, OC) by their names, in the order of channels.

    There is none of sums that are the results; they have codes of no `bits`. `folds` says that results are made of the
    microkernel's sums, not of values. The program that adds a `residual` first reads `added`, likewise. So many
    pixels are `joined` that their sums fill units, 0 if none are.
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
        """What C is made of."""
        return LayerPrograms(self.program, self.residual)

    @property
    def unit(self) -> int:
        """Channels whose results are made at once."""
        return 1 if self.joined else max([1, *(p.unit for p in self.programs.by_field.values())])

    def order(self, g: Geometry) -> NDArray[np.intp]:
        """The output channel of each column: in every group the program's order, but for a unit that is not full.

        With a residual, whose elements lie in the order of channels, so do columns.
        """
        count = g.out_channels // g.groups
        columns = np.arange(count)
        if self.program and not self.residual:
            whole = count // self.program.unit * self.program.unit
            starts = np.arange(0, whole, self.program.unit)[:, None]
            columns[:whole] = (starts + np.array(self.program.order)).reshape(-1)
        return (np.arange(g.groups)[:, None] * count + columns).reshape(-1)

    def program_arrays(self, g: Geometry) -> dict[str, NDArray[Any]]:
        """The constants of every group's units."""
        arrays = self._constants(self.residual, self.added, g, ("residual_constants", "residual_shared"))
        return arrays | self._constants(self.program, self.inputs, g, ("unit_constants", "shared_constants"))

    def _constants(
        self, program: EpilogueProgram | None, inputs: ProgramInputs, g: Geometry, names: tuple[str, str]
    ) -> dict[str, NDArray[Any]]:
        """The arrays of a program, called `names`: constants of units of groups or a period, and those of all."""
        if program is None:
            return {}
        count = g.out_channels // g.groups
        per = {x.name: x.per for x in program.spec.inputs}
        grouped = {n: x.reshape(-1, g.groups, count) for n, x in inputs.items() if per[n] == "channel"}
        own: list[dict[str, NDArray[Any]]] = [{n: x[:, i] for n, x in grouped.items()} for i in range(g.groups)]
        if self.joined:
            own = [{n: repeat_for_period(x, self.joined) for n, x in of.items()} for of in own]
        made = [program.pack(count * max(1, self.joined), of) for of in own]
        shared = shared_numbers(program.spec, inputs)
        arrays: dict[str, NDArray[Any]] = {names[0]: np.concatenate(made)}
        return arrays | ({names[1]: shared} if shared.size else {})

    def tail(self, g: Geometry) -> dict[str, NDArray[Any]]:
        """The places of columns that fill no unit, where columns of other units lie in the program's order."""
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
) -> Finishing:
    """What makes results of the sums of `kernel`, whose weights hold the codes `weight` (OC, IC / groups, KH, KW).

    A stored program of the microkernel's sums, or of values; plain C where there is none.
    """
    found = _choose(kernel, spec, weight, bias, epilogue)
    ordered = replace(found, program=find_in_channel_order(found.program) or found.program)
    if isinstance(kernel, DepthwiseKernel):
        return ordered if found.residual else found
    joined = joined_pixels(spec, list(ordered.programs.by_field.values()))
    return replace(ordered, joined=joined) if joined or found.residual or found.tail(spec.geometry) else found


def _choose(
    kernel: LayerKernel, spec: LayerSpec, weight: Codes, bias: NDArray[np.int64], epilogue: Epilogue | None
) -> Finishing:
    """The same, before it is known whether pixels are joined."""
    if epilogue is None:
        return Finishing(folds=_starts_from_columns(kernel))
    own = values_as_accumulators(spec, weight, bias)
    if epilogue.residual is not None:
        return _with_residual(kernel, spec, own, epilogue, epilogue.residual)
    sums = [(False, own)]
    if isinstance(kernel, MatmulKernel):
        layer = kernel.entry.kernel, spec.product(kernel.spec.isa), spec.geometry, weight, Offset(bias, spec.zero_point)
        if can_fold(*layer):
            sums.insert(0, (True, accumulators_of_kernel(*layer)))
    return _finish_accumulators(kernel, spec, sums, epilogue)


def _starts_from_columns(kernel: LayerKernel) -> bool:
    """Whether sums may start from their column's term, so that rows' terms and a shift make values of them."""
    return isinstance(kernel, MatmulKernel) and affine(kernel.spec).factor == 1


def _with_residual(
    kernel: LayerKernel, spec: LayerSpec, sums: Sums, epilogue: Epilogue, residual: Residual
) -> Finishing:
    """A program that adds the residual to values in their place, and what takes those."""
    one, added, after = lower_residual(residual, epilogue, sums)
    program = find_stored(kernel, one) or _plain(kernel, spec, one)
    made = (
        Finishing() if isinstance(epilogue, Scale) else _finish_accumulators(kernel, spec, [(False, after)], epilogue)
    )
    return replace(made, folds=_starts_from_columns(kernel), residual=program, added=added)


def _finish_accumulators(
    kernel: LayerKernel, spec: LayerSpec, sums: Sequence[tuple[bool, Sums]], epilogue: Epilogue
) -> Finishing:
    """What makes results of the first of several sums for which there is a program, and whether that folds."""
    every = [(folds, x, n) for folds, x in sums for n in _planes(kernel, spec, epilogue)]
    bits = _bits(epilogue)
    for folds, x, n in every:
        found = find_cheapest(kernel, propose_programs(epilogue, x, spec.geometry.out_channels, n))
        if found and (epilogue.residual is None or keeps_blocks(found[0].order)):
            return Finishing(*found, bits, folds)
    return next(
        Finishing(_plain(kernel, spec, one), inputs, bits, folds)
        for folds, x, n in every
        for one, inputs in propose_programs(epilogue, x, spec.geometry.out_channels, n)
    )


def _plain(kernel: LayerKernel, spec: LayerSpec, one: specs.ElementwiseSpec) -> PlainProgram:
    """Plain C of a spec."""
    return PlainProgram.of(one, load(kernel.spec.isa).table.vector_bits // 8, spec.geometry.out_channels)


def makes_words(spec: LayerSpec) -> bool:
    """Whether words are made of sums, not of codes of all groups together."""
    groups = spec.geometry.groups
    return spec.out_layout == "packed" and (groups == 1 or spec.geometry.out_channels // groups % WORD_CHANNELS == 0)


def _words(kernel: LayerKernel, spec: LayerSpec) -> bool:
    """Whether a program would make words: a depthwise kernel has all channels in one group."""
    return spec.out_layout == "packed" if isinstance(kernel, DepthwiseKernel) else makes_words(spec)


def propose_programs(epilogue: Epilogue, sums: Sums, channels: int, planes: int) -> Iterator[AskedProgram]:
    """Specs that give the results of `epilogue`, the best first, and their inputs; as words if `planes` is not 0."""
    if isinstance(epilogue, Thresholds):
        given, rising = levels_of(epilogue, channels)
        yield from _counting(fold_thresholds(sums, given.T, rising), rising, sums, words=planes > 0)
    else:
        yield from lower_epilogue(epilogue, sums, planes)


def _planes(kernel: LayerKernel, spec: LayerSpec, epilogue: Epilogue) -> tuple[int, ...]:
    """The planes of words that a program may make, 0 for none: the runtime makes words of codes too."""
    if not _words(kernel, spec):
        return (0,)
    return _bits(epilogue), 0


def _bits(epilogue: Epilogue) -> int:
    """Bits of a code; 0 of results that are none."""
    return epilogue.bits if gives_codes(epilogue) else 0


def _counting(
    levels: NDArray[np.int32], rising: NDArray[np.bool_], sums: Sums, *, words: bool
) -> Iterator[AskedProgram]:
    """Specs that count sorted `levels` (count, OC) below sums, and their inputs.

    Those have as many levels as a code has room for, none out of reach of sums by more than 2.
    """
    least, most = max(-sums.bound - 2, int(INT32.min)), min(sums.bound, int(INT32.max))
    never = np.full(((1 << len(levels).bit_length()) - 1 - len(levels), levels.shape[1]), most, np.int32)
    every = np.concatenate([levels.clip(least, most), never])
    given = {"t": every} if rising.all() else {"t": every, "m": rising.astype(np.int32) - 1}
    yield specs.thresholds(len(every), words=words, row=sums.row, flip=not rising.all()), given
    if rising.all() and np.abs(every.astype(np.int64)).max() <= _MAX_NARROW_LEVEL:
        yield specs.thresholds(len(every), words=words, narrow=True, row=sums.row), given
        if sums.bound <= _MAX_SHORT_SUM and not sums.row:
            yield specs.thresholds(len(every), words=words, narrow=True, short=True), given
