"""Bitsynth's own float convolution, a baseline for layers: Arm machines may have no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from bitsynth import toolchain
from bitsynth.bench.call_times import LocalSubject
from bitsynth.bench.resnet18 import LAYERS, ResNetLayer
from bitsynth.device.job import float_sizes
from bitsynth.device.program import FLOATS, float_files
from bitsynth.emit.runtime_files import runtime_files
from bitsynth.errors import Refuted
from bitsynth.isa.load import load
from bitsynth.layers.pool import Pool, pool_of
from bitsynth.run.arguments import make_aligned
from bitsynth.run.runner import Runner, runner_for

NAME = "bitsynth fp32"
"""The name that it has in reports, of boards too."""


def own_float(isa: str, threads: int, names: Sequence[str]) -> LocalSubject:
    """Return the layers `names` in floats, on instructions of `isa`, each checked once; Refuted if one is wrong."""
    table, pool = load(isa), pool_of(threads)
    needs = table.requirements()
    sources = {**float_files(), **runtime_files(threads=True)}
    library = toolchain.compile_for(table, sources, needs=needs, flags=("-O3", *FLOATS), cached=set(sources))
    runner = runner_for(table, library, needs=needs)
    return LocalSubject(NAME, "fp32", {x.name: _call(runner, pool, x) for x in LAYERS if x.name in names}, threads)


def _call(runner: Runner, pool: Pool, layer: ResNetLayer) -> Callable[[], object]:
    """Return a call of one layer that was found right; its memory is its own."""
    sizes = np.array(float_sizes(layer.geometry, *layer.image), np.int64)
    memory = make_aligned(runner.call("bs_fp32_bytes", sizes), np.uint8)
    runner.call("bs_fp32_prepare", sizes, memory)
    with pool.acquire(runner) as address:
        call = partial(runner.call, "bs_fp32_run", sizes, memory, address)
    call()
    if not runner.call("bs_fp32_right", sizes, memory, bits=32):
        raise Refuted(f"{layer.name}: the float convolution is wrong")
    return call
