"""Trained low-bit networks on MNIST, every matrix product done by a synthesized kernel.

    python benchmarks/mnist_tfc.py [--models DIR] [--isa ISA] [--images N] [--json]

TFC_1W2A (two-bit activations) and TFC_1W1A (one-bit) run over the 10,000 test images where
the kernels run natively, over a sample of 200 where they are emulated. Every accumulator of
every layer is compared with numpy's int64 product. Seconds are wall time without that
comparison, packing included; times under an emulator say nothing about a processor.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import report
from models import can_run, checksums, default_models, natively
from numpy.typing import NDArray
from quantized_graph import Graph, Quantized

import bitsynth
from bitsynth.errors import SpecError

ISAS = ("avx2", "neon")
EXPECTED = {"TFC_1W2A": 94.74, "TFC_1W1A": 92.96}
IMAGES, LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
FULL, SAMPLE = 10_000, 200


@dataclass
class Products:
    """Multiplies with kernels of one instruction set and compares with numpy."""

    isa: str
    seconds: float = 0.0
    checking_seconds: float = 0.0
    accumulators: int = 0
    different: int = 0
    layers: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __call__(self, node: str, a: Quantized, w: Quantized) -> NDArray[np.int32]:
        """The product of the quantized `a` and `w` of the layer `node`."""
        act, wgt = a.operand, w.operand
        kernel = bitsynth.get_kernel(self.isa, act.bits, wgt.bits, act.encoding, wgt.encoding)
        self.places.add(kernel.runner.description)
        start = time.perf_counter()
        out = kernel.matmul(a.integers, w.integers)
        done = time.perf_counter()
        self.different += int(np.count_nonzero(out != a.integers @ w.integers))
        self.seconds += done - start
        self.checking_seconds += time.perf_counter() - done
        self.accumulators += out.size
        (m, k), n = a.integers.shape, w.integers.shape[1]
        self.layers.append(f"{node}: {m} x {k} x {n} by {kernel.name}")
        return out


@dataclass(frozen=True)
class Row:
    """One network on one instruction set."""

    network: str
    isa: str
    runs: str
    images: int
    accuracy_percent: float
    expected_percent: float | None
    seconds: float | None
    kernel_seconds: float | None
    accumulators: int
    accumulators_different: int
    layers: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether the accuracy is the published one, and all accumulators are exact."""
        right = self.expected_percent in (None, round(self.accuracy_percent, 2))
        return right and not self.accumulators_different


def idx(path: Path) -> NDArray[np.uint8]:
    """An array in MNIST's file format."""
    data = gzip.decompress(path.read_bytes())
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def sample(folder: Path, count: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """`count` images in [0, 1], evenly spaced over the test set, and their labels."""
    images, labels = idx(folder / IMAGES), idx(folder / LABELS)
    chosen = np.linspace(0, len(labels) - 1, count).round().astype(int)
    return images[chosen, None].astype(np.float32) / np.float32(255), labels[chosen]


def evaluate(network: str, isa: str, folder: Path, wanted: int | None) -> Row:
    """Run `network` with the kernels of `isa`."""
    with natively(isa) as native:
        count = wanted or (FULL if native else SAMPLE)
        images, labels = sample(folder, count)
        graph, products = Graph(folder / f"{network}.onnx"), Products(isa)
        graph.run(images[:1], Products(isa))  # Kernels are compiled here.
        start = time.perf_counter()
        scores = graph.run(images, products)
        seconds = time.perf_counter() - start - products.checking_seconds
    return Row(
        network=network,
        isa=isa,
        runs=" ".join(sorted(products.places)),
        images=count,
        accuracy_percent=float(np.mean(scores.argmax(1) == labels) * 100),
        expected_percent=EXPECTED[network] if count == FULL else None,
        seconds=seconds if native else None,
        kernel_seconds=products.seconds if native else None,
        accumulators=products.accumulators,
        accumulators_different=products.different,
        layers=tuple(products.layers),
    )


def _time(seconds: float | None) -> str:
    """Seconds; an emulated run gives none."""
    return "-" if seconds is None else f"{seconds:.2f}"


def show(rows: list[Row]) -> str:
    titles = ["network", "isa", "runs", "images", "accuracy", "expected", "seconds", "in kernels", "accumulators"]
    return report.columns(
        [*titles, "equal numpy's"],
        [
            (
                *(r.network, r.isa, r.runs, f"{r.images:,}", f"{r.accuracy_percent:.2f} %"),
                f"{r.expected_percent:.2f} %" if r.expected_percent else "-",
                *(_time(r.seconds), _time(r.kernel_seconds), f"{r.accumulators:,}"),
                "all" if not r.accumulators_different else f"{r.accumulators_different:,} differ",
            )
            for r in rows
        ],
    )


def arguments() -> argparse.Namespace:
    parser = report.parser(__doc__)
    parser.add_argument("--models", type=Path, default=default_models(), help="folder of networks and images")
    parser.add_argument("--isa", choices=ISAS, action="append", help="one instruction set; all by default")
    parser.add_argument("--images", type=int, help=f"{FULL} natively and {SAMPLE} emulated by default")
    given = parser.parse_args()
    if given.images is not None and not 1 <= given.images <= FULL:
        raise SpecError(f"--images must be from 1 to {FULL}, not {given.images}")
    return given


def main() -> int:
    given = arguments()
    sums = checksums(given.models, [*(f"{n}.onnx" for n in EXPECTED), IMAGES, LABELS])
    isas = given.isa or [i for i in ISAS if can_run(i)]
    rows = [evaluate(network, isa, given.models, given.images) for isa in isas for network in EXPECTED]
    setting = report.setting(*isas)
    if given.json:
        print(json.dumps({"setting": setting, "sha256": sums, "rows": [asdict(r) for r in rows]}, indent=1))
        return int(not all(r.good for r in rows))
    print(report.heading(setting), "\n")
    print("\n".join(f"{digest}  {name}  as in SHA256SUMS" for name, digest in sums.items()), "\n")
    print("\n".join(f"{r.network} {r.isa}: {layer}" for r in rows for layer in r.layers), "\n")
    print(show(rows))
    return int(not all(r.good for r in rows))


if __name__ == "__main__":
    report.run(main)
