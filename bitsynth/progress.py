"""Progress of long work, for those who wait for it."""

from __future__ import annotations

import sys
from typing import Protocol


class Progress(Protocol):
    """A function that shows the current activity, and if known how many of how many parts are done."""

    def __call__(self, message: str, done: float = 0, total: float | None = None) -> object:
        """Show `message`, and that `done` of `total` is done."""


def silent(message: str, done: float = 0, total: float | None = None) -> None:
    """Show nothing."""


def to_stderr(message: str, done: float = 0, total: float | None = None) -> None:
    """Write `message` to stderr, a line each."""
    print(message, file=sys.stderr, flush=True)
