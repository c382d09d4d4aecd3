"""Programs that move their results, so that elements lie in the order of channels."""

import msgspec
import pytest
from support.element_mutants import mutants

from bitsynth.errors import Refuted, SpecError
from bitsynth.proof.elementwise.checker import check
from bitsynth.proof.elementwise.discharge import discharge
from bitsynth.solver.budget import Budget
from bitsynth.store.elementwise import ELEMENTWISE, in_order

MANY = 256
FAMILIES = [
    "thresholds3_s16_bytes_avx512",
    "thresholds31_s32_flip_bytes_avx2",
    "rescale_small_bias_whole_u8_avx512",
    "requantize32_s16_avx2",
]


def stored(name):
    return ELEMENTWISE.load(ELEMENTWISE.find_named(name))


@pytest.mark.parametrize("name", FAMILIES)
def test_results_are_moved(name):
    base, moved = stored(name), in_order(stored(name))
    assert not base.artifact.is_ordered
    assert moved.artifact.is_ordered
    assert moved.artifact.name != base.artifact.name
    assert len(moved.artifact.steps) == len(base.artifact.steps) + len(base.artifact.results)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES[:2])
def test_the_solver_agrees(name):
    """It asks about the whole program, where the proof of the moves knows nothing of what is moved."""
    discharge(in_order(stored(name)).artifact, Budget())


@pytest.mark.parametrize("name", FAMILIES)
def test_mutants_are_refused(name):
    """Except programs that choose the same lane by another number."""
    base, left, seen = stored(name), [], 0
    for what, mutant in mutants(in_order(base).artifact):
        seen += 1
        try:
            left.append((what, base.form(mutant).artifact))
        except (Refuted, SpecError):
            continue
    assert all(what.startswith("constant") for what, _ in left)
    assert len(left) < seen // 10
    for _, mutant in left:
        check(mutant, MANY)


@pytest.mark.parametrize("name", FAMILIES)
def test_moves_say_where_results_go(name):
    """Orders alone, or moves alone, are another program."""
    base = stored(name)
    moved = in_order(base).artifact
    for field in ("orders", "results"):
        with pytest.raises(Refuted):
            base.form(msgspec.structs.replace(moved, **{field: getattr(base.artifact, field)}))
    with pytest.raises(Refuted):
        base.form(base.artifact)


def test_a_program_in_order_is_left_alone():
    base = stored("requantize32_u8_neon")
    assert in_order(base) is base


@pytest.mark.parametrize("name", ["thresholds127_s32_words_armv7_neon", "thresholds3_s16_words_avx2"])
def test_what_does_not_move_by_lanes_has_none(name):
    assert in_order(stored(name)) is None
