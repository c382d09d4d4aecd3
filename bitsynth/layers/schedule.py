"""The schedule of a layer: its kernel, the source of its rows, the order of its loops. It changes no result."""

from __future__ import annotations

from typing import Any

import msgspec

from bitsynth.emit.runtime_abi import CONV_ALGORITHM, Number
from bitsynth.errors import SpecError
from bitsynth.isa.load import load_table, names
from bitsynth.kernel.program import BIT_AXES
from bitsynth.printable import count
from bitsynth.spec.options import METHODS, SKETCHES, KernelOptions

OPERANDS = ("8x8", "8x4", "8x2", "4x8", "2x8")
"""Bits of activations, unsigned or bipolar, and of signed weights whose kernels a layer of fewer bits may have."""
CONV_ALGORITHMS = CONV_ALGORITHM.words
DEPTHWISE = "depthwise"
"""The method of layers with few channels a group: channels in lanes, no tiles."""


def gathers(*, pairs: bool) -> tuple[str, ...]:
    """Return the algorithms for a kernel; with `pairs` not indirect: neighbours of pixels there may be padding."""
    return ("direct", "im2col") if pairs else CONV_ALGORITHMS


class LayerSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A point of the schedule space.

    Attributes:
        isa: The instruction set of the kernel.
        method: The method of the kernel: it packs K into lanes (popcount) or output channels (the others). A
            "depthwise" kernel has no tiles: nothing below but `isa` and `channels` concerns it.
        channels: The tile (`KernelOptions.channels`), or channels of a register.
        gather: The convolution's algorithm: rows are read from the padded image (direct), from the image and one
            pixel of padding (indirect) or from copied patches (im2col).
        rows: Rows of the tile that are used, 0 for all.
        columns_first: Whether tiles go over all pixels of a block for the same output channels, else over the
            channels first.
        block_rows: Pixels of a block, 0 for all.
        band_rows: Output rows of a band, 0 for all: bands are packed and computed one after the other.
        sketch: The kernel's sketch (`KernelOptions.sketch`).
        flush_steps: Steps of K after which sums go to memory, 0 for as rarely as the proof allows.
        unroll: Times that the loop over K is unrolled, 0 for as often as the compiler likes.
        bit_axis: The place of planes of activations and weights, for methods that read planes.
        operands: Bits of the kernel's activations and weights if they are more than the layer's, such as "8x8".
        k_step: Positions of K that a step of the kernel takes (`KernelOptions.k_step`), 0 for as many as is usual.
        model: What its kernel is cheapest in (`KernelOptions.model`): a processor that has it to itself, or "ops".

    Raises:
        SpecError: A value is not one of these.
    """

    isa: str
    method: str
    channels: int
    gather: str
    rows: int = 0
    columns_first: bool = False
    block_rows: int = 0
    band_rows: int = 0
    sketch: str = "exact"
    flush_steps: int = 0
    unroll: int = 0
    bit_axis: str = "inner"
    operands: str = ""
    k_step: int = 0
    model: str = "ops"

    def __post_init__(self) -> None:
        _one_of("method", self.method, (*METHODS, DEPTHWISE))
        _one_of("gather", self.gather, CONV_ALGORITHMS)
        _one_of("sketch", self.sketch, SKETCHES)
        _one_of("bit axis", self.bit_axis, BIT_AXES)
        _one_of("operands", self.operands, ("", *OPERANDS))
        if type(self.columns_first) is not bool:
            raise SpecError(f"columns_first of a schedule must be True or False, not {self.columns_first!r}")
        models = ("ops", *load_table(self.isa).cpu) if self.isa in names() else ("ops",)
        _one_of("model", self.model, models)
        for name in ("channels", "rows", "block_rows", "band_rows", "flush_steps", "unroll", "k_step"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value < 1 << 24:
                raise SpecError(f"{name} of a schedule must be a whole number from 0 to {(1 << 24) - 1}, not {value!r}")

    @property
    def kernel_options(self) -> KernelOptions:
        """The options that find its kernel; SpecError if they do not go together."""
        own = self.model if self.model != "ops" else ""
        return KernelOptions(self.method, self.sketch, own, self.channels, self.k_step)

    def among(self, threads: int, rows: int) -> LayerSchedule:
        """Return the schedule with bands of the `rows` output rows, so that each of `threads` packs the rows it reads.

        Only if all threads have as much to do, or if each input is packed for one output (im2col) and at
        least seven eighths as much: else threads pack together, then compute together.
        """
        share = -(-rows // threads)
        idle = share * threads - rows
        if threads == 1 or self.gather == "indirect" or idle > (share * threads // 8 if self.gather == "im2col" else 0):
            return self
        return msgspec.structs.replace(self, band_rows=min(share, self.band_rows or share))

    def numbers(self) -> dict[str, Number]:
        """Return the numbers of the C runtime."""
        return {
            "conv_algorithm": self.gather,
            "columns_first": int(self.columns_first),
            "block_rows": self.block_rows,
            "band_rows": self.band_rows,
        }

    def __str__(self) -> str:
        if self.method == DEPTHWISE:
            return f"{self.isa} {self.method}, {self.channels} channels in lanes"
        order = "columns first" if self.columns_first else "pixels first"
        blocks = f", blocks of {count(self.block_rows, 'pixel')}" if self.block_rows else ""
        bands = f", bands of {count(self.band_rows, 'row')}" if self.band_rows else ""
        rows = f", {count(self.rows, 'row')}" if self.rows else ""
        sketch = f" of the {self.sketch} sketch" if self.sketch != "exact" else ""
        flushes = f", a flush every {count(self.flush_steps, 'step')}" if self.flush_steps else ""
        unrolled = f", unrolled {count(self.unroll, 'time')}" if self.unroll else ""
        planes = f", {self.bit_axis} bit axis" if self.bit_axis != "inner" else ""
        operands = f" of {self.operands} bits" if self.operands else ""
        steps = f" in steps of {self.k_step}" if self.k_step else ""
        own = f" of the {self.model}'s own" if self.model != "ops" else ""
        kernel = f"{self.isa} {self.method}{own}{steps}{operands}{sketch}{rows}{flushes}{unrolled}{planes}"
        return f"{kernel}, {self.gather}, {order}{blocks}{bands}"


def _one_of(noun: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SpecError(f"unknown {noun} {value!r} of a schedule; known: {', '.join(known)}")
