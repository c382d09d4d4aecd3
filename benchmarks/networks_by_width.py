"""Whole networks of random weights by widths of codes, compared with ONNX Runtime and OpenVINO in float32 and int8.

    python benchmarks/networks_by_width.py --isa avx512 [--only resnet18] [--threads N] [--rounds N] [--results FOLDER]

One image at a time. Weights are random, so the networks serve to compare times and bytes, not accuracy.
"A2W1" has 2-bit activations and 1-bit weights in all convolutions but the first, which has 8 bits as has the dense
layer; "int8 file" is the network as ONNX Runtime's `quantize_static` writes it, compiled by bitsynth. The other
packages run the same layers in float32 and that file in int8. All contenders of a network are timed alternately; a
ratio is the median of the rounds' ratios. A package that cannot be kept from instructions that the set lacks takes no
part; ONEDNN_MAX_CPU_ISA keeps OpenVINO from them, and with AVX512_CORE_VNNI from AMX. Needs `pip install '.[peers]'`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import few_bits
import networks_by_width_plot
import numpy as np
import onnx
import report

import bitsynth
from bitsynth.bench import network_peers, twins
from bitsynth.bench.baselines.start import Cap, caps
from bitsynth.bench.network import MINE, alternate, float_bytes, peer
from bitsynth.bench.setting import Basis
from bitsynth.errors import SpecError
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load
from bitsynth.network.check import draw
from bitsynth.network.run import Network
from bitsynth.progress import silent

ALL_WIDTHS = ((1, 1), (2, 1), (2, 2), (3, 3), (4, 4), (8, 8))
WIDTHS = {
    "resnet18": ALL_WIDTHS,
    "resnet18_of_floats": ((1, 1), (2, 1), (2, 2), (4, 4)),
    "resnet50": ((2, 2), (4, 4)),
    "mobilenet_v1": ((4, 4),),
    "mobilenet_v2": ((4, 4), (8, 8)),
    "small_vgg": ALL_WIDTHS,
}
"""Bits of activations and weights, by network; few of a large network, as it takes a minute to compile with its C."""
FILE = "int8 file"
_NAMES = {FILE: "the int8 file"}
"""How sentences name contenders that are no widths."""
TITLES = {
    "resnet18": "ResNet-18, shortcuts of codes",
    "resnet18_of_floats": "ResNet-18, shortcuts of floats",
    "resnet50": "ResNet-50",
    "mobilenet_v1": "MobileNet V1",
    "mobilenet_v2": "MobileNet V2",
    "small_vgg": "small VGG, 32 x 32 pixels",
}
PACKAGES: dict[str, Callable[[Network, Mapping[str, Any]], network_peers.Bound]] = {
    network_peers.ORT: network_peers.bind_onnxruntime,
    network_peers.OPENVINO: network_peers.bind_openvino,
}
KINDS = ("float32", "int8")


@dataclass(frozen=True)
class Row:
    """A network of a width, or the int8 file, as bitsynth runs it.

    Args:
        network, width: Names of the network and of its widths.
        microseconds: The median time of an image.
        ratios: How many times as long each contender takes, by its name.
        weight_bytes, arena_bytes: Bytes of weights and of intermediate results.
        float_bytes: Bytes of the weights of its products in float32.
    """

    network: str
    width: str
    microseconds: float
    ratios: Mapping[str, float]
    weight_bytes: int
    arena_bytes: int
    float_bytes: int

    def best(self, kind: str) -> tuple[str, float]:
        """Return the fastest contender of float32 or int8, and how many times as long it takes."""
        times = {name: ratio for name, ratio in self.ratios.items() if name.endswith(kind)}
        name = min(times, key=times.__getitem__)
        return name.partition(",")[0], times[name]


@dataclass(frozen=True)
class Contenders:
    """A network at all widths, and the other packages, ready to be run.

    Args:
        name: The network.
        networks: What bitsynth compiled, by width.
        calls: A call of each contender, by width or by package and kind.
    """

    name: str
    networks: Mapping[str, Network]
    calls: Mapping[str, Callable[[], object]]

    def measure(self, rounds: int, threads: int) -> Iterator[Row]:
        """Measure all alternately."""
        print(f"measuring {self.name}", file=sys.stderr, flush=True)
        samples = alternate(self.calls, rounds, threads, silent)
        others = [name for name in self.calls if name not in self.networks]
        for width, net in self.networks.items():
            mine = samples[width]
            ratios = {other: peer(other, {MINE: mine, other: samples[other]}).times.median for other in others}
            facts = net.report()
            sizes = facts.weight_bytes, facts.arena_bytes, float_bytes(net)
            yield Row(self.name, width, float(np.median(mine)) / 1e3, ratios, *sizes)


def prepare(name: str, given: argparse.Namespace, packages: Sequence[str], work: Path) -> Contenders:
    """Compile a network at its widths and the int8 file, and load both in the other packages."""
    networks: dict[str, Network] = {}
    calls: dict[str, Callable[[], object]] = {}
    for act_bits, w_bits in given.widths or WIDTHS[name]:
        path = work / f"{name}_a{act_bits}w{w_bits}.onnx"
        onnx.save(few_bits.built(name, act_bits, w_bits, given.size), path)
        networks[f"A{act_bits}W{w_bits}"] = compiled(path, given)
    floats = twins.float_twin(onnx.load(path))  # All widths have the same layers, and so the same twin in floats.
    (x,) = floats.graph.input
    shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
    image = {x.name: np.random.default_rng(1).random(shape, np.float32)}
    quantized = twins.int8_twin(floats, image)
    onnx.save(quantized, work / f"{name}_int8.onnx")
    networks[FILE] = compiled(work / f"{name}_int8.onnx", given)
    for width, net in networks.items():
        calls[width] = net.bind(draw(net.graph, 1)[0])[0]
    for package in packages:
        bind = PACKAGES[package](networks[FILE], draw(networks[FILE].graph, 1)[0])
        for kind, model in zip(KINDS, (floats, quantized), strict=True):
            calls[f"{package}, {kind}"] = bind(model)
    return Contenders(name, networks, calls)


def compiled(path: Path, given: argparse.Namespace) -> Network:
    """Return a file's network, compiled for the set and threads that were asked for."""
    print(f"compiling {path.stem}", file=sys.stderr, flush=True)
    return bitsynth.compile(path, isa=given.isa, threads=given.threads)


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return the times and ratios of a network's widths."""
    cells = []
    for row in rows:
        fastest = [f"{ratio:.2f} ({package})" for package, ratio in map(row.best, KINDS)]
        memory = (row.weight_bytes + row.arena_bytes) / row.float_bytes
        cells.append([row.width, f"{row.microseconds / 1e3:.2f}", *fastest, f"{row.weight_bytes:,}", f"{memory:.3f}"])
    return cells


TABLE = ("bits", "ms", "fastest float32", "fastest int8", "weights, bytes", "weights and arena, of float32's weights")


def blocks(rows: Sequence[Row], packages: Sequence[str], stem: str) -> Iterator[str]:
    """Yield the parts of the page."""
    yield f"![How many times as long the fastest int8 of others takes, by network and width]({stem}.svg)"
    yield to_see(rows)
    yield (
        "How many times as long does the fastest other package take? Above 1 bitsynth is faster. Compared with "
        f"{' and '.join(packages)}."
    )
    for name in dict.fromkeys(row.network for row in rows):
        yield f"## {TITLES[name]}"
        yield report.markdown(TABLE, table([row for row in rows if row.network == name]))


def to_see(rows: Sequence[Row]) -> str:
    """Return what a reader should see in the picture: the range of ratios of each width, and where int8 is faster."""
    parts = []
    for width in networks_by_width_plot.SHOWN:
        ratios = [row.best("int8")[1] for row in rows if row.width == width]
        if ratios:
            below = sum(ratio < 1 for ratio in ratios)
            faster = f", and is faster in {below} of {len(ratios)} networks" if below else ""
            parts.append(f"{min(ratios):.2f} to {max(ratios):.2f} times as long as {_NAMES.get(width, width)}{faster}")
    best = max(rows, key=lambda row: row.best("int8")[1])
    return (
        f"What to see: the fastest int8 of other packages takes {'; '.join(parts)}. bitsynth gains most in "
        f"{TITLES[best.network]}, {best.width}."
    )


def stem_of(isa: str, threads: int) -> str:
    """Return the name of the result's files."""
    return f"networks_by_width_{isa}" + (f"_{threads}_threads" if threads > 1 else "")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = report.parser(__doc__)
    parser.add_argument("--isa", default="avx2", help="an instruction set this processor has")
    parser.add_argument("--only", nargs="+", default=[*TITLES], help=f"of {', '.join(TITLES)}")
    parser.add_argument("--widths", nargs="+", type=report.widths, help="bits of codes of all networks, such as A2W1")
    parser.add_argument("--threads", type=int, default=1, help="threads of every contender")
    parser.add_argument("--rounds", type=int, default=11, help="samples of all that is timed")
    parser.add_argument("--size", type=int, help="pixels a side; usually 224, of the small VGG 32")
    parser.add_argument("--results", type=report.folder, help="the folder where results are written")
    given = parser.parse_args()
    if unknown := [name for name in given.only if name not in TITLES]:
        raise SpecError(f"--only: unknown {unknown[0]!r}; known: {', '.join(TITLES)}")
    require_native(load(given.isa).table)
    return given


def main() -> int:
    given = arguments()
    limits = caps(given.isa)
    packages = [package for package in PACKAGES if not limits.get(package, Cap()).left_out]
    for package in packages:
        os.environ.update(limits.get(package, Cap()).env)
    with tempfile.TemporaryDirectory() as work:
        prepared = [prepare(name, given, packages, Path(work)) for name in given.only]
    rows = [row for contenders in prepared for row in contenders.measure(given.rounds, given.threads)]
    facts = report.facts(Basis(), [given.isa], rows=[asdict(row) for row in rows])
    named = network_peers.settings(f"{package}, " for package in packages)
    facts["setting"] |= named | {"threads": str(given.threads)}
    if given.results:
        stem = stem_of(given.isa, given.threads)
        text = blocks(rows, packages, stem)
        title = f"Networks by width, {given.isa}" + (f", {given.threads} threads" if given.threads > 1 else "")
        report.write(given.results, stem, title, __doc__ or "", facts, *text)
        networks_by_width_plot.draw(rows, TITLES, given.results / stem)
    tables = [(("network", *TABLE), [[row.network, *cells] for row in rows for cells in table([row])])]
    report.tell(facts, *tables, as_json=given.json)
    return 0


if __name__ == "__main__":
    report.run(main)
