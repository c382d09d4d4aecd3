"""Layers' machine code: a kernel and the runtime compiled together, once for all layers; pools of threads."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from bitsynth import build
from bitsynth.api import MatmulKernel
from bitsynth.build import Runner
from bitsynth.build.runners import runs_natively
from bitsynth.emit.layer import call_source, kernel_header, runtime_files
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa.load import load
from bitsynth.spec import MatmulSpec

FLAGS = ("-O3",)
MOST_THREADS = 256


_made: dict[tuple[str, MatmulSpec], Runner] = {}


def library(kernel: MatmulKernel) -> Runner:
    """The kernel, the runtime and what calls it, compiled once; ToolError where that or running it cannot be."""
    key = kernel.entry.digest, kernel.spec
    if key not in _made:
        isa, needs = load(kernel.spec.isa), kernel.needs
        _made[key] = build.runner(isa, compiled(kernel), needs=needs)
    return _made[key]


def compiled(kernel: MatmulKernel) -> Path:
    """The shared library of the kernel, the runtime and what calls it."""
    isa = load(kernel.spec.isa)
    sources = files(kernel, threads=runs_natively(isa.table))
    return build.compile_for(isa, sources, needs=kernel.needs, flags=FLAGS)


def files(kernel: MatmulKernel, *, threads: bool) -> dict[str, str]:
    """The C text of layers around `kernel`, with the pool where there are `threads`."""
    return {
        f"{kernel.name}.h": kernel.header,
        f"{kernel.name}.c": kernel.source,
        **kernel_header(kernel.entry.kernel, kernel.spec),
        **call_source(kernel.name),
        **runtime_files(threads=threads),
    }


def check_threads(threads: Any) -> int:
    """`threads`; SpecError unless there can be so many."""
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        raise SpecError(f"threads must be a whole number from 1 to {MOST_THREADS}, not {threads!r}")
    return threads


@cache
def pool(runner: Runner, threads: int) -> int:
    """The address of a pool of `threads`, created once; 0 for one thread."""
    if threads == 1:
        return 0
    if not runner.description.startswith("natively"):
        raise SpecError(f"a layer that runs {runner.description} has one thread, not {threads}")
    address = runner.call("bs_pool_create", threads)
    if not address:
        raise ToolError(f"the system does not give {threads} threads")
    return address


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # A child has none of the pools' threads.
