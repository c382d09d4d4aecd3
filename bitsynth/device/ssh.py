"""OpenSSH with the user's own configuration: commands on a board, and the meaning of its failures."""

from __future__ import annotations

import os
import re
import shlex
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Self

from bitsynth.errors import SpecError, ToolError
from bitsynth.host.facts import SCRIPT
from bitsynth.processes.child import Child, ProcessGroup, TooLate, TooMuch

CONFIG = "BITSYNTH_SSH_CONFIG"
"""The variable of the environment that names another configuration than the user's own, for `ssh -F`."""
FAILED = 255
MAX_BYTES = 1 << 20
"""The limit of a board's output."""
_GRACE_SECONDS = 5
_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
_MEANINGS = (
    (r"Could not resolve hostname", "no such host: check its name, or the Host entry of your ~/.ssh/config"),
    (r"Connection refused", "it refuses connections: is its ssh server running, and on this port?"),
    (r"IDENTIFICATION HAS CHANGED", "its host key is not the one that is known: check why, then `ssh-keygen -R` it"),
    (r"Host key verification failed", "its host key is not known: connect once with `ssh {host}` and accept it"),
    (r"Permission denied|Too many authentication", "it accepts none of your keys: try `ssh-copy-id {host}`"),
    (r"timed out|No route to host|is unreachable", "it does not answer: is it on, and in this network?"),
    (r"not responding|closed by|reset by|Broken pipe|disconnect", "the connection was lost"),
)


class TimedOut(ToolError):
    """A command on a board took too long, and was ended."""


@dataclass
class CommandResult:
    """The end of a command on a board, and its output."""

    code: int
    output: str
    errors: str

    @property
    def killed_by(self) -> str:
        """The signal that killed it, as a shell says so; empty if none did."""
        number = self.code - 128
        return signal.Signals(number).name if number in {s.value for s in signal.Signals} else ""


@dataclass(frozen=True)
class Ssh:
    """Commands on `host`, [user@]name or an entry of the user's configuration."""

    host: str
    config: str = field(default_factory=lambda: os.environ.get(CONFIG, ""))
    _children: ProcessGroup = field(default_factory=ProcessGroup, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^\s\-][^\s]*", self.host):
            raise SpecError(f"{self.host!r} is no host: want a name such as pi@raspberrypi.local")

    def command(self, script: str) -> list[str]:
        """Return the command that runs `script` in a POSIX shell there, whatever the user's own shell is."""
        config = ["-F", self.config] if self.config else []
        options = [word for option in _OPTIONS for word in ("-o", option)]
        return ["ssh", "-T", *config, *options, "--", self.host, f"sh -c {shlex.quote(script)}"]

    def run(self, script: str, seconds: float, *, data: bytes | None = None, most: int = MAX_BYTES) -> CommandResult:
        """Run `script` with `data` as its input, or one that ends when we do.

        ToolError if ssh itself fails, or the board sends more than `most` bytes; TimedOut after `seconds`.
        """
        with _file(data) as file, self.start(script, file) as child:
            try:
                output, errors = child.output(seconds, most)
            except TooLate:
                raise TimedOut(f"{self.host}: did not end within {seconds:.0f} s: {script}") from None
            except TooMuch:
                raise self.explain_output(most) from None
        done = CommandResult(child.wait(), output.decode(errors="replace"), errors.decode(errors="replace").strip())
        if done.code == FAILED:
            raise self.failure(done.errors)
        return done

    @contextmanager
    def start(self, script: str, data: IO[bytes] | None = None) -> Iterator[Child]:
        """Yield a running `script`. At the end its input is closed, and the script ends with it or the connection."""
        reading, writing = os.pipe()
        try:
            child = self._start(script, data.fileno() if data else reading)
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        with child:
            try:
                yield child
            finally:
                os.close(writing)
                _end(child)
                self._children.forget(child)

    def stop(self) -> None:
        """End the running program, from another thread; nothing can be run afterwards."""
        self._children.stop()

    def _start(self, script: str, stdin: int) -> Child:
        try:
            return self._children.start(self.command(script), stdin)
        except OSError as error:
            raise ToolError(f"cannot start ssh: {error.strerror}; install OpenSSH's client") from None

    def explain_output(self, most: int) -> ToolError:
        """Return the error for a board that prints more than `most` bytes."""
        return ToolError(f"{self.host}: it sent more than {most:,} bytes, and was not read on: what runs there?")

    def failure(self, errors: str) -> ToolError:
        """Return the error that says what ssh's own words mean for the user."""
        meaning = next((text for pattern, text in _MEANINGS if re.search(pattern, errors)), "")
        last_line = errors.strip().rpartition("\n")[2].strip()
        return ToolError(": ".join(x for x in (self.host, meaning.format(host=self.host), last_line) if x))


@contextmanager
def _file(data: bytes | None) -> Iterator[IO[bytes] | None]:
    """Return a file to read `data` from; None without data."""
    if data is None:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


def _end(child: Child) -> None:
    """Let it end by itself for a while, as its input has ended, then kill it."""
    with suppress(TooLate, TooMuch):
        child.output(_GRACE_SECONDS, MAX_BYTES)


ANSWER_SECONDS = 60
_READY = "ready "
_LEASE = f"""{SCRIPT}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM PIPE
echo "{_READY}$folder"
cat > /dev/null
"""
"""The shell that makes the folder waits for the end of its input, which comes with our end, and removes it."""
_PUT = """cat > {path}.part || exit
[ $(wc -c < {path}.part) -eq {size} ] || {{ echo "only a part of it came" >&2; exit 1; }}
chmod 700 {path}.part && mv {path}.part {path}
"""
"""The end of the input may be the end of the connection."""


class Session:
    """An open folder on the board, and the facts the board tells of itself."""

    def __init__(self, ssh: Ssh) -> None:
        self.ssh = ssh
        self.folder = self.facts = ""
        self._lease = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._read(opening.enter_context(self.ssh.start(_LEASE)))
            self._lease = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._lease.close()

    def _read(self, lease: Child) -> None:
        """Read facts, then the folder; ToolError if they do not come."""
        with lease.limit(ANSWER_SECONDS):
            left = MAX_BYTES
            lines: list[str] = []
            while line := lease.stdout.readline(left):
                left -= len(line)
                text = line.decode(errors="replace").rstrip("\n")
                if text.startswith(_READY):
                    self.folder, self.facts = text.removeprefix(_READY), "".join(lines)
                    return
                lines.append(f"{text}\n")
            if not left:
                raise self.ssh.explain_output(MAX_BYTES)
            raise self._failure(lease.wait(), lease.stderr.read(MAX_BYTES).decode(errors="replace"))

    def _failure(self, code: int, errors: str) -> ToolError:
        if code == FAILED:
            return self.ssh.failure(errors)
        if code < 0:
            return ToolError(f"{self.ssh.host}: did not answer within {ANSWER_SECONDS} s")
        return ToolError(f"{self.ssh.host}: cannot make a folder there: {errors.strip() or f'exit code {code}'}")

    def put(self, name: str, data: bytes, seconds: float) -> None:
        """Write a file into the folder, in one step; ToolError if it does not fit or cannot be written."""
        path = shlex.quote(f"{self.folder}/{name}")
        done = self.ssh.run(_PUT.format(path=path, size=len(data)), seconds, data=data)
        if "No space left" in done.errors:
            raise ToolError(
                f"{self.ssh.host}: its disk is full: no room for {name} in {self.folder}; "
                "free some, or set TMPDIR there to a folder that has it"
            )
        if done.code:
            raise ToolError(f"{self.ssh.host}: cannot write {self.folder}/{name}: {done.errors}")

    def run(self, command: str, seconds: float, most: int = MAX_BYTES) -> CommandResult:
        """Run a command in the folder, its temporary files included, that says no more than `most` bytes."""
        script = f"cd {shlex.quote(self.folder)} && export TMPDIR=$PWD && {command}; exit"
        return self.ssh.run(script, seconds, most=most)
