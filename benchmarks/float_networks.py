"""Trained float networks with data that exist offline: calibration samples, and others by which they are judged.

| network | calibrated by | judged by |
|---|---|---|
| Fashion-MNIST, 16 products | 500 training images | the 10,000 test images |
| ResNet-8 of MLPerf Tiny | 200 CIFAR-10 test images, through JPEG | 800 others |
| keyword spotting of MLPerf Tiny | 300 words by a speech synthesizer (`spoken_words.py`) | 1,200 others |
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tflite_floats
from numpy.typing import NDArray

from bitsynth.errors import SpecError

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from fashion import data as fashion

FASHION_SAMPLES, RESNET8_SAMPLES, WORDS, OTHER_WORDS = 500, 200, 300, 1200
FASHION_IMAGES = fashion.INSTALLED
"""Where a package of Debian puts Fashion-MNIST."""
_SEED = 0


@dataclass(frozen=True)
class FloatNetwork:
    """A float network with one input and one output, whose first axis is open, and its data.

    Args:
        title: Its title.
        model: The ONNX model.
        calibration: The inputs that quantizers see.
        classes: Their classes.
        test: The inputs that it is judged by.
        test_classes: Their classes.
        data: Where the inputs are from.
        training: All inputs that the network was trained on; None where these are not here.
        about: The sentence that begins its section of results pages; may be empty.
    """

    title: str
    model: Any
    calibration: NDArray[np.float32]
    classes: NDArray[np.int64]
    test: NDArray[np.float32]
    test_classes: NDArray[np.int64]
    data: str
    training: NDArray[np.float32] | None = None
    about: str = ""


def fashion_network(networks: Path, images: Path) -> FloatNetwork:
    """Return the residual network of Fashion-MNIST, trained in floats."""
    try:
        (x, classes), (test, test_classes) = fashion.pictures(images, "train"), fashion.pictures(images, "t10k")
    except FileNotFoundError as error:
        raise SpecError(str(error)) from None
    chosen = np.random.default_rng(_SEED).permutation(len(x))[:FASHION_SAMPLES]
    return FloatNetwork(
        "Fashion-MNIST, 16 products",
        _open(onnx.load(networks / "fashion" / "fmnist_a32w32.onnx")),
        *_samples(fashion.scaled(x[chosen]), classes[chosen]),
        *_samples(fashion.scaled(test), test_classes),
        f"{FASHION_SAMPLES} training images; judged by the {len(test):,} test images",
        np.asarray(fashion.scaled(x), np.float32),
        "A residual network of 16 to 64 channels. `examples/fashion` has another one: 7 products, 64 channels.",
    )


def resnet8(networks: Path, images: Path) -> FloatNetwork:
    """Return ResNet-8 of MLPerf Tiny, whose inputs are bytes of images as floats."""
    folder = networks / "mlperf_tiny"
    file = np.load(folder / "cifar10_test_1000.npz")
    order = np.random.default_rng(_SEED).permutation(len(file["images"]))
    x, classes = file["images"][order].transpose(0, 3, 1, 2), file["labels"][order]
    k = RESNET8_SAMPLES
    return FloatNetwork(
        "ResNet-8",
        _open(tflite_floats.onnx_of(folder / "pretrainedResnet.tflite")),
        *_samples(x[:k], classes[:k]),
        *_samples(x[k:], classes[k:]),
        f"{k} CIFAR-10 test images, through JPEG; judged by {len(x) - k} others",
    )


def keyword_spotting(networks: Path, images: Path) -> FloatNetwork:
    """Return the keyword spotting network of MLPerf Tiny, with synthetic speech."""
    import spoken_words

    x, classes = spoken_words.spectra(WORDS + OTHER_WORDS)
    return FloatNetwork(
        "Keyword spotting",
        _open(tflite_floats.onnx_of(networks / "mlperf_tiny" / "kws_ref_model_float32.tflite")),
        *_samples(x[:WORDS], classes[:WORDS]),
        *_samples(x[WORDS:], classes[WORDS:]),
        f"{WORDS} words by a speech synthesizer, not the data set of the benchmark; judged by {OTHER_WORDS:,} others",
    )


NETWORKS: dict[str, Callable[[Path, Path], FloatNetwork]] = {
    "fashion": fashion_network,
    "resnet8": resnet8,
    "keywords": keyword_spotting,
}
"""Builds each network from the folder of networks and the folder of Fashion-MNIST."""


def _samples(x: NDArray[Any], classes: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    return x.astype(np.float32), classes.astype(np.int64)


def _open(model: Any) -> Any:
    """Return the model with an open first axis of its input and output."""
    for edge in (*model.graph.input, *model.graph.output):
        edge.type.tensor_type.shape.dim[0].dim_param = "samples"
    del model.graph.value_info[:]
    return model


def accuracy(outputs: NDArray[Any], classes: NDArray[np.int64]) -> float:
    """Return the share of samples whose greatest output is at their class."""
    return float((outputs.argmax(1) == classes).mean())
