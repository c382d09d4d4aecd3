"""Layouts of activations in memory, by the words that the API, the command line, C and certificates have for them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from bitsynth.errors import SpecError


class Layout(StrEnum):
    """The order of a tensor's elements in memory.

    Layers read and write images in all but plain order, glue channels last or packed. Edges of a network lie in plain
    order, channels last, or packed.
    """

    PLAIN = "plain"
    """Axes in the order of the edge's shape."""
    NHWC = "NHWC"
    """Channels (axis 1 of an edge) last."""
    NCHW = "NCHW"
    """Channels before the axes of the image."""
    PACKED = "packed"
    """Channels last, as bits: words of 64 channels (`layers/packed_codes.py`)."""

    def __repr__(self) -> str:
        """Return the word in quotes, as a caller writes it: in messages, and in commands that make a layer again."""
        return repr(self.value)

    @classmethod
    def parse(cls, text: Any, known: Sequence[Layout], whose: str = "known") -> Layout:
        """Return the layout called `text`, one of `known`; SpecError lists these, behind the words `whose`."""
        if isinstance(text, str) and text in known:
            return cls(text)
        raise SpecError(f"unknown layout {text!r}; {whose}: {', '.join(known)}")
