"""Inputs to check a network on: drawn at random in the range of its quantizers, or read from a file.

A number on a tie of the quantizer that reads it, halfway between two codes, is rounded by the last bit of a division.
Runtimes that compute in floats may choose the other code there, and codes behind it follow. So inputs with such numbers
are counted apart from ordinary ones (`on_ties`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Edge, Tensor, is_float
from bitsynth.layers.array_files import read_arrays
from bitsynth.network import sample_inputs

Feed = Mapping[str, Tensor]
"""Arrays by the name of an input."""


def draw(graph: Graph, count: int, seed: int = 0) -> list[Feed]:
    """Draw `count` inputs at random: every second one has numbers on ties of the quantizers that read them.

    On a tie two runtimes may round to different codes without a fault of either; `on_ties` finds those inputs.
    """
    rng = np.random.default_rng(seed)
    return [
        {name: sample_inputs.draw(rng, graph, graph.edges[name], ties=k % 2 == 1) for name in graph.inputs}
        for k in range(count)
    ]


def on_ties(graph: Graph, feed: Feed) -> bool:
    """Return whether some number of an input lies on a tie of the quantizer that reads it."""
    return any(sample_inputs.has_ties(graph, name, feed[name]) for name in graph.inputs)


def read_inputs(graph: Graph, path: str | os.PathLike[str]) -> list[Feed]:
    """Return the inputs in a .npz file: an array for each name, its first axis a multiple of the input's.

    A .npy file has arrays of the first input alone.

    Arrays of other names, such as labels, are left alone. SpecError for a file that is none, and for arrays that are
    missing or do not fit the network's inputs.
    """
    try:
        every = read_arrays(Path(path), next(iter(graph.inputs), ""))
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None
    arrays = {name: array for name, array in every.items() if name in graph.inputs}
    if len(arrays) < len(graph.inputs):
        raise SpecError(f"{path} has {', '.join(sorted(every))}; the network's inputs are {', '.join(graph.inputs)}")
    parts = {name: _parts(graph.edges[name], array) for name, array in arrays.items()}
    if len({len(p) for p in parts.values()}) > 1:
        raise SpecError(f"{path}: the arrays have {', '.join(str(len(p)) for p in parts.values())} inputs")
    return [dict(zip(parts, some, strict=True)) for some in zip(*parts.values(), strict=True)]


def _parts(edge: Edge, array: Tensor) -> list[Tensor]:
    """Return the parts of an array along its first axis, an input each."""
    batch = edge.shape[0] if edge.shape else 1
    cut = array.ndim == len(edge.shape) and array.ndim > 0 and array.shape[1:] == edge.shape[1:]
    if array.shape != edge.shape and (not cut or not len(array) or len(array) % batch):
        raise SpecError(f"{edge.name} has shape {array.shape}; it wants {edge.shape}, or more along the first axis")
    if (
        not is_float(str(array.dtype))
        and array.dtype.kind not in "biu"
        and not array.dtype.name.startswith(("int", "uint"))
    ):
        raise SpecError(f"{edge.name} has values of type {array.dtype}; it wants numbers of {edge.dtype}")
    if is_float(edge.dtype) != is_float(str(array.dtype)) and not is_float(edge.dtype):
        raise SpecError(f"{edge.name} has numbers of {array.dtype}; it wants {edge.dtype}")
    typed = array.astype(edge.dtype) if is_float(edge.dtype) else array
    return [typed] if array.shape == edge.shape else [typed[k : k + batch] for k in range(0, len(typed), batch)]
