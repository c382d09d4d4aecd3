"""Fashion-MNIST: 60,000 pictures to train with, 10,000 to test, 28 x 28 grey pixels in ten classes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

INSTALLED = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package puts the four files."""
GET = """\
    apt-get install dataset-fashion-mnist
or, without being root,
    apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*.deb fashion-mnist
    and --data fashion-mnist/usr/share/datasets/fashion-mnist"""
_HEADER = {"images": (2051, 16), "labels": (2049, 8)}
"""First number of a file, and at which byte its elements begin."""


def pictures(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures (N, 28, 28) and labels (N,) of the `part` "train" or "t10k". FileNotFoundError says how to get them."""
    x, labels = _elements(folder, part, "images"), _elements(folder, part, "labels")
    return x.reshape(len(labels), 28, 28), labels


def scaled(x: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What a network takes: (N, 1, 28, 28), 0 to 1."""
    return x[:, None].astype(np.float32) / np.float32(255)


def _elements(folder: Path, part: str, kind: str) -> NDArray[Any]:
    stem = f"{part}-{kind}-idx{3 if kind == 'images' else 1}-ubyte"
    magic, begin = _HEADER[kind]
    for path, opened in ((folder / stem, open), (folder / f"{stem}.gz", gzip.open)):
        if path.is_file():
            with opened(path, "rb") as file:
                data = file.read()
            if int.from_bytes(data[:4], "big") != magic:
                raise ValueError(f"{path} holds no {kind} in the format of MNIST; get the files again:\n{GET}")
            return np.frombuffer(data, np.uint8, offset=begin)
    raise FileNotFoundError(f"Fashion-MNIST is not in {folder}: there is no {stem}.gz. To get it:\n{GET}")
