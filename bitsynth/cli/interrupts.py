"""Signals that end a command: none is lost, and each ends the command in the same way.

Python forgets a KeyboardInterrupt that is raised in a finalizer, and ctypes makes another exception of one that is
raised as it converts an argument; solver terms do both without number. So the handler remembers the signal,
`raise_pending` raises it again, and whatever ends a command after a signal is that signal.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bitsynth import starting

_MEANINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
SIGNALS = tuple(_MEANINGS)
_UNHANDLED = signal.SIG_DFL, signal.default_int_handler, starting.stop
_seen: list[signal.Signals] = []


class Stopped(KeyboardInterrupt):
    """A signal that ends the command, with the exit code 128 + number as shells have it."""

    def __init__(self, number: int) -> None:
        super().__init__(_MEANINGS[signal.Signals(number)])
        self.exit_code = 128 + number


@contextmanager
def handle_signals() -> Iterator[None]:
    """Raise Stopped in this block when a signal arrives, or at its end if the exception was lost or replaced.

    Finalizers that a signal interrupts print nothing. Signals that are handled or ignored already stay so.
    """
    _seen.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: was for number in _MEANINGS if (was := signal.getsignal(number)) in _UNHANDLED}
    hook = sys.unraisablehook
    for number in before:
        signal.signal(number, _remember)
    sys.unraisablehook = lambda what: None if _seen else hook(what)
    try:
        yield
    except BaseException:
        raise_pending()
        raise
    finally:
        if not _seen:
            sys.unraisablehook = hook
            for number, was in before.items():
                signal.signal(number, was)
    raise_pending()


def _remember(number: int, frame: FrameType | None) -> None:
    """Remember the first signal, and ignore others while the command cleans up."""
    if not _seen:
        _seen.append(signal.Signals(number))
        raise_pending()


def raise_pending() -> None:
    """Raise Stopped if a signal was seen."""
    if _seen:
        raise Stopped(_seen[0]) from None
