"""The pointers that loads of a step read by, and whether an instruction makes their addresses."""

from __future__ import annotations

from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.kernel.in_order.halves import is_high
from bitsynth.kernel.in_order.list_scheduling import load_kind


def is_column(step: Step) -> bool:
    """Whether a load reads columns, not a row."""
    return step.dst[0] == "w"


def pointer_of(step: Step) -> str:
    """The pointer that a load of a step's inputs reads by; high halves of rows have one of their own.

    Compilers would have a pointer to the high half of each row else, and no registers for so many.
    """
    return "column" if is_column(step) else "high" if is_high(step.dst) else "offset"


def has_address(isa: Isa, step: Step) -> bool:
    """Whether a load takes an instruction for its address: broadcasts of rows do, others add two."""
    return not step.args and not is_column(step) and load_kind(isa, step) == "broadcast"
