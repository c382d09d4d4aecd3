"""What a runner is given, as one file.

Little-endian 64-bit words. The head: the bytes "bsjob 2" and a zero, the file's size, threads, repeats (0: check
only), layers, words of a row, how many layers in a row are timed in turn, nanoseconds of a burst. Then a row a layer:
number of the kernel; where constants and input start in the file; bytes and CRC-32 of the right output; 1 if a float
convolution is to be timed beside it; its sizes (`struct bs_fp32`); the layer's numbers (`emit.layer`). Constants and
inputs follow, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.device.program import Program
from bitsynth.layers import Conv2d

_MAGIC = b"bsjob 2\0"
_ALIGN = 64
_HEAD_WORDS = 8
_OWN_WORDS = 3
"""Of a row: number of the kernel and two starts."""


@dataclass(frozen=True)
class Sampling:
    """`repeats` samples of every layer, none: check only.

    `together` layers in a row take turns. A sample is of as many calls as take `burst_ns`, of one at least. A float
    convolution takes turns with each layer if `beside_float`.
    """

    repeats: int
    together: int = 1
    burst_ns: int = 0
    beside_float: bool = True


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


def pack(work: Sequence[Work], program: Program, threads: int, sampling: Sampling) -> bytes:
    """The file for `work`, whose kernels are the program's."""
    blobs: list[NDArray[Any]] = [x for w in work for x in (w.layer.described(w.codes)[1], w.codes)]
    tails = [_tail(w, sampling.beside_float) for w in work]
    row_words = _OWN_WORDS + len(tails[0])
    at = _aligned(8 * (_HEAD_WORDS + len(work) * row_words))
    starts = []
    for blob in blobs:
        starts.append(at)
        at += _aligned(blob.nbytes)
    words = [at, threads, sampling.repeats, len(work), row_words, sampling.together, sampling.burst_ns]
    for i, (w, tail) in enumerate(zip(work, tails, strict=True)):
        words += [program.number(w.layer.kernel), *starts[2 * i : 2 * i + 2], *tail]
    parts = [_MAGIC + np.array(words, "<i8").tobytes(), *(b.tobytes() for b in blobs)]
    return b"".join(part.ljust(_aligned(len(part)), b"\0") for part in parts)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _tail(w: Work, beside_float: bool) -> list[int]:
    """A row from its output on."""
    g, (numbers, _) = w.layer.geometry, w.layer.described(w.codes)
    batch, height, width = (int(n) for n in numbers[-3:])
    sizes = [height, width, g.in_channels, g.out_channels, *g.kernel, *g.stride, *g.dilation, *g.padding]
    output = w.output.tobytes()
    has_float = int(beside_float and g.groups == batch == 1)
    return [len(output), zlib.crc32(output), has_float, *sizes, *(int(n) for n in numbers)]
