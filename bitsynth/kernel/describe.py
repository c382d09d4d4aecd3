"""Describes a kernel's inputs, loops and lane expressions in words, for `show` and for comments in C."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache, reduce
from itertools import combinations
from operator import xor

from bitsynth.isa.instr import Instr
from bitsynth.isa.step import Step
from bitsynth.kernel.inputs import Input, Planes
from bitsynth.kernel.program import Kernel, Pass


def plane_text(table: int, bits: int) -> str:
    """Return the codes that set a plane: `bit 1`, `bit 0 ^ bit 1`, or the codes themselves."""
    for size in range(1, bits + 1):
        for chosen in combinations(range(bits), size):
            if table == _parity(chosen, bits):
                return " ^ ".join(f"bit {k}" for k in chosen)
    return "codes " + ", ".join(str(c) for c in range(1 << bits) if table >> c & 1)


@cache
def _parity(chosen: tuple[int, ...], bits: int) -> int:
    return sum(reduce(xor, (c >> k & 1 for k in chosen)) << c for c in range(1 << bits))


def input_text(given: Input, bits: int, size: int, code_bytes: int = 1) -> str:
    """Return the content of a row's or a column's input, and the positions of the step that its `size` bytes are of.

    A code takes `code_bytes` of them.
    """
    if not isinstance(given, Planes):
        values = " ".join(map(str, given.values))
        places = _range(range(given.first, given.first + given.bits))
        return f"table of {given.entries} sums of {values} by code at {places}"
    planes = ", ".join(plane_text(t, bits) for t in given.tables)
    if given.signed:
        planes = f"code - {given.zero} as a signed byte"
    each = "byte" if code_bytes == 1 else f"{code_bytes} bytes"
    return f"{planes} at {_places([given.positions(b) for b in range(size // code_bytes)], each)}"


def _places(places: list[range], each: str) -> str:
    """Describe the positions of each byte; of many, the first two and the last."""
    shown = [f"{p[0]}" if len(p) == 1 else _ends(p) for p in places]
    if len(set(shown)) == 1:
        return _range(places[0]) + (f" in every {each}" if len(shown) > 1 else "")
    if len(shown) > 4:
        shown = [*shown[:2], "..", shown[-1]]
    return f"positions {', '.join(shown)}, {each} by {each}"


def _range(places: range) -> str:
    return f"position {places[0]}" if len(places) == 1 else f"positions {_ends(places)}"


def _ends(places: range) -> str:
    return f"{places[0]} to {places[-1]}" + (f" by {places.step}" if places.step > 1 else "")


def lane_text(instr: Instr, step: Step) -> str:
    """Return the expression that lane i of `step` becomes, in the registers the step names."""
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


def step_title(kernel: Kernel) -> str:
    """Return the heading of the innermost program of a pass."""
    return f"step: {kernel.k_step} positions of K"


def loop_title(loop: Pass, level: int) -> str:
    """Return the heading of the program of loop `level`, above 0."""
    inside = f"loop {level - 1}" if level > 1 else "the step"
    return f"loop {level}: after at most {loop.loops[level - 1].trip_count:,} runs of {inside}"


def flush_title(loop: Pass) -> str:
    """Return the heading of what ends a pass."""
    return f"{'carry' if loop.carries else 'flush'}: every {loop.flush_every:,} steps"
