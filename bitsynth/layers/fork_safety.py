"""What a forked process mends: none of its parent's threads is there, and none will let go of what it held."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """What may be in use by another thread when this process forks."""

    def after_fork(self) -> None:
        """Be as if nobody used it."""


_living: weakref.WeakSet[Forked] = weakref.WeakSet()


def mended(thing: Forked) -> None:
    """Have `thing`, while it lives, mended in every process forked from now on."""
    _living.add(thing)


def _mend_all() -> None:
    for thing in _living:
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mend_all)
