"""Result files of long commands: checks before the work, and the facts that all files have."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from bitsynth.bench.setting import Basis, facts
from bitsynth.cli.output import require_writable
from bitsynth.errors import ToolError
from bitsynth.files import replace_file

_ADVICE = "name another file"
_STDOUT = Path("-")


def require(*files: Path | None, plot: Path | None) -> None:
    """Raise ToolError before the work for a package or a folder that is missing after it."""
    if plot and importlib.util.find_spec("matplotlib") is None:
        raise ToolError("the package matplotlib is not installed: pip install 'bitsynth[bench]'")
    for path in filter(None, (*(file for file in files if file != _STDOUT), plot)):
        require_writable(path.parent, _ADVICE)
    for file in filter(None, files):
        if file.is_dir():
            raise ToolError(f"{file} is a folder; {_ADVICE}")


def as_json(basis: Basis, isas: Iterable[str] = (), **figures: Any) -> bytes:
    """Return the facts of a result (`setting.facts`) as JSON text."""
    return json.dumps(facts(basis, isas, **figures), indent=1).encode() + b"\n"


def tables(file: Path | None) -> AbstractContextManager[object]:
    """Have tables of this block printed on stderr if the figures of `file` go to stdout, where nothing else may be."""
    return redirect_stdout(sys.stderr) if file == _STDOUT else nullcontext()


def write(file: Path, data: bytes) -> None:
    """Write `data` to `file` at once, or to stdout."""
    if file == _STDOUT:
        sys.stdout.write(data.decode())
    else:
        replace_file(file, data, _ADVICE)
