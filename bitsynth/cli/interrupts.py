"""Interrupts that cannot get lost.

Python forgets a KeyboardInterrupt raised in a finalizer, and solver terms have finalizers
without number. So the handler remembers it, and `heed` raises it again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_seen = threading.Event()


@contextmanager
def heeded() -> Iterator[None]:
    """Remember interrupts in this block, and be silent about finalizers they cut short."""
    _seen.clear()
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    hook = sys.unraisablehook
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = lambda what: None if _seen.is_set() else hook(what)
    try:
        yield
    finally:
        if not _seen.is_set():
            sys.unraisablehook = hook
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    if not _seen.is_set():
        _seen.set()
        raise KeyboardInterrupt


def heed() -> None:
    """Raise KeyboardInterrupt where one was seen."""
    if _seen.is_set():
        raise KeyboardInterrupt
