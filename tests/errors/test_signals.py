"""Interrupts and other signals: one message, the exit code, nothing half-written."""

import ctypes
import os
import pty
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from support.case_selection import quick
from support.run_commands import COMMAND, SYNTH, files

from bitsynth.cli import main
from bitsynth.proof import checker

pytestmark = pytest.mark.usefixtures("user")


def test_an_interrupt_has_its_code(capsys, monkeypatch):
    def raising(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(checker, "check", raising)
    assert main(SYNTH) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


class Converted:
    """An argument of a foreign function, such as terms of Z3 are."""

    @classmethod
    def from_param(cls, value):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_became_another_exception(capsys, monkeypatch):
    """Ctypes says ArgumentError where an argument's conversion is interrupted."""
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x)
    convert: Any = Converted
    function.argtypes = [convert]
    monkeypatch.setattr(checker, "check", lambda *args, **more: function(1))
    assert main(SYNTH) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_an_interrupt_that_was_lost(capsys, monkeypatch):
    """Python forgets one in a finalizer."""

    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    checked = checker.check
    monkeypatch.setattr(checker, "check", lambda *args, **more: (Finalized(), checked(*args, **more))[1])
    assert main([*SYNTH, "--json"]) == 130
    assert "interrupted" in capsys.readouterr().err


EARLY = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *where):
        if name == "bitsynth.errors":
            os.kill(os.getpid(), signal.SIGINT)
sys.argv[0] = "bitsynth"
sys.meta_path.insert(0, Interrupting())
from bitsynth.cli import command
command()
"""


def test_an_interrupt_before_the_command_line_is_imported():
    done = subprocess.run(
        [sys.executable, "-c", EARLY, "list"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("module", ["numpy", "msgspec", "typer"])
def test_an_interrupt_while_starting_up(tmp_path, module):
    text = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(10)"
    (tmp_path / f"{module}.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [*COMMAND, "list"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def solving(*argv):
    """A fresh synthesis, returned once its progress line shows the solver at work."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "synth", "--isa", "neon", "--act-bits", "3", "--w-bits", "3", "--fresh", *argv],
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    seen = b""
    while b"gates" not in seen:
        seen += os.read(master, 4096)
    return process, master


SAID = {signal.SIGINT: b"interrupted", signal.SIGTERM: b"terminated", signal.SIGHUP: b"hung up"}
FIRST = [(0.0, signal.SIGINT), (0.6, signal.SIGTERM), (0.3, signal.SIGHUP)]
MORE = [(random.Random(n).uniform(0, 4), signal.SIGINT) for n in range(12)]


@pytest.mark.parametrize("moment", quick(FIRST[:1], of=[*FIRST, *MORE]), ids=lambda m: f"{m[1].name}-{m[0]:.2f}s")
def test_a_signal_in_the_middle_of_a_solve(user, works, moment):
    (delay, number), (process, master) = moment, solving()
    time.sleep(delay)
    process.send_signal(number)
    seen = b""
    try:
        while more := os.read(master, 4096):
            seen += more
    except OSError:
        pass
    out, _ = process.communicate(timeout=30)
    os.close(master)
    assert process.returncode == 128 + number
    assert out == b""
    assert SAID[number] in seen
    assert b"Traceback" not in seen
    assert not files(user)
    assert works(*SYNTH)["cached"]
