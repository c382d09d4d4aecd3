"""Names that make trouble, given to the edges of a model: names the product makes itself, keywords of C, odd text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.random import Generator

ODD = [
    "input.1",
    "x.3",
    "int",
    "return",
    "in0",
    "out0",
    "scratch",
    "self",
    "0",
    " ",
    "*/ int",
    "// \\",
    '"',
    "%s%n",
    "{{ x }}",
    "größe",
    "入力",
    "a\u202eb",
    "\x1b[31m",
    "line\nbreak",
    "/model/Relu_output_0",
    "w" * 1000,
]
"""Names that files may have: of exporters, of C, and text that is no identifier."""

SUFFIXES = ["copy", "out0", "out1", "rows", "read", "codes", "early", "late", "part", "dividend", "sums", "scale"]
"""What the product appends to the name of an edge for another form of it."""


def adversarial(edges: Iterable[str], rng: Generator, result: Iterable[str] = ()) -> dict[str, str]:
    """Draw a new name for some edges: odd ones, ones that derive from other edges, and those of `made`."""
    old = sorted(edges)
    pool = [*ODD, "constant", *result]
    pool += [f"{name}.{suffix}{number}" for name in old for suffix in SUFFIXES for number in ("", "_1")]
    drawn = list(dict.fromkeys(rng.permutation(pool).tolist()))
    new = [name for name in drawn if name not in old][: len(old)]
    return {name: other for name, other in zip(rng.permutation(old).tolist(), new, strict=False) if rng.integers(4)}


def edges_of(model: Any) -> set[str]:
    """Return the names of all edges of a model, initializers included."""
    graph = model.graph
    named = {x.name for part in (graph.input, graph.output, graph.initializer) for x in part}
    return named | {name for node in graph.node for name in (*node.input, *node.output) if name}


def renamed(model: Any, names: Mapping[str, str]) -> Any:
    """Return a copy of a model whose edges have other names."""
    copied = type(model)()
    copied.CopyFrom(model)
    for part in (copied.graph.input, copied.graph.output, copied.graph.initializer, copied.graph.value_info):
        for tensor in part:
            tensor.name = names.get(tensor.name, tensor.name)
    for node in copied.graph.node:
        for edges in (node.input, node.output):
            edges[:] = [names.get(name, name) for name in edges]
    return copied
