"""The tables of docs, from the published results: between `<!-- table: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import published
import report
from published import Result

from bitsynth.errors import SpecError

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "results" / "index.md",)
WIDTHS = ("A1W1", "A2W1", "A2W2", "A3W3")
LAYER_WIDTHS = WIDTHS[:3]
PREDICTED = (*WIDTHS, "A4W4", "int8", "fp32")
"""Widths of kernels, and types of loops, whose instructions are traced."""
CYCLE_WIDTHS = (*WIDTHS, "A4W4")
NETWORKS = (*LAYER_WIDTHS, "A2W2 signed", "A2W2 ternary")
"""Widths, and encodings of weights, of networks."""
_PART = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Row = Sequence[str]


def filled(text: str) -> str:
    """A page with every table as the results have it; SpecError for one that is not known."""
    return _PART.sub(lambda part: f"{part[1]}{table(part[2])}\n{part[3]}", text)


def table(name: str) -> str:
    """One table, in Markdown, and where it is from."""
    if name not in TABLES:
        raise SpecError(f"no table is called {name!r}; known: {', '.join(TABLES)}")
    stems, title, columns, make = TABLES[name]
    results = published.results(stems)
    if not results:
        return f"Not measured: {', '.join(f'`{stem}`' for stem in stems)}."
    rows = report.markdown([title, *columns], [row for result in results for row in make(result)])
    return f"{rows}\n\n{_sources(results)}"


def _sources(results: Sequence[Result]) -> str:
    """The machines, tools and commits of the measurements, and the measurements that are older than their kernels."""
    settings = dict.fromkeys(", ".join([r.setting["processor"], *r.compilers, r.setting["commit"]]) for r in results)
    stale = [f"{r.stem} is {r.age}" for r in results if r.stale]
    names = ", ".join(f"`{r.stem}`" for r in results)
    return "; ".join([f"{names}: {' and '.join(settings)}", *stale]) + "."


def model(result: Result) -> Iterator[Row]:
    """Cycles of the best kernels, a row a processor."""
    for found in result.facts["maps"]:
        best = {_config(cell): cell["kernels"][0] for cell in found["cells"]}
        name = f"Cortex-{found['cpu'].upper()}" + (", dot products" if "dotprod" in found["isa"] else "")
        yield [name, *(f"{best[w]['cycles']:.3g} {best[w]['method']}" for w in WIDTHS)]


def predicted(result: Result) -> Iterator[Row]:
    """Yield the cycles of the kernel and the loops that are quickest with the better compiler, and the goals."""
    for cpu, goals in result.facts["goals"].items():
        best = {
            w: min((r for r in result.facts["rows"] if (r["cpu"], r["widths"]) == (cpu, w)), key=_scoreboard)
            for w in PREDICTED
        }
        methods = {w: f" {row['method']}" if w in goals else "" for w, row in best.items()}
        yield [f"Cortex-{cpu.upper()}", *(f"{_scoreboard(row):.3g}{methods[w]}" for w, row in best.items())]
        yield ["goal", *(f"{goals[w]:g}" if w in goals else "" for w in PREDICTED)]


def _scoreboard(row: dict[str, Any]) -> float:
    return float(row["scoreboard"])


def kernels(result: Result) -> Iterator[Row]:
    """Yield the speed of the fastest kernel of each width relative to the baseline."""
    (found,) = result.facts["sets"]
    baseline = BASELINES[found["isa"]]
    best = [max(_ratio(k, baseline) for k in found["kernels"] if _config(k) == width) for width in WIDTHS]
    yield [f"{found['isa']}, {_family(result)}, compared with {baseline}", *(f"{x:.1f}" for x in best)]


def resnet18(result: Result) -> Iterator[Row]:
    """Yield the speed of all layers together relative to the fastest baseline of each layer."""
    (found,) = result.facts["reports"]
    sums = {row["contender"]: row["against"] for row in found["rows"] if row["layer"] == "sum"}
    for kind in ("fp32", "int8"):
        yield [
            f"{found['isa']}, {found['form']}, compared with {kind} of {_baselines(found, kind)}",
            *(f"{sums[width][kind]['times']['median']:.1f}" for width in NETWORKS),
        ]


def epilogues(result: Result) -> Iterator[Row]:
    """Yield the time of all layers together in each form, relative to the first form, by widths that have it."""
    sums = {(r["form"], r["config"]): r["times"]["median"] for r in result.facts["rows"] if r["layer"] == "sum"}
    for form in list(dict.fromkeys(form for form, _ in sums))[1:]:
        found = [sums.get((form, width)) for width in WIDTHS]
        yield [f"{result.facts['isa']}, {form}", *("" if x is None else f"{x:.2f}" for x in found)]


def depthwise(result: Result) -> Iterator[Row]:
    """Yield the speed of every form relative to ONNX Runtime."""
    rows = result.facts["rows"]
    for form in dict.fromkeys(r["form"] for r in rows):
        yield [f"{result.facts['isa']}, {form}", *(f"{r['times']['median']:.2f}" for r in rows if r["form"] == form)]


def edges(result: Result) -> Iterator[Row]:
    """Yield the speed of first and last layers relative to ONNX Runtime."""
    rows = result.facts["rows"]
    for layer in dict.fromkeys(r["layer"] for r in rows):
        yield [f"{result.facts['isa']}, {layer}", *(f"{r['times']['median']:.2f}" for r in rows if r["layer"] == layer)]


def schedules(result: Result) -> Iterator[Row]:
    """Yield the gain of threads and tuning, and the share of packing, of all layers together."""
    sums = {row["config"]: row for row in result.facts["rows"] if row["layer"] == "sum"}
    isa = result.stem.rpartition("_")[2]
    for what, key, form in SCHEDULES:
        yield [f"{isa}, {what}", *(form.format(sums[width][key]["median"]) for width in LAYER_WIDTHS)]


def emulated(result: Result) -> Iterator[Row]:
    """Yield executed instructions and cache misses relative to the paper's form."""
    for what, key in EMULATED:
        yield [what, *(" to ".join(_shares(result, width, key)) for width in LAYER_WIDTHS)]


def layer_cycles(result: Result) -> Iterator[Row]:
    """Yield how many times as fast as fp32 and int8 loops all layers are, and the least and the most of a layer."""
    for cpu in result.facts["loops"]:
        for kind in ("fp32", "int8"):
            times = {
                (row["config"], row["layer"]): row[kind] / row["cycles"]
                for row in result.facts["rows"]
                if row["cpu"] == cpu
            }
            yield [f"Cortex-{cpu.upper()}, compared with {kind}", *(_span(times, width) for width in CYCLE_WIDTHS)]


def _span(times: dict[tuple[str, str], float], width: str) -> str:
    layers = [x for (config, layer), x in times.items() if config == width and layer != "sum"]
    return f"{times[width, 'sum']:.2f} ({min(layers):.2f} to {max(layers):.2f})"


def _shares(result: Result, width: str, key: str) -> Iterator[str]:
    """Yield the ratio of all layers together, and of instructions also the greatest ratio of a layer."""
    rows = [row for row in result.facts["rows"] if row["config"] == width]
    share = {row["layer"]: row["bitsynth"][key] / row["paper"][key] for row in rows}
    yield f"{share.pop('sum'):.2f}"
    if key == "instructions":
        yield f"{max(share.values()):.2f}"


def _ratio(kernel: dict[str, Any], baseline: str) -> float:
    return float(kernel["ratios"][baseline]["median"])


def _config(row: dict[str, Any]) -> str:
    return f"A{row['act_bits']}W{row['w_bits']}"


def _family(result: Result) -> str:
    return result.stem.rpartition("_")[2]


def _baselines(found: dict[str, Any], kind: str) -> str:
    names = {row["contender"].rpartition(" ")[0] for row in found["rows"] if row["kind"] == kind}
    *others, last = sorted(names)
    return " and ".join([", ".join(others), last] if others else [last])


BASELINES = {"avx2": "fp32", "avx512": "int8_vnni"}
SCHEDULES = (
    ("two threads, times as fast as one", "gain_of_threads", "{:.2f}"),
    ("default schedule, time relative to the tuned one", "default_to_tuned", "{:.2f}"),
    ("packing, share of the time", "packing", "{:.1%}"),
)
EMULATED = (
    ("executed instructions, packing included: all layers, to most of a layer", "instructions"),
    ("misses of a 32 KiB L1 data cache, all layers", "l1_misses"),
)
Table = tuple[tuple[str, ...], str, tuple[str, ...], Callable[[Result], Iterator[Row]]]
TABLES: dict[str, Table] = {
    "model": (
        ("explore_neon", "explore_neon_dotprod"),
        "cycles per 128 multiply-accumulates, by the model, K = 576",
        WIDTHS,
        model,
    ),
    "kernels": (
        ("kernels_avx2_gcc", "kernels_avx2_clang", "kernels_avx512_gcc", "kernels_avx512_clang"),
        "times as fast as a hand-written loop at its peak; one core, operands in L1, packing excluded",
        WIDTHS,
        kernels,
    ),
    "resnet18": (
        ("resnet18_avx2", "resnet18_packed_avx2", "resnet18_avx512", "resnet18_packed_avx512"),
        "times as fast as the fastest other package for each layer, in the same run; "
        "C2 to C12 of ResNet-18, one thread, packing included",
        NETWORKS,
        resnet18,
    ),
    "epilogues": (
        ("epilogues_avx2", "epilogues_avx512"),
        "time of C2 to C12, relative to codes to int32",
        WIDTHS,
        epilogues,
    ),
    "depthwise": (
        ("depthwise_avx2", "depthwise_avx512"),
        "depthwise 3 x 3, A4W4, times as fast as ONNX Runtime's int8; channels x pixels a side / stride",
        ("128x28", "32x112", "512x14", "64x112/2", "960x7"),
        depthwise,
    ),
    "edges": (
        ("edges_avx2", "edges_avx512"),
        "codes to bytes, times as fast as ONNX Runtime's int8",
        ("A8W8", "A8W4", "A8W2", "A8W1"),
        edges,
    ),
    "schedules": (("layer_schedules_avx2", "layer_schedules_avx512"), "C2 to C12 in all", LAYER_WIDTHS, schedules),
    "predicted": (
        ("arm_cycles",),
        "cycles per 128 multiply-accumulates, predicted on compiled instructions, K = 576",
        PREDICTED,
        predicted,
    ),
    "layer_cycles": (
        ("arm_layer_cycles",),
        "times as fast as an fp32 or int8 loop, predicted; C2 to C12, packed codes to packed codes: in all "
        "(least to most of a layer)",
        CYCLE_WIDTHS,
        layer_cycles,
    ),
    "emulated": (
        ("arm_layers",),
        "layers C2 to C12 on NEON, emulated, relative to the paper's form",
        LAYER_WIDTHS,
        emulated,
    ),
}
