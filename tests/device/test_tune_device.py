"""`bitsynth tune --device`: this machine is the board, by a real ssh server, so that times are a processor's own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest
import ssh_server

from bitsynth import cache
from bitsynth.build import host
from bitsynth.cli import main
from bitsynth.device.facts import here
from bitsynth.errors import SpecError
from bitsynth.isa import load
from bitsynth.layers import Conv2d
from bitsynth.tuning import outcome

HERE = [name for name in load.names() if host.matches(load.load(name).table)]
pytestmark = pytest.mark.skipif(
    not HERE, reason="code needs a processor with a shipped instruction set; this one lacks it"
)
SIZES = ["--in-channels", "5", "--out-channels", "70", "--image", "6x7", "--padding", "1"]
MEASURED, RUNNING = '"values":[', '"state":0'

WRAP = f"""\
{shutil.which("chmod")} "$@"
case $2 in */runner)
    mv "$2" "$2.real"
    printf '%s\\n' '#!/bin/sh' '. before-run' 'exec "$0.real" "$@"' > "$2"
    {shutil.which("chmod")} 700 "$2" ;;
esac
"""
"""The board's chmod puts a command before every run of a runner."""
CUT_OFF = """\
    p=$$
    until grep -q sshd /proc/$p/comm; do p=$(sed 's/.*) . //; s/ .*//' /proc/$p/stat); done
    kill -9 $p
"""


@pytest.fixture(autouse=True)
def user(tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    cache.load_entry.cache_clear()


@pytest.fixture
def study(tmp_path):
    return tmp_path / "study"


@pytest.fixture
def command(study):
    return ["tune", "--isa", HERE[0], "--act-bits", "2", "--w-bits", "1", *SIZES, "--study", str(study)]


@pytest.fixture
def before_run(server, tmp_path):
    """What the board does in the given run of a runner, counted from 1, before that starts."""

    def prepare(number, what):
        server.tool("chmod", WRAP)
        count = f"n=$(($(ls {tmp_path} | grep -c run-) + 1)); until mkdir {tmp_path}/run-$n 2>/dev/null; do n=$((n + 1)); done"
        server.tool("before-run", f"{count}\nif [ $n = {number} ]; then\n{what}\nfi")

    return prepare


def on(*hosts):
    return [word for name in hosts for word in ("--device", name)]


@pytest.fixture
def answer(capsys):
    """What the command says in JSON."""

    def run(*argv):
        assert main([*argv, "--json"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        (said,) = json.loads(out)
        return said

    return run


@pytest.fixture
def fails(capsys):
    def run(code, *argv):
        assert main(list(argv)) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err

    return run


def layer():
    return Conv2d(np.ones((70, 5, 3, 3), int), 2, 1, padding=1, isa=HERE[0], image=(6, 7))


def test_one_board(server, command, answer, capsys):
    said = answer(*command, *on("board"), "--trials", "3")
    assert server.left() == []
    assert (said["trials"], said["failures"]) == (3, [])
    assert 0 < said["ratio"] <= 1
    (board,) = said["boards"]
    assert (board["host"], board["trials"], board["lost"]) == ("board", 3, "")
    for facts in (board["before"], board["after"], said["board"]):
        assert f"{here().bits}-bit {here().machine}" in facts
        assert here().kernel in facts
    assert said["processor"] == here().kind
    assert msgspec.to_builtins(layer().schedule) == said["schedule"]
    assert f"(tuned on {here().kind}, " in layer().explain()
    assert main([*command, *on("board"), "--trials", "3"]) == 0
    assert f"own  board, 0 trials: {here().processor}" in capsys.readouterr().out


def test_two_boards_share_a_study(server, command, answer, study):
    said = answer(*command, *on("left", "right"), "--trials", "6")
    counts = {x["host"]: x["trials"] for x in said["boards"]}
    assert set(counts) == {"left", "right"}
    assert sum(counts.values()) == said["trials"] == study.read_text().count(MEASURED) == 6
    assert min(counts.values()) > 0
    assert server.left() == []
