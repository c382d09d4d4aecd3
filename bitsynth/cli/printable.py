"""Text that others wrote, made fit for a terminal."""

from __future__ import annotations


def printable(text: str, kept: str = "\n\t") -> str:
    """The text with all characters escaped that cannot be seen, unless they are `kept`.

    Escaped are the beginnings of a terminal's commands, bells, returns, and marks that turn the direction of writing.
    """
    return "".join(x if x.isprintable() or x in kept else repr(x)[1:-1] for x in text)
