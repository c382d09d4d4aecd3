"""Layers' machine code: a kernel and the runtime compiled together, once for all layers; pools of threads."""

from __future__ import annotations

from functools import cache

from bitsynth import build
from bitsynth.api import MatmulKernel
from bitsynth.build import Runner
from bitsynth.build.runners import runs_natively
from bitsynth.emit.kernel import CSource
from bitsynth.emit.layer import call_source, kernel_header, runtime_files
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa.load import load

FLAGS = ("-O3",)
MOST_THREADS = 256


@cache
def library(kernel: MatmulKernel) -> Runner:
    """The kernel, the runtime and what calls it, compiled; ToolError where that or running it cannot be."""
    isa, text = load(kernel.spec.isa), CSource(kernel.entry.kernel, kernel.spec)
    native = runs_natively(isa.table)
    files = {**kernel_files(kernel), **runtime_files(threads=native)}
    return build.runner(isa, build.compile_for(isa, files, needs=text.needs, flags=FLAGS), needs=text.needs)


def kernel_files(kernel: MatmulKernel) -> dict[str, str]:
    """The kernel, and C that runs any layer around it; beside the runtime's files they are whole."""
    return {
        f"{kernel.name}.h": kernel.header,
        f"{kernel.name}.c": kernel.source,
        **kernel_header(kernel.entry.kernel, kernel.spec),
        **call_source(kernel.name),
    }


@cache
def pool(runner: Runner, threads: int) -> int:
    """The address of a pool of `threads`, created once; 0 for one thread."""
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        raise SpecError(f"threads must be a whole number from 1 to {MOST_THREADS}, not {threads!r}")
    if threads == 1:
        return 0
    if not runner.description.startswith("natively"):
        raise SpecError(f"a layer that runs {runner.description} has one thread, not {threads}")
    address = runner.call("bs_pool_create", threads)
    if not address:
        raise ToolError(f"the system does not give {threads} threads")
    return address
