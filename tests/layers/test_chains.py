"""Chains of layers, codes in and codes out, give what integers in numpy do."""

import os

import pytest
from support.layer_chains import STEPS, Chain

from bitsynth.errors import ToolError
from bitsynth.layers import library

COUNT = {"avx2": 40, "avx512": 20, "avxvnni": 8, "neon": 5, "neon_dotprod": 4, "armv7_neon": 4}
"""Chains of each set that the slow suite runs, unless BITSYNTH_CHAINS says how many."""
ASKED = int(os.environ.get("BITSYNTH_CHAINS", "0"))
FIRST = int(os.environ.get("BITSYNTH_FIRST_SEED", "0"))


def test_chains_of_layers_are_exact():
    for seed in range(1):
        Chain("avx2", seed).run()


@pytest.mark.slow
@pytest.mark.timeout(600 + ASKED)
@pytest.mark.parametrize("isa", COUNT)
def test_many_chains_of_layers_are_exact(isa, skip_isa, monkeypatch):
    monkeypatch.setattr(library, "_MAX_RUNNERS", 256)  # as many as a deck has
    try:
        Chain(isa, FIRST).run()
    except ToolError as why:
        skip_isa(isa, str(why))
    count = ASKED or COUNT[isa]
    seen = {name for seed in range(FIRST, FIRST + count) for name in Chain(isa, seed).run()}
    assert count < 40 or seen == {step.__name__ for step in STEPS}
