"""Truth tables and lane expressions in words."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import reduce
from itertools import combinations
from operator import xor

from bitsynth.isa.instr import Instr
from bitsynth.program import Step


def plane_text(table: int, bits: int) -> str:
    """Which codes set a plane: `bit 1`, `bit 0 ^ bit 1`, or the codes themselves."""
    for size in range(1, bits + 1):
        for chosen in combinations(range(bits), size):
            if table == _parity(chosen, bits):
                return " ^ ".join(f"bit {k}" for k in chosen)
    return "codes " + ", ".join(str(c) for c in range(1 << bits) if table >> c & 1)


def _parity(chosen: tuple[int, ...], bits: int) -> int:
    return sum(reduce(xor, (c >> k & 1 for k in chosen)) << c for c in range(1 << bits))


def lane_text(instr: Instr, step: Step) -> str:
    """What lane i of `step` becomes, in the registers the step names."""
    renamed: dict[str, str | int] = dict(zip((o.name for o in instr.operands), step.args, strict=True))
    renamed |= instr.names
    if instr.imm:
        renamed[instr.imm[0]] = step.imm
    tree = _Renamed(renamed).visit(ast.parse(instr.lane, mode="eval"))
    return ast.unparse(tree)


class _Renamed(ast.NodeTransformer):
    """Names replaced by registers and numbers."""

    def __init__(self, names: Mapping[str, str | int]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        to = self.names.get(node.id, node.id)
        return ast.Name(to) if isinstance(to, str) else ast.Constant(to)
