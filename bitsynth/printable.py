"""Text for terminals, pages, comments and messages: what others wrote, made fit for them, and numbers with nouns."""

from __future__ import annotations

import re

_MAX_NAME, _MAX_WORD, _MAX_LINE = 120, 80, 4000
"""The most characters of a name that is shown, of a word of a message, and of a whole message."""
_LONG_WORD = re.compile(rf"\S{{{_MAX_WORD + 1},}}")


def printable(text: str, kept: str = "\n\t") -> str:
    """Return the text with all characters escaped that cannot be seen, unless they are `kept`.

    Escaped are the beginnings of a terminal's commands, bells, returns, and marks that change the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(x if x.isprintable() or x in kept else repr(x)[1:-1] for x in text)


def show(name: str) -> str:
    """Return a name as people read it: on one line, what cannot be seen escaped, the middle of a long one left out."""
    return abbreviate(printable(abbreviate(name, _MAX_NAME), kept=""), _MAX_NAME)


def one_line(message: str) -> str:
    """Return a message on one line, what cannot be seen escaped, the middle of long words and texts left out."""
    words = _LONG_WORD.sub(lambda word: abbreviate(word[0], _MAX_WORD), message)
    return abbreviate(printable(abbreviate(words, _MAX_LINE), kept=""), _MAX_LINE)


def abbreviate(text: str, most: int) -> str:
    """Return a text of at most `most` characters: of a longer one the beginning and the end."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end - 3]}...{text[-end:]}"


def count(n: int, what: str) -> str:
    """Return a number and a noun, as in "1 query" or "3 queries"."""
    many = f"{what[:-1]}ies" if what.endswith("ry") else f"{what}s"
    return f"{n:,} {what if n == 1 else many}"
