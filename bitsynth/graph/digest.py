"""The digest of a graph: a hash of its nodes, edges and constants, the same for every file that gives them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from bitsynth.graph.ir import Graph


def digest(graph: Graph) -> str:
    """Return the SHA-256 of a graph's nodes, edges and constants, in hexadecimal.

    `file_names` is left out: it says nothing of the graph, and a set has another order in each process.
    """
    hasher = hashlib.sha256()
    _feed(hasher, {f.name: getattr(graph, f.name) for f in fields(graph) if f.name != "file_names"})
    return hasher.hexdigest()


def _feed(hasher: Any, value: Any) -> None:
    """Hash a value together with its type, so that different values are different bytes."""
    if isinstance(value, np.ndarray | np.generic):
        _feed(hasher, (value.dtype.name, value.shape))
        hasher.update(np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes())
    elif is_dataclass(value):
        _feed(hasher, {f.name: getattr(value, f.name) for f in fields(value)})
    elif isinstance(value, Mapping):
        _feed(hasher, [(key, value[key]) for key in sorted(value)])
    elif isinstance(value, list | tuple):
        hasher.update(f"({len(value)}".encode())
        for part in value:
            _feed(hasher, part)
    else:
        text = repr(value).encode()
        hasher.update(f"{type(value).__name__} {len(text)} ".encode() + text)
