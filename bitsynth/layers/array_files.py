"""Files of numpy arrays that anybody may have written."""

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

MOST_BYTES = 1 << 32
"""Of a file, and of what it unpacks to: as doubles 2**29 numbers."""
_DAMAGED = ValueError, EOFError, MemoryError, BadZipFile, zlib.error, RuntimeError, TokenError
"""What numpy and zipfile raise for files of other kinds, cut short, encrypted or changed."""


def read_arrays(path: Path, alone: str) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file by name, or that of a .npy file, which is called `alone`; SpecError for other files.

    OSError if it cannot be opened.
    """
    try:
        with open_file(path, MOST_BYTES) as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {alone: loaded}
            if sum(member.file_size for member in loaded.zip.infolist()) > MOST_BYTES:
                raise SpecError(f"{path} unpacks to more than the {MOST_BYTES:,} bytes that are read of such a file")
            return {name: _array(name, loaded[name]) for name in loaded}
    except _DAMAGED as error:
        said = "it has Python objects" if "pickle" in str(error) else error
        raise SpecError(f"{path} is no .npy or .npz file of plain arrays: {said}") from None


def _array(name: str, member: object) -> NDArray[Any]:
    if not isinstance(member, np.ndarray):
        raise ValueError(f"its member {name} is no array")
    return member
