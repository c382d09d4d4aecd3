"""Where compiled code is kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where compiled libraries are kept: BITSYNTH_BUILD_CACHE, or the user's cache."""
    given = os.environ.get("BITSYNTH_BUILD_CACHE")
    return Path(given).absolute() if given else user_cache() / "build"


def user_cache() -> Path:
    """The user's cache folder for bitsynth."""
    try:
        import platformdirs
    except ImportError:
        return Path.home() / ".cache" / "bitsynth"
    return platformdirs.user_cache_path("bitsynth")
