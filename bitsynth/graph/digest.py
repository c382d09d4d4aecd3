"""The digest of a graph: of its nodes, edges and constants, whatever file they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from bitsynth.graph.ir import Graph


def digest(graph: Graph) -> str:
    """The SHA-256 of all that a graph says, in hexadecimal."""
    made = hashlib.sha256()
    _feed(made, graph)
    return made.hexdigest()


def _feed(made: Any, value: Any) -> None:
    """Add a value and its kind, so that no two values have one text."""
    if isinstance(value, np.ndarray | np.generic):
        _feed(made, (value.dtype.name, value.shape))
        made.update(np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes())
    elif is_dataclass(value):
        _feed(made, {f.name: getattr(value, f.name) for f in fields(value)})
    elif isinstance(value, Mapping):
        _feed(made, [(key, value[key]) for key in sorted(value)])
    elif isinstance(value, frozenset):  # Strings in it are in another order in every process.
        _feed(made, sorted(value))
    elif isinstance(value, list | tuple):
        made.update(f"({len(value)}".encode())
        for part in value:
            _feed(made, part)
    else:
        text = repr(value).encode()
        made.update(f"{type(value).__name__} {len(text)} ".encode() + text)
