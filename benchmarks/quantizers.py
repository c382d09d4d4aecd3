"""How accurate are float networks as `bitsynth quantize` and other tools quantize them, without labels or training?

    python benchmarks/quantizers.py --networks FOLDER --fashion FOLDER --work FOLDER [--python TOOL=PATH ...]
        [--only NETWORK ...] [--tools TOOL ...] [--collect] [--json] [--results FOLDER]

Each tool runs in an environment of its own, by an adapter in `quantizer_adapters`, with the options that it offers to
round well without labels. A tool that is not installed, or did not finish a job for a network, is left out there.
`--work` keeps the results of all jobs: a job that is there is not repeated. Outputs of quantized networks are simulated
in floats or run by ONNX Runtime, as each tool does it. All layers are quantized, inputs of networks to 8 bits; W2A4 has
2-bit weights and 4-bit activations. bitsynth keeps residuals and inputs of pools that no product reads at 8 bits; the
others give all activations the same bits. Seconds were measured on a machine that did other work. AdaRound of AIMET has
500 iterations a layer, a twentieth of what AIMET recommends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import float_networks
import numpy as np
import onnx
import quantizers_plot
import report

from bitsynth.bench.setting import Basis
from bitsynth.errors import SpecError

ADAPTERS = Path(__file__).parent / "quantizer_adapters"
WIDTHS = ((8, 8), (4, 8), (4, 4), (2, 4))
"""Bits of weights and of activations."""
COMMAND = "python benchmarks/quantizers.py --networks FOLDER --work FOLDER --results docs/results"
"""What the result names: the folders of a machine say nothing."""
LIMIT = 3600
"""Seconds of a job."""
_ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
"""The environment of a job: several threads are slower on networks this small."""


NOT_RUN = "not run"


@dataclass(frozen=True)
class Tool:
    """A quantizer: its name, its adapter, and the module that must be installed."""

    name: str
    adapter: str
    module: str


TOOLS = {
    "bitsynth": Tool("bitsynth", "bitsynth_quantize", "bitsynth"),
    "onnxruntime": Tool("ONNX Runtime", "onnxruntime_static", "onnxruntime"),
    "aimet": Tool("AIMET", "aimet_adaround", "aimet_onnx"),
    "nncf": Tool("NNCF", "nncf_ptq", "nncf"),
    "quark": Tool("AMD Quark", "quark_adaround", "quark"),
    "brevitas": Tool("Brevitas", "brevitas_ptq", "brevitas"),
}


@dataclass(frozen=True)
class Row:
    """The accuracy of a network as a tool quantized it.

    Args:
        network: Its name in `float_networks.NETWORKS`.
        tool: The tool's name in `TOOLS`; "float" for the network in floats.
        w_bits: Bits of weights.
        act_bits: Bits of activations.
        accuracy: The share of right classes; None without a result.
        seconds: How long quantizing took, on a machine that does other work too.
        why: Why there is no result.
        versions: Versions of packages.
        settings: What of the tool is used.
    """

    network: str
    tool: str
    w_bits: int
    act_bits: int
    accuracy: float | None
    seconds: float | None = None
    why: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""


def prepare(name: str, networks: Path, images: Path, work: Path) -> Path:
    """Write the network, its samples and facts to a folder for jobs, unless they are there; return the folder."""
    folder = work / name
    if (folder / "facts.json").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    network = float_networks.NETWORKS[name](networks, images)
    onnx.save(network.model, folder / "float.onnx")
    np.savez(folder / "samples.npz", calibration=network.calibration, test=network.test)
    np.save(folder / "classes.npy", network.test_classes)
    facts = {"title": network.title, "data": network.data, "about": network.about}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    return folder


def run(name: str, folder: Path, tool: Tool, python: str, widths: tuple[int, int], *, collect: bool) -> Row:
    """Run a tool's job, unless its result is there or results are only collected; return the accuracy."""
    w_bits, act_bits = widths
    out = folder / f"{tool.adapter}_w{w_bits}a{act_bits}"
    facts = out / "job.json"
    key = next(key for key, known in TOOLS.items() if known == tool)
    if collect and not facts.is_file():
        return Row(name, key, w_bits, act_bits, None, why=NOT_RUN)
    if not facts.is_file():
        out.mkdir(exist_ok=True)
        words = [python, str(ADAPTERS / f"{tool.adapter}.py"), str(folder), str(act_bits), str(w_bits), str(out)]
        with (out / "log.txt").open("w", encoding="utf-8") as log:
            try:
                subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, check=True, timeout=LIMIT, env=_ONE_THREAD)
            except (subprocess.SubprocessError, OSError) as error:
                why = f"failed: {_last_line(out / 'log.txt') or error}"
                return Row(name, key, w_bits, act_bits, None, why=why[:200])
    found = json.loads(facts.read_text(encoding="utf-8"))
    about = {"versions": found["versions"], "settings": found["settings"]}
    if why := found.get("not_offered"):
        return Row(name, key, w_bits, act_bits, None, why=why, **about)
    right = float_networks.accuracy(np.load(out / "outputs.npy"), np.load(folder / "classes.npy"))
    return Row(name, key, w_bits, act_bits, right, found["seconds"], **about)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def in_floats(name: str, folder: Path) -> Row:
    """Return the accuracy of the network in floats."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "float.onnx", providers=["CPUExecutionProvider"])
    test, edge = np.load(folder / "samples.npz")["test"], session.get_inputs()[0].name
    outputs = [session.run(None, {edge: test[k : k + 100]})[0] for k in range(0, len(test), 100)]
    return Row(name, "float", 32, 32, float_networks.accuracy(np.concatenate(outputs), np.load(folder / "classes.npy")))


def is_installed(tool: Tool, python: str) -> bool:
    """Return whether a Python has the tool."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({tool.module!r}) is None)"
    return subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0


def table(rows: Sequence[Row], name: str) -> tuple[list[str], list[list[str]]]:
    """Return the titles and rows of the table of a network: a row a tool, a column for each pair of widths."""
    titles = ["accuracy, %", *(f"W{w}A{a}" for w, a in WIDTHS)]
    known = {(r.tool, r.w_bits, r.act_bits): r for r in rows if r.network == name}
    tools = [key for key in TOOLS if any(r.tool == key and r.accuracy is not None for r in known.values())]
    best = {
        pair: max((r.accuracy or 0.0 for r in known.values() if (r.w_bits, r.act_bits) == pair), default=0.0)
        for pair in WIDTHS
    }
    return titles, [[TOOLS[t].name, *(_cell(known.get((t, *pair)), best[pair]) for pair in WIDTHS)] for t in tools]


def _cell(row: Row | None, best: float) -> str:
    if row is None or row.why == NOT_RUN:
        return NOT_RUN
    if row.accuracy is None:
        return "failed" if row.why.startswith("failed") else "not offered"
    text = f"{100 * row.accuracy:.2f}"
    return f"**{text}**" if row.accuracy == best else text


def standard_error(accuracy: float, count: int) -> float:
    """Return the standard error of an accuracy over `count` samples."""
    return float(np.sqrt(accuracy * (1 - accuracy) / count))


def sections(rows: Sequence[Row], networks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the page's blocks: the picture, a table for each network, where bitsynth is behind, and the tools."""
    blocks = ["![Accuracy of each tool's networks, by bits of weights and activations](quantizers.svg)", to_see(rows)]
    for name, facts in networks.items():
        float_row = next(r for r in rows if r.network == name and r.tool == "float")
        assert float_row.accuracy is not None
        error = standard_error(float_row.accuracy, facts["samples"])
        about = (
            f"Calibrated by {facts['data']}. In floats: {100 * float_row.accuracy:.2f} % (standard error "
            f"{100 * error:.2f} points)."
        )
        blocks += [
            f"## {facts['title']}",
            f"{facts.get('about', '')} {about}".lstrip(),
            report.markdown(*table(rows, name)),
        ]
        blocks.append(behind(rows, name, facts["samples"]))
    return [
        *blocks,
        "## Tools",
        report.markdown(["tool", "what is used", "versions", "seconds a network"], tools(rows)),
    ]


def to_see(rows: Sequence[Row]) -> str:
    """Return what a reader should see in the picture: the greatest loss of accuracy by widths, ours and of others."""
    floats = {r.network: r.accuracy for r in rows if r.tool == "float" and r.accuracy is not None}
    mine, others = [], []
    for w, a in WIDTHS:
        judged = [r for r in rows if (r.w_bits, r.act_bits) == (w, a) and r.accuracy is not None]
        if ours := _greatest_loss([r for r in judged if r.tool == "bitsynth"], floats):
            mine.append(f"{ours} at W{w}A{a}")
        if theirs := _greatest_loss([r for r in judged if r.tool != "bitsynth"], floats):
            others.append(f"{theirs} at W{w}A{a}")
    return (
        f"What to see: how many points of accuracy does a network lose at most? Quantized by bitsynth "
        f"{', '.join(mine)}; by the best other tool {', '.join(others)}."
    )


def _greatest_loss(judged: Sequence[Row], floats: Mapping[str, float]) -> str:
    """Return the points that the network with the greatest loss loses, each by its best tool; "" without networks."""
    best: dict[str, float] = {}
    for row in judged:
        best[row.network] = max(best.get(row.network, 0.0), row.accuracy or 0.0)
    losses = [100 * (floats[network] - right) for network, right in best.items()]
    return f"{max(0.0, *losses):.2f}" if losses else ""


def behind(rows: Sequence[Row], name: str, samples: int) -> str:
    """Return the sentences on where other tools are more accurate than bitsynth, by how much, and how sure that is."""
    parts = []
    for w, a in WIDTHS:
        same = [r for r in rows if (r.network, r.w_bits, r.act_bits) == (name, w, a) and r.accuracy is not None]
        mine = next((r.accuracy for r in same if r.tool == "bitsynth"), None)
        best = max(same, key=lambda r: r.accuracy or 0.0, default=None)
        if mine is None or best is None or best.accuracy is None or best.accuracy <= mine:
            continue
        points = best.accuracy - mine
        error = float(np.hypot(standard_error(mine, samples), standard_error(best.accuracy, samples)))
        sure = "more than" if points > 2 * error else "within"
        parts.append(
            f"At W{w}A{a} {TOOLS[best.tool].name} is {100 * points:.2f} points ahead of bitsynth, which is {sure} two "
            f"standard errors of the difference ({200 * error:.2f})."
        )
    return " ".join(parts) or "No tool is more accurate than bitsynth here."


def tools(rows: Sequence[Row]) -> list[list[str]]:
    """Return a row for each tool that ran: what it used, versions, and seconds of its jobs."""
    found = []
    for key, tool in TOOLS.items():
        own = [r for r in rows if r.tool == key and r.settings]
        if own:
            seconds = [r.seconds for r in own if r.seconds is not None]
            span = f"{min(seconds):.0f} to {max(seconds):.0f}" if seconds else ""
            versions = ", ".join(f"{name} {number}" for name, number in own[0].versions.items())
            found.append([tool.name, own[0].settings, versions, span])
    return found


def main() -> int:
    parser = report.parser(__doc__)
    parser.add_argument("--networks", type=Path, required=True, help="the folder of networks")
    parser.add_argument("--fashion", type=Path, default=float_networks.FASHION_IMAGES, help="Fashion-MNIST")
    parser.add_argument("--work", type=Path, required=True, help="the folder of jobs, which are not repeated")
    parser.add_argument("--python", action="append", default=[], metavar="TOOL=PATH", help="the Python of a tool")
    parser.add_argument("--only", nargs="+", default=list(float_networks.NETWORKS), help="networks")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), help="tools")
    parser.add_argument("--collect", action="store_true", help="report the jobs that are there, and run none")
    parser.add_argument("--results", type=report.folder, help="the folder where results are written")
    given = parser.parse_args()
    for kind, names, known in (("--only", given.only, float_networks.NETWORKS), ("--tools", given.tools, TOOLS)):
        if unknown := [name for name in names if name not in known]:
            raise SpecError(f"{kind}: unknown {unknown[0]!r}; known: {', '.join(known)}")
    pythons = dict(pair.split("=", 1) for pair in given.python)
    rows, networks = measure(given, {key: pythons.get(key, sys.executable) for key in given.tools})
    facts = report.facts(Basis(), networks=networks, rows=[asdict(r) for r in rows])
    facts["setting"]["command"] = COMMAND
    if given.results:
        stem, title = "quantizers", "Quantizers compared"
        report.write(given.results, stem, title, __doc__ or "", facts, *sections(rows, networks))
        quantizers_plot.draw(rows, networks, given.results / stem)
    report.tell(facts, *(table(rows, name) for name in networks), as_json=given.json)
    return 0


def measure(given: argparse.Namespace, pythons: Mapping[str, str]) -> tuple[list[Row], dict[str, dict[str, Any]]]:
    """Run all jobs; return the rows, and the facts of each network."""
    rows: list[Row] = []
    networks: dict[str, dict[str, Any]] = {}
    missing = [key for key in pythons if not is_installed(TOOLS[key], pythons[key])]
    for key in missing:
        print(f"{TOOLS[key].name} is left out: {pythons[key]} has no module {TOOLS[key].module}", file=sys.stderr)
    for name in given.only:
        folder = prepare(name, given.networks, given.fashion, given.work)
        count = len(np.load(folder / "classes.npy"))
        networks[name] = {**json.loads((folder / "facts.json").read_text(encoding="utf-8")), "samples": count}
        rows.append(in_floats(name, folder))
        for key, pair in ((key, pair) for key in pythons if key not in missing for pair in WIDTHS):
            rows.append(run(name, folder, TOOLS[key], pythons[key], pair, collect=given.collect))
            shown = rows[-1].why if rows[-1].accuracy is None else f"{100 * rows[-1].accuracy:.2f} %"
            print(f"{name}, {TOOLS[key].name}, W{pair[0]}A{pair[1]}: {shown}", file=sys.stderr, flush=True)
    return rows, networks


if __name__ == "__main__":
    report.run(main)
