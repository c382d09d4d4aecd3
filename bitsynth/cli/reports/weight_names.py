"""Names of weights, for the products of files in which an exporter numbered the nodes."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitsynth.printable import show

if TYPE_CHECKING:
    from bitsynth.graph.ir import Graph, Node

_NUMBER = re.compile(r"(?:[A-Za-z:]+(?:[0-9]d)?_)?\d+(?:_out\d+)?")
"""A number, or one behind the name of an operator: 45, Conv_12 or onnx::DepthToSpace_73."""


def is_number(name: str) -> bool:
    """Return whether a node or edge has a number from an exporter instead of a name, as in 45 or Conv_12.conv."""
    return _NUMBER.fullmatch(name.partition(".")[0]) is not None


def weight_names(model: Path, graph: Graph) -> dict[str, str]:
    """Return for each numbered product of `graph` the name that its weight has in the file, such as f.3.weight.

    Products whose weight is numbered too are left out.
    """
    from bitsynth.graph.operators import PRODUCTS
    from bitsynth.graph.read.file import load

    products = [node for node in graph.nodes if node.op in PRODUCTS and is_number(node.name)]
    if not products:
        return {}
    origins = _origins(load(model).graph)
    names = {node.name: _weight(node, graph, origins) for node in products}
    return {node: name for node, name in names.items() if name and not _NUMBER.fullmatch(name)}


def _weight(node: Node, graph: Graph, origins: dict[str, tuple[int, str]]) -> str:
    """Return the name of a product's constant operand in the file; "" if it has none."""
    return next((_origin(edge, origins) for edge in node.inputs if edge in graph.constants), "")


def _origins(graph: Any) -> dict[str, tuple[int, str]]:
    """Return size and name of the largest initializer that each constant edge of a file is computed from."""
    sizes = {tensor.name: (math.prod(tensor.dims), tensor.name) for tensor in graph.initializer}
    for node in graph.node:
        given = [name for name in node.input if name]
        if all(name in sizes for name in given):
            sizes |= dict.fromkeys(node.output, max((sizes[name] for name in given), default=(0, "")))
    return sizes


def _origin(edge: str, origins: dict[str, tuple[int, str]]) -> str:
    """Return the initializer behind an edge, which may have a suffix of ours such as `.transpose`; "" if unknown."""
    while edge not in origins and "." in edge:
        edge = edge.rpartition(".")[0]
    return show(origins.get(edge, (0, ""))[1])
