"""Layers' machine code: a kernel and the runtime compiled together, once for all layers."""

from __future__ import annotations

from pathlib import Path

from bitsynth import toolchain
from bitsynth.emit.depthwise import DepthwiseSource
from bitsynth.emit.layer_program import program_source
from bitsynth.emit.runtime_files import call_source, kernel_header, runtime_files
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import load
from bitsynth.kernel.plain import EpilogueProgram
from bitsynth.layers.depthwise import DepthwiseKernel
from bitsynth.matmul import MatmulKernel
from bitsynth.run.runner import Runner, runner_for
from bitsynth.spec.matmul import MatmulSpec

FLAGS = ("-O3",)
LayerKernel = MatmulKernel | DepthwiseKernel
"""A kernel that a layer may have."""

Key = tuple[str, MatmulSpec, EpilogueProgram | None]

_runners: dict[Key, Runner] = {}


def library_key(kernel: LayerKernel, program: EpilogueProgram | None = None) -> Key:
    """What layers have in common that share a library."""
    return kernel.entry.digest, kernel.spec, program


def library(kernel: LayerKernel, program: EpilogueProgram | None = None) -> Runner:
    """The runner of kernel, epilogue's program and runtime, compiled once; ToolError if that or running it fails."""
    key = library_key(kernel, program)
    if key not in _runners:
        isa, needs = load(kernel.spec.isa), kernel.needs
        _runners[key] = runner_for(isa, compiled(kernel, program), needs=needs)
    return _runners[key]


def compiled(kernel: LayerKernel, program: EpilogueProgram | None = None) -> Path:
    """The shared library of the kernel, the epilogue's program, the runtime and what calls it."""
    isa = load(kernel.spec.isa)
    sources = files(kernel, program, threads=runs_natively(isa.table))
    return toolchain.compile_for(isa, sources, needs=kernel.needs, flags=FLAGS, kept=shared_files(kernel))


def shared_files(kernel: LayerKernel) -> set[str]:
    """The files of C that are the same whatever program an epilogue has, most of them for all kernels."""
    return {f"{kernel.name}.c", *runtime_files(threads=True)}


def files(kernel: LayerKernel, program: EpilogueProgram | None = None, *, threads: bool) -> dict[str, str]:
    """The C text of layers around `kernel`, with the pool if there are `threads`."""
    source: MatmulKernel | DepthwiseSource
    if isinstance(kernel, DepthwiseKernel):
        source = kernel.c(program)
        around = {**source.layer_header, **call_source(kernel.name, program, "depthwise")}
    else:
        source = kernel
        around = {**kernel_header(kernel.entry.kernel, kernel.spec), **call_source(kernel.name, program)}
    return {
        f"{kernel.name}.h": source.header,
        f"{kernel.name}.c": source.source,
        **around,
        **program_source(kernel.name, program),
        **runtime_files(threads=threads),
    }
