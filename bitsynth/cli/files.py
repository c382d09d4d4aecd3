"""Files the commands write: C beside each other in one folder, never half a file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from bitsynth.errors import ToolError
from bitsynth.files import ADVICE, replace_file


def write_c(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write every file that is not there already, letter for letter; their paths."""
    paths = [folder / name for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        data = text.encode()
        if not _holds(path, data):
            replace_file(path, data)
    return paths


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def require_writable(folder: Path, advice: str = ADVICE) -> None:
    """Raise ToolError now where `folder` could not be written to after long work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ToolError(f"cannot write to {folder}: {error.strerror or error}; {advice}") from None
