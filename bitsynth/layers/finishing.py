"""What makes results of a layer's sums: a proved program if there is one, and what it or the C runtime reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit import elementwise
from bitsynth.emit.packing import row_affines
from bitsynth.emit.runtime_abi import Number
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise import ElementwiseProgram
from bitsynth.kernel.packing import Codes
from bitsynth.layers.constants import Offset
from bitsynth.layers.depthwise import DepthwiseKernel
from bitsynth.layers.epilogue import Epilogue, Thresholds
from bitsynth.layers.folding import bound, can_fold, folded
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.words import WORD_CHANNELS
from bitsynth.matmul import MatmulKernel
from bitsynth.schedule.element_cost import price
from bitsynth.spec import elementwise as specs
from bitsynth.store import elementwise as store

LARGEST_UNIT = 128
_MOST_LEVELS = 15
_NARROW = 32766
"""The greatest threshold of programs that compare in 16 bits."""


@dataclass(frozen=True, eq=False)
class Finishing:
    """Numbers and arrays (..., OC) of an epilogue, in the order of channels.

    `folds` says that the arrays are of the microkernel's sums. A `program`, if there is one, reads `inputs` instead,
    arrays (values, OC) by their names.
    """

    numbers: Mapping[str, Number] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    folds: bool = False
    program: ElementwiseProgram | None = None
    inputs: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def unit(self, spec: LayerSpec) -> int:
        """Channels whose results are made at once."""
        return self.program.unit if self.program else WORD_CHANNELS if spec.out_layout == "packed" else 1

    def order(self, g: Geometry) -> NDArray[np.intp]:
        """The output channel of each column: in every group the program's order, but for a unit that is not full."""
        count = g.out_channels // g.groups
        columns = np.arange(count)
        if self.program:
            whole = count // self.program.unit * self.program.unit
            starts = np.arange(0, whole, self.program.unit)[:, None]
            columns[:whole] = (starts + np.array(self.program.order)).reshape(-1)
        return (np.arange(g.groups)[:, None] * count + columns).reshape(-1)

    def program_arrays(self, g: Geometry) -> dict[str, NDArray[Any]]:
        """The constants of every group's units, and the places of columns that fill no unit."""
        if not self.program:
            return {}
        count = g.out_channels // g.groups
        grouped = {name: array.reshape(-1, g.groups, count) for name, array in self.inputs.items()}
        made = [self.program.pack(count, {name: x[:, i] for name, x in grouped.items()}) for i in range(g.groups)]
        places = np.argsort(self.program.order)[: count % self.program.unit]
        arrays: dict[str, NDArray[Any]] = {"unit_constants": np.concatenate(made)}
        return arrays | ({"tail": places.astype(np.int32)} if places.size else {})


def finishing(
    kernel: MatmulKernel | DepthwiseKernel,
    spec: LayerSpec,
    weight: Codes,
    bias: NDArray[np.int64],
    epilogue: Epilogue | None,
) -> Finishing:
    """What makes results of the sums of `kernel`, whose weights hold the codes `weight` (OC, IC / groups, KH, KW)."""
    if epilogue is None:
        return Finishing()
    numbers, arrays = epilogue.constants(spec.geometry.out_channels)
    if isinstance(kernel, DepthwiseKernel):
        return Finishing(numbers, arrays)
    layer = kernel.entry.kernel, kernel.spec, spec.geometry, weight, Offset(bias, spec.zero_point)
    if not isinstance(epilogue, Thresholds) or not can_fold(*layer):
        return Finishing(numbers, arrays)
    levels = np.sort(folded(kernel.spec, weight, layer[-1], arrays["thresholds"]), axis=0)
    if len(levels) <= _MOST_LEVELS and (found := _thresholds(kernel, spec, levels, bound(*layer))):
        program, every = found
        return Finishing(numbers, {}, True, program, {"t": every})
    return Finishing(numbers, {"thresholds": levels}, True)


def makes_words(spec: LayerSpec) -> bool:
    """Whether words are made of sums, not of codes of all groups together."""
    groups = spec.geometry.groups
    return spec.out_layout == "packed" and (groups == 1 or spec.geometry.out_channels // groups % WORD_CHANNELS == 0)


def _thresholds(
    kernel: MatmulKernel, spec: LayerSpec, levels: NDArray[np.int32], most: int
) -> tuple[ElementwiseProgram, NDArray[np.int32]] | None:
    """The cheapest program that counts sorted `levels` (count, OC) of sums up to `most`, and the levels it is given.

    Those are as many as a program has, none out of reach of sums by more than 1. None if no program is stored.
    """
    never = np.full(((1 << len(levels).bit_length()) - 1 - len(levels), levels.shape[1]), most, np.int32)
    every = np.concatenate([levels.clip(-most - 1, most), never])
    widths = (False, True) if np.abs(every.astype(np.int64)).max() <= _NARROW else (False,)
    row, words = row_affines(kernel.entry.kernel, kernel.spec) != 0, makes_words(spec)
    wanted = (specs.thresholds(len(every), words=words, narrow=narrow, row=row) for narrow in widths)
    found = [program for one in wanted if (program := _stored(kernel, one))]
    return (min(found, key=price), every) if found else None


def _stored(kernel: MatmulKernel, spec: specs.ElementwiseSpec) -> ElementwiseProgram | None:
    """The program of `spec` for the kernel's instruction set, or the one that set extends; None if none can be used."""
    isa = load(kernel.spec.isa)
    names = [name for name in (isa.name, isa.table.extends) if name]
    found = next((proved.program for name in names if (proved := store.find(name, spec))), None)
    if found is None or found.unit > LARGEST_UNIT or {*elementwise.needs(found).host} - {*kernel.needs.host}:
        return None
    return found
