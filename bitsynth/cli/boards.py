"""Boards that options name."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitsynth.device import Device


def open_board(host: str | None, emulator: str) -> AbstractContextManager[Device | None]:
    """Return a board to be opened as a context; None is opened if no host is named."""
    if not host:
        return nullcontext()
    from bitsynth.device import Device

    return Device(host, emulator=emulator)
