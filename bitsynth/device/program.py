"""The runner of a board: kernels, runtime and float convolution in one program that needs no library there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bitsynth import toolchain
from bitsynth.emit.runtime_files import board_source
from bitsynth.isa.load import Requirements, load
from bitsynth.layers import library
from bitsynth.layers.library import LayerKernel
from bitsynth.spec.matmul import MatmulSpec

_FOLDER = Path(__file__).parent / "board"
_FLAGS = ("-O3", "-static", "-pthread")
_FLOATS = ("-ffp-contract=fast", "-funsafe-math-optimizations", "-fno-associative-math")
"""Flags of the float convolution: fused, and on 32-bit Arm in vectors, which are not IEEE's. Layers are integers."""


@dataclass(frozen=True)
class Target:
    """The machine a program is compiled for."""

    isa: str
    needs: Requirements

    @classmethod
    def of(cls, *kernels: LayerKernel) -> Target:
        """The requirements of `kernels` of one instruction set together."""
        isa = load(kernels[0].spec.isa)
        return cls(isa.name, isa.requirements(sorted(set().union(*(k.forms for k in kernels)))))

    @property
    def arch(self) -> str:
        """The name of the architecture."""
        return load(self.isa).table.arch


@dataclass(frozen=True)
class Program:
    """A compiled runner, and the kernels it has, by their numbers."""

    target: Target
    path: Path
    kernels: tuple[LayerKernel, ...]

    def number(self, kernel: LayerKernel) -> int:
        """The number of `kernel` in the program."""
        return [_key(k) for k in self.kernels].index(_key(kernel))


def compile_program(kernels: Iterable[LayerKernel]) -> Program:
    """The runner with `kernels` of one instruction set, each once."""
    chosen = tuple({_key(k): k for k in kernels}.values())
    names = [f"{k.name}_{i}" for i, k in enumerate(chosen)]
    files = {p.name: p.read_text(encoding="utf-8") for p in _FOLDER.iterdir() if p.suffix in {".c", ".h"}}
    files |= board_source(names)
    for name, kernel in zip(names, chosen, strict=True):
        files |= _renamed(library.files(kernel, threads=True), kernel.name, name)
    target = Target.of(*chosen)
    flags = _FLAGS + _FLOATS
    return Program(
        target, toolchain.compile_for(load(target.isa), files, needs=target.needs, flags=flags, shared=False), chosen
    )


def _key(kernel: LayerKernel) -> tuple[str, MatmulSpec]:
    return kernel.entry.digest, kernel.spec


def _renamed(files: Mapping[str, str], name: str, other: str) -> dict[str, str]:
    """The files under another name: kernels of two methods may have the same."""
    return {file.replace(name, other): text.replace(name, other) for file, text in files.items()}
