"""How few popcounts does a block of planes need? Proved lower bounds, and the popcounts of the kernels.

    python benchmarks/popcount_bounds.py [rlimit] [--results FOLDER]

Lower bounds hold for any boolean functions of both codes, with coefficients up to the greatest product, 15 at least,
and corrections a row and a column; every smaller number is UNSAT. Operations are popcounts, additions and gates of a
step. A block needs as many as any block within it. Every query has the same budget in resource units, so that the
table is the same on every machine; `open` is where it ends. Takes a few minutes.
"""

from __future__ import annotations

import argparse

import report

from bitsynth.bench.setting import Basis, digests
from bitsynth.errors import Undecided
from bitsynth.isa.load import load
from bitsynth.sketches.popcount import compute, query
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import MatmulSpec

SHAPES = ((1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2), (3, 3), (4, 3), (4, 4))
SETS = ("avx2", "neon", "avx512")
RLIMIT = 300_000_000
TITLES = ("planes", "needed at least", "fewer than now", *(f"{isa}: popcounts, ops" for isa in SETS))
_MAX_COUNTS = 5


def limits(act_bits: int, w_bits: int, counts: int) -> tuple[int, int]:
    """The greatest coefficient and correction that are tried; corrections are numbers of ten bits."""
    span = ((1 << act_bits) - 1) * ((1 << w_bits) - 1)
    most = max(15, span)
    return most, min(511, counts * most + span)


def covers(act_bits: int, w_bits: int) -> list[compute.SolvedCover]:
    """The popcounts that the kernels of each instruction set use."""
    return [compute.solve(load(isa), MatmulSpec.plain(isa, act_bits, w_bits), Budget()) for isa in SETS]


def bounds(act_bits: int, w_bits: int, least: int, known: int, rlimit: int) -> tuple[int, str]:
    """The popcounts that are needed, `least` or more, and what is known of fewer than `known`."""
    for counts in range(least, min(known, _MAX_COUNTS + 1)):
        try:
            if query.popcounts_suffice(act_bits, w_bits, counts, Budget(rlimit), *limits(act_bits, w_bits, counts)):
                return least, f"{counts} of some functions do"
        except Undecided:
            return least, f"{counts}: open"
        least = counts + 1
    return least, "no fewer do" if least == known else f"{least}: not asked"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rlimit", nargs="?", type=int, default=RLIMIT, help="budget of a query in resource units")
    parser.add_argument("--results", type=report.folder, help="the folder where results are written")
    given = parser.parse_args()
    every = digests(SETS, layers=False)
    basis = Basis({place: digest for place, digest in every.items() if "/popcount/" in place})
    rows, proved = [], dict[tuple[int, int], int]()
    for shape in SHAPES:
        used = covers(*shape)
        known = min(c.counts for c in used)
        inside = max((n for (p, r), n in proved.items() if p <= shape[0] and r <= shape[1]), default=1)
        proved[shape], fewer = bounds(*shape, inside, known, given.rlimit)
        rows.append([f"{shape[0]}x{shape[1]}", proved[shape], fewer, *(f"{c.counts}, {c.bound}" for c in used)])
        print(report.columns(TITLES, rows[-1:]).splitlines()[-1], flush=True)
    if given.results:
        table = report.markdown(TITLES, rows)
        facts = report.facts(basis, rows=rows)
        report.write(given.results, "popcount_bounds", "Popcounts of a block of planes", __doc__ or "", facts, table)
    return 0


if __name__ == "__main__":
    report.run(main)
