"""The instruction forms that move data, found by their types and meaning."""

from __future__ import annotations

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Memory
from bitsynth.sketches.lanes.terms import adder


def memory(isa: Isa, row_bytes: int) -> Memory:
    """Return the data-moving forms of a kernel whose rows have inputs of `row_bytes`; NoKernel if one is missing."""
    tile = isa.tile
    return Memory(
        load=repeats(isa, isa.word.lanes),
        broadcast=repeats(isa, row_bytes),
        load_tile=_only(isa, f"loads {tile}", [i for i in _loads(isa) if i.out == tile == i.operands[0].type]),
        store_tile=stores(isa, tile),
        add_tile=adder(isa, tile),
        broadcast_tile=_only(
            isa, "repeats an int32", [i for i in _loads(isa) if i.out == tile and i.operands[0].type.lanes == 1]
        ),
    )


def stores(isa: Isa, kind: VecType) -> str:
    """Return the form that stores a register of `kind`."""
    return _only(isa, f"stores {kind}", [i for i in isa.instrs.values() if i.store and i.out == kind])


def repeats(isa: Isa, size: int) -> str:
    """Return the form that fills a register with the same `size` bytes from memory over and over."""
    return _only(isa, f"repeats {size} bytes", [i for i in _loads(isa) if _repeats(isa, i, size)])


def _only(isa: Isa, what: str, instructions: list[Instr]) -> str:
    if not instructions:
        raise NoKernel(f"{isa.name} declares no instruction that {what}")
    return instructions[0].name


def _loads(isa: Isa) -> list[Instr]:
    return [i for i in isa.instrs.values() if i.is_load]


def _repeats(isa: Isa, instr: Instr, size: int) -> bool:
    source = instr.operands[0].type
    if source.total_bits != 8 * size or instr.out.total_bits != isa.table.vector_bits:
        return False
    lanes = [variable(k, 0, 0) for k in range(source.lanes)]
    return instr(LinearDomain(1), [lanes]) == [lanes[k % source.lanes] for k in range(instr.out.lanes)]
