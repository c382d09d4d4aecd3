"""The measurements of a search, kept in a file so that a search that was interrupted goes on when it is repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bitsynth import __version__
from bitsynth.errors import SpecError
from bitsynth.files import read_file, replace_file
from bitsynth.paths import user_searches
from bitsynth.quantization.goal import Cost, Loss
from bitsynth.quantization.quantized_model import Widths

_FORMAT = 1


@dataclass(frozen=True)
class Trial:
    """A choice of widths that was run: its measured loss, and the predicted cost of the whole network."""

    widths: Widths
    loss: Loss
    cost: Cost


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The state as the file has it: dictionaries as lists of items, as keys of JSON are strings."""

    format: int
    costs: list[tuple[tuple[str, int, int], Cost]]
    overheads: list[tuple[tuple[int, int], Cost]]
    baseline: float | None
    estimates: list[tuple[tuple[str, int], float]]
    trials: list[Trial]


@dataclass
class SearchState:
    """The measurements of a search so far.

    Args:
        path: The file that keeps them; None if they are not kept.
    """

    path: Path | None = None
    costs: dict[tuple[str, int, int], Cost] = field(default_factory=dict)
    """The cost of a product by name, bits of activations and bits of weights."""
    overheads: dict[tuple[int, int], Cost] = field(default_factory=dict)
    """The cost of a network but for its products, where all of these have the same bits."""
    baseline: float | None = None
    """The output's error where everything has the most bits."""
    estimates: dict[tuple[str, int], float] = field(default_factory=dict)
    """Estimated loss of an edge or a product at some bits."""
    trials: list[Trial] = field(default_factory=list)
    """The choices that were run, in order."""

    def save(self) -> None:
        """Write the file anew, in one step."""
        if self.path is None:
            return
        items = [*self.costs.items()], [*self.overheads.items()], self.baseline, [*self.estimates.items()]
        replace_file(self.path, msgspec.json.encode(_File(_FORMAT, *items, self.trials)))


def restored(path: Path) -> SearchState:
    """Return the state that a file keeps; an empty one if there is none, or it is damaged."""
    try:
        file = msgspec.json.decode(read_file(path), type=_File)
    except (OSError, SpecError, msgspec.DecodeError):
        return SearchState(path)
    if file.format != _FORMAT:
        return SearchState(path)
    tables = dict(file.costs), dict(file.overheads), file.baseline, dict(file.estimates)
    return SearchState(path, *tables, file.trials)


def state_path(parts: Mapping[str, Any]) -> Path:
    """Return the file of a search in the user's cache, named by a digest of everything that its results depend on.

    The program's own text is among that: what it measures may change with any version of it.
    """
    whole = hashlib.sha256(__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        whole.update(source.read_bytes())
    for name, part in parts.items():
        whole.update(f"{name}:".encode())
        whole.update(_bytes(part))
    return user_searches() / f"{whole.hexdigest()[:32]}.json"


def _bytes(part: Any) -> bytes:
    """Return bytes that equal parts alone have."""
    if isinstance(part, bytes):
        return part
    if isinstance(part, np.ndarray):
        return f"{part.dtype} {part.shape}".encode() + np.ascontiguousarray(part).tobytes()
    return repr(part).encode()
