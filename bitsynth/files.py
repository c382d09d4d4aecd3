"""Files that are replaced in one step: a reader sees the old text or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bitsynth.errors import ToolError

ADVICE = "choose another folder with BITSYNTH_CACHE or -o"


def replace_file(path: Path, data: bytes, advice: str = ADVICE) -> None:
    """Make `path` hold `data`, creating its folder; ToolError says why that failed, and gives `advice`."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise ToolError(f"cannot write {path}: {error.strerror or error}; {advice}") from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
