"""Cases of a test that run every time, and cases that the slow suite alone runs."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest

from bitsynth.host.features import arch

HERE = {"x86_64": "avx2", "aarch64": "neon"}.get(arch(), "armv7_neon")
"""The instruction set of tests that are about none: their layers have a runtime in common, compiled once."""


def quick(fast: Collection[Any], of: Iterable[Any], *, spread: bool = False) -> list[Any]:
    """Return all cases, slow but for the `fast` ones; with `spread` each is a tuple of several parameters' values."""
    of = list(of)
    assert all(case in of for case in fast)
    return [pytest.param(*(case if spread else (case,)), marks=() if case in fast else pytest.mark.slow) for case in of]


def pairs(firsts: Sequence[Any], seconds: Sequence[Any], offset: int = 0) -> list[tuple[Any, Any]]:
    """Return pairs that have each value of both sides, as few as do; each `offset` has others, until all were had."""
    period = max(len(firsts), len(seconds))
    return [(a, b) for i, a in enumerate(firsts) for j, b in enumerate(seconds) if (i + j + offset) % period == 0]
