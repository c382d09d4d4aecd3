"""Wrong flushes of scaled kernels: each mutant of what `scale_flushes` gives is refused, or right on numbers."""

import random
from collections import Counter

import msgspec
import numpy as np
import pytest
from support.case_selection import quick

from bitsynth import paths
from bitsynth.errors import BitsynthError
from bitsynth.isa.load import load
from bitsynth.isa.step import Step
from bitsynth.isa.value import Role, Value
from bitsynth.kernel import interpreter
from bitsynth.kernel.scaled import scale_flushes
from bitsynth.proof import multiples
from bitsynth.store.matmul import MATMUL

KERNELS = [
    "avx2/bs_mm_a4u_w4b",
    "avx2/popcount/bs_mm_a2u_w2b",
    "avx512/bs_mm_a2u_w1b",
    "avxvnni/bs_mm_a2u_w4b",
    "neon/bs_mm_a2u_w1b",
    "neon/bs_mm_a4u_w4b",
    "neon_dotprod/bs_mm_a3u_w3b",
    "armv7_neon/bs_mm_a2u_w2b",
]
"""Kernels of every set, by the beginning of their files' names; popcount ones have passes that carry sums."""
MUTANTS = 6
"""Mutants of each kernel."""


def kernel_of(place):
    folder, _, name = place.rpartition("/")
    return MATMUL.read(min((paths.shipped_kernels() / folder).glob(f"{name}_*.json"))).kernel


def changed_step(rng, isa, step, live):
    """The step with another operand or another immediate."""
    if isa[step.op].imm and rng.random() < 0.5:
        return step.replace(imm=rng.choice(list(isa[step.op].imms)))
    args = list(step.args)
    args[rng.randrange(len(args))] = rng.choice(live)
    return step.replace(args=tuple(args))


def changed_constant(rng, constant):
    """The constant with other lanes, or its lanes in another order."""
    first = constant.lanes[0]
    value = rng.choice([2 * first, first // 2, 0, 1, 2, 4, 255])
    lanes = tuple(value % 256 for _ in constant.lanes) if rng.random() < 0.5 else (*constant.lanes[1:], first)
    return msgspec.structs.replace(constant, lanes=lanes)


def mutant(rng, kernel, multiplied):
    """The scaled kernel with one to three changes of a flush, of a step or of constants."""
    isa, number = load(kernel.isa), rng.randrange(len(multiplied.passes))
    loop, constants = multiplied.passes[number], list(multiplied.constants)
    flush, step = list[Step](loop.flush), list[Step](loop.step.steps)
    for _ in range(rng.choice([1, 1, 2, 3])):
        what = rng.random()
        if what < 0.2 and constants:
            k = rng.randrange(len(constants))
            constants[k] = changed_constant(rng, constants[k])
            continue
        program, inputs = (step, [acc.name for acc in loop.step.accs]) if what < 0.3 else (flush, [])
        if program is flush:
            inputs = [acc.name for acc in loop.loops[-1].accs]
            inputs += [Value.of(Role.TILE, r) for r in range(len(loop.tile))] if not loop.carries else []
        k = rng.randrange(len(program))
        live = [*(s.dst for s in program[:k]), *(c.name for c in constants), *inputs]
        if program[k].args:
            program[k] = changed_step(rng, isa, program[k], live)
    loops = (msgspec.structs.replace(loop.step, steps=tuple(step)), *loop.loops[1:])
    changed = msgspec.structs.replace(loop, flush=tuple(flush), loops=loops)
    passes = (*multiplied.passes[:number], changed, *multiplied.passes[number + 1 :])
    return msgspec.structs.replace(multiplied, constants=tuple(constants), passes=passes)


def is_right(kernel, multiplied):
    """Whether the products of codes are doubled, on random codes and the greatest, beyond a flush too."""
    rng = np.random.default_rng(1)
    period = min(p.flush_every for p in kernel.passes) * kernel.k_step
    for k in {kernel.k_step, 3 * kernel.k_step + 1, min(period, 20_000) + kernel.k_step}:
        for greatest in (False, True):
            most = (1 << kernel.row_bits) - 1, (1 << kernel.column_bits) - 1
            shapes = (kernel.rows, k), (k, kernel.columns)
            rows, columns = (
                np.full(shape, top, np.uint8) if greatest else rng.integers(0, top + 1, shape, dtype=np.uint8)
                for shape, top in zip(shapes, most, strict=True)
            )
            terms = np.array(kernel.row_terms)[rows].sum(1)[:, None] + np.array(kernel.column_terms)[columns].sum(0)
            once, twice = (interpreter.product(x, rows, columns).astype(np.int64) for x in (kernel, multiplied))
            if (((twice - terms) - 2 * (once - terms)) % 2**32).any():
                return False
    return True


@pytest.mark.parametrize("place", quick(KERNELS[:1], of=KERNELS))
def test_no_wrong_multiple_is_accepted(place):
    kernel = kernel_of(place)
    multiplied = scale_flushes(load(kernel.isa), kernel, 1)
    summaries, rng, results = multiples._summaries(kernel), random.Random(place), Counter[str]()
    multiples.check_multiple(kernel, multiplied, 1, summaries, set())
    assert is_right(kernel, multiplied)
    while sum(results.values()) < MUTANTS:
        wrong = mutant(rng, kernel, multiplied)
        if wrong == multiplied:
            continue
        try:
            multiples.check_multiple(kernel, wrong, 1, summaries, set())
        except BitsynthError:
            results["refused"] += 1
            continue
        results["accepted"] += 1
        assert is_right(kernel, wrong), wrong.passes
    assert results["refused"] > MUTANTS // 2
