"""The stored programs that glue of an instruction set runs, and what they need of a processor."""

from __future__ import annotations

from functools import cache

from bitsynth.emit.elementwise import needs
from bitsynth.emit.glue_programs import LOOKUP_BITS
from bitsynth.host import features
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import Requirements, load
from bitsynth.kernel.elementwise import ElementwiseProgram
from bitsynth.spec.elementwise import greatest, lookup
from bitsynth.store import elementwise as store

SPECS = (greatest(), *(lookup(1 << bits) for bits in LOOKUP_BITS))


@cache
def programs(isa: str) -> tuple[ElementwiseProgram, ...]:
    """Those of `SPECS` that are stored for the set, or the one it extends, and that this processor runs or emulates."""
    home = load(isa).table.extends or isa
    found = (store.find(home, spec) for spec in SPECS)
    return tuple(p.program for p in found if p is not None and _runs_here(isa, p.program))


def _runs_here(isa: str, program: ElementwiseProgram) -> bool:
    return not runs_natively(load(isa).table) or not features.lacking(needs(program).host)


def requirements(isa: str) -> Requirements:
    """What the set and its programs need."""
    ops = [op for p in programs(isa) for op in (*(s.op for s in p.steps), *p.loads, p.store)]
    return load(isa).requirements(ops)
