"""Builds programs for a board: the runner of layers, and self-tests of networks and of glue.

The runner has kernels, runtime and float convolution in one program without shared libraries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitsynth import toolchain
from bitsynth.emit.render import render
from bitsynth.emit.runtime_files import board_source, runtime_files
from bitsynth.graph.types import Tensor
from bitsynth.isa.load import Requirements, load
from bitsynth.layers import Conv2d, library
from bitsynth.layers.glue import Glue
from bitsynth.layers.glue.programs import requirements
from bitsynth.layers.scheduled_kernel import LayerKernel
from bitsynth.network.library import NetworkText
from bitsynth.network.run import Network

_FOLDER = Path(__file__).parent / "board"
_FLAGS = ("-O3", "-static", "-pthread")
_WITHOUT_MAIN = (*_FLAGS, "-DBITSYNTH_NO_MAIN")
"""Flags of a library whose `main` is left out."""
FLOATS = ("-ffp-contract=fast", "-funsafe-math-optimizations", "-fno-associative-math")
"""Flags of the float convolution: fused, and on 32-bit Arm in vectors, which are not IEEE's. Layers are integers."""
_NETWORK = "network"
NETWORK_SAMPLE_NS = 3_000_000
"""Nanoseconds of a sample of a network."""
_GLUE = "glue"


@dataclass(frozen=True)
class Target:
    """The machine a program is compiled for."""

    isa: str
    needs: Requirements

    @classmethod
    def of(cls, *kernels: LayerKernel) -> Target:
        """Return the requirements of `kernels` of one instruction set together."""
        isa = load(kernels[0].spec.isa)
        return cls(isa.name, isa.requirements(sorted(set().union(*(k.forms for k in kernels)))))

    @property
    def arch(self) -> str:
        """The name of the architecture."""
        return load(self.isa).table.arch


@dataclass(frozen=True)
class Program:
    """A compiled runner, and the keys of the libraries of layers it has, by their numbers."""

    target: Target
    path: Path
    keys: tuple[library.Key, ...]

    def number(self, layer: Conv2d) -> int:
        """Return the number of the layer's library in the program."""
        return self.keys.index(_key(layer))


def float_files() -> dict[str, str]:
    """Return the C of the float convolution, but for the threads it runs on."""
    return {name: (_FOLDER / name).read_text(encoding="utf-8") for name in ("bs_fp32.c", "bs_fp32.h")}


def compile_program(layers: Iterable[Conv2d]) -> Program:
    """Return the runner with what `layers` of one instruction set are made of: each kernel and epilogue once."""
    chosen = {_key(layer): layer for layer in layers}
    kernels = [layer.kernel for layer in chosen.values()]
    names = [f"{k.name}_{i}" for i, k in enumerate(kernels)]
    files = {p.name: p.read_text(encoding="utf-8") for p in _FOLDER.iterdir() if p.suffix in {".c", ".h"}}
    cached = {*files, *runtime_files(threads=True)}
    files |= board_source(names)
    for name, layer in zip(names, chosen.values(), strict=True):
        own = library.files(layer.kernel, layer.packed.programs, threads=True)
        files |= _rename_files(own, layer.kernel.name, name)
    target, flags = Target.of(*kernels), _FLAGS + FLOATS
    path = toolchain.compile_for(load(target.isa), files, needs=target.needs, flags=flags, shared=False, cached=cached)
    return Program(target, path, tuple(chosen))


def _key(layer: Conv2d) -> library.Key:
    return library.library_key(layer.kernel, layer.packed.programs)


def _rename_files(files: Mapping[str, str], name: str, other: str) -> dict[str, str]:
    """Return the files under another name: kernels of two methods may have the same."""
    return {file.replace(name, other): text.replace(name, other) for file, text in files.items()}


def network_target(net: Network) -> Target:
    """Return the target that the program of a network is compiled for."""
    return Target(net.program.isa, NetworkText(_NETWORK, net.program, net.plan).needs)


def network_program(net: Network) -> Path:
    """Return the program of a network, compiled here."""
    text = NetworkText(_NETWORK, net.program, net.plan)
    files = {name: c for name, c in text.files().items() if name.endswith((".c", ".h")) and name != "main.c"}
    files["bs_board.c"] = render("board_network.c.j2", text.values)
    isa = load(net.program.isa)
    return toolchain.compile_for(isa, files, needs=text.needs, flags=_WITHOUT_MAIN, shared=False, cached=files)


def pack_inputs(net: Network, inputs: Mapping[str, Tensor] | None) -> bytes:
    """Return the inputs of a network as its program reads them: in the file's order, one behind the other."""
    return b"".join(np.ascontiguousarray(inputs[name]).tobytes() for name in net.graph.inputs if inputs)


def glue_target(layer: Glue) -> Target:
    """Return the target that the program of a layer is compiled for."""
    return Target(layer.isa, requirements(layer.isa))


def glue_program(layer: Glue) -> Path:
    """Return the program of a layer, compiled here."""
    files = {name: c for name, c in layer.files(_GLUE).items() if name.endswith((".c", ".h"))}
    files["bs_board.c"] = render("board_glue.c.j2", {"name": _GLUE})
    needs = glue_target(layer).needs
    return toolchain.compile_for(load(layer.isa), files, needs=needs, flags=_WITHOUT_MAIN, shared=False, cached=files)
