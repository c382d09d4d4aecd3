"""C around a layer: the kernel as the runtime takes it, and calls described by numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth import runtime
from bitsynth.emit.kernel import render
from bitsynth.emit.packing import row_affines
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel
from bitsynth.spec.matmul import MatmulSpec

NUMBERS: tuple[tuple[str, str], ...] = (
    *((name, "size_t") for name in ("groups", "in_channels", "out_channels", "kernel_h", "kernel_w")),
    *((name, "size_t") for name in ("stride_h", "stride_w", "dilation_h", "dilation_w")),
    *((name, "size_t") for name in ("pad_top", "pad_left", "pad_bottom", "pad_right", "act_bits", "pad_code")),
    *((name, "size_t") for name in ("factor", "shift", "multiplier_shift", "out_bits", "threshold_count")),
    ("in_layout", "enum bs_layout"),
    ("out_layout", "enum bs_layout"),
    ("epilogue", "enum bs_epilogue"),
    ("gather", "enum bs_gather"),
    *((name, "size_t") for name in ("columns_first", "block_rows", "band_rows")),
)
"""The numbers of `struct bs_layer` and their C types."""

ARRAYS: tuple[tuple[str, str], ...] = (
    ("weights", "uint8_t"),
    ("start", "int32_t"),
    ("affine", "int32_t"),
    ("padding", "int32_t"),
    ("scale", "float"),
    ("bias", "float"),
    ("multiplier", "int32_t"),
    ("thresholds", "int32_t"),
)
"""The arrays of `struct bs_layer` and their C types."""


def kernel_header(kernel: Kernel, spec: MatmulSpec) -> dict[str, str]:
    """The header that says what `bs_layer` needs of a kernel."""
    name = str(KernelName.of(kernel, spec))
    values: dict[str, Any] = {
        "name": name,
        "column_bytes": kernel.column_bytes,
        "slack": load(kernel.isa).word.lanes,
        "planes_apart": int(kernel.bit_axis == "outer"),
        "has_row_term": kernel.has_row_terms,
        "has_row_affine": row_affines(kernel, spec) != 0,
    }
    return {f"{name}_layer.h": render("layer_kernel.h.j2", values)}


def call_source(name: str) -> dict[str, str]:
    """C that runs any layer around the kernel `name`, as an array of numbers describes it."""
    values: dict[str, Any] = {
        "name": name,
        "numbers": [field for field, _ in NUMBERS],
        "casts": NUMBERS,
        "arrays": ARRAYS,
    }
    return {f"{name}_layer_call.c": render("layer_call.c.j2", values)}


def board_source(names: Sequence[str]) -> dict[str, str]:
    """The table of kernels of a board's runner."""
    return {"bs_kernels.c": render("board_kernels.c.j2", {"names": names})}


def runtime_files(*, threads: bool) -> dict[str, str]:
    """The runtime's own files; the pool only where there are `threads`."""
    folder = Path(runtime.__file__).parent
    files = sorted(p for p in folder.iterdir() if p.suffix in (".c", ".h"))
    return {p.name: p.read_text(encoding="utf-8") for p in files if threads or p.name != "bs_pool.c"}
