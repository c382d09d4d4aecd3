"""Folders the commands write to."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bitsynth.errors import ToolError
from bitsynth.files import ADVICE


def require_writable(folder: Path, advice: str = ADVICE) -> None:
    """ToolError now if `folder` could not be written to after long work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ToolError(f"cannot write to {folder}: {error.strerror or error}; {advice}") from None
