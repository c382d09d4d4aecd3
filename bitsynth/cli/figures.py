"""Result files of long commands: checks before the work, and the facts that all files have."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bitsynth.bench.setting import Basis, facts
from bitsynth.cli.files import require_writable
from bitsynth.errors import ToolError
from bitsynth.files import replace_file

_ADVICE = "name another file"


def require(*files: Path | None, plot: Path | None) -> None:
    """Raise ToolError before the work for a package or a folder that is missing after it."""
    if plot and importlib.util.find_spec("matplotlib") is None:
        raise ToolError("the package matplotlib is not installed: pip install 'bitsynth[bench]'")
    for path in filter(None, (*files, plot)):
        require_writable(path.parent, _ADVICE)
    for file in filter(None, files):
        if file.is_dir():
            raise ToolError(f"{file} is a folder; {_ADVICE}")


def as_json(basis: Basis, isas: Iterable[str] = (), **figures: Any) -> bytes:
    """Return the facts of a result (`setting.facts`) as JSON text."""
    return json.dumps(facts(basis, isas, **figures), indent=1).encode() + b"\n"


def write(file: Path, data: bytes) -> None:
    """Write `data` to `file` at once."""
    replace_file(file, data, _ADVICE)
