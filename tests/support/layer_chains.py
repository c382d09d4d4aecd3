"""Chains of layers drawn at random, as networks have them: codes in, codes out, glue and residuals between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from support.chain_deck import Deck, deck
from support.chain_glue import add, average, concatenate, lookup, max_pool, pad, resize
from support.chain_products import block, conv
from support.chain_tensors import Tensor, tensor
from support.random_drawing import one_of

Layer = Callable[[Generator, Tensor, Deck], Tensor]
STEPS: tuple[Layer, ...] = (conv, block, max_pool, pad, resize, lookup, add, average, concatenate)
CHANCES = (0.4, 0.2, 0.1, 0.05, 0.05, 0.05, 0.1, 0.01, 0.04)
_BOUNDS = np.cumsum(CHANCES)
DECK = 100_000
"""Chains of one deck: some 150 libraries, and layers of which each runs 30 times or so."""


@dataclass(frozen=True)
class Chain:
    """A random chain of layers of `isa`."""

    isa: str
    seed: int

    def run(self) -> list[str]:
        """Run every layer on what the one before gave, compare each result; the layers' names."""
        rng, layers = np.random.default_rng(self.seed), deck(self.isa, self.seed // DECK)
        bits = int(rng.integers(1, 4))
        shape = (int(rng.integers(1, 3)), *rng.integers(3, 9, 2).tolist(), one_of(rng, (1, 5, 16, 64, 70)))
        x = tensor(rng, rng.integers(0, 1 << bits, shape).astype(np.uint8), None, bits)
        names: list[str] = []
        for _ in range(rng.integers(2, 6)):
            step = STEPS[min(int(np.searchsorted(_BOUNDS, rng.random())), len(STEPS) - 1)]
            x = step(rng, x, layers)
            x.check()
            names.append(step.__name__)
        return names
