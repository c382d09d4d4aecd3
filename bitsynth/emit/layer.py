"""Self-contained C files of a layer: constants, kernel, runtime, self-test, example, CMake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit import plain
from bitsynth.emit.c_names import POOL, list_functions, rename_symbols, require_name
from bitsynth.emit.initializers import dense_words, elements, int32_text, stored_ctype
from bitsynth.emit.kernel import value_text
from bitsynth.emit.layer_program import LayerPrograms, program_source
from bitsynth.emit.render import render
from bitsynth.emit.runtime_abi import ARRAYS, Number, c_value, with_defaults
from bitsynth.emit.runtime_files import runtime_files
from bitsynth.emit.self_test import SelfTestLayer
from bitsynth.files import mark
from bitsynth.isa.load import Requirements
from bitsynth.kernel.elementwise.program import LEAST_UNIT
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulSpec


class KernelSource(Protocol):
    """The C of a proved kernel of any kind, as layers call it."""

    @property
    def name(self) -> str:
        """The name in C."""

    @property
    def field(self) -> str:
        """The field of `struct bs_layer` that points to the kernel."""

    @property
    def header(self) -> str:
        """The C header."""

    @property
    def source(self) -> str:
        """The C source."""

    @property
    def features(self) -> str:
        """The C source that asks the processor for the features it needs."""

    @property
    def layer_header(self) -> dict[str, str]:
        """The header that declares the kernel's functions for layers, by file name."""

    @property
    def needs(self) -> Requirements:
        """The requirements on compiler and processor."""


@dataclass(frozen=True, eq=False)
class LayerText:
    """The C of a layer called `name`: its kernel, numbers and arrays of `struct bs_layer`, and its self-test.

    `cpu` is the processor that it was chosen for, and `command` the command that writes these files; "" if there is
    none.
    """

    name: str
    kernel: KernelSource
    spec: MatmulSpec
    numbers: Mapping[str, Number]
    arrays: Mapping[str, NDArray[Any]]
    tested: SelfTestLayer
    programs: LayerPrograms = field(default_factory=LayerPrograms)
    cpu: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        require_name(self.name)

    def files(self) -> dict[str, str]:
        """Return file names and texts, each text with the mark of a generated file."""
        values = self.values
        return self._mark(
            {
                f"{self.name}_selftest.c": render("layer_selftest.c.j2", values),
                "main.c": render("layer_main.c.j2", values),
                "CMakeLists.txt": render("layer_cmake.j2", values),
            }
        )

    def library(self) -> dict[str, str]:
        """Return the files without self-test, example and CMakeLists.txt."""
        return self._mark({})

    def _mark(self, around: Mapping[str, str]) -> dict[str, str]:
        """Return the layer's own files, files it shares with others, renamed, and those `around` it."""
        kernel, runtime, values = self.kernel, runtime_files(threads=True), self.values
        shared = {
            f"{kernel.name}.h": kernel.header,
            f"{kernel.name}.c": kernel.source,
            f"{kernel.name}_features.c": kernel.features,
            **kernel.layer_header,
            **program_source(kernel.name, self.programs),
            **runtime,
        }
        own = {
            f"{self.name}.h": render("layer.h.j2", values),
            f"{self.name}.c": render("layer.c.j2", values),
            **around,
        }
        files = own | shared
        names = list_functions(shared) + re.findall(rf"\b{kernel.name}\w*", "".join(files.values()))
        return mark(files | rename_symbols(self.name, files, names))

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of the templates of a layer."""
        kernel, runtime = self.kernel, runtime_files(threads=True)
        codes, per_word = dense_words(self.tested.weight, self.spec.wgt.bits)
        numbers = with_defaults(self.numbers)
        return {
            "name": self.name,
            "guard": f"{self.name.upper()}_H",
            "kernel_name": kernel.name,
            "kernel_field": kernel.field,
            "programs": list(self.programs.by_field),
            "spec": self.spec,
            "cpu": self.cpu,
            "command": self.command,
            "refuses_codes": refuses_codes(self.spec.act.codes[-1], self.spec.act.bits, numbers["in_layout"]),
            "act_value": value_text(self.spec.act),
            "zero_point": self.tested.zero_point,
            "added": [int32_text(int(x)) for x in self.tested.bias] if self.tested.bias.any() else [],
            "wgt_value": value_text(self.spec.wgt),
            "n": numbers,
            "result_ctype": _ctype(self.tested.epilogue.out),
            "residual": _ctype(self.tested.epilogue.residual) if self.tested.epilogue.residual else "",
            "kept": _ctype(self.tested.epilogue.kept),
            "self_test": self._self_test,
            "fields": [(field, c_value(field, value)) for field, value in numbers.items()],
            "arrays": _initializers(self.arrays),
            "codes": codes,
            "codes_per_word": per_word,
            "plain": [f"{self.name}.c", f"{kernel.name}_features.c", POOL],
            "parts": [{"of": "", "sources": self._sources(runtime), "cc_flags": kernel.needs.cc_flags}],
            "folders": [],
            "processors": {},
            "example": True,
            "image": [self._test_size(way) for way in ("h", "w")],
        }

    @property
    def _self_test(self) -> dict[str, Any]:
        """The functions of the self-test, and the columns of their units."""
        epilogue = self.tested.epilogue
        named = {"with_residual": epilogue.added, "wanted": epilogue.program}
        functions = {name: program.text(name) for name, program in named.items() if program}
        columns = -(-len(self.tested.bias) // LEAST_UNIT) * LEAST_UNIT
        return {"functions": functions, "columns": columns, "header": plain.HEADER}

    def _sources(self, runtime: Iterable[str]) -> list[str]:
        """Return the files that are compiled with the flags of the kernel's instruction set."""
        name = self.kernel.name
        programs = (f"{name}_{program}.c" for program in self.programs.by_field)
        return [f"{name}.c", *programs, *sorted(f for f in runtime if f.endswith(".c") and f != POOL)]

    def _test_size(self, way: str) -> int:
        """Return an image height or width with five windows, at the edges and away from them."""
        edges = ("pad_top", "pad_bottom") if way == "h" else ("pad_left", "pad_right")
        names = *(f"{field}_{way}" for field in ("kernel", "dilation", "stride")), *edges
        kernel, dilation, stride, before, behind = (int(self.numbers[name]) for name in names)
        return max(1, dilation * (kernel - 1) + 1 - before - behind) + 4 * stride


def refuses_codes(last: int, bits: int, layout: Number) -> bool:
    """Return whether memory can hold a code beyond the `last`: bytes have 8 bits, packed words the code's `bits`."""
    return last + 1 < 1 << (bits if layout == Layout.PACKED else 8)


def _initializers(arrays: Mapping[str, NDArray[Any]]) -> list[tuple[str, str, str, list[str]]]:
    """Return for each array its name, its C type, the C type that it is written as, and its elements."""
    return [(n, c, stored_ctype(c), elements(arrays[n], stored_ctype(c))) for n, c in ARRAYS if n in arrays]


def _ctype(dtype: np.dtype[Any]) -> str:
    """Return the C type of elements."""
    return "float" if dtype.kind == "f" else f"{dtype.name}_t"
