"""One layer for several processors: each its own kernel and schedule, one of them chosen where the C runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bitsynth.emit.c_names import require_name
from bitsynth.emit.layer import LayerText
from bitsynth.emit.processors import ProcessorsText
from bitsynth.errors import SpecError
from bitsynth.host.placement import best, widest
from bitsynth.isa import architecture
from bitsynth.isa.load import load_table, names
from bitsynth.layers.conv import Conv2d


def layers(make: Callable[[str, str], Conv2d], isa: str, cpus: Sequence[str]) -> dict[str, Conv2d]:
    """Return a layer for each of `cpus`, made by `make` for the best instruction set that names it."""
    return {cpu: make(name, cpu) for cpu, name in best_sets(isa, cpus).items()}


def best_sets(isa: str, cpus: Sequence[str]) -> dict[str, str]:
    """Return the best instruction set that names each of `cpus`, of the architecture of `isa`.

    SpecError for a processor that no such set names, or one that is named twice, and of an architecture whose
    programs cannot ask which processor runs them.
    """
    arch = load_table(widest(isa)).arch
    sets = {n: table for n in names() if (table := load_table(n)).arch == arch}
    set_of_cpu: dict[str, str] = {}
    for cpu in cpus:
        able = [n for n, table in sets.items() if cpu in table.cpu]
        if not able or cpu in set_of_cpu:
            known = sorted({name for table in sets.values() for name in table.cpu})
            raise SpecError(f"unknown cpu {cpu!r}, or named twice; {', '.join(sets)} know {', '.join(known)}")
        set_of_cpu[cpu] = best(able)
    architecture.find_architecture(arch).midr_text()
    return set_of_cpu


def files(name: str, layers: Mapping[str, Conv2d]) -> dict[str, str]:
    """Return the C of layers for several processors: a folder a layer, equal ones once, and the choice among them.

    SpecError if no layer can be called so.
    """
    require_name(name)
    texts: dict[str, LayerText] = {}
    for cpu, layer in layers.items():
        same = (c for c in texts if (layers[c].schedule, layers[c].kernel.name) == (layer.schedule, layer.kernel.name))
        first = next(same, cpu)
        texts[cpu] = texts[first] if first != cpu else layer.packed.text(f"{name}_{cpu}")
    (arch,) = {load_table(layer.kernel.spec.isa).arch for layer in layers.values()}
    command = next(iter(layers.values())).packed.command(name, [*layers])
    return ProcessorsText(name, arch, texts, command).files()
