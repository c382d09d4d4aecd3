"""A temporary folder on a board, which is removed when this process ends, for whatever reason."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from typing import Self

from bitsynth.device.ssh import FAILED, MAX_BYTES, CommandResult, Ssh
from bitsynth.errors import ToolError
from bitsynth.host.facts import SCRIPT
from bitsynth.processes.child import Child

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
"""The end of the input may be that of the connection."""


class Session:
    """An open folder on the board, and the facts the board tells of itself."""

    def __init__(self, ssh: Ssh) -> None:
        self.ssh = ssh
        self.folder = self.facts = ""
        self._lease = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._read(opening.enter_context(self.ssh.started(_LEASE)))
            self._lease = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._lease.close()

    def _read(self, lease: Child) -> None:
        """Read facts, then the folder; ToolError if they do not come."""
        with lease.limited(ANSWER_SECONDS):
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
                raise self.ssh.babbled(MAX_BYTES)
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
