"""The independent checker of elementwise programs: runs them on chosen inputs and compares with the spec.

It knows neither Z3 nor the sketches. `inputs.py` chooses the inputs, many of them next to a change of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.isa.tested import require_tested
from bitsynth.kernel.elementwise.program import ElementwiseProgram, check_shape
from bitsynth.kernel.elementwise.run import run
from bitsynth.proof.elementwise.inputs import VARIANTS, ElementSamples, samples

LOADED, VERIFIED = 48, 512
"""Columns of inputs that each unit is run on: when a program is loaded, and when it is verified."""


def check(program: ElementwiseProgram, columns: int = LOADED) -> int:
    """Run the program on columns of inputs and return how many elements are right; Refuted if one is wrong.

    Of a loop, one iteration from any count is run, and the instructions after the loop.
    """
    check_shape(program)
    if program.iteration and program.last:
        return min(check(program.iteration, columns), check(program.last, columns))
    isa = load(program.isa)
    require_tested(isa[op] for op in program.written_forms)
    chosen = samples(program.spec, columns)
    # No two channels have the same elements in all columns, so that mixed-up channels are seen too.
    variants = np.random.default_rng(0).integers(0, VARIANTS, (program.unit, columns))
    at = np.arange(columns), variants
    reachable = chosen.reachable[at]
    if not reachable.any():
        raise Refuted(f"{program.name}: no input is as it assumes")
    wrong = (run(program, _in_places(program, chosen, at)) != chosen.wanted[at]) & reachable
    if wrong.any():
        channel, column = (int(x[0]) for x in np.nonzero(wrong))
        raise _refutation(program, channel, chosen, column, int(variants[channel, column]))
    return int(reachable.sum())


def _in_places(
    program: ElementwiseProgram, chosen: ElementSamples, at: tuple[Any, Any]
) -> dict[str, NDArray[np.uint64]]:
    """Return arrays (values, positions or 1, columns) of the elements `at` (columns, (channels, columns))."""
    return {
        x.name: chosen.elements[x.name][:, *at][:, list(order)] if order else chosen.elements[x.name].transpose(0, 2, 1)
        for x, order in zip(program.spec.inputs, program.orders, strict=True)
    }


def _refutation(
    program: ElementwiseProgram, channel: int, chosen: ElementSamples, column: int, variant: int
) -> Refuted:
    """Return the error with the values of one element."""
    here = {n: v[:, column, variant if v.shape[2] > 1 else 0] for n, v in chosen.elements.items()}
    shown = {name: [hex(int(x)) for x in values] for name, values in here.items()}
    return Refuted(f"{program.name}: channel {channel} of a unit is wrong for {shown}")
