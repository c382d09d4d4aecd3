"""Names in C: which a layer or network can have, and prefixes that keep two layers of one program apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bitsynth.emit.render import lay_out
from bitsynth.errors import SpecError
from bitsynth.isa.load import load_table
from bitsynth.isa.load import names as isa_names

POOL = "bs_pool.c"
"""The pool of threads, which all layers of a program share."""
_HEADERS = {
    "alloca", "assert", "complex", "cpuid", "ctype", "endian", "errno", "features", "fenv", "float",
    "immintrin", "inttypes", "iso646", "libintl", "limits", "locale", "malloc", "math", "memory", "pthread",
    "sched", "setjmp", "signal", "stdalign", "stdarg", "stdatomic", "stdbool", "stddef", "stdint", "stdio",
    "stdlib", "stdnoreturn", "string", "strings", "tgmath", "threads", "time", "uchar", "unistd", "wchar",
    "wctype", "x86intrin",
}  # fmt: skip
"""System headers, besides instruction sets' headers, that a layer's header of the same name would hide."""

_TARGETS = [
    "all",
    "clean",
    "depend",
    "edit_cache",
    "help",
    "install",
    "package",
    "package_source",
    "rebuild_cache",
    "test",
]
"""Targets that CMake adds to every build."""


def require_name(name: Any) -> None:
    """Raise SpecError unless `can_name` accepts the name of a layer or network."""
    if not can_name(name):
        raise SpecError(
            f"a layer cannot be named {name!r}, nor a network: want up to 64 letters, digits and _, a letter first, "
            "not main, bs, what starts with bs_, or the name of a system header or of a target that CMake has"
        )


def can_name(name: Any) -> bool:
    """Return whether a layer or network can have this name: an identifier that clashes with no other name."""
    if not isinstance(name, str) or name in ("main", "bs", *_HEADERS, *_TARGETS) or name.startswith("bs_"):
        return False
    if f"{name}.h" in {load_table(isa).header for isa in isa_names()}:
        return False
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name) is not None


def rename_symbols(name: str, files: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return a header that prefixes the C `names` with `name`, and the C files with an include of that header.

    Layers in one program have kernels and runtime functions of the same names, compiled with other options. The pool's
    functions keep their names: layers share them, and `bs_pool.c` defines them as weak symbols.
    """
    header = f"{name}_names.h"
    lines = [f"#define {old} {name}_{old}" for old in sorted({*names})]
    sources = {n: _including(header, text) for n, text in files.items() if n.endswith(".c") and n != POOL}
    about = "/* Names of this layer alone: include it before bs_layer.h. */"
    return {header: lay_out("\n".join([about, *lines, ""])), **sources}


def _including(header: str, text: str) -> str:
    """Return the text of a C file with an include of `header` at its top, below the comments on its licence."""
    top = re.match(r"(?:/\* SPDX-.* \*/\n)*", text)
    assert top is not None, "the pattern matches nothing too"
    return f'{top[0]}#include "{header}"\n{text[top.end() :]}'


def list_functions(files: Mapping[str, str]) -> list[str]:
    """Return the names of the runtime's functions, without the pool's, which layers share."""
    headers = (text for n, text in files.items() if n.endswith(".h") and not n.startswith("bs_pool"))
    return [name for text in headers for name in re.findall(r"\b(bs_\w+)\(", text)]
