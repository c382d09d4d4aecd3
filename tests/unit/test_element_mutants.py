"""Programs one change away from a stored one: refused where they are read, or the same."""

import random

import pytest
from support.element_mutants import mutants

from bitsynth.errors import Refuted, SpecError, Undecided
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.proof.elementwise.checker import LOADED, check
from bitsynth.proof.elementwise.discharge import discharge
from bitsynth.solver.budget import Budget
from bitsynth.store.elementwise import ELEMENTWISE

MANY = 256
"""More columns of inputs than a program that is read runs on."""
RLIMIT = 1_000_000
"""Z3 is given up on products of unknowns soon: a program that it cannot prove is not verified."""


def some(program, count):
    """Mutants, the same in every run."""
    found = list(mutants(program))
    return random.Random(program.name).sample(found, min(count, len(found)))


def accepted(program: ElementwiseProgram, columns: int = LOADED) -> bool:
    """Whether so many columns of inputs do not tell it from a right one."""
    try:
        check(program, columns)
    except (Refuted, SpecError):
        return False
    return True


def proved(program: ElementwiseProgram) -> bool:
    """Whether Z3 proves it."""
    try:
        discharge(program, Budget(RLIMIT))
    except (Refuted, SpecError, Undecided):
        return False
    return True


SWAPPED = tuple(f"swap: v{n} = {op}_ps" for n in range(100) for op in ("min", "max"))
FAMILIES = [
    "thresholds3_s32_words_avx512",
    "thresholds31_s32_flip_words_avx2",
    "requantize32_even_u8_avx2",
    "rescale_small_bias_whole_u8_avx512",
    "lookup16_neon",
    "mean_even_avx2",
    "residual_u8_factor_avx512",
    "residual_s8_float_avx2",
    "rounded_u8_neon",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_mutants_are_refused_where_they_are_read(name):
    program = ELEMENTWISE.load(ELEMENTWISE.find_named(name)).artifact
    found = some(program, 25)
    left = [(what, mutant) for what, mutant in found if accepted(mutant)]
    assert len(left) < len(found) // 4
    assert [what for what, mutant in left if not accepted(mutant, MANY)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAMILIES, "thresholds15_s16_bytes_neon", "requantize64_row_s8_armv7_neon"])
def test_mutants_that_are_accepted_are_right(name):
    """Z3 proves them, but for floats in another order, which differ for NaN alone: cuts hide that there is none."""
    program = ELEMENTWISE.load(ELEMENTWISE.find_named(name)).artifact
    left = [(what, mutant) for what, mutant in some(program, 30) if accepted(mutant)]
    assert [what for what, mutant in left if not what.startswith(SWAPPED) and not proved(mutant)] == []


STORED = [path.stem for path in ELEMENTWISE.every()]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_mutants_of_every_fourth_program_are_refused(part):
    """About one in two hundred is refused by `bitsynth verify` alone."""
    seen, late = 0, []
    for name in STORED[part::8]:
        for what, mutant in some(ELEMENTWISE.load(ELEMENTWISE.find_named(name)).artifact, 1):
            seen += 1
            if accepted(mutant) and not accepted(mutant, MANY):
                late.append(f"{name}: {what}")
    assert len(late) <= 1 + seen // 200, late


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_refused_is_not_proved(name):
    """The checker and Z3, which share no way of thinking, agree."""
    program = ELEMENTWISE.load(ELEMENTWISE.find_named(name)).artifact
    for what, mutant in some(program, 6):
        assert not proved(mutant) or accepted(mutant, MANY), what
