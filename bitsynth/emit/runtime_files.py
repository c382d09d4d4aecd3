"""C around a layer: the kernel's description, calls described by numbers, and the files of the runtime."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bitsynth import runtime
from bitsynth.emit import glue_abi
from bitsynth.emit.correction_terms import has_row_terms, row_affines, row_terms, slope
from bitsynth.emit.packing import packing, packs_words
from bitsynth.emit.render import render
from bitsynth.emit.runtime_abi import ARRAYS, NUMBERS, SHAPE
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel
from bitsynth.spec.matmul import MatmulSpec

_GLUE = "bs_glue"
_SHARED = {"bs_call.h", "bs_layer.h", "bs_exact.h", "bs_plain.h", "bs_word.h", "bs_words.c"}
_SHARED |= {"bs_pool.c", "bs_pool.h"}
"""Files of the runtime that glue takes too."""
_NETWORK = {"bs_real.h", "bs_functions.h", "bs_erf.h", "bs_product.h", "bs_decide.h"}
"""Files of the runtime that only plain C of networks includes."""
_MATRICES = {"bs_matrices.c", "bs_matrices.h"}
"""Files of the runtime for products of matrices that are both given at run time, as networks alone have them."""
_ENCODER = ("bs_encode.c", "bs_encode.h", "bs_pool.h")


def kernel_header(kernel: Kernel, spec: MatmulSpec) -> dict[str, str]:
    """Return the header with the facts of a kernel that `bs_layer` needs."""
    name = str(KernelName.of(kernel, spec))
    values: dict[str, Any] = {
        "name": name,
        "act_bits": spec.act.bits,
        "column_bytes": kernel.column_bytes,
        "slack": load(kernel.isa).word.lanes,
        "planes_apart": int(kernel.bit_axis == "outer"),
        "has_row_term": has_row_terms(kernel, spec),
        "has_row_affine": row_affines(kernel, spec) != 0,
        "has_pack_words": packs_words(kernel),
        "pairs_rows": kernel.together > 1,
        "rows_of_words": packing(kernel).rows == "words",
        "code_factors": _code_factors(kernel, spec),
    }
    return {f"{name}_layer.h": render("layer_kernel.h.j2", values)}


def _code_factors(kernel: Kernel, spec: MatmulSpec) -> tuple[int, int] | None:
    """Return the factors of a row's sum of codes that give terms and affines, if packed rows are codes; else None."""
    terms = slope(row_terms(kernel, spec))
    if packing(kernel).rows != "bytes" or not packs_words(kernel) or terms is None or kernel.cross_terms:
        return None
    return terms, row_affines(kernel, spec)


def call_source(name: str, programs: Iterable[str] = (), field: str = "kernel") -> dict[str, str]:
    """Return C that runs any layer around the kernel `name`, a `field` of it, as an array of numbers describes it.

    `programs` are the fields of `struct bs_layer` that have one.
    """
    values: dict[str, Any] = {"name": name, "field": field, "programs": list(programs)}
    values |= {"numbers": NUMBERS, "arrays": ARRAYS, "shape": SHAPE}
    return {f"{name}_layer_call.c": render("layer_call.c.j2", values)}


def board_source(names: Sequence[str]) -> dict[str, str]:
    """Return the table of kernels of a board's runner."""
    return {"bs_kernels.c": render("board_kernels.c.j2", {"names": names})}


def glue_call_source() -> dict[str, str]:
    """Return C that runs any layer of glue, as an array of numbers describes it."""
    values: dict[str, Any] = {"numbers": glue_abi.NUMBERS, "arrays": glue_abi.ARRAYS, "call": glue_abi.CALL}
    return {"bs_glue_described.c": render("glue_call.c.j2", values)}


def encoder_files() -> dict[str, str]:
    """Return the runtime's files that make codes of values."""
    return {name: text for name, text in runtime_files(threads=False).items() if name in _ENCODER}


def runtime_files(*, threads: bool) -> dict[str, str]:
    """Return the runtime of convolutions; the pool only if there are `threads`."""
    others = _NETWORK | _MATRICES
    return {n: text for n, text in _files(threads).items() if not n.startswith(_GLUE) and n not in others}


def glue_files(*, threads: bool) -> dict[str, str]:
    """Return the runtime of glue; the pool only if there are `threads`."""
    return {n: text for n, text in _files(threads).items() if n.startswith(_GLUE) or n in _SHARED}


def network_files() -> dict[str, str]:
    """Return headers of the runtime that plain C of networks takes."""
    return {n: text for n, text in _files(threads=False).items() if n in _NETWORK or n == "bs_exact.h"}


def matrix_files() -> dict[str, str]:
    """Return the files of the runtime for products of two matrices that are given at run time."""
    return {n: text for n, text in _files(threads=False).items() if n in _MATRICES}


def _files(threads: bool) -> dict[str, str]:
    folder = Path(runtime.__file__).parent
    files = sorted(p for p in folder.iterdir() if p.suffix in (".c", ".h"))
    return {p.name: p.read_text(encoding="utf-8") for p in files if threads or p.name != "bs_pool.c"}
