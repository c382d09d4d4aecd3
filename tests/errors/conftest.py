"""What tests of failing commands share."""

import pytest

from bitsynth import cache


@pytest.fixture
def user(tmp_path, monkeypatch):
    """An empty user cache."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    cache.load_entry.cache_clear()
    return tmp_path / "cache"
