"""How accurate, large and fast are networks as published, and as `quantize` makes them?

    python benchmarks/networks.py --networks FOLDER --fashion FOLDER --work FOLDER
        [--only NETWORK ...] [--rounds 11] [--keep-times] [--json] [--results FOLDER]

`--work` keeps quantized files and figures that do not depend on the machine's load: a file that is there is not
quantized again. Times are measured each time, all files of a network and ONNX Runtime alternately, medians of rounds,
one thread; `--keep-times` takes times from the last result, if there are any. Accuracy is measured with the compiled C
over samples that no quantizer saw; an error is the root mean square of differences relative to the standard deviation
of the outputs. Code is the executable part of a library for AArch64 by gcc. Cycles are the cost model's prediction for
layers, packing included; it predicts none for nodes in floats and in plain C. Bytes are for the Cortex-A72, which
multiplies 16-bit operands: weights of 8 bits take 16 there; sums of two 8-bit edges are tables of 64 KiB for TensorFlow
Lite. In the picture the paper's sketch is the sketch of CGO 2020, solved with the same solver and priced without
packing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import float_networks
import mobilenets
import network_files
import networks_plot
import numpy as np
import package_networks
import report
from network_files import ComparedNetwork, NetworkFile

import bitsynth
from bitsynth import paths, toolchain
from bitsynth.bench import network_peers
from bitsynth.bench.network import MINE, alternate, float_bytes, peer
from bitsynth.bench.setting import Basis
from bitsynth.errors import BitsynthError, SpecError
from bitsynth.host.placement import native_sets, widest
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.layers.library import FLAGS
from bitsynth.layers.pool import pool_of
from bitsynth.network.check import draw
from bitsynth.network.machine import NetworkMachine
from bitsynth.network.run import Network
from bitsynth.progress import silent
from bitsynth.schedule import price
from bitsynth.store.matmul import MATMUL

PROCESSORS = {"a53": "neon", "a72": "neon", "a76": "neon_dotprod"}
"""The instruction set of each processor whose cycles are predicted."""
PAPER_PROCESSORS = ("a53", "a72")
PAPER_KERNELS = "neon/paper-length"
"""The kernels of the sketch of CGO 2020, of A1W1, A2W1 and A2W2."""
CODE_FOR = "a72"
AVX2 = "avx2"
"""The set that files are timed on as well, if the processor has it: most x86 processors have no better one."""
_NETWORKS: dict[str, Callable[[Path, Path, Path], ComparedNetwork]] = {
    **{name: partial(network_files.trained, name) for name in float_networks.NETWORKS},
    "vww": network_files.visual_wake_words,
    "ad01": network_files.anomaly_detection,
    **{name: partial(package_networks.network_of, name) for name in package_networks.NETWORKS},
    **{name: partial(network_files.topology, name) for name in mobilenets.NETWORKS},
}
"""Builds each network from the folders of networks, of Fashion-MNIST, and of files that are kept."""
COMMAND = "python benchmarks/networks.py --networks FOLDER --work FOLDER --results docs/results"
"""What the result names: the folders of a machine say nothing."""


@dataclass(frozen=True)
class Row:
    """A file of a network, compiled.

    Args:
        network: The network's name.
        file: What the file is.
        judged: The accuracy, or what else the file was judged by.
        right: The share of right classes, or of classes that equal the float network's; None without classes.
        weight_bytes: Bytes of constants, packed.
        arena_bytes: Bytes of buffers.
        code_bytes: Bytes of instructions.
        float_bytes: Bytes of weights in float32.
        cycles: Predicted cycles by processor; None where much of the network is in plain C.
        paper_cycles: The same with kernels of the paper's sketch where it has one for the widths of a layer, without
            packing; empty if it has one for none.
        in_kernels: The share of multiply-accumulates that kernels compute.
        why: Why the file could not be compiled; empty if it was.
    """

    network: str
    file: str
    judged: str = ""
    right: float | None = None
    weight_bytes: int = 0
    arena_bytes: int = 0
    code_bytes: int = 0
    float_bytes: int = 0
    cycles: Mapping[str, int | None] = field(default_factory=dict)
    paper_cycles: Mapping[str, int] = field(default_factory=dict)
    in_kernels: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Time:
    """The median time of a call of a contender, and its quartiles, in microseconds."""

    network: str
    contender: str
    microseconds: float
    low: float
    high: float


def facts_of(network: ComparedNetwork, file: NetworkFile) -> Row:
    """Compile a file for every processor, run it on the samples, and return the facts."""
    nets = {
        cpu: bitsynth.compile(file.path, isa=isa, cpu=cpu, batch=1, **file.reading) for cpu, isa in PROCESSORS.items()
    }
    shown = nets[CODE_FOR]
    memory = shown.report()
    work = memory.products
    kernels = 1 - (work.float_macs + work.plain_macs) / work.macs if work.macs else 0.0
    judged, right = judge(network, file)
    return Row(
        network.name,
        file.title,
        judged,
        right,
        memory.weight_bytes,
        memory.arena_bytes,
        code_bytes(shown),
        float_bytes(shown),
        {cpu: sum(step.cycles for step in net.report().steps) if kernels else None for cpu, net in nets.items()},
        {cpu: cycles for cpu in PAPER_PROCESSORS if (cycles := paper_cycles(nets[cpu], cpu))},
        kernels,
    )


def paper_cycles(net: Network, cpu: str) -> int:
    """Return the network's cycles if products had the kernels of the paper's sketch; 0 if it has none of these."""
    kernels = [MATMUL.read(path).kernel for path in sorted((paths.shipped_kernels() / PAPER_KERNELS).glob("*.json"))]
    prices = {(kernel.act_bits, kernel.w_bits): price.count_cycles(kernel, cpu) for kernel in kernels}
    total, is_paper = 0.0, False
    for step in net.report().steps:
        spec = KernelName.parse(step.kernel).spec if step.kernel.startswith("bs_mm_") else None
        per_128 = prices.get((spec.act.bits, spec.wgt.bits)) if spec else None
        total += step.macs / 128 * per_128 if per_128 else step.cycles
        is_paper = is_paper or per_128 is not None
    return round(total) if is_paper else 0


def code_bytes(net: Network) -> int:
    """Return the bytes of the executable sections of the network's library, as gcc compiles it for AArch64."""
    from elftools.elf.constants import SH_FLAGS
    from elftools.elf.elffile import ELFFile

    machine = NetworkMachine(net.program, net.plan, pool_of(1))
    sources = machine.own_sources | machine.shared_sources
    library = toolchain.compile_for(load(net.program.isa), sources, needs=machine.text.needs, flags=FLAGS)
    with library.open("rb") as file:
        sections = list(ELFFile(file).iter_sections())
        return sum(s["sh_size"] for s in sections if s["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)


def judge(network: ComparedNetwork, file: NetworkFile) -> tuple[str, float | None]:
    """Return what the compiled C does on the samples, in words, and the share of classes that are right."""
    if network.samples is None:
        return "random weights, not judged", None
    net = bitsynth.compile(file.path, batch=1, **file.reading)
    outputs = np.stack([file.numbers(net(file.inputs(sample))) for sample in network.samples])
    if network.classes is not None:
        right = float_networks.accuracy(outputs, network.classes)
        return f"{100 * right:.2f} %", right
    wanted = np.stack(list(network.outputs()))
    if network.has_classes:
        same = float((outputs.argmax(-1) == wanted.argmax(-1)).mean())
        return f"{100 * same:.1f} % the same class", same
    error = float(np.sqrt(np.square(outputs - wanted).mean()) / wanted.std())
    return f"error {100 * error:.1f} %", None


def times_of(network: ComparedNetwork, files: Sequence[NetworkFile], rounds: int) -> Iterator[Time]:
    """Measure all files of a network, ONNX Runtime and LiteRT in turn."""
    calls: dict[str, Callable[[], object]] = {}
    for file in files:
        net = bitsynth.compile(file.path, batch=1, **file.reading)
        inputs = draw(net.graph, 1)[0]
        calls[f"{MINE}, {file.title}"] = net.bind(inputs)[0]
        if AVX2 in native_sets():
            on_avx2 = bitsynth.compile(file.path, isa=AVX2, batch=1, **file.reading)
            calls[f"{MINE} on {AVX2}, {file.title}"] = on_avx2.bind(inputs)[0]
        if file.path.suffix == ".tflite":
            calls[f"LiteRT, {file.title}"] = network_peers.bind_litert_kernels(
                file.path.read_bytes(), inputs, 1, "AUTO"
            )
        for title, model in file.peers.items():
            calls[f"ONNX Runtime, {title}"] = network_peers.bind_onnxruntime(net, inputs)(model)
    for name, samples in alternate(calls, rounds, 1, silent).items():
        summary = peer(name, {MINE: samples, name: samples}).nanoseconds
        yield Time(network.name, name, summary.median / 1e3, summary.low / 1e3, summary.high / 1e3)


def facts_in(work: Path, network: ComparedNetwork, file: NetworkFile) -> Row:
    """Return the facts of a file, which `work` keeps until the file changes."""
    kept = work / "facts" / f"{network.name}_{file.title.replace(' ', '_').replace('/', '_')}.json"
    if kept.is_file() and kept.stat().st_mtime > file.path.stat().st_mtime:
        return Row(**json.loads(kept.read_text(encoding="utf-8")))
    try:
        row = facts_of(network, file)
    except BitsynthError as error:
        return Row(network.name, file.title, why=str(error)[:300])
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(row)), encoding="utf-8")
    return row


PEERS = ("ONNX Runtime, float32", "ONNX Runtime, int8", "LiteRT, int8 as published")
"""The contenders that our fastest file of a network is compared with."""
TITLES = ("file", "accuracy", "weights", "arena", "code", "in kernels", "A53", "A72", "A76", "here, µs", "avx2, µs")


def table(rows: Sequence[Row], times: Mapping[tuple[str, str], Time]) -> list[list[str]]:
    """Return a row for each file of a network."""
    kinds = MINE, f"{MINE} on {AVX2}"
    return [[r.file, *_cells(r, [times.get((r.network, f"{kind}, {r.file}")) for kind in kinds])] for r in rows]


def _cells(r: Row, times: Sequence[Time | None]) -> list[str]:
    if r.why:
        return [f"not compiled: {r.why}", *[""] * (len(TITLES) - 2)]
    sizes = [f"{n:,}" for n in (r.weight_bytes, r.arena_bytes, r.code_bytes)]
    cycles = [f"{n / 1e6:.2f} M" if n else "" for n in r.cycles.values()]
    return [r.judged, *sizes, f"{r.in_kernels:.0%}", *cycles, *(f"{t.microseconds:,.1f}" if t else "" for t in times)]


def peers(name: str, times: Sequence[Time]) -> list[list[str]]:
    """Return a row for each other runtime that ran files of a network."""
    own = [t for t in times if t.network == name and not t.contender.startswith(MINE)]
    return [[t.contender, f"{t.microseconds:,.1f}", f"{t.low:,.1f} to {t.high:,.1f}"] for t in own]


def compare_times(networks: Sequence[ComparedNetwork], times: Sequence[Time]) -> list[list[str]]:
    """Return a row for each network that was timed: our fastest file, and how many times as long others take."""
    found = []
    for network in networks:
        own = [t for t in times if t.network == network.name]
        mine = min((t for t in own if t.contender.startswith(f"{MINE}, ")), key=lambda t: t.microseconds, default=None)
        if mine is None:
            continue
        others = {t.contender: f"{t.microseconds / mine.microseconds:.2f}" for t in own}
        ratios = [others.get(peer, "") for peer in PEERS]
        took = f"{mine.microseconds:,.{0 if mine.microseconds >= 10 else 1}f}"
        found.append([network.title, mine.contender.removeprefix(f"{MINE}, "), took, *ratios])
    return found


def memory_parts(rows: Sequence[Row]) -> list[list[str]]:
    """Return the memory of networks whose first file is in floats, by part, relative to that file (QNN, Fig. 6)."""
    found = []
    for name in dict.fromkeys(r.network for r in rows):
        first, *others = [r for r in rows if r.network == name and not r.why]
        whole = first.weight_bytes + first.arena_bytes
        for r in others:
            parts = [f"{n / whole:.0%}" for n in (r.weight_bytes, r.arena_bytes, r.weight_bytes + r.arena_bytes)]
            found.append([f"{name}, {r.file}", f"{whole / 1e6:.1f} MB", *parts])
    return found


def blocks(
    networks: Sequence[ComparedNetwork], rows: Sequence[Row], times: Sequence[Time], setting: Mapping[str, str]
) -> Iterator[str]:
    """Yield the parts of the page."""
    by_name = {(t.network, t.contender): t for t in times}
    yield "![Accuracy and predicted cycles of a Fashion-MNIST network, by widths and kernels](networks.svg)"
    if seen := networks_plot.to_see(rows):
        yield seen
    if times:
        yield (
            f"Times are of this processor's {widest('auto')}, and of the same files compiled for {AVX2}; one thread, "
            f"batch 1: {setting['processor']}."
        )
        yield "## Times of the fastest file"
        yield "How many times as long do other runtimes take as the fastest of our files of a network?"
        yield report.markdown(["network", "our file", "µs", *PEERS], compare_times(networks, times))
    for network in networks:
        own = [r for r in rows if r.network == network.name]
        yield f"## {network.title}"
        yield network.about
        cells = table(own, by_name)
        shown = len(TITLES) if times else len(TITLES) - 2
        yield report.markdown(TITLES[:shown], [row[:shown] for row in cells])
        if others := peers(network.name, times):
            yield report.markdown(["other runtimes", "µs", "quartiles"], others)
    yield "## Memory by part"
    yield (
        "Relative to the same network in floats, compiled by bitsynth, weights and arena together. In Fig. 6 of QNN "
        "(Jain et al. 2020) int8 takes 26 to 33 % on Intel and Nvidia, and 50 % on Arm, where weights become int16."
    )
    big = [r for r in rows if any(s.name == r.network and s.samples is None for s in networks)]
    yield report.markdown(["network", "in floats", "weights", "arena", "together"], memory_parts(big))


def main() -> int:
    parser = report.parser(__doc__)
    parser.add_argument("--networks", type=Path, required=True, help="the folder of networks")
    parser.add_argument("--fashion", type=Path, default=float_networks.FASHION_IMAGES, help="Fashion-MNIST")
    parser.add_argument("--work", type=Path, required=True, help="the folder of quantized files, which are kept")
    parser.add_argument("--only", nargs="+", help="names of networks")
    parser.add_argument("--rounds", type=int, default=11, help="samples of all that is timed")
    parser.add_argument("--keep-times", action="store_true", help="take the times of the last result")
    parser.add_argument("--results", type=report.folder, help="the folder where results are written")
    given = parser.parse_args()
    networks = list(chosen(given))
    rows, times = measure(networks, given)
    facts = report.facts(Basis(), rows=[asdict(r) for r in rows], times=[asdict(t) for t in times])
    facts["setting"]["command"] = COMMAND
    if given.results:
        text = list(blocks(networks, rows, times, facts["setting"]))
        report.write(given.results, "networks", "Trained networks", __doc__ or "", facts, *text)
        networks_plot.draw(rows, given.results / "networks")
    report.tell(
        facts, ((("network", *TITLES)), [[r.network, *c] for r in rows for c in table([r], {})]), as_json=given.json
    )
    return 0


def chosen(given: argparse.Namespace) -> Iterator[ComparedNetwork]:
    """Yield the networks that were asked for; SpecError for a name that is none."""
    given.work.mkdir(parents=True, exist_ok=True)
    if unknown := [name for name in given.only or () if name not in _NETWORKS]:
        raise SpecError(f"--only: unknown {unknown[0]!r}; known: {', '.join(_NETWORKS)}")
    for name in given.only or _NETWORKS:
        yield _NETWORKS[name](given.networks, given.fashion, given.work)


def measure(networks: Sequence[ComparedNetwork], given: argparse.Namespace) -> tuple[list[Row], list[Time]]:
    """Return the facts of all files, and the times of timed files."""
    rows: list[Row] = []
    times: list[Time] = []
    last = given.results / "networks.json" if given.results else None
    if given.keep_times and last and last.is_file():
        times = [Time(**t) for t in json.loads(last.read_text(encoding="utf-8"))["times"]]
    for network in networks:
        files = list(network.files)
        own = [facts_in(given.work, network, file) for file in files]
        rows += own
        for row in own:
            print(f"{row.network}, {row.file}: {row.why or row.judged}", file=sys.stderr, flush=True)
        compiled = [file for file, row in zip(files, own, strict=True) if not row.why and file.timed]
        if not given.keep_times and compiled:
            times += times_of(network, compiled, given.rounds)
    return rows, times


if __name__ == "__main__":
    report.run(main)
