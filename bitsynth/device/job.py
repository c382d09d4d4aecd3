"""The job of a board's runner, as one file.

Little-endian 64-bit words: a head (`HEAD`), then a row a layer (`ROW`, the sizes `FP32`, the layer's numbers as
`runtime_abi.described` has them). Constants, inputs and residuals follow, each at a multiple of 64 bytes.
`board/bs_board.c` reads it with structs of the same fields, which a test compares.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.device.program import Program
from bitsynth.emit.runtime_abi import shape_of
from bitsynth.layers import Conv2d
from bitsynth.layers.geometry import Geometry

MAGIC = b"bsjob 3\0"
HEAD = ("magic", "size", "threads", "repeats", "layers", "row_words", "together", "sample_ns")
"""`size` of the file in bytes; `repeats` 0: check only; `together` layers in a row are timed in turn."""
ROW = ("kernel", "constants_at", "input_at", "residual_at", "output_bytes", "crc", "with_fp32")
"""Number of the kernel, places in the file (0: no residual), the right output, 1 to time a float convolution too."""
FP32 = (
    *("height", "width", "in_channels", "out_channels", "kernel_h", "kernel_w", "stride_h", "stride_w"),
    *("dilation_h", "dilation_w", "pad_top", "pad_left", "pad_bottom", "pad_right"),
)
"""Sizes of that convolution (`struct bs_fp32`)."""
NO_THREADS = 13
"""The exit code of the runner if it cannot have threads."""
_ALIGN = 64


@dataclass(frozen=True)
class Sampling:
    """`repeats` samples of every layer, none: check only.

    `together` layers in a row are timed alternately. A sample is as many calls as take `sample_ns`, at least one. With
    `times_float` each layer alternates with a float convolution.
    """

    repeats: int
    together: int = 1
    sample_ns: int = 0
    times_float: bool = True

    def numbers(self) -> dict[str, int]:
        """Return the fields of the job's head."""
        return {"repeats": self.repeats, "together": self.together, "sample_ns": self.sample_ns}


@dataclass(frozen=True, eq=False)
class Work:
    """A layer, its input codes, a residual if any, and the expected output, which this machine computes."""

    name: str
    layer: Conv2d
    codes: NDArray[Any]
    output: NDArray[Any]
    residual: NDArray[Any] | None = None

    @classmethod
    def of(cls, name: str, layer: Conv2d, codes: NDArray[Any], residual: NDArray[Any] | None = None) -> Work:
        """Return the work of `layer` on operands as `Conv2d.run` takes them; run here, under an emulator if need be."""
        results = layer.run(codes, residual=residual)
        more = None if residual is None else np.ascontiguousarray(residual)
        return cls(
            name, layer, np.ascontiguousarray(codes), results[0] if isinstance(results, tuple) else results, more
        )

    @property
    def blobs(self) -> tuple[NDArray[Any], ...]:
        """The arrays that the file holds for it: constants, input, and a residual, which may be empty."""
        none = np.zeros(0, np.uint8)
        return self.layer.describe(self.codes)[1], self.codes, none if self.residual is None else self.residual


def pack(work: Sequence[Work], program: Program, threads: int, sampling: Sampling) -> bytes:
    """Return the bytes of the file for `work`, whose kernels are the program's."""
    blobs: list[NDArray[Any]] = [x for w in work for x in w.blobs]
    row_words = len(ROW) + len(FP32) + len(work[0].layer.describe(work[0].codes)[0])
    at = _align(8 * (len(HEAD) + len(work) * row_words))
    starts = []
    for blob in blobs:
        starts.append(at)
        at += _align(blob.nbytes)
    head = {"size": at, "threads": threads, "layers": len(work), "row_words": row_words, **sampling.numbers()}
    words = [head[field] for field in HEAD[1:]]
    for w, *places in zip(work, starts[::3], starts[1::3], starts[2::3], strict=True):
        at_places = dict(zip(ROW[1:4], places, strict=True))
        own = {"kernel": program.number(w.layer), **at_places}
        own["residual_at"] *= w.residual is not None
        words += _row(w, own, sampling.times_float)
    parts = [MAGIC + np.array(words, "<i8").tobytes(), *(b.tobytes() for b in blobs)]
    return b"".join(part.ljust(_align(len(part)), b"\0") for part in parts)


def _align(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _row(w: Work, own: dict[str, int], times_float: bool) -> list[int]:
    """Return a row, whose `own` fields say where the layer's kernel, constants and input are."""
    g, (numbers, _) = w.layer.geometry, w.layer.describe(w.codes)
    batch, height, width = shape_of(numbers)
    output = w.output.tobytes()
    has_float = int(times_float and g.groups == batch == 1)
    fields = {**own, "output_bytes": len(output), "crc": zlib.crc32(output), "with_fp32": has_float}
    return [*(fields[f] for f in ROW), *float_sizes(g, height, width), *(int(n) for n in numbers)]


def float_sizes(geometry: Geometry, height: int, width: int) -> list[int]:
    """Return the sizes of a float convolution on such an image (`struct bs_fp32`)."""
    channels = {"in_channels": geometry.in_channels, "out_channels": geometry.out_channels}
    sizes = {"height": height, "width": width, **channels, **geometry.window()}
    return [sizes[field] for field in FP32]
