"""Folders the commands write to."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bitsynth.errors import ToolError
from bitsynth.files import ADVICE


def require_writable(folder: Path, advice: str = ADVICE) -> None:
    """Raise ToolError before long work if `folder` cannot be written to."""
    try:
        for part in (*reversed(folder.parents), folder):
            if os.path.lexists(part) and not part.is_dir():
                what = "a link to nothing" if part.is_symlink() and not part.exists() else "not a folder"
                raise ToolError(f"cannot write to {folder}: {part} is {what}; {advice}")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ToolError(f"cannot write to {folder}: {error.strerror or error}; {advice}") from None
