"""Fields of `struct bs_glue` (`runtime/bs_glue.h`) that Python fills; `runtime_abi` has the fields of layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.runtime_abi import LAYOUT, CEnum, Number
from bitsynth.spec import glue

INPUTS = 4
"""The most inputs of a layer of glue."""
OP = CEnum(
    "enum bs_glue_op",
    {
        "max pool": "BS_MAX_POOL",
        "mean pool": "BS_MEAN_POOL",
        "pad": "BS_PAD",
        "resize": "BS_RESIZE",
        "blocks": "BS_BLOCKS",
        "lookup": "BS_LOOKUP",
        "concat": "BS_CONCAT",
        "add": "BS_ADD",
        "quantize": "BS_QUANTIZE",
        "dequantize": "BS_DEQUANTIZE",
    },
)
"""The operations of glue."""
ROUNDING = CEnum("enum bs_rounding", {"even": "BS_TO_EVEN", "up": "BS_HALF_UP", "down": "BS_DOWN"})
"""How a quotient is rounded: half to even, half up, or down."""
PROGRAM = CEnum("enum bs_elements", {spec.name: f"BS_{spec.name.upper()}" for spec in glue.every()})
"""The programs on elements, by the names of their specs."""
ENUMS = {"op": OP, "program": PROGRAM, "in_layout": LAYOUT, "out_layout": LAYOUT, "rounding": ROUNDING}
"""The fields of `struct bs_glue` that are enums."""
OF_INPUTS = ("channels", "bits", "last")
"""Fields with one number for each input."""
_SIGNED = ("factor", "summand", "divisor", "zero_point")
_FIELDS = (
    *("op", "inputs"),
    *(f"{name}[{i}]" for name in OF_INPUTS for i in range(INPUTS)),
    *("in_layout", "out_layout", "out_channels", "out_bits", "out_last", "words"),
    *("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w"),
    *("pad_top", "pad_left", "pad_bottom", "pad_right", "whole_image", "most_pixels", "rounding"),
    *("size_h", "size_w", "scale_h", "scale_w", "centers", "block", "channel_apart", "pixel_apart"),
    *("program", "factor", "summand", "divisor"),
    *("whole_sums", "out_first", "zero_point", "period", "table_count"),
)


def _ctype(name: str) -> str:
    if name in ENUMS:
        return ENUMS[name].ctype
    return "int64_t" if name in _SIGNED else "size_t"


NUMBERS = tuple((name, _ctype(name)) for name in _FIELDS)
"""The numbers of `struct bs_glue` and their C types."""
ARRAYS = (("tables", "uint8_t"), ("numbers", "uint8_t"), ("fill", "uint8_t"), ("scale", "float"))
"""The arrays of `struct bs_glue` and the C types of their elements."""
CALL = ("batch", "height", "width", "arena_bytes", "times")
"""The numbers of a call: its inputs' shape, its arena, and how often it runs."""
ALIGN = 64


@dataclass(frozen=True, eq=False)
class GlueConstants:
    """Numbers and arrays of `struct bs_glue`, by name; fields left out are 0, the first enumerator, or NULL."""

    numbers: Mapping[str, Number]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def describe(self, call: tuple[int, ...]) -> NDArray[np.uint8]:
        """Return the memory that `bs_glue_described_run` reads: numbers of call and layer, array offsets, arrays."""
        size = 8 * (len(NUMBERS) + len(ARRAYS) + len(CALL))
        size += -size % ALIGN
        starts, parts = [], []
        for name, _ in ARRAYS:
            starts.append(size if name in self.arrays else -1)
            if name in self.arrays:
                raw = self.arrays[name].tobytes()
                parts.append(raw.ljust(-(-len(raw) // ALIGN) * ALIGN, b"\0"))
                size += len(parts[-1])
        head = np.array([*call, *self.sizes(), *starts], np.int64).tobytes()
        return np.frombuffer(head.ljust(-(-len(head) // ALIGN) * ALIGN, b"\0") + b"".join(parts), np.uint8)

    def sizes(self) -> list[int]:
        """Return the numbers in the order of NUMBERS."""
        return [_number(name, self.numbers.get(name, 0)) for name, _ in NUMBERS]


def _number(name: str, value: Number) -> int:
    return ENUMS[name].number(value) if isinstance(value, str) else int(value)


def c_value(name: str, value: Number) -> str:
    """Return the C text of a number of `struct bs_glue`."""
    if name in ENUMS:
        return ENUMS[name].enumerators[value if isinstance(value, str) else ENUMS[name].words[value]]
    return str(value)
