"""Ends a command that is interrupted while it imports: no handler of the command line is there yet.

It imports next to nothing itself: `signal` takes as long as a short command.
"""

from __future__ import annotations

import _signal
import os


def stop(number: int, frame: object) -> None:
    """End the process as an interrupted command ends."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


def handle_interrupts() -> None:
    """Have an interrupt end the process, unless interrupts are handled or ignored already."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, stop)
