"""Nodes of standard ONNX that take elements from places, or put others there: places are constants of the file."""

from __future__ import annotations

import math

import numpy as np

from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Shape, Tensor


def _indices(node: FileNode, index: int, sizes: Tensor | int) -> Tensor:
    """Whole numbers, those below 0 counted from the end; SpecError if one leaves its axis."""
    found = node.value(index, "indices").astype(np.int64)
    if ((found < -np.asarray(sizes)) | (found >= sizes)).any():
        raise node.fail(f"indices leave the {sizes} elements")
    made: Tensor = np.where(found < 0, found + sizes, found)
    return made


def _numbered(shape: Shape) -> Tensor:
    """The elements of a tensor by number."""
    return np.arange(math.prod(shape)).reshape(shape)


def _along(node: FileNode) -> Tensor:
    """The numbers of the elements that indices as many as a tensor say, each along one axis."""
    shape, axis = node.shape(), node.axis(node.get("axis", 0))
    places = _indices(node, 1, shape[axis])
    if places.ndim != len(shape):
        raise node.fail(f"indices {places.shape} want as many axes as {shape}")
    at = np.indices(places.shape)
    at[axis] = places
    made: Tensor = _numbered(shape)[tuple(at)]
    return made


def _by_rows(node: FileNode) -> Tensor:
    """The numbers of the elements that rows of indices say, along the first axes."""
    shape = node.shape()
    count = node.shape(1)[-1]
    if node.get("batch_dims", 0) or not 1 <= count <= len(shape):
        raise node.fail(f"rows of {count} indices and batch_dims {node.get('batch_dims', 0)} are not compiled")
    places = _indices(node, 1, np.array(shape[:count]))
    made: Tensor = _numbered(shape)[tuple(np.moveaxis(places, -1, 0))]
    return made


def _taken(node: FileNode, numbers: Tensor) -> tuple[str, ...]:
    flat = node.reshape(node.edge(0), (math.prod(node.shape()),))
    return (node.reshape(node.add("gather", flat, places=numbers.reshape(-1), axis=0), numbers.shape),)


def _put(node: FileNode, numbers: Tensor) -> tuple[str, ...]:
    """The tensor with the elements of another where `numbers` say; of several for one place the last."""
    if node.get("reduction", "none") != "none":
        raise node.fail(f"reduction {node.get('reduction')!r} is not compiled")
    if numbers.shape != node.shape(2):
        raise node.fail(f"{node.shape(2)} updates are not for indices {node.shape(1)}")
    count = math.prod(node.shape())
    both = [node.reshape(node.edge(k), (math.prod(node.shape(k)),)) for k in (0, 2)]
    places = np.arange(count)
    places[numbers.reshape(-1)] = count + np.arange(numbers.size)
    made = node.add("gather", node.add("concatenate", *both, axis=0), places=places, axis=0)
    return (node.reshape(made, node.shape()),)


READERS: dict[str, Reader] = {
    "GatherElements": lambda node: _taken(node, _along(node)),
    "GatherND": lambda node: _taken(node, _by_rows(node)),
    "Scatter": lambda node: _put(node, _along(node)),
    "ScatterElements": lambda node: _put(node, _along(node)),
    "ScatterND": lambda node: _put(node, _by_rows(node)),
}
