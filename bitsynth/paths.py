"""Places of data: what ships, inside the wheel or next to the package in a checkout, and the user's cache."""

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
    """Return the folder of the instruction sets that came with the package."""
    return _data("isa_specs")


def user_isa_specs() -> tuple[Path, ...]:
    """Return the folders of the user's instruction sets: BITSYNTH_ISA, a list of folders as PATH is."""
    listed = os.environ.get("BITSYNTH_ISA", "").split(os.pathsep)
    folders = (Path(folder).absolute() for folder in listed if folder)
    return tuple(folder for folder in folders if folder != isa_specs())


def isa_folder(name: str) -> Path:
    """Return the folder of the instruction set `name`: a user's folder if it has the set, else the shipped folder."""
    folders = (home / name for home in user_isa_specs())
    return next((folder for folder in folders if (folder / "isa.toml").is_file()), isa_specs() / name)


def architectures() -> Path:
    """Return the file of the processor architectures that came with the package."""
    return _data("isa_specs") / "architectures.toml"


def user_architectures() -> tuple[Path, ...]:
    """Return the files `architectures.toml` next to the user's instruction sets."""
    files = (folder / "architectures.toml" for folder in user_isa_specs())
    return tuple(file for file in files if file.is_file())


def runtime() -> Path:
    """Return the folder of C files that are copied unchanged next to emitted layers."""
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


def user_searches() -> Path:
    """Return the user's folder of searches for widths: in BITSYNTH_CACHE, else in the user's cache folder."""
    return (_user_folder() or user_cache()) / "quantize"


def _user_folder() -> Path | None:
    chosen = os.environ.get("BITSYNTH_CACHE")
    return Path(chosen) if chosen else None


def user_cache() -> Path:
    """Return the user's cache folder for bitsynth."""
    return _user_cache(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@cache
def _user_cache(*_: str | None) -> Path:
    """Cache `user_cache` by the two variables it depends on."""
    return platformdirs.user_cache_path("bitsynth")
