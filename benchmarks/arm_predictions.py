"""Predicted cycles of each kernel that ships for Arm, compared with the scoreboard on its compiled instructions.

    python benchmarks/arm_predictions.py [--cpu a53] [--only A3W3] [--worst 20] [--json] [--results FOLDER]

Each kernel is compiled by gcc and by clang as bitsynth does, and called once under qemu at K = 576, for the number of
tiles that predictions assume; the rest of a call is not predicted. Cycles are for 128 multiply-accumulates; the ratio
is the better compiler's cycles over the predicted ones, farthest from 1 first. Below is the number of pairs of kernels
of one width that predictions rank wrongly, and their greatest difference. With --results it writes arm_predictions.md,
.json, .png and .svg. All take some 10 minutes. Nothing is timed.
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
from arm_traces import COMPILERS, CallCode, traced, with_compilers

from bitsynth.bench.setting import Basis, digests
from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.isa.scoreboard import cycles
from bitsynth.matmul import MatmulKernel
from bitsynth.schedule import disassembly
from bitsynth.schedule.predicted import cycles_per_128_mac, tiles_of_call
from bitsynth.store import files
from bitsynth.store.matmul import MATMUL

STEM = "arm_predictions"
SETS = {"a53": ("neon",), "a72": ("neon",), "a76": ("neon", "neon_dotprod")}
"""The instruction sets of each processor."""
TITLES = ("processor", "kernel", "A", "W", "method", "rows", "predicted", *COMPILERS, "ratio")


@dataclass(frozen=True)
class Row:
    """A shipped kernel, by its place in the list, in the form for a processor."""

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
    def compiled(self) -> float:
        """The better compiler's cycles."""
        return min(self.gcc, self.clang)

    @property
    def ratio(self) -> float:
        """The better compiler's cycles over the predicted ones."""
        return self.compiled / self.predicted


def shipped(digests: Mapping[str, str]) -> Iterator[tuple[str, MatmulKernel]]:
    """The kernels of these digests by place, each once."""
    known = set[str]()
    for path in sorted(MATMUL.every()):
        place = files.place(path)[1].as_posix()
        if place in digests and digests[place] not in known:
            known.add(digests[place])
            found = MATMUL.load(path)
            yield place, MatmulKernel(found, found.entry.kernel.core)


def rows(kernels: Iterable[tuple[str, MatmulKernel]], cpus: Sequence[str]) -> Iterator[Row]:
    """A row for each kernel on each processor that runs its set."""
    for place, plain in kernels:
        isa = load(plain.entry.kernel.isa)
        for cpu in (cpu for cpu in cpus if isa.name in SETS[cpu]):
            form = plain.on(cpu)
            kernel = form.entry.kernel
            code = CallCode.of_kernel(form, tiles_of_call(kernel))
            took = {
                compiler: cycles(isa.rules(cpu), disassembly.read_issued(isa, cpu, traced(compiler, code)))
                * 128
                / code.macs
                for compiler in COMPILERS
            }
            prediction = cycles_per_128_mac(isa, kernel, cpu)
            yield Row(cpu, place, kernel.act_bits, kernel.w_bits, form.entry.method, kernel.rows, prediction, **took)


def misranked(found: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Pairs of kernels of one width on a processor: the first takes longer, and is predicted to take less."""
    pairs = combinations(sorted(found, key=lambda row: row.predicted), 2)
    return [
        (a, b) for a, b in pairs if _width(a) == _width(b) and a.predicted < b.predicted and a.compiled > b.compiled
    ]


def _width(row: Row) -> tuple[str, int, int]:
    return row.cpu, row.act_bits, row.w_bits


def apart(pairs: Sequence[tuple[Row, Row]]) -> dict[str, float]:
    """How many pairs are ranked wrongly, and how far apart they are at most."""
    predicted = max((b.predicted / a.predicted - 1 for a, b in pairs), default=0.0)
    compiled = max((a.compiled / b.compiled - 1 for a, b in pairs), default=0.0)
    return {"pairs": len(pairs), "predicted": predicted, "compiled": compiled}


def ranked(counts: Mapping[str, float]) -> str:
    """That in words."""
    far = f"{counts['predicted']:.1%} apart as predicted and {counts['compiled']:.1%} as compiled"
    return f"{counts['pairs']} pairs of kernels of one width are ranked wrongly, at most {far}"


def cells(row: Row) -> list[str]:
    """One printed row."""
    return [f"{x:.2f}" if isinstance(x, float) else str(x) for x in (*asdict(row).values(), row.ratio)]


def write(folder: Path, facts: Mapping[str, Any], found: Sequence[Row]) -> None:
    """JSON, the table and the plot."""
    plot, table = "![by processor](arm_predictions.png)", report.markdown(TITLES, [cells(row) for row in found])
    title = "Cycles of Arm's kernels, predicted and as compiled"
    report.write(folder, STEM, title, __doc__ or "", facts, plot, ranked(facts["misranked"]), table)
    arm_predictions_plot.draw(found, folder / STEM)


def main() -> int:
    """Every kernel on every processor, those whose prediction is farthest off first."""
    parser = report.parser(__doc__)
    parser.add_argument("--cpu", choices=SETS, action="append")
    parser.add_argument("--only", type=report.widths, action="append")
    parser.add_argument("--worst", type=int, default=20, help="rows that are printed")
    parser.add_argument("--results", type=report.folder)
    args = parser.parse_args()
    cpus, found = args.cpu or list(SETS), list[Row]()
    isas = {isa for cpu in cpus for isa in SETS[cpu]}
    basis = Basis(digests(isas, args.only or ()))
    for row in rows(shipped(basis.kernels), cpus):
        found.append(row)
        print(*cells(row), file=sys.stderr, flush=True)
    if not found:
        raise SpecError("no kernel of these bits ships for these processors; 1 to 4 by 1 to 4 do, and some of 8")
    found.sort(key=lambda row: -abs(row.ratio - 1))
    figures = [asdict(row) | {"ratio": row.ratio} for row in found]
    facts = with_compilers(report.facts(basis, rows=figures, misranked=apart(misranked(found))))
    if args.results:
        write(args.results, facts, found)
    if args.json:
        print(json.dumps(facts))
    else:
        print(
            report.markdown(TITLES, [cells(row) for row in found[: args.worst]]), ranked(facts["misranked"]), sep="\n\n"
        )
    return 0


if __name__ == "__main__":
    report.run(main)
