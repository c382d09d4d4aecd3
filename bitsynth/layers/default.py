"""The schedule a layer has without tuning, from the cost model."""

from __future__ import annotations

from collections.abc import Iterator

from bitsynth import cache
from bitsynth.build import host
from bitsynth.build.runners import runs_natively
from bitsynth.cache import Entry
from bitsynth.choice import METHODS, Choice
from bitsynth.errors import NoKernel
from bitsynth.isa.load import load, names
from bitsynth.layers.geometry import Geometry
from bitsynth.schedule.layer import LayerSchedule
from bitsynth.spec import MatmulSpec, Operand

CHANNELS = (64, 128)
"""Tiles of layers that are shipped, by their most columns."""


def default_schedule(act: Operand, wgt: Operand, geometry: Geometry, image: tuple[int, int], isa: str) -> LayerSchedule:
    """The schedule of fewest estimated cycles; NoKernel where no kernel for layers is cached."""
    found = [x for name in _sets(isa) for x in _candidates(MatmulSpec(name, act, wgt))]
    if not found:
        where = isa if isa != "auto" else "any instruction set this processor runs"
        raise NoKernel(
            f"no kernel of {act} x {wgt} for layers on {where}; run `bitsynth synth --channels 64` for these widths"
        )
    height, width = image
    priced = [
        (_cycles(entry, geometry, height, width, gather), LayerSchedule(entry.kernel.isa, method, channels, gather))
        for entry, method, channels in found
        for gather in _gathers(geometry)
    ]
    return min(priced, key=lambda x: x[0])[1]


def _sets(isa: str) -> list[str]:
    if isa != "auto":
        return [load(isa).name]
    return [n for n in names() if load(n).table.arch == host.arch() and runs_natively(load(n).table)]


def _candidates(spec: MatmulSpec) -> Iterator[tuple[Entry, str, int]]:
    isa = load(spec.isa)
    for method in METHODS:
        for channels in CHANNELS:
            path = cache.find(spec, Choice(method, channels=channels).variant)
            if path is not None:
                entry = cache.load_entry(path)
                if not host.lacking(isa.requirements(sorted(_forms(entry))).host) or not runs_natively(isa.table):
                    yield entry, method, channels


def _forms(entry: Entry) -> set[str]:
    from bitsynth.wellformed import forms_used

    return forms_used(load(entry.kernel.isa), entry.kernel)


def _gathers(geometry: Geometry) -> tuple[str, ...]:
    if geometry.kernel == (1, 1):
        return ("direct",) if geometry.stride == (1, 1) else ("im2col",)
    return "direct", "im2col"


def _cycles(entry: Entry, g: Geometry, height: int, width: int, gather: str) -> float:
    """Cycles of a whole layer: whole tiles and steps, packing, a tile's start."""
    kernel = entry.kernel
    cpu = next(iter(entry.cost.cycles))
    high, wide = g.output(height, width)
    taps, channels = g.kernel[0] * g.kernel[1], g.in_channels // g.groups
    runs, length = (1, taps * channels) if gather == "im2col" else (taps, channels)
    depth = runs * -(-length // kernel.k_step) * kernel.k_step
    rows = -(-high * wide // kernel.rows) * kernel.rows
    columns = -(-g.out_channels // g.groups // kernel.columns) * kernel.columns
    compute = rows * columns * depth / 128 * entry.cost.cycles[cpu]
    pixels = high * wide if gather == "im2col" else (height + 2) * (width + 2)
    packing = pixels * length * _packing_per_code(entry) + (
        pixels * length * 0.3 if gather == "im2col" and taps > 1 else 0
    )
    tiles = rows // kernel.rows * (columns // kernel.columns)
    return g.groups * (compute + packing + tiles * 60)


def _packing_per_code(entry: Entry) -> float:
    """Cycles to pack a code: a table's instructions at two a cycle and its store, or a few codes a cycle."""
    build = entry.kernel.build
    if build is None:
        return 0.12
    bits = max(build.stage) + 1
    return (len(build.program) / 2 + 1) / bits
