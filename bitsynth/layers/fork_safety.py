"""Reset of locks and thread pools in a forked child: none of its parent's threads is there to let go of them."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """An object that another thread may be using when this process forks."""

    def after_fork(self) -> None:
        """Reset to the state in which nobody uses it."""


_living: weakref.WeakSet[Forked] = weakref.WeakSet()


def register(thing: Forked) -> None:
    """Reset `thing`, while it lives, in every process forked from now on."""
    _living.add(thing)


def _reset_all() -> None:
    for thing in _living:
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
