"""Orders of a unit's channels in which sums are finished: the unit's own, and those that narrowing brings into it.

A program that makes bytes of sums narrows registers two by two, in blocks of the instruction set's; one that makes 64
bits of a sum has the even channels of every four before the odd ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.sketches.elementwise.roles import narrowing, ran

ChannelOrder = tuple[int, ...]


@lru_cache
def orders(isa: Isa) -> tuple[ChannelOrder, ...]:
    """Return every order, the unit's own first."""
    own = tuple(range(isa.word.lanes))
    narrowed = [order for order in _narrowed(isa) if order != own]
    swapped = [tuple(order[k - k % 4 + (0, 2, 1, 3)[k % 4]] for k in range(len(order))) for order in narrowed]
    return (own, *narrowed, *swapped)


def _narrowed(isa: Isa) -> Iterator[ChannelOrder]:
    """Yield the channel of each int32 lane if narrower ones, of 16 bits, of 8, have the unit's own order."""
    kind = replace(isa.tile, sign="s")
    registers = list(np.arange(isa.word.lanes).reshape(-1, kind.lanes, 1).astype(np.uint64))
    while len(registers) > 1 and len(registers) % 2 == 0:
        try:
            narrow = isa[narrowing(isa, kind, fits=True).op]
        except NoKernel:
            return
        registers = [ran(narrow, kind, pair) for pair in zip(registers[::2], registers[1::2], strict=True)]
        kind = replace(kind, bits=kind.bits // 2, lanes=kind.lanes * 2)
        yield tuple(np.argsort(np.concatenate(registers)[:, 0]).tolist())
