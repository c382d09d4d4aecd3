"""What random chains are made of: kinds of layers, and layers, each made once and used by many chains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
from numpy.random import Generator

from bitsynth import paths
from bitsynth.spec.matmul import Encoding, MatmulOperand
from support.layer_cases import encodings
from support.random_drawing import one_of

W_BITS = {1: (1,), 2: (1, 2), 3: (2,)}
"""Bits of weights for bits of activations: few, as each has a kernel that is compiled."""
VARIETY = 3
"""Kinds of layers for one encoding of activations."""


@dataclass(frozen=True)
class Kind:
    """What a layer's machine code depends on: layers of one kind share few libraries."""

    act: MatmulOperand
    wgt: MatmulOperand
    method: str
    bits: int
    epilogue: str
    layout: str
    elements: str


@dataclass(frozen=True)
class Deck:
    """Layers of `isa` that chains are drawn from: decks of another number have others."""

    isa: str
    number: int
    _made: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def rng(self, *key: Any) -> Generator:
        """The random numbers of what `key` names."""
        return np.random.default_rng([self.number, crc32(repr(key).encode())])

    def once(self, make: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What `make` makes of these arguments, the same object each time."""
        key = make, given, *named.items()
        if key not in self._made:
            self._made[key] = make(*given, **named)
        return self._made[key]

    def kind(self, rng: Generator, act: MatmulOperand, *, residual: bool) -> Kind:
        """One of the kinds for activations, of layers with a residual or without."""
        return one_of(rng, self.once(self._kinds, act, residual))  # type: ignore[no-any-return]

    def _kinds(self, act: MatmulOperand, residual: bool) -> list[Kind]:
        rng = self.rng(act, residual)
        return [_kind(rng, act, self.isa) for _ in range(VARIETY)]


@lru_cache(maxsize=1)
def deck(isa: str, number: int) -> Deck:
    """The deck; the one before is forgotten, as an emulator runs each of its libraries."""
    return Deck(isa, number)


def _methods(isa: str, act_bits: int, w_bits: int) -> tuple[str, ...]:
    """Methods of kernels (and whose own they are), and other ways to a schedule: the layer's own takes longest."""
    files = (paths.shipped_kernels() / isa).glob(f"*-c64/bs_mm_a{act_bits}u_w{w_bits}b_*.json")
    stored = sorted({path.parent.name.removesuffix("-c64") for path in files})
    return *([*stored, "grouped"] * 3), "default"


def _kind(rng: Generator, act: MatmulOperand, isa: str) -> Kind:
    bits = one_of(rng, W_BITS[act.bits])
    return Kind(
        act=act,
        wgt=MatmulOperand(bits, Encoding(one_of(rng, encodings(bits)))),
        method=one_of(rng, _methods(isa, act.bits, bits)),
        bits=int(rng.integers(1, 4)),
        epilogue=one_of(rng, ("rising", "mixed", "up", "even")),
        layout=one_of(rng, ("NHWC", "packed")),
        elements=one_of(rng, ("uint8", "int8", "int16", "int32")),
    )
