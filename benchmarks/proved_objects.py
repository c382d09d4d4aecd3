"""How many shipped kernels are proved down to their machine code, and why are the others refused?

    python benchmarks/proved_objects.py [--isa avx2,neon] [--compilers gcc,zig] [--flags=-O2,-O3] [--every] [--listed]

Each kernel is compiled by each of the compilers with each of the flags; `--every` takes variants too, and `--listed`
leaves out the loop rule, so that objects are proved for the listed sizes. For each compiler and flag it prints the
number of kernels that are proved, how many of them for all sizes, the longest time of one, why the loop rule does not
apply to the others, and refusals with their reasons.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

from wrong_objects import kernel_named

from bitsynth import paths
from bitsynth.errors import BitsynthError, ToolError
from bitsynth.objects.prove import prove_object


def kernels(isa: str, *, every: bool) -> list[tuple[str, str | None]]:
    """Return names and variants of the shipped kernels of an instruction set."""
    folder = paths.shipped_kernels() / isa
    files: list[Path] = sorted(folder.rglob("bs_mm_*.json") if every else folder.glob("bs_mm_*.json"))
    return [(f.stem, None if f.parent == folder else f.parent.relative_to(folder).as_posix()) for f in files]


def reason(error: BitsynthError) -> str:
    """Return why an object is refused: the instruction, without its operands and its address."""
    found = re.search(r"at 0x\w+: (no instruction|\S+).*: ([^:]*)$", str(error))
    return f"{found[1]}: {found[2]}" if found else str(error)


def main() -> None:
    """Print how many kernels are proved, by set, compiler and flag."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", default="avx2,avx512,avxvnni,neon,neon_dotprod")
    parser.add_argument("--compilers", default="gcc,clang")
    parser.add_argument("--flags", default="-O2,-O3")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--listed", action="store_true")
    given = parser.parse_args()
    for isa in given.isa.split(","):
        shipped = kernels(isa, every=given.every)
        for family in given.compilers.split(","):
            for flag in given.flags.split(","):
                proved, everywhere, longest, reasons = 0, 0, 0.0, Counter[str]()
                for name, variant in shipped:
                    kernel = kernel_named(name, variant)
                    try:
                        proof = prove_object(kernel.library(family, flag), kernel, all_sizes=not given.listed)
                    except ToolError as error:
                        reasons[str(error)] += 1
                        continue
                    except BitsynthError as error:
                        reasons[reason(error)] += 1
                        continue
                    proved, longest = proved + 1, max(longest, proof.seconds)
                    everywhere += proof.loops is not None
                    if proof.loops is None and not given.listed:
                        print(f"    {name}: for the listed sizes: {proof.not_all}", flush=True)
                counts = f"{proved} of {len(shipped)} proved, {everywhere} of them for all sizes"
                print(f"{isa} by {family} {flag}: {counts}, at most {longest:.1f} s", flush=True)
                for text, number in reasons.most_common():
                    print(f"    {number:>3} refused: {text}", flush=True)


if __name__ == "__main__":
    main()
