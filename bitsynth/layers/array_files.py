"""Reads untrusted .npy and .npz files."""

from __future__ import annotations

import zlib
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.files import open_file

MAX_BYTES = 1 << 32
"""The limit of a file, and of its unpacked content: 2**29 doubles."""
_DAMAGED = ValueError, EOFError, MemoryError, BadZipFile, zlib.error, RuntimeError, TokenError
"""Exceptions of numpy and zipfile for files that are truncated, encrypted, damaged or of another kind."""


def read_arrays(path: Path, alone: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file by name; the array of a .npy file is called `alone`.

    Raises:
        SpecError: The file is none of these, or damaged.
        OSError: It cannot be opened.
    """
    try:
        with open_file(path, MAX_BYTES) as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {alone: loaded}
            if sum(member.file_size for member in loaded.zip.infolist()) > MAX_BYTES:
                raise SpecError(f"{path} unpacks to more than the {MAX_BYTES:,} bytes that are read of such a file")
            return {name: _array(name, loaded[name]) for name in loaded}
    except _DAMAGED as error:
        reason = "it has Python objects" if "pickle" in str(error) else error
        raise SpecError(f"{path} is no .npy or .npz file of plain arrays: {reason}") from None


def _array(name: str, member: object) -> NDArray[Any]:
    if not isinstance(member, np.ndarray):
        raise ValueError(f"its member {name} is no array")
    return member
