"""What tests of failing commands share."""

import json
import shutil

import pytest
from support.run_commands import shipped_file

from bitsynth.cli import main
from bitsynth.store.matmul import MATMUL


@pytest.fixture
def user(tmp_path, monkeypatch):
    """An empty user cache."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    MATMUL.forget()
    return tmp_path / "cache"


@pytest.fixture
def works(capsys):
    """Run a command that must succeed: its JSON."""

    def call(*argv):
        assert main([*argv, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def stored(user):
    """The shipped kernel in the user's cache, to be broken."""
    (user / "neon").mkdir(parents=True)
    return shutil.copy(shipped_file(), user / "neon" / shipped_file().name)


@pytest.fixture
def few(user, monkeypatch):
    """`bitsynth list` lists the user's kernels and one that is shipped."""
    every = MATMUL.every
    monkeypatch.setattr(MATMUL, "every", lambda: (p for p in every() if p.is_relative_to(user) or p == shipped_file()))
