"""How many shipped kernels are proved down to their machine code, and why are the others refused?

    python benchmarks/proved_objects.py [--isa avx2,neon] [--compilers gcc,zig] [--flags=-O2,-O3] [--every]
                                        [--listed | --rule] [KERNEL ...]

Each kernel is compiled by each of the compilers with each of the flags; `--every` takes variants too, and `--listed`
leaves out the loop rule, so that objects are proved for the listed sizes. With `--rule` the listed sizes are run only
where the loop rule does not apply. For each compiler and flag it prints the number of kernels that are proved, how many
of them for all sizes, the longest time of one, why the loop rule does not apply to the others, and refusals with their
reasons.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from pathlib import Path

from wrong_objects import kernel_named

from bitsynth import paths
from bitsynth.errors import BitsynthError, ToolError
from bitsynth.isa.domains.forms import Inexact
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.memory import NotShown
from bitsynth.objects.prove import prove_all_sizes, prove_object


def kernels(isa: str, *, every: bool) -> list[tuple[str, str | None]]:
    """Return names and variants of the shipped kernels of an instruction set."""
    folder = paths.shipped_kernels() / isa
    files: list[Path] = sorted(folder.rglob("bs_mm_*.json") if every else folder.glob("bs_mm_*.json"))
    return [(f.stem, None if f.parent == folder else f.parent.relative_to(folder).as_posix()) for f in files]


def reason(error: BitsynthError) -> str:
    """Return why an object is refused: the instruction, without its operands and its address."""
    found = re.search(r"at 0x\w+: (no instruction|\S+).*: ([^:]*)$", str(error))
    return f"{found[1]}: {found[2]}" if found else str(error)


def shown(path: Path, kernel: MatmulKernel, *, listed: bool, rule: bool) -> tuple[str, float]:
    """Return why a library is not proved for all sizes, "" if it is, and the CPU seconds; BitsynthError if refused."""
    start, why = time.process_time(), ""
    if rule:
        try:
            prove_all_sizes(path, kernel)
        except (NotShown, Inexact) as error:
            why = str(error)
    if why or not rule:
        proof = prove_object(path, kernel, all_sizes=not (listed or rule))
        why = why or ("" if proof.loops else proof.not_all)
    return why, time.process_time() - start


def main() -> None:
    """Print how many kernels are proved, by set, compiler and flag."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", default="avx2,avx512,avxvnni,neon,neon_dotprod")
    parser.add_argument("--compilers", default="gcc,clang")
    parser.add_argument("--flags", default="-O2,-O3")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--listed", action="store_true")
    parser.add_argument("--rule", action="store_true")
    parser.add_argument("kernels", nargs="*")
    given = parser.parse_args()
    for isa in given.isa.split(","):
        shipped = [x for x in kernels(isa, every=given.every) if not given.kernels or x[0] in given.kernels]
        for family in given.compilers.split(","):
            for flag in given.flags.split(","):
                proved, everywhere, longest, reasons = 0, 0, 0.0, Counter[str]()
                for name, variant in shipped:
                    kernel = kernel_named(name, variant)
                    try:
                        library = kernel.library(family, flag)
                        why, seconds = shown(library, kernel, listed=given.listed, rule=given.rule)
                    except ToolError as error:
                        reasons[str(error)] += 1
                        continue
                    except BitsynthError as error:
                        reasons[reason(error)] += 1
                        continue
                    proved, longest = proved + 1, max(longest, seconds)
                    everywhere += not why
                    if why and not given.listed:
                        print(f"    {name}: for the listed sizes: {why}", flush=True)
                counts = f"{proved} of {len(shipped)} proved, {everywhere} of them for all sizes"
                print(f"{isa} by {family} {flag}: {counts}, at most {longest:.1f} s", flush=True)
                for text, number in reasons.most_common():
                    print(f"    {number:>3} refused: {text}", flush=True)


if __name__ == "__main__":
    main()
