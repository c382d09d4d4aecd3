"""Cycles of Arm's kernels by the scoreboard, on the instructions that a call of a kernel runs at K = 576.

    python benchmarks/arm_cycles.py [--only A2W1] [--cpu a53] [--compiler gcc] [--results FOLDER] [--json]

These shipped kernels are measured: the cheapest for a processor; for layers the cheapest of each method; and the kernel
that C2 of ResNet-18 uses, by predicted cycles of the whole layer, packing included. gcc and clang compile them as
bitsynth does, and qemu runs one call, for a tile's rows and as many tiles as C2's 64 columns have, at least one. The
processor's scoreboard takes the executed instructions, loads, flushes, spills and addresses included. Other columns
have the bound that the search minimizes (model), bitsynth's prediction from the kernel alone (predicted), and
llvm-mca's figure, if it is installed (for the Cortex-A72 by its model of the A57, for the Cortex-A76 by its model of
the Neoverse N1). The hand-written fp32 and int8 loops are treated in the same way. Nothing is timed: a scoreboard is a
model too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import arm_cycles_plot
import report
from arm_traces import COMPILERS, CallCode, mca, traced, with_compilers

from bitsynth.bench.resnet18 import select_layers
from bitsynth.bench.setting import Basis, digests
from bitsynth.errors import NoKernel, SpecError
from bitsynth.isa import baseline_loops
from bitsynth.isa.load import Isa, load
from bitsynth.isa.scoreboard import busy, cycles
from bitsynth.layers.planning import plan
from bitsynth.layers.spec import LayerSpec
from bitsynth.matmul import MatmulKernel, get_kernel
from bitsynth.schedule import disassembly, predicted
from bitsynth.schedule.cost import cycles_per_128_mac
from bitsynth.spec.matmul import Encoding, MatmulOperand
from bitsynth.spec.options import METHODS

SETS = {"a53": "neon", "a72": "neon", "a76": "neon_dotprod"}
WIDTHS = [(1, 1), (2, 1), (2, 2), (3, 3), (4, 4)]
GOALS = {
    "a53": {"A1W1": 3.5, "A2W1": 6, "A2W2": 11, "A3W3": 22, "A4W4": 24},
    "a72": {"A1W1": 1.75, "A2W1": 3.3, "A2W2": 5.6, "A3W3": 12, "A4W4": 15},
    "a76": {"A1W1": 1.7, "A2W1": 2.15, "A2W2": 4.1, "A3W3": 4.5, "A4W4": 4.5},
}
"""Cycles that kernels are to take, by the scoreboard and the better compiler."""
TITLES = (
    *("processor", "operands", "kernel", "method", "compiler", "model", "predicted", "scoreboard", "llvm-mca"),
    *("busiest", "taken by"),
)
LAYER = select_layers("C2")[0]


@dataclass(frozen=True)
class Row:
    """Cycles per 128 multiply-accumulates of a kernel, or of a loop whose `widths` are its type, by one compiler.

    `busiest` are the cycles that no order of these instructions could go below, and what they wait for: a class of
    pipes, or issue. `layer` is the layer that takes the kernel, or "".
    """

    cpu: str
    widths: str
    kernel: str
    method: str
    compiler: str
    model: float
    predicted: float | None
    scoreboard: float
    mca: float | None
    busiest: str
    layer: str = ""


def of_kernels(cpu: str, widths: tuple[int, int], compilers: Sequence[str], methods: Sequence[str]) -> Iterator[Row]:
    """The kernels of one processor and width: the cheapest for it, and the cheapest of each method for layers."""
    isa, taken = load(SETS[cpu]), kernel_of_layer(cpu, widths)
    found = {taken.entry.kernel.digest: taken}
    wanted: list[dict[str, Any]] = [{"cpu": cpu}, *({"method": m, "channels": 64} for m in methods)]
    for options in wanted:
        try:
            cheapest = get_kernel(isa=isa.name, act_bits=widths[0], w_bits=widths[1], **options).on(cpu)
        except (NoKernel, SpecError) as why:
            print(f"{cpu} A{widths[0]}W{widths[1]} {options}: {why}", file=sys.stderr)
            continue
        found[cheapest.entry.kernel.digest] = cheapest
    for each in found.values():
        kernel = each.entry.kernel
        model = cycles_per_128_mac(isa, kernel, cpu), predicted.cycles_per_128_mac(isa, kernel, cpu)
        for row in _rows(isa, cpu, f"A{widths[0]}W{widths[1]}", _described(each), model, compilers):
            yield replace(row, layer=LAYER.name if kernel.digest == taken.entry.kernel.digest else "")


def kernel_of_layer(cpu: str, widths: tuple[int, int]) -> MatmulKernel:
    """The kernel that the layer takes on a processor."""
    act, wgt = (MatmulOperand(n, kind) for n, kind in zip(widths, (Encoding.UNSIGNED, Encoding.BIPOLAR), strict=True))
    kernel = plan(LayerSpec(act, wgt, LAYER.geometry, image=LAYER.image), isa=SETS[cpu], cpu=cpu).kernel
    assert isinstance(kernel, MatmulKernel)
    return kernel


def _described(found: MatmulKernel) -> tuple[CallCode, str]:
    return CallCode.of_kernel(found, predicted.tiles_of_call(found.entry.kernel)), found.entry.method


def of_loops(cpu: str, compilers: Sequence[str]) -> Iterator[Row]:
    """The hand-written loops that the processor runs."""
    isa = load(SETS[cpu])
    for loop in baseline_loops.load(isa):
        if peak := loop.table.peak.get(cpu):
            described = CallCode.of_loop(loop), loop.table.doc
            yield from _rows(isa, cpu, loop.table.function, described, (128 / peak, None), compilers)


def _rows(
    isa: Isa,
    cpu: str,
    widths: str,
    described: tuple[CallCode, str],
    model: tuple[float, float | None],
    compilers: Sequence[str],
) -> Iterator[Row]:
    """A row a compiler."""
    code, method = described
    bound, guess = model
    for compiler in compilers:
        program = traced(compiler, code)
        issued, third = list(disassembly.read_issued(isa, cpu, program)), mca(program, cpu)
        total, taken = cycles(isa.rules(cpu), issued), busy(isa.rules(cpu), issued)
        pipe = max(taken, key=taken.__getitem__)
        yield Row(
            cpu=cpu,
            widths=widths,
            kernel=code.name,
            method=method,
            compiler=compiler,
            model=round(bound, 2),
            predicted=None if guess is None else round(guess, 2),
            scoreboard=round(total * 128 / code.macs, 2),
            mca=None if third is None else round(third * 128 / code.macs, 2),
            busiest=f"{pipe} {taken[pipe] * 128 / code.macs:.2f}",
        )


def best(rows: Sequence[Row], cpu: str, widths: str) -> list[Row]:
    """The rows of the kernel that is quickest with the better compiler, one a compiler; none if none was counted."""
    some = [row for row in rows if (row.cpu, row.widths) == (cpu, widths)]
    count = len({row.compiler for row in some})
    kernels = [some[k : k + count] for k in range(0, len(some), count or 1)]
    return min(kernels, key=lambda each: min(row.scoreboard for row in each), default=[])


def taken_by_layer(rows: Sequence[Row]) -> str:
    """What the layer takes on each processor, and its kernel's cycles by each compiler."""
    names = list(dict.fromkeys(row.widths for row in rows if row.layer))
    table = []
    for cpu in dict.fromkeys(row.cpu for row in rows if row.layer):
        some = {w: [row for row in rows if (row.cpu, row.widths) == (cpu, w) and row.layer] for w in names}
        table.append([f"Cortex-{cpu.upper()}", *(_taken(each) for each in some.values())])
    return report.markdown([f"taken by {LAYER.name}: gcc, clang", *names], table)


def _taken(rows: Sequence[Row]) -> str:
    return f"{rows[0].method} {', '.join(f'{row.scoreboard:.2f}' for row in rows)}" if rows else "-"


def cells(row: Row) -> list[str]:
    """One printed row."""
    return ["-" if x is None else f"{x:.2f}" if isinstance(x, float) else x for x in asdict(row).values()]


def compare_with_goals(rows: Sequence[Row]) -> str:
    """The quickest kernels' cycles, gcc and clang, with the goal; and the cycles of fp32 and int8 loops."""
    names = list(dict.fromkeys(row.widths for row in rows))
    found = {(cpu, w): [row.scoreboard for row in best(rows, cpu, w)] for cpu in SETS for w in names}
    table = [
        [f"Cortex-{cpu.upper()}", *(_format_cycles(found[cpu, w], GOALS[cpu].get(w)) for w in names)]
        for cpu in SETS
        if any(found[cpu, w] for w in names)
    ]
    return report.markdown(["better kernel: gcc, clang (goal)", *names], table)


def _format_cycles(figures: Sequence[float], goal: float | None) -> str:
    if not figures:
        return "-"
    text = ", ".join(f"{x:.2f}" for x in figures)
    if goal is None:
        return text
    return f"**{text}** ({goal:g})" if min(figures) <= goal else f"{text} ({goal:g})"


def write(folder: Path, facts: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """JSON, tables and plots."""
    every = report.markdown(TITLES, [cells(row) for row in rows])
    blocks = compare_with_goals(rows), taken_by_layer(rows), "![by processor](arm_cycles.png)", every
    report.write(folder, "arm_cycles", "Cycles of Arm's kernels, predicted", __doc__ or "", facts, *blocks)
    arm_cycles_plot.draw([(cpu, w, best(rows, cpu, w)) for cpu in SETS for w in GOALS[cpu]], rows, GOALS, folder)


def main() -> int:
    """Every kernel of every processor, a line each; with --results also JSON, tables and plots."""
    parser = report.parser(__doc__)
    parser.add_argument("--cpu", choices=SETS, action="append")
    parser.add_argument("--only", type=report.widths, action="append")
    parser.add_argument("--compiler", choices=COMPILERS, action="append")
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--results", type=report.folder)
    args = parser.parse_args()
    cpus, widths, compilers = args.cpu or list(SETS), args.only or WIDTHS, args.compiler or list(COMPILERS)
    basis, rows = Basis(digests({SETS[cpu] for cpu in cpus}, widths)), list[Row]()
    for cpu in cpus:
        for each in (*(of_kernels(cpu, w, compilers, args.methods) for w in widths), of_loops(cpu, compilers)):
            for row in each:
                rows.append(row)
                if not args.json:
                    print(*cells(row), flush=True)
    facts = with_compilers(report.facts(basis, goals=GOALS, rows=[asdict(row) for row in rows]), compilers)
    if args.results:
        write(args.results, facts, rows)
    if args.json:
        print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    report.run(main)
