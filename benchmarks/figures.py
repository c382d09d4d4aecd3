"""Published figures of synthesis, operations and start-up, each with its goal.

    python benchmarks/figures.py [--md] [--json] [--only AxWy] [--runs N]

Synthesis with proof: each of the 32 configurations in a fresh process on one core, from
the start of the interpreter to the proved kernel, nothing cached. Vector operations per
128 multiply-accumulates: of the cached kernels, flushes spread over K = 576, loads apart.
Start-up: medians over fresh processes. `--md` writes tables and the plot to
benchmarks/results.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import paper_8x8
import report
from report import WIDTHS, widths

import bitsynth
from bitsynth.bench.setting import Basis, digests
from bitsynth.errors import ToolError
from bitsynth.isa.load import load

ISAS = ("neon", "avx2")
PAPER_OPS = {(1, 1): 5, (2, 1): 12, (1, 2): 12, (2, 2): 26}
TARGET_OPS = {(1, 1): 3.1, (2, 1): 6.2, (1, 2): 6.2, (2, 2): 12.3, (3, 3): 28.0}
THREE_POPCOUNTS = 10.5
STARTED = [("neon", 2, 1), ("neon", 1, 1), ("neon", 4, 4), ("avx2", 2, 1), ("avx2", 4, 4)]
SYNTHESIZE = """\
import json, sys, time
from bitsynth.synth import synthesize
from bitsynth.spec.matmul import MatmulSpec
found = []
for isa, act, wgt in json.loads(sys.argv[1]):
    done = synthesize.synthesize(MatmulSpec.plain(isa, act, wgt))
    stages, name = {}, ""
    for stage in done.stages:
        name = stage.name or name
        stages[name] = stages.get(name, 0.0) + stage.seconds
    found.append({"kernel": done.entry.name, "digest": done.entry.digest, "stages": stages})
print(json.dumps({"found": found, "cpu_seconds": time.process_time()}))
"""
START = """\
import time, sys
t = time.perf_counter()
from bitsynth import get_kernel
u = time.perf_counter()
get_kernel(isa=sys.argv[1], act_bits=int(sys.argv[2]), w_bits=int(sys.argv[3])).source
print(u - t, time.perf_counter() - u, "z3" in sys.modules)
"""
Config = tuple[str, int, int]


@dataclass(frozen=True)
class Figure:
    """One figure with a goal: the highest allowed number, and the measured one."""

    what: str
    value: float
    unit: str
    most: float
    paper: str = ""

    @property
    def met(self) -> bool:
        """Whether the value is within its limit."""
        return self.value <= self.most


@dataclass(frozen=True)
class Synthesized:
    """One configuration, solved and proved in a process of its own."""

    config: str
    kernel: str
    seconds: float
    cpu_seconds: float
    stages: dict[str, float]
    is_cached: bool


@dataclass(frozen=True)
class Started:
    """Medians of fresh processes."""

    config: str
    import_ms: float
    kernel_ms: float
    z3_imported: bool


def title(config: Config) -> str:
    return f"{config[0]} A{config[1]}W{config[2]}"


def child(code: str, *args: object) -> str:
    """The output of a fresh interpreter on one core."""
    core = {min(os.sched_getaffinity(0))} if hasattr(os, "sched_setaffinity") else None
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=(lambda: os.sched_setaffinity(0, core)) if core else None,
    )
    if done.returncode:
        raise ToolError(f"a fresh process failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def solve(configs: Sequence[Config]) -> tuple[float, dict[str, Any]]:
    """Seconds of a fresh process that solves `configs`, and its answer."""
    start = time.perf_counter()
    answer = json.loads(child(SYNTHESIZE, json.dumps(configs)))
    return time.perf_counter() - start, answer


def synthesized(config: Config) -> Synthesized:
    seconds, answer = solve([config])
    found = answer["found"][0]
    cached = bitsynth.get_kernel(*config).entry.digest == found["digest"]
    return Synthesized(title(config), found["kernel"], seconds, answer["cpu_seconds"], found["stages"], cached)


def started(config: Config, runs: int) -> Started:
    rows = [child(START, *config).split() for _ in range(runs)]
    imports, kernels = (statistics.median(float(r[i]) for r in rows) * 1e3 for i in (0, 1))
    return Started(title(config), imports, kernels, any(r[2] == "True" for r in rows))


@dataclass(frozen=True)
class Results:
    """All that was measured."""

    setting: dict[str, str]
    kernels: dict[str, str]
    figures: list[Figure]
    synthesis: list[Synthesized]
    one_process_seconds: float
    ops: list[dict[str, Any]]
    starts: list[Started]
    runs: int

    @property
    def tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """Heading, column titles and rows of every table."""
        together = f"all in one process: {self.one_process_seconds:.1f} s"
        stages = list(dict.fromkeys(stage for s in self.synthesis for stage in s.stages))
        stages.sort(key="prove".__eq__)
        return [
            (
                "Figures to reach",
                ["figure", "measured", "at most", "reached", "paper"],
                [_figure(f) for f in self.figures],
            ),
            (
                f"Synthesis with proof, seconds of a fresh process each ({together})",
                ["configuration", "wall", "CPU", *stages, "as cached", "kernel"],
                [_synthesis(s, stages) for s in self.synthesis],
            ),
            (
                "Vector operations per 128 multiply-accumulates, flushes over K = 576, loads apart",
                [
                    "configuration",
                    "method",
                    "ops",
                    "loop, lower bound",
                    "minimal",
                    "loads",
                    "popcount",
                    "paper",
                    "kernel",
                ],
                [_ops(o) for o in self.ops],
            ),
            (
                f"Start-up, medians of {self.runs} fresh processes",
                ["configuration", "import bitsynth, ms", "get_kernel and source, ms", "Z3 imported"],
                [
                    [s.config, f"{s.import_ms:.0f}", f"{s.kernel_ms:.0f}", report.yes(s.z3_imported)]
                    for s in self.starts
                ],
            ),
        ]


def _figure(f: Figure) -> list[str]:
    return [f.what, f"{f.value:.4g} {f.unit}".strip(), f"{f.most:g}", report.yes(f.met), f.paper]


def _synthesis(s: Synthesized, stages: Sequence[str]) -> list[str]:
    times = (f"{x:.2f}" for x in (s.seconds, s.cpu_seconds, *(s.stages.get(stage, 0.0) for stage in stages)))
    return [s.config, *times, report.yes(s.is_cached), s.kernel]


def _ops(o: dict[str, Any]) -> list[str]:
    ops, bound, loads = (f"{o[key]:.2f}" for key in ("ops_per_128_mac", "lower_bound", "loads_per_128_mac"))
    counted = f"{o['popcount_ops']:.2f}" if o["popcount_ops"] is not None else ""
    minimal, paper = report.yes(o["minimal"]), str(o["paper"] or "")
    return [o["config"], o["method"], ops, bound, minimal, loads, counted, paper, o["kernel"]]


def popcount_ops(kernel: bitsynth.MatmulKernel) -> float | None:
    """The cost of the popcount method, be it the cheapest or not."""
    others = {x.method: x.cost for x in kernel.entry.runners_up}
    return kernel.cost.ops_per_128_mac if kernel.entry.method == "popcount" else others.get("popcount")


def ops_rows(pairs: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    rows = []
    for isa in ISAS:
        for x, y in pairs:
            kernel = bitsynth.get_kernel(isa, x, y)
            cost = {
                n: getattr(kernel.cost, n) for n in ("ops_per_128_mac", "lower_bound", "minimal", "loads_per_128_mac")
            }
            paper = PAPER_OPS.get((x, y)) if isa == "neon" else None
            rows.append({"config": title((isa, x, y)), "isa": isa, "act_bits": x, "w_bits": y, "paper": paper, **cost})
            rows[-1] |= {"kernel": kernel.name, "method": kernel.entry.method, "popcount_ops": popcount_ops(kernel)}
    return rows


def _cold(kind: str, seconds: dict[str, float]) -> list[Figure]:
    slowest = max(seconds, key=lambda config: seconds[config])
    return [
        Figure(f"slowest cold synthesis{kind} ({slowest})", seconds[slowest], "s", 10, "17 s to 158 s"),
        Figure(f"{len(seconds)} cold syntheses together{kind}", sum(seconds.values()), "s", 120, "six configurations"),
    ]


def to_reach(
    synthesis: list[Synthesized], ops: list[dict[str, Any]], starts: list[Started], count: int
) -> list[Figure]:
    """The list of the issue."""
    figures = [
        *_cold("", {s.config: s.seconds for s in synthesis}),
        *_cold(", CPU time", {s.config: s.cpu_seconds for s in synthesis}),
    ]
    for o in ops:
        pair = o["act_bits"], o["w_bits"]
        if o["isa"] == "neon" and pair in TARGET_OPS:
            paper = str(PAPER_OPS.get(pair, "not solved"))
            figures.append(Figure(f"ops per 128 MAC, {o['config']}", o["ops_per_128_mac"], "", TARGET_OPS[pair], paper))
            if pair == (2, 2) and o["popcount_ops"] is not None:
                what = f"the same with three popcounts, {o['config']}"
                figures.append(Figure(what, o["popcount_ops"], "", THREE_POPCOUNTS, paper))
    paper = f"{paper_8x8.PAPER}, TVM {paper_8x8.TVM}"
    return [
        *figures,
        Figure("8x8 . 8x1 1-bit kernel, AArch64 instructions", count, "", paper_8x8.TARGET, paper),
        Figure("import bitsynth", max(s.import_ms for s in starts), "ms", 300),
        Figure("get_kernel of a cached kernel, C text included", max(s.kernel_ms for s in starts), "ms", 50),
        Figure("start-ups that import Z3", sum(s.z3_imported for s in starts), "", 0),
    ]


def measure(pairs: Sequence[tuple[int, int]], runs: int) -> Results:
    every = digests(ISAS, pairs, layers=False)
    basis = Basis({place: digest for place, digest in every.items() if not _of_processor(place)})
    configs = [(isa, x, y) for isa in ISAS for x, y in pairs]
    some = [c for c in STARTED if c[1:] in pairs] or configs
    starts = [started(c, runs) for c in some]
    count = max(c.executed for c in paper_8x8.counts())
    synthesis = []
    for config in configs:
        print(f"synthesizing {title(config)}", file=sys.stderr)
        synthesis.append(synthesized(config))
    together, _ = solve(configs)
    ops = ops_rows(pairs)
    figures = to_reach(synthesis, ops, starts, count)
    facts = report.facts(basis, ["neon"])
    return Results(facts["setting"], facts["kernels"], figures, synthesis, together, ops, starts, runs)


def _of_processor(place: str) -> bool:
    """Whether a kernel was solved for the cycles of a processor, which no figure here is of."""
    isa, folder = place.split("/")[:2]
    return folder in load(isa).table.cpu


def as_facts(results: Results) -> dict[str, Any]:
    return {**asdict(results), "figures": [{**asdict(f), "reached": f.met} for f in results.figures]}


def write(results: Results, folder: Path) -> None:
    """Tables, data and the plot."""
    plot = "![Vector operations per 128 multiply-accumulates](figures.svg)"
    parts = []
    for n, (heading, titles, rows) in enumerate(results.tables):
        parts += [f"## {heading}", report.markdown(titles, rows), *([plot] if n == 2 else [])]
    report.write(folder, "figures", "Figures", __doc__ or "", as_facts(results), *parts)
    importlib.import_module("figures_plot").draw(results.ops, folder / "figures")


def main() -> int:
    parser = report.parser(__doc__)
    parser.add_argument("--only", type=widths, action="append", help="one width pair such as A2W1; all by default")
    parser.add_argument("--runs", type=int, default=7, help="fresh processes a start-up figure")
    parser.add_argument("--md", action="store_true", help="write tables, data and plot")
    parser.add_argument(
        "--results", type=report.folder, default=Path(__file__).parent / "results", help="where --md writes"
    )
    given = parser.parse_args()
    if given.md:
        importlib.import_module("figures_plot")  # Missing packages show before minutes of measuring.
    results = measure(given.only or WIDTHS, max(1, given.runs))
    if given.md:
        write(results, given.results)
    if given.json:
        print(json.dumps(as_facts(results), indent=1))
        return 0
    print(report.heading(results.setting))
    for heading, titles, rows in results.tables:
        print(f"\n{heading}\n{report.columns(titles, rows)}")
    return 0


if __name__ == "__main__":
    report.run(main)
