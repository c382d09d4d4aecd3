"""The lookup lemma: a table whose entries are sums over the bits of an index gives the sum those bits select."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bitsynth.isa.domains.forms import BitField, Inexact, LinearForm, Payload, TableEntry, require, total
from bitsynth.isa.domains.products import gated


def selected_parts(table: Sequence[Payload], parts: tuple[LinearForm, ...], index: BitField) -> LinearForm:
    """Return the lookup lemma for a table of partial sums: the parts the index's bits select."""
    for e, entry in enumerate(table):
        sums = isinstance(entry, TableEntry) and entry.chosen == e and (entry.parts is parts or entry.parts == parts)
        if not sums:
            raise Inexact(f"entry {e} of the table is not the sum its number selects")
    fixed = [part for n, part in enumerate(parts) if index.ones >> n & 1]
    return total([*fixed, *(gated(part, index, n) for n, part in enumerate(parts) if index.mask >> n & 1)])


def affine_lookup(table: Sequence[int], index: BitField) -> LinearForm:
    """Return the lookup lemma: the entry is table[ones] plus one fixed amount per set bit."""
    base, weights, lo, hi = _weights(tuple(table), index.mask, index.ones)
    by = {coef: index.at(bits) for coef, bits in weights}
    return LinearForm(base, {(index.tt, index.column): by} if by else {}, lo, hi)


@lru_cache(maxsize=256)
def _weights(table: tuple[int, ...], mask: int, ones: int) -> tuple[int, tuple[tuple[int, int], ...], int, int]:
    """Return the entry without free bits, pairs (amount, bits that add it), and the least and greatest entry."""
    base = table[ones]
    bits = [n for n in range(mask.bit_length()) if mask >> n & 1]
    weight = {n: table[ones | 1 << n] - base for n in bits}
    subset = mask
    while subset:
        want = base + sum(weight[n] for n in bits if subset >> n & 1)
        require(table[ones | subset] == want, "the table is not a sum over the index's bits")
        subset = (subset - 1) & mask
    by: dict[int, int] = {}
    for n, amount in weight.items():
        if amount:
            by[amount] = by.get(amount, 0) | 1 << n
    low = base + sum(c for c in weight.values() if c < 0)
    return base, tuple(by.items()), low, base + sum(c for c in weight.values() if c > 0)
