"""Executes instruction forms on numbers, all lanes of a register at once: arrays (lanes, inputs).

An expression that uses the number of its lane only to pick lanes and bits takes all numbers together; others go lane
by lane.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType

U64 = NDArray[np.uint64]
_DOMAIN = ConcreteDomain()


@dataclass(frozen=True, eq=False)
class ArrayRegister(Register):
    """A register whose lanes are the rows of an array."""

    lanes: Any

    def view_as(self, domain: Any, want: VecType) -> Register:
        """Return the same bits as lanes of type `want`; SpecError if the sizes differ."""
        have = self.type.bits
        if want.total_bits != self.type.total_bits or have == want.bits:
            return super().view_as(domain, want)
        if have > want.bits:
            parts = np.stack(domain.split(self.lanes, have, want.bits), axis=1)
            return ArrayRegister(want, parts.reshape(want.lanes, -1))
        n = want.bits // have
        return ArrayRegister(want, domain.join([self.lanes[k::n] for k in range(n)], have))


class ArrayTrace(Trace):
    """A trace of `ArrayRegister`s."""

    def register(self, kind: VecType, lanes: Any) -> Register:
        """Return a register of rows, which broadcast."""
        rows = np.asarray(lanes, np.uint64)
        return ArrayRegister(kind, rows if rows.ndim == 2 else rows[:, None])

    def lanes_of(self, instr: Instr, operands: Sequence[Any], imm: int) -> Any:
        """Return the output lanes of an instruction."""
        if not _takes_arrays(instr):
            rows = np.broadcast_arrays(*instr(self.domain, [list(x) for x in operands], imm))
            return np.stack(rows) if np.ndim(rows[0]) else np.array(rows)[:, None]
        given = [_Lanes(o.type.bits, x) for o, x in zip(instr.operands, operands, strict=True)]
        lanes_out = instr.lane_at(given, imm, _numbers(instr.out.lanes))
        return np.broadcast_to(lanes_out, (instr.out.lanes, *(np.shape(lanes_out)[-1:] or (1,))))


@cache
def _numbers(lanes: int) -> NDArray[np.intp]:
    """Return the numbers of lanes."""
    return np.arange(lanes)


class _Lane(Bits):
    """A lane, or several, whose bits can be taken by an array of numbers."""

    def __rshift__(self, n: Any) -> Bits:
        if not isinstance(n, np.ndarray):
            return super().__rshift__(n)
        return Bits(self.d, self.w, np.right_shift(self.v, n.astype(np.uint64)[:, None]))


class _Lanes:
    """The lanes of an operand, picked by a number or by an array of numbers."""

    def __init__(self, bits: int, rows: U64) -> None:
        self.bits, self.rows = bits, rows

    def __getitem__(self, at: Any) -> Bits | _Lanes:
        if isinstance(at, slice):
            return _Lanes(self.bits, self.rows[at])
        is_every_lane = at is _numbers(len(self.rows))  # In order, as `lanes_of` asks for them: no copy is needed.
        return _Lane(_DOMAIN, self.bits, self.rows if is_every_lane else self.rows[at])

    def __iter__(self) -> Iterator[Bits]:
        return (_Lane(_DOMAIN, self.bits, row) for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __add__(self, other: _Lanes) -> _Lanes:
        inputs = max(self.rows.shape[1], other.rows.shape[1])
        return _Lanes(
            self.bits, np.concatenate([np.broadcast_to(x, (len(x), inputs)) for x in (self.rows, other.rows)])
        )


@cache
def _takes_arrays(instr: Instr) -> bool:
    """Return whether lanes differ only in the lanes and bits of operands that they read."""
    return _only_selects(instr.tree)


def _only_selects(node: ast.AST) -> bool:
    """Return whether a lane's number, `i`, only selects lanes and bits, and is used for nothing else."""
    if isinstance(node, ast.Name):
        return node.id != "i"
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        return _only_selects(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift) and isinstance(node.left, ast.Subscript):
        return _only_selects(node.left)
    return all(map(_only_selects, ast.iter_child_nodes(node)))
