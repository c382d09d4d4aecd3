"""Pools of threads that layers share."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock, get_ident
from typing import Any, Protocol, Self

from bitsynth.errors import SpecError, ToolError
from bitsynth.run.runner import Runner
from bitsynth.spec.options import MAX_THREADS


class Forked(Protocol):
    """An object that another thread may be using when this process forks."""

    def after_fork(self) -> None:
        """Reset to the state in which nobody uses it."""


_living: weakref.WeakSet[Forked] = weakref.WeakSet()


def register_for_fork(resource: Forked) -> None:
    """Reset `resource`, while it lives, in every process forked from now on."""
    _living.add(resource)


def _reset_all() -> None:
    for resource in _living:
        resource.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


_ONE_THREAD = nullcontext(0)


class Pool:
    """Threads for any number of layers: `Conv2d(..., threads=pool)`. The one that calls is among them.

    They start when a layer first needs them, once, and again in a forked process; without work they sleep. Layers
    that share a pool take turns, whichever thread of Python calls them. `close`, the end of a `with` block or of
    the last reference ends the threads.

    Args:
        threads: Threads, 1 to 256; SpecError for anything else.
    """

    def __init__(self, threads: int) -> None:
        self.threads = check_threads(threads)
        self._turn, self._address, self._closed = Lock(), 0, False
        self._user: int | None = None
        self._end: weakref.finalize[..., Pool] | None = None
        register_for_fork(self)

    def __repr__(self) -> str:
        return f"<bitsynth Pool of {self.threads} threads{', closed' if self._closed else ''}>"

    def __enter__(self) -> Self:
        return self.require_open()

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        """Refuse copies and pickles, TypeError."""
        raise TypeError(
            "a Pool has threads of its own, which cannot be copied or pickled: share it, or make another; "
            "a layer that is to be pickled takes threads as a number"
        )

    def close(self) -> None:
        """End the threads, once no layer runs on them; layers of this pool then refuse to run.

        SpecError in a signal handler that interrupted such a layer, which cannot end before the handler does.
        """
        if self._user == get_ident():
            raise SpecError(f"{self!r} runs a layer that this thread called: close it when that is done")
        with self._turn:
            self._closed = True
            if self._end is not None:
                self._end()

    def require_open(self) -> Self:
        """Return this pool; SpecError if it is closed."""
        if self._closed:
            raise SpecError(f"{self!r} runs no layer; make another")
        return self

    def acquire(self, runner: Runner) -> AbstractContextManager[int]:
        """Yield the address of `struct bs_pool`, locked for one call by `runner`; 0 for one thread."""
        if self.threads == 1:
            self.require_open()
            return _ONE_THREAD
        return self._take(runner)

    @contextmanager
    def _take(self, runner: Runner) -> Iterator[int]:
        with self._turn:
            self.require_open()
            self._require_native(runner)
            if self._end is None:
                self._start(runner)
            self._user = get_ident()
            try:
                yield self._address
            finally:
                self._user = None

    def _require_native(self, runner: Runner) -> None:
        """Raise SpecError if the runner cannot use threads of this process, as an emulator cannot."""
        if not runner.description.startswith("natively"):
            raise SpecError(f"a layer that runs {runner.description} has one thread, not {self.threads}")

    def _start(self, runner: Runner) -> None:
        self._address = runner.call("bs_pool_create", self.threads)
        if not self._address:
            raise ToolError(f"the system does not give {self.threads} threads")
        self._end = weakref.finalize(self, runner.call, "bs_pool_destroy", self._address)
        self._end.atexit = False  # A daemon thread may still run a layer then.

    def after_fork(self) -> None:
        """Reset as if it had not started: a forked process has none of its threads, none that could end its turn."""
        if self._end is not None:
            self._end.detach()
        self._turn, self._end, self._user = Lock(), None, None


class _Shared(Pool):
    """A pool that all layers of one number of threads share, those made later included."""

    def __reduce__(self) -> Any:
        """Pickle the number of threads: every process has a pool of its own."""
        return pool_of, (self.threads,)

    def close(self) -> None:
        raise SpecError(f"all layers of {self.threads} threads share this pool: give them a Pool of your own to close")


def pool_of(threads: Any) -> Pool:
    """Return the pool `threads`, or the shared pool of that number of threads; raise SpecError for other objects."""
    return threads.require_open() if isinstance(threads, Pool) else _shared_pool(check_threads(threads))


def check_threads(threads: Any) -> int:
    """Return `threads`; raise SpecError unless a pool can have that number."""
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise SpecError(f"threads must be a whole number from 1 to {MAX_THREADS}, or a layer's Pool, not {threads!r}")
    return threads


@cache
def _shared_pool(threads: int) -> Pool:
    return _Shared(threads)
