"""Which cases of a test run every time, and which in the slow suite alone."""

import pytest


def quick(fast, of):
    """All cases, slow but for the `fast` ones."""
    of = list(of)
    assert all(case in of for case in fast)
    return [pytest.param(case, marks=() if case in fast else pytest.mark.slow) for case in of]
