"""Fields of `struct bs_layer` (`runtime/bs_layer.h`) that Python fills, calls or prints; a test compares both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitsynth.spec.layout import Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Number = int | str
"""A size, or Python's word for an enumerator."""


@dataclass(frozen=True)
class CEnum:
    """A C enum: its type, and its enumerators by Python's words, numbered from 0 in this order."""

    ctype: str
    enumerators: Mapping[str, str]

    @property
    def words(self) -> tuple[str, ...]:
        """Python's words, in the order of their numbers."""
        return tuple(self.enumerators)

    def number(self, word: str) -> int:
        """Return the number of the enumerator that `word` stands for."""
        return self.words.index(word)


LAYOUT = CEnum("enum bs_layout", {Layout.NHWC: "BS_NHWC", Layout.NCHW: "BS_NCHW", Layout.PACKED: "BS_PACKED"})
"""Layouts of activations in memory: channels last, channels first, or bits of 64 channels a word."""
CONV_ALGORITHM = CEnum(
    "enum bs_conv_algorithm", {"direct": "BS_DIRECT", "indirect": "BS_INDIRECT", "im2col": "BS_IM2COL"}
)
"""Sources of the rows of the microkernel: the padded image, the image and one pixel of padding, or copied patches."""
ENUMS = {"in_layout": LAYOUT, "out_layout": LAYOUT, "conv_algorithm": CONV_ALGORITHM}
"""The fields of `struct bs_layer` that are enums."""
_FIELDS = (
    *("groups", "in_channels", "out_channels", "out_places", "kernel_h", "kernel_w", "stride_h", "stride_w"),
    *("dilation_h", "dilation_w", "pad_top", "pad_left", "pad_bottom", "pad_right", "act_bits", "pad_code"),
    *("row_shift", "row_factor", "factor", "shift", "tap_parts", "out_bits", "in_layout", "out_layout"),
    *("joined_pixels", "conv_algorithm", "joined_taps", "columns_first", "block_rows", "band_rows"),
)
_SIGNED = ("row_factor",)
NUMBERS = tuple((n, ENUMS[n].ctype if n in ENUMS else "int32_t" if n in _SIGNED else "size_t") for n in _FIELDS)
"""The numbers of `struct bs_layer` and their C types."""
ARRAYS = (
    ("weights", "uint8_t"),
    ("start", "int32_t"),
    ("affine", "int32_t"),
    ("padding", "int32_t"),
    ("unit_constants", "uint8_t"),
    ("shared_constants", "uint8_t"),
    ("tail", "int32_t"),
    ("residual_constants", "uint8_t"),
    ("residual_shared", "uint8_t"),
)
"""The arrays of `struct bs_layer` and the C types of their elements."""
SHAPE = ("batch", "height", "width")
"""The numbers of `struct bs_shape`, all of them `size_t`."""
_DEFAULTS: dict[str, Number] = {name: ENUMS[name].words[0] if name in ENUMS else 0 for name, _ in NUMBERS}


def symbol(kernel: str, what: str) -> str:
    """Return the C function that runs ("run") or packs ("pack") any layer around `kernel`, or sizes its "arena"."""
    return f"{kernel}_layer_{what}"


def with_defaults(numbers: Mapping[str, Number]) -> dict[str, Number]:
    """Return all numbers of a layer: numbers that are not given are 0, or the first word."""
    return _DEFAULTS | dict(numbers)


def describe(numbers: Mapping[str, Number], starts: Mapping[str, int]) -> list[int]:
    """Return the numbers that describe a layer to the functions of `symbol`; the last three, the input's shape, are 0.

    `starts` are the offsets of arrays among the constants, in bytes; arrays without one are NULL.
    """
    given = with_defaults(numbers)
    sizes = [ENUMS[name].number(str(given[name])) if name in ENUMS else int(given[name]) for name, _ in NUMBERS]
    return [*sizes, *(starts.get(name, -1) for name, _ in ARRAYS), *(0 for _ in SHAPE)]


def shape_of(description: NDArray[np.int64]) -> tuple[int, int, int]:
    """Return the batch, height and width in the numbers of `described`."""
    batch, height, width = description[-len(SHAPE) :]
    return int(batch), int(height), int(width)


def c_value(field: str, value: Number) -> str:
    """Return a number of `struct bs_layer` as C text."""
    return ENUMS[field].enumerators[str(value)] if field in ENUMS else str(value)
