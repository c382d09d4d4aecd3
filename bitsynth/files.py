"""Files that are replaced in one step: a reader sees the old text or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bitsynth.errors import ToolError


def replace_file(path: Path, data: bytes) -> None:
    """Make `path` hold `data`, creating its folder; ToolError says why it cannot be written."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise ToolError(
            f"cannot write {path}: {error.strerror or error}; choose another folder with BITSYNTH_CACHE or -o"
        ) from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
