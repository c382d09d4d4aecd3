"""Solve the kernels that ship with the package anew, into a folder laid out like `kernels_cache/`.

    python benchmarks/shipped_kernels.py [FOLDER]

Every instruction set at 1 to 4 bits by 1 to 4 bits, cheapest in operations; the same in cycles
of every processor of the sets that Arm boards have; every method of the sets that x86
machines have at the widths of published figures, so that methods can be compared; every
method for layers, whose tiles have at most 64 and 128 output channels, at 8 by 1 bits too; the
widths of first and last layers, with 8 bits on a side, and the methods for layers that pay there,
with dot products of at most 32 and 16 output channels too where one of 64 takes several registers, and products of 1
by 1 bits of at most 16; products of at most 32 where those of 48 are cheapest on Arm, and of sums at 3 and 4 bits;
popcounts in steps of 128 positions, for as many input channels, and those that processors that are in order have to
themselves; pairs of at most 32 and 16, whose tiles of more pixels waste less of small images; and the kernels of the
paper's own sketch, which layers are compared with. Sets that extend no other have depthwise kernels too, of all widths,
and those with dot products one of these, of 8 bits.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import report

from bitsynth import paths
from bitsynth.errors import NoKernel
from bitsynth.isa import load
from bitsynth.isa.tables import IsaTable
from bitsynth.schedule.depthwise import WIDTHS
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import METHODS, KernelOptions
from bitsynth.store import depthwise, kernels
from bitsynth.synth import depthwise as synth_depthwise
from bitsynth.synth import synthesize

PAPER = ((1, 1), (2, 1), (2, 2))
HEADLINE = ((1, 1), (2, 1), (2, 2), (3, 3))
IMAGE = (8, 1)
"""Widths of a first layer, which reads pixels of 8 bits."""
EDGES = (IMAGE, (8, 2), (8, 4), (8, 8), (4, 8), (2, 8))
"""Widths of first and last layers."""
NARROW = ((2, 4), (3, 3), (3, 4), (4, 3), (4, 4), *(widths for widths in EDGES if widths != IMAGE))
"""Widths of products whose cheapest tile on Arm has 48 columns, no part of 64 channels: they have one of 32 too."""
PAIRED = tuple(product((1, 2), (1, 2)))
"""Widths that pairs take."""
EVERY = tuple((a, w) for a in range(1, 5) for w in range(1, 5))


def wanted() -> Iterator[tuple[str, tuple[int, int], KernelOptions]]:
    """Instruction set, widths and options of every shipped kernel."""
    for name in load.names():
        table = load.load(name).table
        for widths in (*EVERY, *EDGES):
            yield name, widths, KernelOptions()
        if table.arch != "x86_64":
            yield from ((name, widths, KernelOptions(model=cpu)) for cpu in table.cpu for widths in EVERY)
        else:
            yield from ((name, widths, KernelOptions(method)) for method in METHODS for widths in HEADLINE)
        yield from ((name, widths, options) for options in for_layers(table) for widths in (*EVERY, IMAGE))
        edges = [widths for widths in EDGES if widths != IMAGE]
        yield from ((name, x, KernelOptions(method, channels=64)) for x in edges for method in ("multiply", "dot"))
        if table.vector_bits > 256:
            yield from ((name, x, KernelOptions("dot", channels=n)) for x in edges for n in (32, 16))
            yield name, (1, 1), KernelOptions("popcount", channels=16)
        if table.arch == "aarch64" and not table.extends:
            yield from ((name, widths, KernelOptions("multiply", channels=32)) for widths in NARROW)
            yield from ((name, widths, KernelOptions("fip", channels=64)) for widths in EVERY if min(widths) > 2)
            yield name, (1, 1), KernelOptions("popcount", channels=64, k_step=128)
            yield from ((name, (1, 1), KernelOptions("popcount", model=cpu, channels=64)) for cpu in table.in_order)
            yield from ((name, (2, w), KernelOptions("pairs", channels=32)) for w in (1, 2))
            yield from ((name, widths, KernelOptions("pairs", channels=16)) for widths in PAIRED)
        if table.paper is not None and table.vector_bits == 128 and table.arch == "aarch64":
            yield from ((name, widths, KernelOptions(sketch="paper")) for widths in PAPER)


def for_layers(table: IsaTable) -> Iterator[KernelOptions]:
    """Every method that pays at all widths, with more columns only where a register has more bytes than 32."""
    for method in (m for m in METHODS if m != "fip"):
        yield KernelOptions(method, channels=64)
        if table.vector_bits > 256 and method == "lookup":
            yield KernelOptions(method, channels=128)


def store_depthwise() -> None:
    """Solve, prove and store depthwise kernels, one line a kernel."""
    for name in load.names():
        widths = product(WIDTHS, WIDTHS) if not load.load(name).table.extends else ()
        for act_bits, w_bits, method in (*((a, w, "multiply") for a, w in widths), (8, 8, "dot")):
            start = time.perf_counter()
            try:
                found = synth_depthwise.solve(name, act_bits, w_bits, method)
            except NoKernel:
                continue
            depthwise.store(found)
            print(f"{found.program.name} {time.perf_counter() - start:.1f} s", flush=True)


def main() -> int:
    """Solve, prove and store each, one line a kernel."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else paths.shipped_kernels()
    os.environ["BITSYNTH_CACHE"] = str(folder)
    store_depthwise()
    for name, (act_bits, w_bits), options in wanted():
        spec = MatmulSpec.plain(name, act_bits, w_bits)
        start = time.perf_counter()
        try:
            found = synthesize.synthesize(spec, options)
        except NoKernel:
            print(f"{name} A{act_bits}W{w_bits} {options.variant}: no kernel", flush=True)
            continue
        kernels.store(found.proved_entry)
        took = time.perf_counter() - start
        print(f"{found.entry.name} {options.variant} {found.entry.method} {took:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    report.run(main)
