"""The measurements of a search, kept in a file so that a search that was interrupted goes on when it is repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import bitsynth
from bitsynth import __version__, paths
from bitsynth.errors import SpecError
from bitsynth.files import read_file, replace_file
from bitsynth.host import features
from bitsynth.host.facts import here
from bitsynth.host.placement import get_forced_runner, sets_of
from bitsynth.quantization.float_model import require_runtime
from bitsynth.quantization.goal import Cost, Loss
from bitsynth.quantization.integer_program import Choice
from bitsynth.quantization.quantized_model import Widths

_FORMAT = 3


@dataclass(frozen=True)
class Trial:
    """A choice of widths that was run: its measured loss, and the predicted cost of the whole network."""

    widths: Widths
    loss: Loss
    cost: Cost


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The state as the file has it behind a digest: dictionaries as lists of items, as keys of JSON are strings."""

    format: int
    costs: list[tuple[tuple[str, Choice, Choice], Cost]]
    overheads: list[tuple[tuple[int, int], Cost]]
    baseline: float | None
    estimates: list[tuple[tuple[str, Choice], float]]
    trials: list[Trial]


@dataclass
class SearchState:
    """The measurements of a search so far.

    Args:
        path: The file that keeps them; None if they are not kept.
    """

    path: Path | None = None
    costs: dict[tuple[str, Choice, Choice], Cost] = field(default_factory=dict)
    """The cost of a product by name, bits of activations and codes of weights."""
    overheads: dict[tuple[int, int], Cost] = field(default_factory=dict)
    """The cost of a network but for its products, where all of these have the same bits."""
    baseline: float | None = None
    """The output's error where everything has the most bits."""
    estimates: dict[tuple[str, Choice], float] = field(default_factory=dict)
    """Estimated loss of a choice for an edge or a product."""
    trials: list[Trial] = field(default_factory=list)
    """The choices that were run, in order."""

    def save(self) -> None:
        """Write the file anew, in one step."""
        if self.path is None:
            return
        items = [*self.costs.items()], [*self.overheads.items()], self.baseline, [*self.estimates.items()]
        text = msgspec.json.encode(_File(_FORMAT, *items, self.trials))
        replace_file(self.path, _digest_line(text) + text)


def restore(path: Path) -> SearchState:
    """Return the state that a file keeps; an empty one if there is none, or it was changed since it was written."""
    try:
        digest, _, text = read_file(path).partition(b"\n")
        if digest + b"\n" != _digest_line(text):
            return SearchState(path)
        file = msgspec.json.decode(text, type=_File)
    except (OSError, SpecError, msgspec.DecodeError):
        return SearchState(path)
    if file.format != _FORMAT:
        return SearchState(path)
    tables = dict(file.costs), dict(file.overheads), file.baseline, dict(file.estimates)
    return SearchState(path, *tables, file.trials)


def _digest_line(text: bytes) -> bytes:
    """Return the first line of a state's file: the digest of the lines after it."""
    return hashlib.sha256(text).hexdigest().encode() + b"\n"


def state_path(parts: Mapping[str, Any], isa: str) -> Path:
    """Return the file of a search in the user's cache, named by a digest of everything that its results depend on.

    Costs depend on the program's own text, on kernels and tuned schedules for the instruction set `isa`, on the tables
    of instruction sets, and on this processor; losses on the package that runs networks.
    """
    whole = hashlib.sha256(f"{__version__} numpy {np.__version__} {require_runtime().__version__}".encode())
    processor = here().kind, sorted(features.features()), get_forced_runner()
    files = [*map(_version_of, sorted(_cost_files(isa)))]
    for name, part in {**parts, "processor": processor, "files": files}.items():
        whole.update(f"{name}:".encode())
        whole.update(_bytes(part))
    return paths.user_searches() / f"{whole.hexdigest()[:32]}.json"


def _cost_files(isa: str) -> Iterator[Path]:
    """Yield the files that the predicted cost of a network depends on."""
    yield from Path(bitsynth.__file__).parent.rglob("*.py")
    for folder in (paths.isa_specs(), *paths.user_isa_specs()):
        yield from folder.rglob("*.toml")
    homes = paths.user_kernels(), paths.shipped_kernels(), paths.user_schedules(), paths.shipped_schedules()
    for home, name in product(homes, sets_of(isa)):
        yield from (home / name).rglob("*.json")


def _version_of(path: Path) -> tuple[str, int, int]:
    """Return a file's path, size and time of its last change; zeros if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), status.st_size, status.st_mtime_ns


def _bytes(part: Any) -> bytes:
    """Return bytes that equal parts alone have."""
    if isinstance(part, bytes):
        return part
    if isinstance(part, np.ndarray):
        return f"{part.dtype} {part.shape}".encode() + np.ascontiguousarray(part).tobytes()
    return repr(part).encode()
