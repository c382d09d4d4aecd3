"""Cases of a test that run every time, and those that the slow suite alone runs."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick(fast: Collection[Any], of: Iterable[Any]) -> list[Any]:
    """All cases, slow but for the `fast` ones."""
    of = list(of)
    assert all(case in of for case in fast)
    return [pytest.param(case, marks=() if case in fast else pytest.mark.slow) for case in of]
