"""The runner of a board: kernels, runtime and float convolution in one program that needs no library there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bitsynth import build
from bitsynth.api import MatmulKernel
from bitsynth.emit.layer import board_source
from bitsynth.isa.load import Requirements, load
from bitsynth.layers import library

_FOLDER = Path(__file__).parent / "board"
_FLAGS = ("-O3", "-static", "-pthread")
_FLOATS = ("-ffp-contract=fast", "-funsafe-math-optimizations", "-fno-associative-math")
"""For the float convolution: fused, and on 32-bit Arm in vectors, which are none of IEEE's. Layers are integers."""


@dataclass(frozen=True)
class Target:
    """What a program is compiled for."""

    isa: str
    needs: Requirements

    @classmethod
    def of(cls, kernel: MatmulKernel) -> Target:
        """What `kernel` takes."""
        return cls(kernel.spec.isa, kernel.needs)

    @property
    def arch(self) -> str:
        return load(self.isa).table.arch


def compile_program(target: Target, kernels: Sequence[MatmulKernel]) -> Path:
    """The runner with `kernels` in this order."""
    files = {p.name: p.read_text(encoding="utf-8") for p in _FOLDER.iterdir() if p.suffix in {".c", ".h"}}
    files |= board_source([k.name for k in kernels])
    for kernel in kernels:
        files |= library.files(kernel, threads=True)
    return build.compile_for(load(target.isa), files, needs=target.needs, flags=_FLAGS + _FLOATS, shared=False)
