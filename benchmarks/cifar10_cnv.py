"""Trained networks on CIFAR-10 with packed bits between all layers, by bitsynth's convolutions and dense layers.

    python benchmarks/cifar10_cnv.py [--models DIR] [--isa ISA] [--threads N] [--json]

CNV with 1-bit weights and 1- or 2-bit activations: six convolutions 3 x 3, a 2 x 2 maximum after
the second and the fourth, three dense layers; the scales of training are folded into integer
thresholds. The logits of every image must equal the files' logits, to the bit. Microseconds are medians for one image,
packing included: a layer's are for its call alone, the network's include all of Python. A second network has the same
kernels with int32 sums, and numpy computes codes and maxima: the difference is what epilogues and packed words save. An
emulator gives no times.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import report
from models import can_run, checksums, default_models, natively
from numpy.typing import NDArray

from bitsynth.errors import Refuted, SpecError
from bitsynth.host import features
from bitsynth.layers import Conv2d, Dense, Thresholds
from bitsynth.layers.glue import MaxPool2d

Array = NDArray[Any]
NETWORKS = {"cifar10_cnvW1A1": (1, "bipolar"), "cifar10_cnvW1A2": (2, "ternary")}
"""Bits and encoding of activations; the image's are 8 and signed."""
ISAS = ("avx512", "avx2", "neon")
LAYERS, POOLED, CLASSES = 9, (1, 3), 10
ROUNDS = 50


@dataclass(frozen=True)
class Row:
    """One network on one instruction set. `layers` are the schedules and, where they count, microseconds.

    `apart` are microseconds with codes and maxima computed by numpy.
    """

    network: str
    isa: str
    runs: str
    images: int
    logits: int
    different: int
    microseconds: float | None
    apart: float | None
    layers: tuple[tuple[str, float | None], ...]


def build(arrays: dict[str, Array], bits: int, encoding: str, isa: str, threads: int) -> list[Conv2d | MaxPool2d]:
    """The layers of a network."""
    layers: list[Conv2d | MaxPool2d] = []
    size = arrays["images"].shape[1]
    for i in range(LAYERS):
        w, last = arrays[f"w{i}"], i == LAYERS - 1
        options: dict[str, Any] = {
            "act_encoding": encoding if i else "signed",
            "layout": "packed" if i else "NHWC",
            "out_layout": "NHWC" if last else "packed",
            "epilogue": None if last else Thresholds(levels(arrays[f"t{i}"], i, bits, w[0].size)),
            "isa": isa,
            "threads": threads,
        }
        if w.ndim == 4:
            layers.append(Conv2d(w.transpose(0, 3, 1, 2), bits if i else 8, 1, image=(size, size), **options))
            size = (size - 2) // 2 if i in POOLED else size - 2
        else:
            layers.append(Dense(w, bits, 1, **options))
        if i in POOLED:
            words: dict[str, Any] = {"encoding": encoding, "layout": "packed", "isa": isa, "threads": threads}
            layers.append(MaxPool2d(len(w), bits, 2, **words))
    return layers


def apart(arrays: dict[str, Array], layers: list[Conv2d | MaxPool2d]) -> Callable[[Array], Array]:
    """The network of `layers` with int32 sums between them: numpy makes values of those, and maxima."""
    products = [layer for layer in layers if isinstance(layer, Conv2d)]
    sums = [_sums_of(layer, arrays[f"w{i}"].ndim == 2) for i, layer in enumerate(products)]

    def run(x: Array) -> Array:
        for i, (layer, product) in enumerate(zip(sums, products, strict=True)):
            x = layer(x.reshape(len(x), -1) if isinstance(layer, Dense) else x)
            if isinstance(product.epilogue, Thresholds):
                codes = sum((x > level).view(np.uint8) for level in np.asarray(product.epilogue.values).T)
                x = products[i + 1].act.decode(np.asarray(codes))
            if i in POOLED:
                n, height, width, channels = x.shape
                x = x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))
        return x[:, :CLASSES]

    return run


def _sums_of(layer: Conv2d, dense: bool) -> Conv2d:
    """The same product without an epilogue."""
    options: dict[str, Any] = {"act_encoding": layer.act.encoding, "isa": layer.schedule.isa, "threads": layer.pool}
    if dense:
        return Dense(layer.weight[:, :, 0, 0], layer.act.bits, 1, **options)
    return Conv2d(layer.weight, layer.act.bits, 1, image=layer.plan.spec.image, **options)


def levels(given: Array, i: int, bits: int, fan_in: int) -> Array:
    """Thresholds of a layer's sum: the file has the image's thresholds in halves, and for 1 bit thresholds of a count
    of equal bits."""
    whole = given.astype(np.int64)
    if i == 0:
        return whole // 2
    return 2 * whole - fan_in if bits == 1 else whole


def pixels(images: Array) -> Array:
    """8-bit signed integers of images, x standing for x / 128."""
    return np.clip(np.floor((images / 255 * 2 - 1) * 128), -128, 127).astype(np.int8)


def run(
    layers: list[Conv2d | MaxPool2d], x: Array, each: Callable[[Conv2d | MaxPool2d, Array], None] | None = None
) -> Array:
    """Logits of pixels `x`; `each` sees every layer and its input."""
    for layer in layers:
        if isinstance(layer, Dense) and x.ndim == 4:
            x = x.reshape(len(x), -1)
        if each:
            each(layer, x)
        x = layer(x)
    return x[:, :CLASSES]


def microseconds(call: Callable[[], Any]) -> float:
    """The median of some calls."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return median(times)


def layer_times(layers: list[Conv2d | MaxPool2d], x: Array) -> list[float]:
    """Microseconds of each layer."""
    times: list[float] = []

    def each(layer: Conv2d | MaxPool2d, given: Array) -> None:
        codes = layer.act.encode(given, "x") if isinstance(layer, Conv2d) and given.dtype != np.uint64 else given
        times.append(microseconds(layer.bind(codes)[0]))

    run(layers, x, each)
    return times


def evaluate(network: str, isa: str, folder: Path, threads: int) -> Row:
    """Run `network` with layers of `isa`."""
    bits, encoding = NETWORKS[network]
    with np.load(folder / f"{network}.npz") as file:
        arrays = {name: file[name] for name in file.files}
    with natively(isa) as native:
        layers = build(arrays, bits, encoding, isa, threads if native else 1)
        x, want = pixels(arrays["images"]), arrays["ref_logits"]
        got = run(layers, x)
        times: list[Any] = layer_times(layers, x[:1]) if native else [None] * len(layers)
        whole = microseconds(lambda: run(layers, x[:1])) if native else None
        by_numpy = apart(arrays, layers) if native else None
        if by_numpy and (by_numpy(x) != got).any():
            raise Refuted(f"{network}: numpy's codes give other logits")
        numpy_time = microseconds(lambda: by_numpy(x[:1])) if by_numpy else None
        places = {layer.runner.description for layer in layers if isinstance(layer, Conv2d)}
    named = [f"{x.geometry}: {x.schedule}" if isinstance(x, Conv2d) else f"{x.geometry}: maximum" for x in layers]
    different = int(np.count_nonzero(got != want))
    return Row(
        *(network, isa, " ".join(sorted(places)), len(x), got.size, different, whole, numpy_time),
        tuple(zip(named, times, strict=True)),
    )


def show(rows: list[Row]) -> str:
    titles = ["network", "isa", "runs", "images", "logits", "equal the reference", "layers us", "image us", "by numpy"]
    return report.columns(
        titles,
        [
            (
                *(r.network, r.isa, r.runs, r.images, r.logits),
                "all" if not r.different else f"{r.different} differ",
                *("-" if t is None else f"{t:.0f}" for t in (_sum(r) if r.apart else None, r.microseconds)),
                "-" if r.apart is None or r.microseconds is None else f"{r.apart / r.microseconds:.1f} times",
            )
            for r in rows
        ],
    )


def _sum(row: Row) -> float:
    return sum(t or 0 for _, t in row.layers)


def show_layers(row: Row) -> str:
    lines = [(str(i), "-" if t is None else f"{t:.1f}", what) for i, (what, t) in enumerate(row.layers)]
    return f"{row.network} {row.isa}\n" + "\n".join(f"  {i}  {t:>8} us  {what}" for i, t, what in lines) + "\n"


def arguments() -> argparse.Namespace:
    parser = report.parser(__doc__)
    parser.add_argument("--models", type=Path, default=default_models(), help="folder of networks")
    parser.add_argument("--isa", choices=ISAS, action="append", help="one instruction set; all by default")
    parser.add_argument("--threads", type=int, default=1, help="threads where layers run natively")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    sums = checksums(given.models, [f"{n}.npz" for n in NETWORKS])
    isas = given.isa or [i for i in ISAS if can_run(i)]
    if not isas:
        raise SpecError(f"this processor, {features.arch()}, runs none of {', '.join(ISAS)}")
    rows = [evaluate(network, isa, given.models, given.threads) for isa in isas for network in NETWORKS]
    setting = report.setting(*isas)
    if given.json:
        print(json.dumps({"setting": setting, "sha256": sums, "rows": [asdict(r) for r in rows]}, indent=1))
    else:
        print(report.heading(setting), "\n")
        print("\n".join(show_layers(r) for r in rows))
        print(show(rows))
    return int(any(r.different for r in rows))


if __name__ == "__main__":
    report.run(main)
