"""What tests of failing commands share."""

import pytest

from bitsynth import cache
from bitsynth.cli import main


@pytest.fixture
def user(tmp_path, monkeypatch):
    """An empty user cache."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    cache.load_entry.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def fails(capsys):
    """Run a command that must fail with `code`: its one message."""

    def call(code, *argv):
        assert main(list(argv)) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err

    return call
