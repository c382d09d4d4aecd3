"""The server that stands for a board."""

import shutil

import pytest
from support import ssh_server


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    if not (ssh_server.SSHD and shutil.which("ssh")):
        pytest.skip("OpenSSH is not installed")
    server = ssh_server.Server(tmp_path_factory.mktemp("ssh"))
    yield server
    server.stop()


@pytest.fixture
def server(running, monkeypatch):
    """The server, without commands of its own, and ssh told of it."""
    monkeypatch.setenv("BITSYNTH_SSH_CONFIG", str(running.config))
    yield running
    for path in running.bin.iterdir():
        path.unlink()
    assert running.left(10) == []
