"""Machine code of layers: kernel and runtime compiled together, once for all layers with the kernel."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from bitsynth import toolchain
from bitsynth.emit.layer_program import NO_PROGRAMS, LayerPrograms, program_source
from bitsynth.emit.runtime_files import call_source, runtime_files
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import load
from bitsynth.layers.scheduled_kernel import LayerKernel
from bitsynth.run.runner import Runner, runner_for
from bitsynth.spec.matmul import MatmulSpec

FLAGS = ("-O3",)

Key = tuple[str, MatmulSpec, LayerPrograms]

_runners: dict[Key, Runner] = {}
_MAX_RUNNERS = 64
"""The limit of runners kept here; layers keep their own. An emulated one is a process with three pipes."""
_forgetting = Lock()


def library_key(kernel: LayerKernel, programs: LayerPrograms = NO_PROGRAMS) -> Key:
    """Return the key of a library: layers of one key share it."""
    return kernel.entry.digest, kernel.spec, programs


def library(kernel: LayerKernel, programs: LayerPrograms = NO_PROGRAMS) -> Runner:
    """Return the runner of kernel, epilogue's programs and runtime, compiled once; raise ToolError if that fails."""
    key = library_key(kernel, programs)
    runner = _runners.get(key)
    if runner is None:
        isa, needs = load(kernel.spec.isa), kernel.needs
        runner = runner_for(isa, compile_library(kernel, programs), needs=needs)
        with _forgetting:
            _runners[key] = runner
            if len(_runners) > _MAX_RUNNERS:
                del _runners[next(iter(_runners))]
    return runner


def compile_library(kernel: LayerKernel, programs: LayerPrograms = NO_PROGRAMS) -> Path:
    """Return the shared library of the kernel, the epilogue's programs, the runtime and what calls it."""
    isa = load(kernel.spec.isa)
    sources = files(kernel, programs, threads=runs_natively(isa.table))
    return toolchain.compile_for(isa, sources, needs=kernel.needs, flags=FLAGS, cached=shared_files(kernel))


def shared_files(kernel: LayerKernel) -> set[str]:
    """Return the C files that do not depend on the epilogue's programs; most of them serve all kernels."""
    return {f"{kernel.name}.c", *runtime_files(threads=True)}


def files(kernel: LayerKernel, programs: LayerPrograms = NO_PROGRAMS, *, threads: bool) -> dict[str, str]:
    """Return the C text of layers around `kernel`, with the pool if there are `threads`."""
    source = kernel.source_for(programs.reader)
    return {
        f"{kernel.name}.h": source.header,
        f"{kernel.name}.c": source.source,
        **source.layer_header,
        **call_source(kernel.name, programs.by_field, kernel.field),
        **program_source(kernel.name, programs),
        **runtime_files(threads=threads),
    }
