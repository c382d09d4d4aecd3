"""The networks of `networks.py`: files as published, files that `quantize` makes of them, and samples that judge
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import float_networks
import mobilenets
import numpy as np
import onnx
import tflite_floats
from numpy.typing import NDArray

import bitsynth
from bitsynth.bench.twins import int8_twin, quantize_by_onnxruntime
from bitsynth.network.check.data import Feed
from bitsynth.quantization import FineTuning

ANY_CYCLES = 1e15
"""A bound that every network keeps, by which the loss is minimized."""
WIDTHS = ((8, 8), (4, 4), (3, 3), (2, 2), (1, 2))
"""Bits of weights and of activations of the Fashion-MNIST network."""
FEW_WIDTHS = WIDTHS[:2]
TUNED_WIDTHS = WIDTHS[2:]
MAX_LOSS = 0.01
SEARCHED = ("2 to 8 bits for the A72", "neon", "a72"), ("2 to 8 bits for AVX2", "avx2", "")
"""Titles, sets and processors of files whose bits are searched, with `MAX_LOSS` on the calibration samples."""
STEPS = 4000
"""Steps of fine-tuning."""
IMAGES, SIDE = 200, 96
"""Images of visual wake words, and pixels of their sides."""
FRAMES, BINS = 200, 640
"""Inputs of anomaly detection."""


@dataclass(frozen=True)
class NetworkFile:
    """A file of a network.

    Args:
        title: What the file is.
        path: The file.
        peers: ONNX models of the same network that ONNX Runtime is timed with, by title.
        timed: Whether it is timed.
        reading: Options of `bitsynth.compile`.
    """

    title: str
    path: Path
    peers: Mapping[str, Any] = field(default_factory=dict)
    timed: bool = True
    reading: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _grids(self) -> tuple[tuple[float, int], tuple[float, int]]:
        return tflite_floats.end_grids(self.path)

    def inputs(self, sample: Feed) -> Feed | NDArray[Any]:
        """Return a sample as the file takes it: an only input, whose name differs between files, as an array.

        TensorFlow Lite takes codes, with channels last.
        """
        if len(sample) > 1:
            return sample
        (x,) = sample.values()
        if self.path.suffix != ".tflite":
            return x
        scale, zero = self._grids[0]
        codes = np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8)
        last: NDArray[Any] = codes.transpose(0, 2, 3, 1) if codes.ndim == 4 else codes
        return last

    def numbers(self, outputs: Any) -> NDArray[np.float32]:
        """Return the numbers of the first output of one sample, which are codes in TensorFlow Lite."""
        batch = outputs[0] if isinstance(outputs, tuple) else outputs
        first: NDArray[np.float32] = np.asarray(batch, np.float32)[0]
        if self.path.suffix != ".tflite":
            return first
        scale, zero = self._grids[1]
        return np.asarray((first - zero) * np.float32(scale), np.float32)


@dataclass(frozen=True)
class ComparedNetwork:
    """A network with its files, the one in floats first, and the samples that they are judged by.

    Args:
        name: Its short name.
        title: Its title.
        about: How it is judged, as a sentence.
        files: Its files.
        samples: Inputs of the float network by name, one call each; None if its weights are random.
        classes: The class of each sample; None if files are compared with the float network.
        has_classes: Whether the greatest output is a class.
    """

    name: str
    title: str
    about: str
    files: Sequence[NetworkFile]
    samples: Sequence[Feed] | None = None
    classes: NDArray[np.int64] | None = None
    has_classes: bool = True

    def outputs(self) -> Iterator[NDArray[np.float32]]:
        """Yield the outputs of the float network for each sample, by ONNX Runtime."""
        import onnxruntime

        assert self.samples is not None
        running = onnxruntime.InferenceSession(self.files[0].path, providers=["CPUExecutionProvider"])
        yield from (running.run(None, dict(sample))[0][0] for sample in self.samples)


def feeds(model: Any, x: NDArray[Any]) -> list[Feed]:
    """Return samples of a network with one input, along the first axis of an array, as inputs of one call each."""
    return [{model.graph.input[0].name: one[None]} for one in x]


def quantized(
    model: Any, calibration: NDArray[Any] | Feed, path: Path, w_bits: int, act_bits: int, **reading: Any
) -> Path:
    """Write a network as `quantize` makes it with these bits, unless the file is there; return its path."""
    options: dict[str, Any] = {"act_bits": (act_bits,), "w_bits": (w_bits,), "isa": "neon", "cpu": "a72", **reading}
    return _quantized_once(model, calibration, path, cycles=ANY_CYCLES, **options)


def searched(network: float_networks.FloatNetwork, path: Path, isa: str, cpu: str = "") -> Path:
    """Write a network with the bits that the search chooses, unless the file is there; return its path."""
    options: dict[str, Any] = {"labels": network.classes, "loss": MAX_LOSS, "isa": isa, "cpu": cpu}
    return _quantized_once(network.model, network.calibration, path, **options)


def searched_within(
    model: Any, calibration: NDArray[Any] | Feed, path: Path, loss: float, bits: Sequence[int], **reading: Any
) -> Path:
    """Write a network with the fewest cycles on the A72 within an error of its outputs, unless the file is there."""
    options: dict[str, Any] = {"act_bits": bits, "w_bits": bits, "isa": "neon", "cpu": "a72", **reading}
    return _quantized_once(model, calibration, path, loss=loss, **options)


def _quantized_once(model: Any, calibration: NDArray[Any] | Feed, path: Path, **options: Any) -> Path:
    """Write a network as `quantize` makes it, for one sample a call, unless the file is there; return its path."""
    if not path.is_file():
        onnx.save(bitsynth.quantize(model, calibration, batch=1, **options).model, path)
    return path


def quantized_by_onnxruntime(model: Any, calibration: Sequence[Feed], path: Path) -> Path:
    """Write a network as ONNX Runtime quantizes it, unless the file is there; return its path."""
    if not path.is_file():
        onnx.save(quantize_by_onnxruntime(model, calibration), path)
    return path


def float_file(model: Any, path: Path, *, timed: bool = True) -> NetworkFile:
    """Write a float network with one sample a call; return it, with ONNX Runtime's twins of it."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for edge in (*fixed.graph.input, *fixed.graph.output):
        edge.type.tensor_type.shape.dim[0].dim_value = 1
    if not path.is_file():
        onnx.save(fixed, path)
    entry = fixed.graph.input[0]
    shape = [d.dim_value for d in entry.type.tensor_type.shape.dim]
    drawn = np.random.default_rng(0).random(shape, np.float32)
    peers = {"float32": fixed, "int8": int8_twin(fixed, {entry.name: drawn})} if timed else {}
    return NetworkFile("float32", path, peers, timed)


def trained(name: str, networks: Path, images: Path, work: Path) -> ComparedNetwork:
    """Return a network of `float_networks` with its quantized files, and files of others."""
    network = float_networks.NETWORKS[name](networks, images)
    files = [float_file(network.model, work / f"{name}.onnx")]
    for w, a in WIDTHS if name == "fashion" else FEW_WIDTHS:
        path = quantized(network.model, network.calibration, work / f"{name}_w{w}a{a}.onnx", w, a)
        files.append(NetworkFile(f"quantize, W{w}A{a}", path))
    for title, isa, cpu in SEARCHED:
        path = searched(network, work / f"{name}_searched_{cpu or isa}.onnx", isa, cpu)
        files.append(NetworkFile(f"quantize, {title}", path))
    for w, a in TUNED_WIDTHS if network.training is not None else ():
        tuning = {"labels": network.classes, "finetune": FineTuning(steps=STEPS), "finetune_data": network.training}
        path = quantized(network.model, network.calibration, work / f"{name}_w{w}a{a}_tuned.onnx", w, a, **tuning)
        files.append(NetworkFile(f"quantize and fine-tune, W{w}A{a}", path))
    tiny = {"resnet8": "pretrainedResnet_quant", "keywords": "kws_ref_model"}
    if name in tiny:
        files.append(NetworkFile("int8 as published", networks / "mlperf_tiny" / f"{tiny[name]}.tflite"))
    else:
        for path in sorted((networks / "fashion").glob("fmnist_a*_qonnx.onnx")):
            bits = path.stem.removeprefix("fmnist_").removesuffix("_qonnx").upper()
            if not bits.startswith("A1"):  # whose quantizers of activations are wrong as exported
                files.append(NetworkFile(f"trained with Brevitas, {bits[2:]}{bits[:2]}", path))
    about = f"{network.about} Quantized by {network.data}.".lstrip()
    if network.training is not None:
        about += (
            f" Fine-tuned in {STEPS:,} steps on all {len(network.training):,} training images, without their classes."
        )
    return ComparedNetwork(name, network.title, about, files, feeds(network.model, network.test), network.test_classes)


def visual_wake_words(networks: Path, images: Path, work: Path) -> ComparedNetwork:
    """Return the visual wake words network of MLPerf Tiny, on enlarged images of CIFAR-10."""
    folder = networks / "mlperf_tiny"
    small = np.load(folder / "cifar10_test_1000.npz")["images"][:: 1000 // IMAGES]
    large = small.repeat(SIDE // 32, 1).repeat(SIDE // 32, 2).transpose(0, 3, 1, 2).astype(np.float32) / 255
    model = tflite_floats.onnx_of(folder / "vww_96_float.tflite")
    files = [float_file(model, work / "vww.onnx"), NetworkFile("int8 as published", folder / "vww_96_int8.tflite")]
    about = f"Compared with the float network on {IMAGES} enlarged images of CIFAR-10, which show no persons."
    return ComparedNetwork("vww", "Visual wake words", about, files, feeds(model, large))


def anomaly_detection(networks: Path, images: Path, work: Path) -> ComparedNetwork:
    """Return the anomaly detection network of MLPerf Tiny, on random spectra."""
    folder = networks / "mlperf_tiny"
    x = np.random.default_rng(0).normal(-20, 12, (FRAMES, BINS)).astype(np.float32)
    model = tflite_floats.onnx_of(folder / "ad01_fp32.tflite")
    files = [
        float_file(model, work / "ad01.onnx"),
        NetworkFile("int8 as published", folder / "ad01_int8.tflite"),
    ]
    about = f"Outputs compared with the float network's on {FRAMES} random inputs; there is no sound here."
    return ComparedNetwork("ad01", "Anomaly detection", about, files, feeds(model, x), has_classes=False)


def topology(name: str, _networks: Path, _images: Path, work: Path) -> ComparedNetwork:
    """Return a network with random weights, in floats and as ONNX Runtime quantizes it."""
    paths = [work / f"{name}_{kind}.onnx" for kind in ("fp32", "int8")]
    if not all(path.is_file() for path in paths):
        for path, model in zip(paths, mobilenets.built(name), strict=True):
            onnx.save(model, path)
    files = [NetworkFile(title, path, timed=False) for title, path in zip(("float32", "int8"), paths, strict=True)]
    size = mobilenets.SIZES[name]
    about = f"Random weights, {size} x {size} pixels; int8 by ONNX Runtime's `quantize_static`."
    return ComparedNetwork(name, name, about, files)
