"""Solve the kernels that ship with the package anew, into a folder laid out like `kernels_cache/`.

    python benchmarks/shipped_kernels.py [FOLDER]
    python benchmarks/shipped_kernels.py --recheck [FOLDER]

With `--recheck` nothing is solved: the second checker runs on each matmul kernel of the folder (ten minutes for all).

What ships is the table RULES: for which instruction sets, widths and options, and why. Instruction sets that extend no
other also have depthwise kernels of all widths; sets with dot products have one more, of 8 bits.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import report

from bitsynth import paths
from bitsynth.errors import NoKernel
from bitsynth.isa import load
from bitsynth.isa.tables import IsaTable
from bitsynth.kernel.names import KernelName
from bitsynth.proof.proved import Proved
from bitsynth.proof.recheck import recheck
from bitsynth.schedule.depthwise import WIDTHS, cheapest
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import METHODS, KernelOptions
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.store.matmul import MATMUL
from bitsynth.synth import synthesize

Widths = tuple[tuple[int, int], ...]
"""Bits of activations and of weights."""

PAPER: Widths = ((1, 1), (2, 1), (2, 2))
HEADLINE: Widths = ((1, 1), (2, 1), (2, 2), (3, 3))
IMAGE = (8, 1)
"""Widths of a first layer, which reads pixels of 8 bits."""
WIDE: Widths = ((8, 2), (8, 4), (8, 8), (4, 8), (2, 8))
"""Widths of other first layers and of last layers."""
EVERY: Widths = tuple((a, w) for a in range(1, 5) for w in range(1, 5))
NARROW: Widths = ((2, 4), (3, 3), (3, 4), (4, 3), (4, 4), *WIDE)
"""Widths of products whose cheapest tile on Arm has 48 columns, which do not divide 64 channels."""


@dataclass(frozen=True)
class Rule:
    """Kernels that ship: for the sets that `applies` holds for, all `widths` with each of the options of a set."""

    why: str
    applies: Callable[[IsaTable], bool]
    widths: Widths
    options: Callable[[IsaTable], Iterable[KernelOptions]]


def every_set(table: IsaTable) -> bool:
    """Hold for all sets; one with matrix registers has the other kernels of the set that it extends."""
    return table.matrices is None


def has_matrices(table: IsaTable) -> bool:
    """Hold for sets with matrix registers."""
    return table.matrices is not None


def is_x86(table: IsaTable) -> bool:
    """Hold for sets of x86 machines."""
    return table.arch == "x86_64" and every_set(table)


def is_narrow_x86(table: IsaTable) -> bool:
    """Hold for sets of x86 machines whose registers have 32 bytes."""
    return is_x86(table) and not is_wide(table)


def is_arm(table: IsaTable) -> bool:
    """Hold for sets of Arm boards."""
    return table.arch != "x86_64"


def is_wide(table: IsaTable) -> bool:
    """Hold for sets whose registers have more than 32 bytes."""
    return table.vector_bits > 256 and every_set(table)


def is_neon(table: IsaTable) -> bool:
    """Hold for the base set of 64-bit Arm."""
    return table.arch == "aarch64" and not table.extends


def is_papers(table: IsaTable) -> bool:
    """Hold for the set of the paper's kernels."""
    return table.paper is not None and table.vector_bits == 128 and table.arch == "aarch64"


def fixed(*options: KernelOptions) -> Callable[[IsaTable], Iterable[KernelOptions]]:
    """Return a function that gives the same options for every set."""
    return lambda _: options


def in_layers(*methods: str, channels: int = 64) -> Callable[[IsaTable], Iterable[KernelOptions]]:
    """Return a function that gives the options of methods for layers of that many output channels."""
    return fixed(*(KernelOptions(method, channels=channels) for method in methods))


def has_rules(table: IsaTable) -> bool:
    """Hold for sets with issue rules of a processor, which tell whether pairs pay."""
    return any(cpu.issue for cpu in table.cpu.values())


LAYER_METHODS = tuple(method for method in METHODS if method not in ("fip", "pairs", "matrix"))

RULES = (
    Rule("the cheapest in operations", every_set, (*EVERY, IMAGE, *WIDE), fixed(KernelOptions())),
    Rule(
        "the cheapest in cycles of each processor",
        is_arm,
        EVERY,
        lambda table: (KernelOptions(model=cpu) for cpu in table.cpu),
    ),
    Rule(
        "each method at the widths of published figures, to compare methods",
        is_x86,
        HEADLINE,
        fixed(*(KernelOptions(method) for method in METHODS if method not in ("pairs", "matrix"))),
    ),
    Rule("each method for layers", every_set, (*EVERY, IMAGE), in_layers(*LAYER_METHODS)),
    Rule("two rows at once", has_rules, tuple(product((1, 2), (1, 2))), in_layers("pairs")),
    Rule("the same, where three lookups fit half a byte", is_narrow_x86, ((1, 1), (1, 2)), in_layers("pairs")),
    Rule("more columns where registers are wide", is_wide, (*EVERY, IMAGE), in_layers("lookup", channels=128)),
    Rule("first and last layers", every_set, WIDE, in_layers("multiply", "dot")),
    Rule("few channels, where 64 take several registers", is_wide, WIDE, in_layers("dot", channels=32)),
    Rule("fewer channels still", is_wide, WIDE, in_layers("dot", channels=16)),
    Rule("binary layers of few channels", is_wide, ((1, 1),), in_layers("popcount", channels=16)),
    Rule("layers that tiles of 48 columns do not divide", is_neon, NARROW, in_layers("multiply", channels=32)),
    Rule("products of sums, at 3 and 4 bits", is_neon, tuple(x for x in EVERY if min(x) > 2), in_layers("fip")),
    Rule(
        "binary layers of as many input channels as a step takes",
        is_neon,
        ((1, 1),),
        fixed(KernelOptions("popcount", channels=64, k_step=128)),
    ),
    Rule(
        "binary layers on in-order processors, with a scalar pass",
        is_neon,
        ((1, 1),),
        lambda table: (KernelOptions("popcount", model=cpu, channels=64) for cpu in table.in_order),
    ),
    Rule("small images: tiles of few pixels", is_neon, ((2, 1), (2, 2)), in_layers("pairs", channels=32)),
    Rule("the same", is_neon, tuple(product((1, 2), (1, 2))), in_layers("pairs", channels=16)),
    Rule(
        "products of matrices, which take bytes whatever these hold",
        has_matrices,
        ((8, 8),),
        fixed(KernelOptions(), *(KernelOptions("matrix", channels=channels) for channels in (64, 16))),
    ),
    Rule("the paper's own sketch, to compare with", is_papers, PAPER, fixed(KernelOptions(sketch="paper"))),
)


def wanted() -> Iterator[tuple[str, tuple[int, int], KernelOptions]]:
    """Yield the instruction set, widths and options of each shipped kernel."""
    for name in load.names():
        table = load.load(name).table
        for rule in (rule for rule in RULES if rule.applies(table)):
            yield from ((name, widths, options) for options in rule.options(table) for widths in rule.widths)


def store_depthwise() -> None:
    """Solve, prove and store depthwise kernels, one line a kernel."""
    for name in load.names():
        widths = product(WIDTHS, WIDTHS) if not load.load(name).table.extends else ()
        of_bytes = [(8, 8, "dot")] if every_set(load.load(name).table) else []
        for act_bits, w_bits, method in (*((a, w, "multiply") for a, w in widths), *of_bytes):
            start = time.perf_counter()
            try:
                found = Proved.by_solver(cheapest(load.load(name), act_bits, w_bits, method), Budget())
            except NoKernel:
                continue
            DEPTHWISE.store(found)
            print(f"{found.artifact.name} {time.perf_counter() - start:.1f} s", flush=True)


def recheck_all(folder: Path) -> None:
    """Run the second checker on each matmul kernel of a folder; Refuted at the first that it does not accept."""
    verdicts: Counter[str] = Counter()
    for path in sorted(folder.rglob("bs_mm_*.json")):
        _, why_not = recheck(path.stem, json.loads(path.read_bytes()), KernelName.parse(path.stem).spec)
        verdicts[why_not or "accepted"] += 1
        print(f"{path.relative_to(folder)}: {why_not or 'accepted'}", flush=True)
    for verdict, count in verdicts.most_common():
        print(f"{count:>4} {verdict}")


def main() -> int:
    """Solve, prove and store each kernel, or check each again; one line a kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=paths.shipped_kernels(), metavar="FOLDER")
    parser.add_argument("--recheck", action="store_true", help="run the second checker on each kernel instead")
    args = parser.parse_args()
    if args.recheck:
        recheck_all(args.folder)
        return 0
    os.environ["BITSYNTH_CACHE"] = str(args.folder)
    store_depthwise()
    for name, (act_bits, w_bits), options in wanted():
        spec = MatmulSpec.plain(name, act_bits, w_bits)
        start = time.perf_counter()
        try:
            found = synthesize.synthesize(spec, options)
        except NoKernel:
            print(f"{name} A{act_bits}W{w_bits} {options.variant}: no kernel", flush=True)
            continue
        MATMUL.store(found.proved_entry)
        took = time.perf_counter() - start
        print(f"{found.entry.name} {options.variant} {found.entry.method} {took:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    report.run(main)
