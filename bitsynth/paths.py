"""Places of data: what ships, inside the wheel or beside the package in a checkout, and the user's cache."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import platformdirs

_PACKAGE = Path(__file__).parent


@cache
def _data(name: str) -> Path:
    shipped = _PACKAGE / "_data" / name
    return shipped if shipped.is_dir() else _PACKAGE.parent / name


def isa_specs() -> Path:
    """Return the folder of instruction sets."""
    return _data("isa_specs")


def architectures() -> Path:
    """Return the file of processor architectures."""
    return _data("isa_specs") / "architectures.toml"


def runtime() -> Path:
    """Return the folder of C files that are copied beside emitted layers as they are."""
    return _PACKAGE / "runtime"


def shipped_kernels() -> Path:
    """Return the folder of solved kernels that came with the package."""
    return _data("kernels_cache")


def shipped_schedules() -> Path:
    """Return the folder of tuned schedules that came with the package."""
    return _data("tuned")


def user_kernels() -> Path:
    """Return the user's folder of kernels: BITSYNTH_CACHE, else one in the user's cache folder."""
    return _user_folder() or user_cache() / "kernels"


def user_schedules() -> Path:
    """Return the user's folder of tuned schedules: in BITSYNTH_CACHE, else in the user's cache folder."""
    return (_user_folder() or user_cache()) / "tuned"


def _user_folder() -> Path | None:
    chosen = os.environ.get("BITSYNTH_CACHE")
    return Path(chosen) if chosen else None


def user_cache() -> Path:
    """Return the user's cache folder for bitsynth."""
    return _user_cache(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@cache
def _user_cache(*_: str | None) -> Path:
    """Return the same, asked for once while what it depends on stays."""
    return platformdirs.user_cache_path("bitsynth")
