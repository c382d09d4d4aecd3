"""The independent checker of elementwise programs: they run on concrete inputs, and give what the spec says.

It knows neither Z3 nor the sketches. Inputs of an element lie around each other, ties among them, around the ends of
ranges, or anywhere; most values of an input ascend, as thresholds do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import Refuted
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import load
from bitsynth.isa.tested import require_tested
from bitsynth.kernel.element_run import at, run, wanted
from bitsynth.kernel.elementwise import ElementwiseProgram, check_shape
from bitsynth.spec.elementwise import ElementInput

LOADED, VERIFIED = 64, 1 << 10
"""Inputs a lane is tried on where a program is loaded, and where it is verified."""
_BATCH = 256
_Sampled = dict[str, NDArray[np.uint64]]


def check(program: ElementwiseProgram, inputs: int = LOADED) -> int:
    """Run the program on so many inputs a lane; how many elements came out right. Refuted if one did not.

    Of a loop, one turn is run, from any count, and what follows the last.
    """
    check_shape(program)
    if program.turn and program.last:
        return min(check(program.turn, inputs), check(program.last, inputs))
    isa = load(program.isa)
    require_tested(isa[op] for op in program.forms)
    rng, checked = np.random.default_rng(inputs), 0
    for start in range(0, inputs, _BATCH):
        checked += _batch(program, rng, min(_BATCH, inputs - start))
    if not checked:
        raise Refuted(f"{program.name}: no input is as it assumes")
    return checked


def _batch(program: ElementwiseProgram, rng: np.random.Generator, count: int) -> int:
    given = _inputs(program, rng, count)
    may_come = _may_come(program, given)
    wrong = (run(program, given) != wanted(program, given)) & may_come
    if wrong.any():
        channel, n = (int(x[0]) for x in np.nonzero(wrong))
        shown = {name: [hex(int(x[n])) for x in values] for name, values in at(program, given, channel).items()}
        raise Refuted(f"{program.name}: channel {channel} of a unit is wrong for {shown}")
    return int(may_come.sum())


def _may_come(program: ElementwiseProgram, given: _Sampled) -> NDArray[np.bool_]:
    """Whether the inputs of each channel are as the spec assumes."""
    out = np.ones((program.unit, next(iter(given.values())).shape[2]), bool)
    for channel in range(program.unit):
        for holds in program.spec.bits(program.spec.assumes, ConcreteDomain(), at(program, given, channel)):
            out[channel] &= holds == 1
    return out


def _inputs(program: ElementwiseProgram, rng: np.random.Generator, count: int) -> _Sampled:
    """Arrays (values, positions or 1, count) by name of input."""
    middle = _middles(rng, (program.unit, count))
    out = {}
    for x, order in zip(program.spec.inputs, program.orders, strict=True):
        around = middle[list(order)] if order else np.zeros((1, count), np.int64)
        out[x.name] = _values(x, around, rng)
    return out


def _middles(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Where the inputs of an element lie: at the ends of ranges, or anywhere."""
    ends = np.array([0, *(sign * (1 << b) for b in (7, 8, 15, 16, 31, 32) for sign in (1, -1))])
    anywhere = rng.integers(-(1 << 31), 1 << 31, shape) >> rng.integers(0, 28, shape)
    return np.where(rng.random(shape) < 0.5, rng.choice(ends, shape), anywhere)


def _values(one: ElementInput, around: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint64]:
    shape = (one.values, *around.shape)
    anything = rng.integers(0, 1 << 64, shape, dtype=np.uint64).view(np.int64)
    values = np.where(rng.random(shape) < 0.7, around + rng.integers(-3, 4, shape), anything)
    signed = values << (64 - one.lane.bits) >> (64 - one.lane.bits)
    ascending = np.sort(signed, axis=0)
    kept = np.where(rng.random(shape[1:]) < 0.9, ascending, signed)
    return kept.view(np.uint64) & np.uint64((1 << one.lane.bits) - 1)
