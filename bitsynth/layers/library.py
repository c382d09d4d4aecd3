"""Layers' machine code: a kernel and the runtime compiled together, once for all layers."""

from __future__ import annotations

from pathlib import Path

from bitsynth import toolchain
from bitsynth.emit.runtime_files import call_source, kernel_header, runtime_files
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import load
from bitsynth.layers.depthwise import DepthwiseKernel
from bitsynth.matmul import MatmulKernel
from bitsynth.run.runner import Runner, runner_for
from bitsynth.spec.matmul import MatmulSpec

FLAGS = ("-O3",)
LayerKernel = MatmulKernel | DepthwiseKernel
"""A kernel that a layer may have."""
_runners: dict[tuple[str, MatmulSpec], Runner] = {}


def library_key(kernel: LayerKernel) -> tuple[str, MatmulSpec]:
    """What layers have in common that share a library."""
    return kernel.entry.digest, kernel.spec


def library(kernel: LayerKernel) -> Runner:
    """The runner of kernel, runtime and what calls it, compiled once; ToolError if it cannot be compiled or run."""
    key = library_key(kernel)
    if key not in _runners:
        isa, needs = load(kernel.spec.isa), kernel.needs
        _runners[key] = runner_for(isa, compiled(kernel), needs=needs)
    return _runners[key]


def compiled(kernel: LayerKernel) -> Path:
    """The shared library of the kernel, the runtime and what calls it."""
    isa = load(kernel.spec.isa)
    sources = files(kernel, threads=runs_natively(isa.table))
    return toolchain.compile_for(isa, sources, needs=kernel.needs, flags=FLAGS)


def files(kernel: LayerKernel, *, threads: bool) -> dict[str, str]:
    """The C text of layers around `kernel`, with the pool if there are `threads`."""
    if isinstance(kernel, DepthwiseKernel):
        around = {**kernel.c.layer_header, **call_source(kernel.name, "depthwise")}
    else:
        around = {**kernel_header(kernel.entry.kernel, kernel.spec), **call_source(kernel.name)}
    return {
        f"{kernel.name}.h": kernel.header,
        f"{kernel.name}.c": kernel.source,
        **around,
        **runtime_files(threads=threads),
    }
