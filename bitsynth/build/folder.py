"""Where compiled code is kept."""

from __future__ import annotations

import os
from pathlib import Path

from bitsynth import paths


def cache_folder() -> Path:
    """Where compiled libraries are kept: BITSYNTH_BUILD_CACHE, or the user's cache."""
    given = os.environ.get("BITSYNTH_BUILD_CACHE")
    return Path(given).absolute() if given else paths.user_cache() / "build"
