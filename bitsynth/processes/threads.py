"""Runs several tools at a time, each waited for by a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

Submit = Callable[..., "Future[Any]"]
"""Has a thread call a function with arguments, in the context of whoever asks."""


@contextmanager
def several_at_once(most: int) -> Iterator[Submit]:
    """Yield up to `most` threads for this block; it ends after the work that they have begun.

    What none has begun by then is done too, unless the block fails or is interrupted.
    """
    with ThreadPoolExecutor(max(1, most)) as pool:
        try:
            yield lambda work, *arguments: pool.submit(copy_context().run, work, *arguments)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
