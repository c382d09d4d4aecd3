"""What a runner is given, as one file.

Little-endian 64-bit words. The head: the bytes "bsjob 1" and a zero, the file's size, threads, repeats (0: check
only), layers, words of a row. Then a row a layer: number of the kernel; where constants and input start in the file;
bytes and CRC-32 of the right output; 1 if a float convolution is to be timed beside it; its sizes (`struct bs_fp32`);
the layer's numbers (`emit.layer`). Constants and inputs follow, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.layers import Conv2d

_MAGIC = b"bsjob 1\0"
_ALIGN = 64
_HEAD_WORDS = 6


@dataclass(frozen=True, eq=False)
class Work:
    """A layer, the codes it is to be run on, and their right output, as this machine finds it."""

    name: str
    layer: Conv2d
    codes: NDArray[Any]
    output: NDArray[Any]

    @classmethod
    def of(cls, name: str, layer: Conv2d, codes: NDArray[Any]) -> Work:
        """`codes` as `Conv2d.run` takes them; run here, under an emulator where need be."""
        return cls(name, layer, np.ascontiguousarray(codes), layer.run(codes))


def pack(work: Sequence[Work], kernels: Sequence[str], threads: int, repeats: int) -> bytes:
    """The file for `work`, whose kernels a runner has in the order of `kernels`."""
    blobs: list[NDArray[Any]] = [x for w in work for x in (w.layer.described(w.codes)[1], w.codes)]
    row_words = len(_row(work[0], kernels, 0, 0))
    at = _aligned(8 * (_HEAD_WORDS + len(work) * row_words))
    starts = []
    for blob in blobs:
        starts.append(at)
        at += _aligned(blob.nbytes)
    head = np.array([at, threads, repeats, len(work), row_words], "<i8")
    rows = [np.array(_row(w, kernels, *starts[2 * i : 2 * i + 2]), "<i8") for i, w in enumerate(work)]
    parts = [_MAGIC + head.tobytes() + b"".join(row.tobytes() for row in rows), *(b.tobytes() for b in blobs)]
    return b"".join(part.ljust(_aligned(len(part)), b"\0") for part in parts)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _row(w: Work, kernels: Sequence[str], constants_at: int, input_at: int) -> list[int]:
    g, (numbers, _) = w.layer.geometry, w.layer.described(w.codes)
    batch, height, width = (int(n) for n in numbers[-3:])
    sizes = [height, width, g.in_channels, g.out_channels, *g.kernel, *g.stride, *g.dilation, *g.padding]
    output = w.output.tobytes()
    has_float = int(g.groups == batch == 1)
    head = [kernels.index(w.layer.kernel.name), constants_at, input_at, len(output), zlib.crc32(output), has_float]
    return [*head, *sizes, *(int(n) for n in numbers)]
