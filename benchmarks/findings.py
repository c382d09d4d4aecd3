"""What did the search find beyond the usual formulas? The answer is computed from the cached kernels.

    python benchmarks/findings.py [--isa SET ...] [--results FOLDER]

Writes findings.md and .json. The formulas by hand: a popcount kernel takes 3
operations (eor, cnt, add) a pair of planes, or 8 where a byte lookup has to count (eor; two
ands, a shift, two lookups and an add; add); a lookup kernel 2 (lookup, add; 3 where a lookup
is two instructions) for 4 or 6 positions and each plane of the narrower side; a table of
2**n sums n masks and n - 1 adds. They leave out flushes, which ops count and bounds do not.
Any subset of the kernels will do; every certificate is checked again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import msgspec
import report

from bitsynth.bench.setting import Basis, digests
from bitsynth.errors import BitsynthError
from bitsynth.isa.lane import is_bitwise
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Step
from bitsynth.kernel.inputs import Table
from bitsynth.kernel.program import row_program
from bitsynth.sketches.popcount import counts
from bitsynth.sketches.popcount.counts import Count
from bitsynth.store.entry import Entry
from bitsynth.store.matmul import MATMUL

RESULTS = Path(__file__).parent / "results"
UNITS = "Operations are per 128 multiply-accumulates, loads apart; bounds are of the steady loop."
METHODS = ("popcount", "lookup")
TITLES = {
    "popcount": ["kernel", "popcounts", "of A x W", "gates", "ops", "by hand", "saved", "bound"],
    "lookup": ["kernel", "positions", "planes", "ops", "by hand", "saved", "bound", "table ops", "by hand", "rounds"],
}


@dataclass(frozen=True)
class Finding:
    """A cached kernel; `which` is the variant under which it is stored."""

    entry: Entry
    which: str

    @cached_property
    def isa(self) -> Isa:
        """The instruction set."""
        return load(self.entry.kernel.isa)

    @property
    def bits(self) -> tuple[int, int]:
        """Bits of activations and weights."""
        return self.entry.kernel.act_bits, self.entry.kernel.w_bits

    @property
    def name(self) -> str:
        """The widths, and the variant."""
        return f"A{self.bits[0]}W{self.bits[1]}" + (f" ({self.which})" if self.which else "")

    @cached_property
    def steps(self) -> list[Step]:
        """The steps that a row runs in a step of K, all passes."""
        return [s for p in self.entry.kernel.passes for s in row_program(p)]

    @property
    def counted(self) -> list[Step]:
        """The steps that count bits."""
        return [s for s in self.steps if s.op in _counts(self.isa)]

    @property
    def popcounts(self) -> float:
        """Popcounts for each register of positions."""
        return len(self.counted) / self.entry.kernel.column_registers(self.isa.table.vector_bits)

    @property
    def gates(self) -> float:
        """Gates for each register of positions, including gates that the rows share."""
        every = [s for p in self.entry.kernel.passes for s in p.step.steps]
        bitwise = sum(is_bitwise(self.isa[s.op].tree) for s in every)
        return bitwise / self.entry.kernel.column_registers(self.isa.table.vector_bits)

    @property
    def table(self) -> Table | None:
        """The first table in which values of a row are looked up; None if there is none."""
        rows = (x for p in self.entry.kernel.passes for x in p.rows if isinstance(x, Table))
        return next(rows, None)

    @property
    def by_hand(self) -> float:
        """Operations per 128 multiply-accumulates by the formula in this module's docstring."""
        act, wgt = self.bits
        if self.table:
            lookup = next(self.isa[s.op].instructions for s in self.steps if "a0" in s.args)
            return (lookup + 1) * min(act, wgt) * 128 / (self.table.bits * self.isa.word.lanes)
        pair = 8 if any(_counts(self.isa)[s.op].table is not None for s in self.counted) else 3
        return pair * act * wgt * 128 / self.isa.table.vector_bits

    @property
    def saved(self) -> str:
        """The share of operations saved against the formula."""
        return f"{1 - self.entry.cost.ops_per_128_mac / self.by_hand:.0%}"

    @property
    def build(self) -> tuple[int, int]:
        """The numbers of operations and of lookups in the program that builds a table."""
        build = self.entry.kernel.build
        program = build.steps if build else ()
        lookups = {s.op for s in self.steps if "a0" in s.args}
        return sum(self.isa[s.op].instructions for s in program), sum(s.op in lookups for s in program)

    @property
    def coefficients(self) -> list[int]:
        """The factors with which the tables of byte lookups weigh counted bits."""
        constants = {c.name: c.lanes for c in self.entry.kernel.constants}
        factors = set()
        for step in self.counted:
            place = _counts(self.isa)[step.op].table
            lanes = constants.get(step.args[place]) if place is not None else None
            factors |= {lanes[1]} if lanes else set()
        return sorted(factors)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--isa", nargs="*", default=[], help="only these sets")
    parser.add_argument("--results", type=report.folder, default=RESULTS, help="where the page goes")
    options = parser.parse_args()
    findings = [f for f in _findings() if not options.isa or f.isa.name in options.isa]
    isas = sorted({f.isa.name for f in findings})
    pages = [_page(isa, [f for f in findings if f.isa.name == isa]) for isa in isas]
    rows = [{"isa": f.isa.name, "kernel": f.name, **msgspec.to_builtins(f.entry.cost)} for f in findings]
    facts = report.facts(Basis(digests(isas, layers=False)), rows=rows)
    pages = pages or ["No kernel is cached."]
    report.write(options.results, "findings", "What the search found", __doc__ or "", facts, UNITS, *pages)
    print(f"wrote {options.results}: {len(findings)} kernels of {', '.join(isas) or 'no set'}")
    return 0


def _findings() -> list[Finding]:
    """Return every cached kernel once, in the order of sets, widths and variants; print the reason for a broken one.

    Kernels for layers are left out: they are results of the same sketches for tiles of fewer columns.
    """
    by_kernel: dict[str, Finding] = {}
    for path in MATMUL.every():
        try:
            entry = MATMUL.load(path).entry
        except BitsynthError as why:
            print(f"left out: {why}", file=sys.stderr)
            continue
        if entry.channels:
            continue
        which = path.parent.name if path.parent.name != entry.kernel.isa else ""
        earlier = by_kernel.get(str(entry.kernel))
        if earlier is None or len(which) < len(earlier.which):
            by_kernel[str(entry.kernel)] = Finding(entry, which)
    return sorted(by_kernel.values(), key=lambda f: (f.isa.name, f.bits, f.which))


@lru_cache
def _counts(isa: Isa) -> dict[str, Count]:
    """Return the instructions that count bits on any processor of the set, by name."""
    return {c.op: c for i in (*map(isa.for_cpu, isa.table.cpu), isa) for c in counts.find(i)}


def _page(isa: str, findings: Sequence[Finding]) -> str:
    parts = [f"## {isa}", "\n".join(f"- {line}" for line in _lines(findings))]
    for method in METHODS:
        rows = [_row(f) for f in findings if f.entry.method == method]
        if rows:
            parts += [f"### {method}", report.markdown(TITLES[method], rows)]
    return "\n\n".join([*parts, _claims(findings)])


def _row(f: Finding) -> list[object]:
    price = f.entry.cost
    ops = [f"{price.ops_per_128_mac:.2f}", f"{f.by_hand:.2f}", f.saved, _bound(f)]
    if not f.table:
        return [f.name, f"{f.popcounts:g}", f.bits[0] * f.bits[1], f"{f.gates:g}", *ops]
    operations, lookups = f.build
    return [f.name, f.table.bits, len(f.entry.kernel.passes), *ops, operations, 2 * f.table.bits - 1, lookups]


def _bound(f: Finding) -> str:
    price = f.entry.cost
    return f"{price.lower_bound:.2f}{', reached' if price.minimal else ''}"


def _lines(findings: Sequence[Finding]) -> list[str]:
    """Return lines, each a fact and the kernels for which it holds."""
    methods = Counter(f.entry.method for f in findings)
    lines = [f"{len(findings)} kernels: {', '.join(f'{n} {method}' for method, n in sorted(methods.items()))}."]
    formulas = [f for f in findings if f.entry.method in METHODS]
    if formulas:
        least = min(formulas, key=lambda f: f.entry.cost.ops_per_128_mac / f.by_hand)
        price = least.entry.cost.ops_per_128_mac
        lines.append(f"Best by its formula: {least.name}, {price:.2f} operations, by hand {least.by_hand:.2f}.")
    for what, some in _facts(findings).items():
        if some:
            lines.append(f"{what}: {'all' if len(some) == len(findings) else ', '.join(f.name for f in some)}.")
    weighed = {f.name: f.coefficients for f in findings if any(c != 1 for c in f.coefficients)}
    if weighed:
        coefficients = "; ".join(f"{name}: {', '.join(map(str, c))}" for name, c in weighed.items())
        lines.append(f"Coefficients inside the tables that count: {coefficients}.")
    return lines


def _facts(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    popcount = [f for f in findings if f.entry.method == "popcount"]
    lookup = [(f, f.table) for f in findings if f.table]
    passes = [(f, f.entry.kernel.passes) for f in findings]
    return {
        "Fewer popcounts than pairs of planes": [f for f in popcount if f.popcounts < f.bits[0] * f.bits[1]],
        "Tables of 6 positions": [f for f, table in lookup if table.bits == 6],
        "Tables made in fewer operations than by hand": [f for f, table in lookup if f.build[0] < 2 * table.bits - 1],
        "Sums in two levels": [f for f, some in passes if any(len(p.loops) > 1 for p in some)],
        "Planes that share sums": [f for f, some in passes if any(p.carries for p in some)],
        "A first run of its own": [f for f, some in passes if any(p.step.first for p in some)],
        "Rows of the tile are weights": [f for f in findings if f.entry.kernel.swapped],
    }


def _claims(findings: Sequence[Finding]) -> str:
    """Return a list of each claim of the certificates, with the number of kernels that have it."""
    kernels_of_claim = Counter(claim for f in findings for claim in set(f.entry.certificate.minimality))
    unsat = sum("unsat" in claim for claim in kernels_of_claim)
    lines = [f"- {claim} ({n})" for claim, n in sorted(kernels_of_claim.items())]
    title = (
        f"{len(kernels_of_claim)} claims that nothing in the sketches is cheaper, {unsat} of them UNSAT, "
        "and kernels on each"
    )
    return "\n".join(["<details><summary>" + title + "</summary>", "", *lines, "", "</details>"])


if __name__ == "__main__":
    report.run(main)
