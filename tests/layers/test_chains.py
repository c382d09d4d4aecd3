"""Chains of layers, codes in and codes out, give what integers in numpy do."""

from collections import Counter

import pytest
from chains import STEPS, Chain

from bitsynth.errors import ToolError

COUNT = {"avx2": 150, "avx512": 150, "neon": 25, "armv7_neon": 25}
"""Chains of each set that the slow suite runs."""


def test_chains():
    seen = Counter(name for seed in range(40) for name in Chain("avx2", seed).run())
    assert set(seen) == {step.__name__ for step in STEPS}


@pytest.mark.slow
@pytest.mark.parametrize("isa", COUNT)
def test_many_chains(isa, skip_isa):
    try:
        Chain(isa, 0).run()
    except ToolError as why:
        skip_isa(isa, str(why))
    for seed in range(COUNT[isa]):
        Chain(isa, seed).run()
