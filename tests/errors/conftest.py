"""What tests of failing commands share."""

import pytest

from bitsynth.store import kernels


@pytest.fixture
def user(tmp_path, monkeypatch):
    """An empty user cache."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    kernels.load_entry.cache_clear()
    return tmp_path / "cache"
