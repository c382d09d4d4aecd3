"""Subjects of changed emitters: a kernel, or a network; how its C is emitted, compiled, run and proved."""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import os
import pickle
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from emitter_changes import Change, file_changes, instruction_changes, module_changes, replacement, template_changes
from numpy.typing import NDArray
from wrong_objects import (
    EMULATED_SECONDS,
    FILLS,
    MOST_EMULATED,
    MOST_STEPS,
    SECONDS,
    buffers,
    function_of,
    kernel_named,
    placed,
    stored,
)

from bitsynth.emit import kernel as emit_kernel
from bitsynth.emit import render
from bitsynth.errors import BitsynthError
from bitsynth.host import features
from bitsynth.isa.domains.forms import Inexact
from bitsynth.isa.load import load
from bitsynth.kernel.program import period
from bitsynth.network.machine_code.prove import LayerVerdict, prove_layers
from bitsynth.network.program import LayerStep, alias_root
from bitsynth.objects.functions import prove_functions
from bitsynth.objects.library import CompiledLibrary, LibraryObject
from bitsynth.objects.packers import PackerDeclarations
from bitsynth.objects.prove import features_of, prove_all_sizes, prove_object, sizes_of
from bitsynth.objects.reference import Sizes
from bitsynth.toolchain import find_compiler
from bitsynth.toolchain.library import RUNTIME

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support import layer_programs

FLAGS = ("-std=c11", "-O2", "-w", "-fPIC")
EMIT_SECONDS, COMPILE_SECONDS, PROVE_SECONDS = 30, 60, 300
"""Processes that take longer are stopped: they emit nothing, do not compile, or prove nothing."""
MEMORY = 8 << 30
"""The most bytes of addresses of a process that emits or proves."""
MANY_STEPS = 40_000
"""The most steps of a call that goes beyond a flush."""
GUARD = 64
"""Bytes behind a buffer that nobody may write."""


@dataclass(frozen=True)
class FunctionProof:
    """The verdict on a function or a layer, and why it is not proved."""

    verdict: Literal["proved", "listed sizes alone", "refused", "not understood"]
    why: str = ""


class Subject(Protocol):
    """C that emitters write, with functions or layers that are proved.

    Attributes:
        functions: The functions, or layers, that are run and proved.
    """

    name: str
    functions: tuple[str, ...]

    @property
    def seconds(self) -> int:
        """The CPU time of a function that ends."""

    def named_changes(self) -> list[Change]:
        """Return changes that are always tried."""

    def changes(self) -> list[Change]:
        """Return changes of the sources of the C."""

    def emit(self) -> dict[str, str]:
        """Return the C by file name, as emitters write it now."""

    def select_covered(self, files: Mapping[str, str]) -> str:
        """Return the part of the C that is proved, without comments."""

    def check_of(self, function: str) -> str:
        """Return which proof judges a function: one of CHECKS."""

    def compile(self, files: Mapping[str, str], folder: Path) -> Path | None:
        """Return the compiled C; None if it does not compile."""

    def run(self, built: Path, function: str) -> Iterator[bytes]:
        """Yield what a function leaves behind, for many inputs."""

    def prove(self, built: Path, functions: Collection[str]) -> dict[str, FunctionProof]:
        """Return the verdicts on functions."""


CHECKS = ("microkernel", "packers", "layers")
"""The proofs that judge functions."""
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
T = TypeVar("T")


def run_in_process(function: Callable[[], T], seconds: int, memory: int = 0) -> T | None:
    """Return what a function returns in a process of its own; None if that fails, crashes or takes too long."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        try:
            os.close(reader)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(writer, "wb") as to:
                to.write(pickle.dumps(function()))
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        data = answer.read()
    answered: T | None = pickle.loads(data) if os.waitpid(child, 0)[1] == 0 else None
    return answered


def digest_of(subject: Subject, built: Path, function: str) -> str:
    """Return the SHA-256 digest of all that a function leaves behind."""
    digest = hashlib.sha256()
    for part in subject.run(built, function):
        digest.update(part)
    return digest.hexdigest()


def compile_c(command: Collection[str], folder: Path) -> bool:
    """Return whether a compiler's command succeeds."""
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (COMPILE_SECONDS, COMPILE_SECONDS))
    return subprocess.run([*command], cwd=folder, capture_output=True, preexec_fn=limit, check=False).returncode == 0


PACKERS = ("pack_rows", "pack_words", "pack_act", "pack_wgt", "act_bytes", "wgt_bytes")
EMITTERS = ("microkernel", "flushes", "programs", "in_order", "kernel_inputs", "packing", "statements", "kernel")
TEMPLATES = re.compile(r"kernel(?!_selftest|_features|_columns)\w*\.(?:c\.j2|h\.j2|j2)")


MISSED = {
    "bs_mm_a4u_w4b_s32_avx2_8x16x4": (
        ("left out", "emit/microkernel.py", '"start = c;", ', ""),
        ("another name", "emit/microkernel.py", '"start_ld = ldc;"', '"start_ld = 0;"'),
        ("left out", "emit/microkernel.py", '"row_start = zero;", ', ""),
        ("constant", "emit/microkernel.py", "const size_t block = steps_left < {every} ? steps_left : {every};",
         "const size_t block = steps_left < {2 * every} ? steps_left : {2 * every};"),
        ("another name", "emit/templates/kernel.c.j2", "w += all_steps * (", "w += steps * ("),
        ("left out", "emit/templates/kernel.c.j2", "        g += COLUMNS;\n", ""),
        ("left out", "emit/templates/kernel.c.j2", "c + tile * COLUMNS, ldc);", "c, ldc);"),
        ("operator", "emit/templates/kernel.c.j2", "all_steps = segments * steps;", "all_steps = steps;"),
        ("instruction", "emit/flushes.py", 'scope.declare("both", instr.out, scope.call(instr, args))',
         'scope.declare("both", instr.out, scope.call(instr, args).replace("epi32", "epi16"))'),
        ("left out", "emit/templates/kernel_sizes.c.j2", "inputs > PTRDIFF_MAX || ", ""),
        ("left out", "emit/templates/kernel_sizes.c.j2", "&z) ? SIZE_MAX : z;", "&z) ? z : z;"),
    ),
    "bs_mm_a1u_w1b_s32_avx512_12x32x64": (
        ("left out", "emit/templates/kernel_matmul.c.j2", "product(m, k) > PTRDIFF_MAX || ", ""),
    ),
}  # fmt: skip
"""Twelve wrong emitters that self-tests of kernels once missed, by the kernel whose C they change: the kind of the
change, the file, its text, and the text in its place."""


class KernelSubject:
    """A kernel: its microkernel, and on x86 what packs its operands."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._matmul = kernel_named(name)
        self._kernel = self._matmul.entry.kernel
        self._isa = load(self._kernel.isa)
        self._is_native = self._isa.table.arch == features.arch()
        self.functions = (name, *(f"{name}_{x}" for x in PACKERS)) if self._is_native else (name,)

    def named_changes(self) -> list[Change]:
        """Return the changes that self-tests missed."""
        return [replacement(*x) for x in MISSED.get(self.name, ())]

    def changes(self) -> list[Change]:
        """Return changes of templates, of the Python of emitters, and of instructions."""
        templates = [path.name for path in sorted(render.FOLDER.glob("kernel*.j2")) if TEMPLATES.fullmatch(path.name)]
        return [
            *template_changes(templates),
            *module_changes([*(f"emit.{x}" for x in EMITTERS), "emit.correction_terms"]),
            *instruction_changes(self._kernel.isa, self._kernel.forms),
        ]

    def emit(self) -> dict[str, str]:
        """Return header and source, of the class that the module has now: a change may have replaced it."""
        c = emit_kernel.CSource(self._matmul.proved_entry.proved, self._matmul.spec)
        return {f"{self.name}.h": c.header, f"{self.name}.c": c.source}

    def select_covered(self, files: Mapping[str, str]) -> str:
        """Return the header and the source without `NAME_matmul`; of other processors the microkernel alone."""
        end = "static void narrow(" if self._is_native else "static size_t ceiling("
        text = files[f"{self.name}.h"] * self._is_native + files[f"{self.name}.c"].partition(end)[0]
        return _COMMENT.sub("", text)

    def check_of(self, function: str) -> str:
        """Return "microkernel" or "packers"."""
        return "microkernel" if function == self.name else "packers"

    def compile(self, files: Mapping[str, str], folder: Path) -> Path | None:
        """Return the shared library of the kernel."""
        compiler, path = find_compiler(self._isa, "gcc"), folder / "library.so"
        for file, text in files.items():
            (folder / file).write_text(text)
        sources = [f"{self.name}.c", *([] if self._is_native else ["-nostdlib", str(RUNTIME)])]
        flags = [*FLAGS, "-shared", *self._matmul.needs.cc_flags]
        return path if compile_c([*compiler.command, *flags, *sources, "-o", str(path)], folder) else None

    def run(self, built: Path, function: str) -> Iterator[bytes]:
        """Yield what a function leaves behind."""
        if function == self.name:
            yield from self._run_microkernel(built)
            return
        of = function.removeprefix(f"{self.name}_")
        call = getattr(ctypes.CDLL(str(built)), function)
        rng = np.random.default_rng(2)
        if of.endswith("_bytes"):
            yield from _call_with_sizes(call, ctypes.c_size_t)
        elif of in {"pack_act", "pack_wgt"}:
            yield from self._pack_operands(call, of == "pack_act", rng)
        else:
            yield from self._pack_rows(call, of == "pack_words", rng)

    @property
    def seconds(self) -> int:
        """The CPU time of a function that ends."""
        return 10 * SECONDS if self._is_native else 4 * EMULATED_SECONDS

    def _run_microkernel(self, built: Path) -> Iterator[bytes]:
        """Yield the tiles of sizes about the periods of loops, and beyond flushes."""
        kernel, rng = self._kernel, np.random.default_rng(1)
        most = MOST_STEPS if self._is_native else MOST_EMULATED
        call = function_of(built, self.name, self._isa)
        for sizes in (x for x in sizes_of(kernel) if x.all_steps <= most):
            yield from (stored(call, kernel, sizes, fill, rng) for fill in FILLS)
        for steps in {2 * period(chain) + 3 for chain in kernel.chains} if self._is_native else ():
            if most < steps <= MANY_STEPS:
                yield from (stored(call, kernel, Sizes(1, 1, steps), fill, rng) for fill in ("ones", "random"))

    def _pack_rows(self, call: Any, from_words: bool, rng: np.random.Generator) -> Iterator[bytes]:
        """Pack rows, from codes or from words of their bits: yield the rows and their terms."""
        kernel, slack = self._kernel, self._isa.word.lanes
        for k in _lengths(kernel.k_step, rng):
            count, gap = int(rng.integers(0, 5)), int(rng.integers(0, 3))
            size = -(-k // kernel.k_step) * kernel.row_bytes
            if from_words:
                apart = -(-k // 64) * kernel.row_bits + gap
                read = placed(buffers(rng, "random", 8 * (apart * count + 1)), 8)
                given = [count, k, read.ctypes.data, apart]
            else:
                apart, room = k + gap, int(rng.choice([0, 1, 70]))
                readable = (apart * (count - 1) + k if count else 0) + room
                read = _codes(rng, kernel.row_bits, readable + GUARD)
                given = [count, k, read.ctypes.data, apart, readable]
            packed_apart = size + gap
            packed = placed(np.full(count * packed_apart + slack + GUARD, 0xA5, np.uint8), 8)
            terms, affines = (np.full(count + GUARD, -99, np.int32) for _ in range(2))
            call(*map(ctypes.c_size_t, (*given, packed.ctypes.data, packed_apart)), *map(_address, (terms, affines)))
            rows = [packed[row * packed_apart :][:size].tobytes() for row in range(count)]
            yield b"".join([*rows, packed[-GUARD:].tobytes(), terms.tobytes(), affines.tobytes(), read.tobytes()])

    def _pack_operands(self, call: Any, of_act: bool, rng: np.random.Generator) -> Iterator[bytes]:
        """Pack operands: yield them, and whether sizes that no object has are refused."""
        kernel = self._kernel
        bits = kernel.row_bits if of_act != kernel.swapped else kernel.column_bits
        for k in _lengths(kernel.k_step, rng):
            vectors = int(rng.integers(0, 2 * max(kernel.rows, kernel.columns)))
            pair = (vectors, k) if of_act else (k, vectors)
            codes = _codes(rng, bits, vectors * k + GUARD)
            packed = placed(np.full(self._operand_bytes(vectors, k, of_act) + GUARD, 0xA5, np.uint8), 8)
            status = call(*map(ctypes.c_size_t, pair), _address(codes), _address(packed))
            yield packed.tobytes() + codes.tobytes() + str(status).encode()
        for vectors, k in _impossible_sizes():
            pair = (vectors, k) if of_act else (k, vectors)
            yield str(call(*map(ctypes.c_size_t, pair), None, None)).encode()

    def _operand_bytes(self, vectors: int, k: int, of_act: bool) -> int:
        """Return bytes that a packed operand does not exceed."""
        kernel = self._kernel
        unit, each = kernel.rows, kernel.row_bytes
        if of_act == kernel.swapped:
            unit, each = kernel.columns, kernel.column_bytes
        padded = -(-vectors // unit) * unit
        return padded * (-(-k // kernel.k_step) * each + 16) + 8

    def prove(self, built: Path, functions: Collection[str]) -> dict[str, FunctionProof]:
        """Return what is shown of functions: of the microkernel for all sizes, else for listed ones."""
        shown = {self.name: self._prove_microkernel(built)} if self.name in functions else {}
        for function in [x for x in functions if x != self.name]:
            calls = [x for x in PackerDeclarations(self._matmul).calls() if x.function == function]
            try:
                (verdict,) = prove_functions(built, self._isa, calls, features_of(self._kernel))
                shown[function] = FunctionProof("not understood" if verdict.why else "proved", verdict.why)
            except BitsynthError as why:
                shown[function] = FunctionProof("refused", str(why))
        return shown

    def _prove_microkernel(self, built: Path) -> FunctionProof:
        try:
            prove_object(built, self._matmul, all_sizes=False)
        except BitsynthError as why:
            return FunctionProof("refused", str(why))
        try:
            prove_all_sizes(built, self._matmul)
        except (BitsynthError, Inexact) as why:
            return FunctionProof("listed sizes alone", str(why))
        return FunctionProof("proved")


def _address(data: NDArray[Any]) -> ctypes.c_size_t:
    return ctypes.c_size_t(data.ctypes.data)


def _codes(rng: np.random.Generator, bits: int, count: int, fill: int | None = None) -> NDArray[np.uint8]:
    """Return codes: random ones, the greatest, zeros, or zeros and the greatest, as `fill` says, or any of these."""
    last = (1 << bits) - 1
    kinds = [rng.integers(0, last + 1, count), np.full(count, last), np.zeros(count), rng.integers(0, 2, count) * last]
    return kinds[int(rng.integers(0, 4)) if fill is None else fill].astype(np.uint8)


def _lengths(step: int, rng: np.random.Generator) -> Iterator[int]:
    """Yield numbers of codes: up to a few steps, up to hundreds, and some thousands."""
    yield from range(2 * step + 3 if step < GUARD else 3)
    yield from (int(x) for x in rng.integers(0, 4 * step + 70, 40))
    yield from (int(x) for x in rng.integers(300, 4000, 6))


def _call_with_sizes(call: Any, result: Any) -> Iterator[bytes]:
    """Call a function of two sizes with sizes up to the greatest ones: yield what it returns."""
    call.restype = result
    chosen = [*range(9), 63, 64, 65, 1000, *((1 << 64) - 1 >> n for n in range(64))]
    for x in chosen:
        yield b" ".join(str(call(ctypes.c_size_t(x), ctypes.c_size_t(y))).encode() for y in chosen)


def _impossible_sizes() -> Iterator[tuple[int, int]]:
    """Yield sizes of operands whose codes no object has."""
    great = [(1 << 64) - 1, 1 << 63, (1 << 63) + 5, 1 << 62]
    yield from ((x, y) for x in great for y in (*great, 4, 1 << 20))
    yield from ((y, x) for x in great for y in (4, 1 << 20))
    yield from ((1 << 32, 1 << 31), (1 << 31, 1 << 32), (1 << 40, 1 << 24), (3, 1 << 62))


RUNTIME_FILES = ("bs_layer.c", "bs_tiles.c", "bs_pack.c", "bs_finish.c", "bs_residual.c", "bs_values.c", "bs_call.h")
WRITERS = ("emit.runtime_abi", "emit.layer_program", "emit.initializers", "layers.constants", "network.library.steps")
STEP_TEMPLATES = ("network.c.j2", "layer_kernel.h.j2", "layer_program.h.j2")
NAME = "net"


class NetworkSubject:
    """A network whose layers are moved in different ways: the code of each layer's step."""

    name = "network of eleven layers"

    def __init__(self, isa: str, folder: Path) -> None:
        self._isa, self._folder = isa, folder
        self._text = layer_programs.text_of(isa)
        self._right = self._text.get_untested()
        self._steps = {x.nodes[-1]: (n, x) for n, x in enumerate(self._text.program.steps) if isinstance(x, LayerStep)}
        self.functions = tuple(self._steps)
        self._files: dict[str, str] = {}
        for file, text in self._right.items():
            (folder / file).write_text(text)
        self._objects = {x: self._compile_file(folder / x, folder, folder) for x in self._sources()}

    def _sources(self) -> list[str]:
        return [x for x in self._right if x.endswith(".c") and x != "main.c" and not x.endswith("_selftest.c")]

    def _compile_file(self, source: Path, folder: Path, own: Path) -> Path | None:
        """Return the object of a file, whose headers are in folder `own` or else in `folder`."""
        out = source.with_suffix(".o")
        flags = [*FLAGS, "-DNDEBUG", *self._text.needs.cc_flags, f"-iquote{own}", f"-iquote{folder}"]
        return out if compile_c(["gcc", *flags, "-c", str(source), "-o", str(out)], own) else None

    @property
    def seconds(self) -> int:
        """The CPU time of a layer's step that ends."""
        return 2 * SECONDS

    def named_changes(self) -> list[Change]:
        """Return none."""
        return []

    def changes(self) -> list[Change]:
        """Return changes of the runtime's C, of templates of networks, and of the Python that fills them."""
        return [
            *(x for file in RUNTIME_FILES for x in file_changes(self._right[file], file, partial(self._use, file))),
            *template_changes(STEP_TEMPLATES),
            *module_changes(WRITERS),
        ]

    def _use(self, file: str, text: str) -> None:
        self._files = {file: text}

    def emit(self) -> dict[str, str]:
        """Return all files."""
        if self._files:
            return {**self._right, **self._files}
        return dict(layer_programs.text_of.__wrapped__(self._isa).get_untested())

    def select_covered(self, files: Mapping[str, str]) -> str:
        """Return the text of all files."""
        return _COMMENT.sub("", "\n".join(text for _, text in sorted(files.items())))

    def check_of(self, function: str) -> str:
        """Return "layers"."""
        return "layers"

    def compile(self, files: Mapping[str, str], folder: Path) -> Path | None:
        """Return the folder with the library and the objects that differ from objects of unchanged files."""
        changed = {file for file, text in files.items() if text != self._right.get(file)}
        for file in changed:
            (folder / file).write_text(files[file])
        objects = dict(self._objects)
        for file in self._sources():
            if changed & self._read_by(file, files):
                (folder / file).write_text(files[file])
                objects[file] = self._compile_file(folder / file, self._folder, folder)
        if None in objects.values():
            return None
        command = ["gcc", "-shared", *map(str, objects.values()), "-lm", "-lpthread", "-o", str(folder / "library.so")]
        return folder if compile_c(command, folder) else None

    def _read_by(self, file: str, files: Mapping[str, str]) -> set[str]:
        """Return a file and all files that it includes, directly or not."""
        reached, left = set[str](), [file]
        while left:
            at = left.pop()
            reached.add(at)
            left += [x for x in re.findall(r'#include "(.+)"', files[at]) if x in files and x not in reached]
        return reached

    def run(self, built: Path, function: str) -> Iterator[bytes]:
        """Yield status and memory after a layer's step, for several inputs."""
        library = ctypes.CDLL(str(built / "library.so"))
        number, step = self._steps[function]
        buffers_of = self._text.program.buffers
        rng = np.random.default_rng(3)
        size_of = getattr(library, f"{NAME}_arena_bytes")
        size_of.restype = ctypes.c_size_t
        size = size_of(ctypes.c_size_t(1))
        if not self._text.plan.bytes <= size < 1 << 30:
            yield b"no arena"
            return
        for fill in range(4):
            arena = placed(np.full(size + GUARD, 0xA5, np.uint8), 64)
            for name in step.inputs:
                count = buffers_of[name].bytes
                at = self._text.plan.offsets[alias_root(buffers_of, name)]
                arena[at : at + count] = _codes(rng, layer_programs.BITS, count, fill)
            x, y = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
            call = getattr(library, f"{NAME}_run_steps")
            status = call(
                *map(ctypes.c_size_t, (number, number + 1)), *map(_address, (x, y, arena)), ctypes.c_size_t(size), None
            )
            kept = arena[: self._text.plan.bytes].tobytes() + arena[size:].tobytes()
            yield str(status).encode() + kept + y.tobytes()

    def prove(self, built: Path, functions: Collection[str]) -> dict[str, FunctionProof]:
        """Return what is shown of layers."""
        paths = [built / x.name if (built / x.name).exists() else x for x in self._objects.values() if x]
        objects = tuple(LibraryObject(x.name, x, 0, 0, frozenset(), ()) for x in paths)
        library = CompiledLibrary(built / "library.a", "", objects)
        shown = prove_layers(library, [self._text], lambda *_: None, only=functions)
        return {x.node: _proof_of_layer(x) for x in shown}


def _proof_of_layer(verdict: LayerVerdict) -> FunctionProof:
    """Return what is shown of a layer; a layer of a kind that no proof covers is not understood."""
    if verdict.is_proved:
        return FunctionProof("proved", verdict.why)
    return FunctionProof("refused" if verdict.is_refused else "not understood", verdict.why)
