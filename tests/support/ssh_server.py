"""A real OpenSSH server on the loopback address, of the user who tests, with keys and folders of its own."""

import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bitsynth.isa import architecture, load

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
PRIVILEGE_SEPARATION = Path("/run/sshd")

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/key.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
ForceCommand PATH="{folder}/bin:$PATH" TMPDIR="{folder}/tmp" exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
CLIENT = """\
Host nowhere
  HostName no-such-host.invalid
Host refusing
  Port {closed}
Host stranger
  IdentityFile {folder}/other
Host unknown
  UserKnownHostsFile /dev/null
Host changed
  UserKnownHostsFile {folder}/changed
Host silent
  Port {silent}
Host *
  HostName 127.0.0.1
  Port {port}
  IdentitiesOnly yes
  GlobalKnownHostsFile /dev/null
  UserKnownHostsFile {folder}/known
Host * !stranger
  IdentityFile {folder}/key
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """Runs until `stop`. Commands in `bin` come first on the server's PATH, `tmp` is where its folders go."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.tmp = folder, folder / "bin", folder / "tmp"
        self.bin.mkdir()
        self.tmp.mkdir()
        for name in ("host", "key", "other"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(argv, check=True)
        self.port = free_port()
        self.silent = socket.create_server(("127.0.0.1", 0))
        self.closed = socket.socket()
        self.closed.bind(("127.0.0.1", 0))
        self.config = folder / "config"
        self._write()
        self._process = self._start()

    def _write(self) -> None:
        known = f"[127.0.0.1]:{self.port} "
        (self.folder / "known").write_text(known + (self.folder / "host.pub").read_text())
        (self.folder / "changed").write_text(known + (self.folder / "other.pub").read_text())
        values = {"folder": self.folder, "port": self.port}
        (self.folder / "sshd_config").write_text(SERVER.format(**values))
        ports = {"closed": self.closed.getsockname()[1], "silent": self.silent.getsockname()[1]}
        self.config.write_text(CLIENT.format(**values, **ports))

    def _start(self) -> subprocess.Popen[bytes]:
        if os.geteuid() == 0:
            PRIVILEGE_SEPARATION.mkdir(exist_ok=True)
        process = subprocess.Popen([str(SSHD), "-D", "-f", self.folder / "sshd_config", "-E", self.folder / "log"])
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0 and process.poll() is None:
                    return process
            time.sleep(0.05)
        process.kill()
        process.wait()
        raise RuntimeError((self.folder / "log").read_text())

    def stop(self) -> None:
        self.silent.close()
        self.closed.close()
        self._process.terminate()
        self._process.wait()

    def tool(self, name: str, script: str) -> None:
        """A command of the server's."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def processor(self, script: str) -> None:
        """Make the server's processor one without a family, whose name the script prints."""
        self.tool("lscpu", script)
        fields = "'/^vendor_id['* | '/^cpu family['* | '/^model['*"
        self.tool("sed", f'case "$2" in {fields}) exit ;; esac\nexec {shutil.which("sed")} "$@"')

    def left(self, seconds: float = 0.0) -> list[Path]:
        """What is left in `tmp`, after waiting for it to go."""
        end = time.monotonic() + seconds
        while (folders := self._found()) and time.monotonic() < end:
            time.sleep(0.05)
        return folders

    def _found(self) -> list[Path]:
        """Folders that go meanwhile are no error to `os.walk`."""
        return [Path(at, name) for at, folders, files in os.walk(self.tmp) for name in (*folders, *files)]


def tool_of(*argv: object) -> str:
    """A script that is another name for a command."""
    return f'exec {shlex.join(map(str, argv))} "$@"'


def emulator(isa: str, skip_isa: Callable[[str, str], object]) -> str:
    """The path of what runs the set's programs here; a test that lacks it is skipped."""
    emulator = architecture.find_architecture(load.load(isa).table.arch).emulator
    programs = emulator.qemu.programs if emulator else ()
    path = next((p for name in programs if (p := shutil.which(name))), "")
    if not path:
        skip_isa(isa, f"none of {', '.join(programs)} is on PATH")
    return path
