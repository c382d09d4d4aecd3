"""Constants of programs in C: their arrays, and the registers that these are loaded to."""

from __future__ import annotations

from collections.abc import Sequence

from bitsynth.emit.statements import Scope
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Constant
from bitsynth.isa.types import VecType
from bitsynth.kernel.forms_used import constant_load


def constant_arrays(constants: Sequence[Constant], prefix: str) -> list[tuple[str, list[str]]]:
    """The declaration of each constant's array, and its lanes."""
    kinds = [(c, VecType.parse(c.type)) for c in constants]
    return [
        (f"static const {kind:c} {prefix}_{c.name}[{len(c.lanes)}]", [_literal(x) for x in c.lanes])
        for c, kind in kinds
    ]


def _literal(x: int) -> str:
    """`x` in C; compilers warn of plain numbers too large for every signed type."""
    return f"UINT64_C({x})" if x >= 1 << 63 else str(x)


def load_constants(scope: Scope, isa: Isa, constants: Sequence[Constant], prefix: str) -> list[str]:
    """Constants are kept in memory order and loaded as what they are used at."""
    kinds = [(c.name, VecType.parse(c.type)) for c in constants]
    return [scope.load(constant_load(isa, kind).name, name, f"{prefix}_{name}") for name, kind in kinds]
