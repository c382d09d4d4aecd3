"""Chooses where kernels run, over any other choice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "BITSYNTH_RUNNER"


@contextmanager
def forced(runner: str) -> Iterator[None]:
    """Have kernels run by `runner`, or wherever they can where that is empty; then as before."""
    before = os.environ.get(VARIABLE, "")
    _force(runner)
    try:
        yield
    finally:
        _force(before)


def _force(runner: str) -> None:
    os.environ.pop(VARIABLE, None)
    if runner:
        os.environ[VARIABLE] = runner
