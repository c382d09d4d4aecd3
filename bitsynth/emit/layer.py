"""Self-contained C files of a layer: constants, kernel, runtime, self-test, example, CMake."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit import plain
from bitsynth.emit.kernel import value_text
from bitsynth.emit.layer_program import LayerPrograms, program_source
from bitsynth.emit.render import array, lay_out, render
from bitsynth.emit.runtime_abi import ARRAYS, Number, c_value, with_defaults
from bitsynth.emit.runtime_files import runtime_files
from bitsynth.errors import SpecError
from bitsynth.files import marked
from bitsynth.isa import architecture
from bitsynth.isa.load import Requirements, load_table
from bitsynth.isa.load import names as isa_names
from bitsynth.kernel.elementwise.constants import shared_numbers
from bitsynth.kernel.elementwise.program import LEAST_UNIT, PlainProgram
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulSpec

_WORD_BITS = 64
POOL = "bs_pool.c"
_HEADERS = {
    "alloca", "assert", "complex", "cpuid", "ctype", "endian", "errno", "features", "fenv", "float",
    "immintrin", "inttypes", "iso646", "libintl", "limits", "locale", "malloc", "math", "memory", "pthread",
    "sched", "setjmp", "signal", "stdalign", "stdarg", "stdatomic", "stdbool", "stddef", "stdint", "stdio",
    "stdlib", "stdnoreturn", "string", "strings", "tgmath", "threads", "time", "uchar", "unistd", "wchar",
    "wctype", "x86intrin",
}  # fmt: skip
"""System headers, besides those of instruction sets, that a layer's header of the same name would hide."""

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


@dataclass(frozen=True, eq=False)
class SelfTestProgram:
    """A spec as plain C, with the constants of all channels and the numbers that all elements share, as bytes."""

    program: PlainProgram
    constants: NDArray[np.uint8]
    shared: NDArray[np.uint8]

    @classmethod
    def of(cls, spec: ElementwiseSpec, inputs: Mapping[str, NDArray[Any]], channels: int) -> SelfTestProgram:
        """Return the program of a spec for `channels` channels, with its `inputs` by name."""
        program = PlainProgram(spec, LEAST_UNIT)
        own = {x.name: inputs[x.name] for x in spec.inputs if x.per == "channel"}
        return cls(program, program.pack(channels, own), shared_numbers(spec, inputs))

    def text(self, name: str) -> str:
        """Return its function `name`, and its arrays."""
        arrays = [
            array(f"static const uint64_t {name}_{kind}[{len(words)}]", words)
            for kind, data in (("constants", self.constants), ("shared", self.shared))
            for words in [elements(data, "uint64_t")]
        ]
        return "\n".join([*arrays, "", plain.function(self.program, name)])


@dataclass(frozen=True, eq=False)
class SelfTestEpilogue:
    """The epilogue as the self-test computes it.

    Attributes:
        out: The type of results.
        program: The program of results of values; None if values are the results.
        residual: The type of the residual's elements; None without a residual.
        added: The program that adds the residual to accumulators; None without one.
        kept: The type of values.
    """

    out: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.int32))
    program: SelfTestProgram | None = None
    residual: np.dtype[Any] | None = None
    added: SelfTestProgram | None = None
    kept: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.int32))


@dataclass(frozen=True, eq=False)
class SelfTestLayer:
    """The layer as the self-test computes it: `weight` codes (OC, IC / groups, KH, KW), `bias` (OC), zero point."""

    weight: NDArray[np.uint8]
    bias: NDArray[np.int64]
    zero_point: int
    epilogue: SelfTestEpilogue


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
        """The header with what layers need of the kernel, by file name."""

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
        return self._marked(
            {
                f"{self.name}_selftest.c": render("layer_selftest.c.j2", values),
                "main.c": render("layer_main.c.j2", values),
                "CMakeLists.txt": render("layer_cmake.j2", values),
            }
        )

    def library(self) -> dict[str, str]:
        """Return the files without self-test, example and CMakeLists.txt."""
        return self._marked({})

    def _marked(self, around: Mapping[str, str]) -> dict[str, str]:
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
        return marked(files | rename_symbols(self.name, files, names))

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of the templates of a layer."""
        kernel, runtime = self.kernel, runtime_files(threads=True)
        codes, per_word = _dense_codes(self.tested.weight, self.spec.wgt.bits)
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
            "added": [_int32(int(x)) for x in self.tested.bias] if self.tested.bias.any() else [],
            "wgt_value": value_text(self.spec.wgt),
            "n": numbers,
            "result_ctype": _ctype(self.tested.epilogue.out),
            "residual": _ctype(self.tested.epilogue.residual) if self.tested.epilogue.residual else "",
            "kept": _ctype(self.tested.epilogue.kept),
            "self_test": self._self_test,
            "fields": [(field, c_value(field, value)) for field, value in numbers.items()],
            "arrays": _initializers(self.arrays),
            "codes": [_hex(x) for x in codes],
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
        """Return an image height or width with a few windows, at the edges and away from them."""
        edges = ("pad_top", "pad_bottom") if way == "h" else ("pad_left", "pad_right")
        names = *(f"{field}_{way}" for field in ("kernel", "dilation", "stride")), *edges
        kernel, dilation, stride, before, behind = (int(self.numbers[name]) for name in names)
        return max(1, dilation * (kernel - 1) + 1 - before - behind) + 4 * stride


def refuses_codes(last: int, bits: int, layout: Number) -> bool:
    """Return whether memory can hold a code beyond the `last`: bytes have 8 bits, packed words the code's `bits`."""
    return last + 1 < 1 << (bits if layout == Layout.PACKED else 8)


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


def list_functions(files: Mapping[str, str]) -> list[str]:
    """Return the names of the runtime's functions, without those of the pool, which layers share."""
    headers = (text for n, text in files.items() if n.endswith(".h") and not n.startswith("bs_pool"))
    return [name for text in headers for name in re.findall(r"\b(bs_\w+)\(", text)]


def _dense_codes(weight: NDArray[np.uint8], bits: int) -> tuple[NDArray[np.uint64], int]:
    """Pack codes for the self-test, as many in a 64-bit word as fit, the first lowest; return words and that number."""
    count = _WORD_BITS // bits
    flat = np.zeros(math.ceil(weight.size / count) * count, np.uint64)
    flat[: weight.size] = weight.reshape(-1)
    shifts = np.arange(count, dtype=np.uint64) * np.uint64(bits)
    return np.bitwise_or.reduce(flat.reshape(-1, count) << shifts, axis=1), count


def _initializers(arrays: Mapping[str, NDArray[Any]]) -> list[tuple[str, str, str, list[str]]]:
    """Return for each array its name, its C type, the C type that it is written as, and its elements."""
    return [(n, c, stored_ctype(c), elements(arrays[n], stored_ctype(c))) for n, c in ARRAYS if n in arrays]


def _ctype(dtype: np.dtype[Any]) -> str:
    """Return the C type of elements."""
    return "float" if dtype.kind == "f" else f"{dtype.name}_t"


def stored_ctype(ctype: str) -> str:
    """Return the C type that elements are written as: words in place of bytes, which are faster to compile."""
    return "uint64_t" if ctype == "uint8_t" else ctype


def elements(array: NDArray[Any], ctype: str) -> list[str]:
    """Return C initializers; a zero for an empty array, as C has none."""
    flat = np.ascontiguousarray(array).reshape(-1) if array.size else np.zeros(1, array.dtype)
    if ctype == "uint64_t":
        digits = np.frombuffer(flat.tobytes().ljust(-(-flat.nbytes // 8) * 8, b"\0"), "<u8").byteswap().tobytes().hex()
        return [f"0x{digits[k : k + 16]}" for k in range(0, len(digits), 16)]
    return [f"{float(x).hex()}f" for x in flat] if ctype == "float" else [_int32(int(x)) for x in flat]


def _hex(x: Any) -> str:
    return f"0x{int(x):016x}"


def _int32(x: int) -> str:
    return "INT32_MIN" if x == -(2**31) else str(x)


@dataclass(frozen=True, eq=False)
class ProcessorsText:
    """A layer called `name` for several processors of an architecture, with the layer of each; some may share one.

    Any other processor runs the layer of the first whose features it has. `command` is the
    command that writes these files, "" if there is none.
    """

    name: str
    arch: str
    layers: Mapping[str, LayerText]
    command: str = ""

    def files(self) -> dict[str, str]:
        """Return file names and texts, marked as ours: each layer in a folder of its own, and what is around them."""
        values = self._values()
        own = {
            f"{self.name}.h": render("layer.h.j2", values),
            f"{self.name}.c": render("layer_processors.c.j2", values),
        }
        first = next(iter(self._apart)).name
        tests = {f"{self.name}_selftest.c": "layer_selftest.c.j2", "main.c": "layer_main.c.j2"}
        for file, template in tests.items():
            own[file] = f'#include "{first}_names.h"\n{render(template, values)}'
        cmake = {"CMakeLists.txt": render("layer_cmake.j2", values)}
        marked_files = marked({file: lay_out(text) for file, text in own.items()} | cmake)
        for layer in self._apart:
            marked_files |= {f"{layer.name}/{file}": text for file, text in layer.library().items()}
        return marked_files

    @property
    def _apart(self) -> list[LayerText]:
        """The different layers."""
        return list(dict.fromkeys(self.layers.values()))

    def _values(self) -> dict[str, Any]:
        layers = [layer.values for layer in self._apart]
        return {
            **layers[0],
            "name": self.name,
            "guard": f"{self.name.upper()}_H",
            "cpu": "",
            "command": self.command,
            **choice(self.arch, {cpu: layer.name for cpu, layer in self.layers.items()}),
            "plain": [f"{self.name}.c", *_plain(layers)],
            "folders": [layer.name for layer in self._apart],
            "parts": [_in_folder(values) for values in layers],
        }


def choice(arch: str, libraries: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a template that chooses among libraries by processor.

    SpecError if programs of the architecture cannot ask which processor runs them.
    """
    table, names = architecture.named(arch), list(dict.fromkeys(libraries.values()))
    return {
        "libraries": names,
        "processors": {cpu: names.index(name) for cpu, name in libraries.items()},
        "probe": table.midr_text(),
        "parts_of": dict(_parts(table.processors, libraries)),
    }


def _parts(processors: Mapping[str, str], included: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield implementer and part, as 0x41d03, of each of the `included` processors, with the processor's name."""
    for midr, cpu in processors.items():
        implementer, part = (int(word, 16) for word in midr.split())
        if cpu in included:
            yield f"{implementer << 12 | part:#x}", cpu


def _plain(layers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the files that run on any processor; the last of a layer's, the pool, is there once."""
    for n, values in enumerate(layers):
        yield from (f"{values['name']}/{file}" for file in values["plain"][: -1 if n else None])


def _in_folder(values: Mapping[str, Any]) -> dict[str, Any]:
    (part,), name = values["parts"], values["name"]
    return {**part, "of": f"_{name}", "sources": [f"{name}/{file}" for file in part["sources"]]}
