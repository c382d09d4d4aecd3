"""Compiles an ONNX file to a network that runs."""

from __future__ import annotations

import os
from typing import Any, Unpack

from bitsynth.graph.ir import Graph
from bitsynth.graph.read import ReadOptions, read
from bitsynth.host.placement import widest
from bitsynth.layers.candidates import cpu_for, require_cpu
from bitsynth.layers.pool import Pool, pool_of
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.reading import Reading
from bitsynth.network.run import Network
from bitsynth.progress import Progress, silent


class CompileOptions(ReadOptions):
    """The options of `compile` but `progress`, for functions that pass them on."""

    isa: str
    cpu: str
    threads: int


def compile(
    model: str | os.PathLike[str] | Any,
    *,
    isa: str = "auto",
    cpu: str = "",
    threads: int | Pool = 1,
    progress: Progress = silent,
    **options: Unpack[ReadOptions],
) -> Network:
    """Compile a quantized network: `net = compile("model.onnx")`, then `net(x)`.

    Args:
        model: A path of an ONNX file, or a model that is loaded already.
        isa: An instruction set, or "auto" for the best this processor has.
        cpu: The processor of the set that layers are to be fast on, as of `Conv2d`.
        threads: Threads that run it, or a `Pool`, as of `Conv2d`.
        progress: Hears what is being done.
        options: Options of `bitsynth.graph.read`: batch, reference, codes, fixed, shapes.

    Raises:
        SpecError: The file is damaged, unsafe or not understood; the message names the node.
        NoKernel: This processor runs none of the instruction sets, and `isa` is "auto".
        ToolError: The package onnx is missing.
    """
    pool = pool_of(threads)
    require_cpu(isa, cpu)
    target = NetworkTarget(widest(isa), pool.threads, cpu or cpu_for(isa))
    progress("reading")
    return network_of(read(model, **options), target, pool, progress, options)


def network_of(
    graph: Graph, target: NetworkTarget, threads: int | Pool, progress: Progress, options: ReadOptions
) -> Network:
    """Return the network of a graph that was read with `options`, for a target, run by threads."""
    progress(f"lowering {len(graph.nodes)} nodes")
    return Network(lower(graph, target), threads, Reading.of(options))
