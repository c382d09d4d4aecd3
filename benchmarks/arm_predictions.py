"""What bitsynth predicts of each kernel that ships for Arm, beside the scoreboard on its compiled instructions.

    python benchmarks/arm_predictions.py [--cpu a53] [--only A3W3] [--worst 20] [--json] [--results FOLDER]

Each kernel is compiled by gcc and by clang as bitsynth does, and called once under qemu at K = 576, for as many tiles
as predictions are of: what a call takes beside them is not predicted. Cycles are for 128 multiply-accumulates, the
ratio is that of the better compiler's over the predicted ones: farthest from 1 first, so many rows. Below them is how
far apart two kernels of one width are, at most, whose predictions on a processor are in the other order. With --results
it writes arm_predictions.md, .json, .png and .svg. All take some 10 minutes. Nothing is timed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import arm_predictions_plot
import report
from arm_traces import COMPILERS, CallCode, traced, version

from bitsynth.bench.setting import Basis, digests
from bitsynth.isa.load import load
from bitsynth.isa.scoreboard import cycles
from bitsynth.matmul import MatmulKernel
from bitsynth.schedule import listing
from bitsynth.schedule.predicted import COLUMNS, cycles_per_128_mac
from bitsynth.store import kernels

STEM = "arm_predictions"
SETS = {"a53": ("neon",), "a72": ("neon",), "a76": ("neon", "neon_dotprod")}
"""The instruction sets of each processor."""
TITLES = ("processor", "kernel", "A", "W", "method", "rows", "predicted", *COMPILERS, "ratio")


@dataclass(frozen=True)
class Row:
    """A kernel in the form that a processor has of it."""

    cpu: str
    kernel: str
    act_bits: int
    w_bits: int
    method: str
    rows: int
    predicted: float
    gcc: float
    clang: float

    @property
    def executed(self) -> float:
        """The better compiler's cycles."""
        return min(self.gcc, self.clang)

    @property
    def ratio(self) -> float:
        """Those over the predicted ones."""
        return self.executed / self.predicted


def shipped(isas: set[str], widths: Sequence[tuple[int, int]] | None) -> Iterator[MatmulKernel]:
    """The kernels of these sets, of these bits of activations and weights or of any; one with two names once."""
    known = set[str]()
    for path in sorted(kernels.every()):
        found = kernels.load_entry(path)
        kernel = found.entry.kernel
        bits = kernel.core.act.bits, kernel.core.wgt.bits
        if kernel.isa in isas and kernel.digest not in known and (widths is None or bits in widths):
            known.add(kernel.digest)
            yield MatmulKernel(found, kernel.core)


def rows(made: Iterable[MatmulKernel], cpus: Sequence[str]) -> Iterator[Row]:
    """A row for each kernel on each processor that runs its set."""
    for plain in made:
        isa = load(plain.entry.kernel.isa)
        for cpu in (cpu for cpu in cpus if isa.name in SETS[cpu]):
            form = plain.on(cpu)
            kernel = form.entry.kernel
            code = CallCode.of_kernel(form, max(1, COLUMNS // kernel.columns))
            took = {
                compiler: cycles(isa.rules(cpu), listing.issued(isa, cpu, traced(compiler, code))) * 128 / code.macs
                for compiler in COMPILERS
            }
            told = cycles_per_128_mac(isa, kernel, cpu)
            yield Row(cpu, form.name, kernel.act_bits, kernel.w_bits, form.entry.method, kernel.rows, told, **took)


def misordered(found: Sequence[Row]) -> Iterator[dict[str, float | str]]:
    """Two kernels of one width on a processor that are predicted in the other order: how far apart they are."""
    for a, b in combinations(sorted(found, key=lambda row: row.predicted), 2):
        if (a.cpu, a.act_bits, a.w_bits) == (b.cpu, b.act_bits, b.w_bits) and a.executed > b.executed:
            apart = {"predicted": b.predicted / a.predicted - 1, "executed": a.executed / b.executed - 1}
            yield {"cpu": a.cpu, "told_quicker": a.kernel, "quicker": b.kernel, **apart}


def cells(row: Row) -> list[str]:
    """One printed row."""
    return [f"{x:.2f}" if isinstance(x, float) else str(x) for x in (*asdict(row).values(), row.ratio)]


def ranked(order: Sequence[dict[str, float | str]]) -> str:
    """How far apart kernels are that are predicted in the other order, in words."""
    apart = [f"{max((float(x[k]) for x in order), default=0):.1%} as {k}" for k in ("predicted", "executed")]
    return f"{len(order)} pairs of kernels of one width in the other order, apart by at most {' and '.join(apart)}"


def write(folder: Path, facts: Mapping[str, Any], found: Sequence[Row], order: str) -> None:
    """JSON, the table and the plot."""
    plot, table = "![by processor](arm_predictions.png)", report.markdown(TITLES, [cells(row) for row in found])
    report.write(
        folder, STEM, "Predicted cycles of Arm's kernels, and executed", __doc__ or "", facts, plot, order, table
    )
    arm_predictions_plot.draw(found, folder / STEM)


def main() -> int:
    """Every kernel on every processor, those whose prediction is farthest off first."""
    parser = report.parser(__doc__)
    parser.add_argument("--cpu", choices=SETS, action="append")
    parser.add_argument("--only", type=report.widths, action="append")
    parser.add_argument("--worst", type=int, default=20)
    parser.add_argument("--results", type=Path)
    args = parser.parse_args()
    cpus, found = args.cpu or list(SETS), list[Row]()
    isas = {isa for cpu in cpus for isa in SETS[cpu]}
    basis = Basis(digests(isas, args.only or ()))
    for row in rows(shipped(isas, args.only), cpus):
        found.append(row)
        print(*cells(row), file=sys.stderr, flush=True)
    found.sort(key=lambda row: -abs(row.ratio - 1))
    order = list(misordered(found))
    facts = report.facts(basis, rows=[asdict(row) | {"ratio": row.ratio} for row in found], misordered=order)
    facts["setting"].pop("compiler", None)
    facts["setting"] |= {f"compiler ({name})": version(name) for name in COMPILERS}
    if args.results:
        write(args.results, facts, found, ranked(order))
    if args.json:
        print(json.dumps(facts))
    else:
        print(report.markdown(TITLES, [cells(row) for row in found[: args.worst]]), ranked(order), sep="\n\n")
    return 0


if __name__ == "__main__":
    report.run(main)
