"""The constants of a network as one array of words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.initializers import elements
from bitsynth.emit.render import render
from bitsynth.files import MARK

ALIGN = 64
_WORD = 8
_HEX = re.compile(r"\b0x([0-9a-f]{16})\b")
"""A word as C spells it."""
_HEAD = f"{MARK}\n".encode().ljust(ALIGN, b"\0")


class Weights:
    """Constants of a network, one after another in the order of steps; equal constants are stored once."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._parts: list[bytes] = []
        self._ends = [0]
        self.bytes = 0

    def place(self, array: NDArray[Any]) -> int:
        """Return the word at which an array begins, aligned to 64 bytes."""
        raw = np.ascontiguousarray(array).tobytes()
        if raw not in self._places:
            self._places[raw] = self.bytes // _WORD
            self._parts.append(raw.ljust(max(1, -(-len(raw) // ALIGN)) * ALIGN, b"\0"))
            self.bytes += len(self._parts[-1])
        return self._places[raw]

    def end_step(self) -> None:
        """Note that all constants of a step are placed."""
        self._ends.append(self.bytes)

    def of_steps(self) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
        """Yield the steps with new constants: the step's number, the word at which they begin, their bytes."""
        whole = np.frombuffer(self._whole, np.uint8)
        for step, (begin, end) in enumerate(pairwise(self._ends)):
            if begin < end:
                yield step, begin // _WORD, whole[begin:end]

    @property
    def words(self) -> int:
        """The number of words of the whole array."""
        return max(1, self.bytes // _WORD)

    def files(self, name: str, *, binary: bool) -> dict[str, str]:
        """Return the array and its declaration for the library `name`; with `binary`, C that takes it from a file."""
        head, source = render("network_weights.h.j2", {"name": name, "words": self.words}), f"{name}_weights.c"
        values = {"name": name, "words": self.words, "head": len(_HEAD)}
        if binary:
            text = render("network_weights_file.c.j2", values)
        else:
            whole = np.frombuffer(self._whole, np.uint8)
            text = render("network_weights.c.j2", values | {"elements": elements(whole, "uint64_t")})
        return {f"{name}_weights.h": head, source: text}

    @staticmethod
    def read(files: Mapping[str, bytes], name: str) -> bytes:
        """Return the bytes of the array in the files of a library called `name`, by file name; b"" if it has none."""
        binary, text = files.get(f"{name}_weights.bin"), files.get(f"{name}_weights.c", b"")
        if binary is not None:
            return binary[len(_HEAD) :]
        words = _HEX.findall(text.decode("ascii", "replace"))
        return np.array([int(word, 16) for word in words], "<u8").tobytes()

    @property
    def file(self) -> bytes:
        """Return the file of weights: a line that identifies it, then the array."""
        return _HEAD + self._whole

    @property
    def _whole(self) -> bytes:
        return b"".join(self._parts) or bytes(_WORD)
