"""The forms that an instruction set has by itself."""

from bitsynth.isa import load


def own_forms(isa: load.Isa) -> list[str]:
    """Return the names of a set's forms without those of the set that it extends, whose own tests have them."""
    inherited = load.load(isa.table.extends).instrs if isa.table.extends else {}
    return [form for form in isa.instrs if form not in inherited]
