"""`bitsynth tune` on a small layer of this machine; which schedule wins is not judged."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest

from bitsynth.cli import main
from bitsynth.errors import Refuted
from bitsynth.host import features
from bitsynth.host.facts import here
from bitsynth.isa import load
from bitsynth.layers import Conv2d
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.planning import default_of
from bitsynth.layers.tuned import TuningTask
from bitsynth.store.matmul import MATMUL
from bitsynth.toolchain.compiler import get_preferred
from bitsynth.tune.worker import LayerTimer

HERE = [name for name in load.names() if features.matches(load.load(name).table)]
pytestmark = pytest.mark.skipif(
    not HERE, reason="code needs a processor with a shipped instruction set; this one lacks it"
)
MEASURED = '"values":['
SIZES = ["--in-channels", "5", "--out-channels", "70", "--image", "6x7", "--padding", "1"]


@pytest.fixture(autouse=True)
def user(tmp_path, monkeypatch):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    MATMUL.forget()


@pytest.fixture
def command():
    return ["tune", "--isa", HERE[0], "--act-bits", "2", "--w-bits", "1", *SIZES]


@pytest.fixture
def timed():
    """Skip what takes times where there are none."""
    if here().emulator:
        pytest.skip("this system is emulated, which tells no time")


@pytest.mark.slow
@pytest.mark.usefixtures("timed")
def test_two_trials_and_one_more(command, capsys):
    assert main([*command, "--trials", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    (answer,) = json.loads(out)
    assert (answer["layer"], answer["trials"], answer["failures"]) == ("own", 2, [])
    assert 0 < answer["ratio"] <= 1
    assert answer["processor"] == here().kind
    layer = Conv2d(np.ones((70, 5, 3, 3), int), 2, 1, padding=1, isa=HERE[0], image=(6, 7))
    assert msgspec.to_builtins(layer.schedule) == answer["schedule"]
    assert f"(tuned on {here().kind}, " in layer.explain()
    assert f"-{re.sub('[^a-z0-9]+', '-', here().kind.lower())}.journal" in answer["study"]
    assert main([*command, "--trials", "3"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("layer  default ms  tuned ms  ratio  trials  failed  schedule\nown")
    assert f"wrote  {answer['stored']}" in output
    assert f"study  {answer['study']}" in output


@pytest.mark.usefixtures("timed")
def test_an_interrupt_keeps_what_was_measured(command, tmp_path):
    study = tmp_path / "study"
    argv = [sys.executable, "-m", "bitsynth.cli", *command, "--study", str(study)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (study.exists() and MEASURED in study.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "interrupted\n")
    assert process.returncode == 130
    kept = study.read_text().count(MEASURED)
    assert main([*command, "--study", str(study), "--trials", str(kept)]) == 0
    assert study.read_text().count(MEASURED) == kept


SLOW = """#!/bin/sh
case "$*" in *.o*library.so*|*library.so*.o*|*probe.c*|*--version*|*-dumpmachine*) exec "{compiler}" "$@" ;; esac
sleep 60 & echo $! > {mark}.part; mv {mark}.part {mark}; wait
"""


@pytest.mark.slow
@pytest.mark.usefixtures("timed")
def test_an_interrupt_ends_the_workers_compiler(command, tmp_path, monkeypatch):
    mark, slow = tmp_path / "started", tmp_path / "slow"
    slow.write_text(SLOW.format(compiler=get_preferred(load.load(HERE[0])).command[0], mark=mark))
    slow.chmod(0o755)
    env = {**os.environ, "BITSYNTH_CC": str(slow), "BITSYNTH_BUILD_CACHE": str(tmp_path / "built")}
    with subprocess.Popen([sys.executable, "-m", "bitsynth.cli", *command], env=env, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not mark.exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == b"interrupted\n"
    assert process.returncode == 130
    compiling = f"/proc/{mark.read_text().strip()}"
    for _ in range(200):
        if not os.path.exists(compiling):
            break
        time.sleep(0.05)
    assert not os.path.exists(compiling)


def test_other_results_are_refuted():
    task = TuningTask(HERE[0], 2, 1, Geometry(5, 7, 1, (1, 1), (1, 1), (0,) * 4, (1, 1)), (2, 3), 1)
    timer = LayerTimer(task, default_of(task))
    assert timer.measure(default_of(task), 1).ratio > 0
    timer.expected[0, 1, 2, 3] += 1
    with pytest.raises(Refuted, match=r"in 1 of 42 sums: -?\d+, not -?\d+, at \(0, 1, 2, 3\)"):
        timer.measure(default_of(task), 1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
@pytest.mark.usefixtures("timed")
def test_a_worker_dies_with_who_asks(command, tmp_path):
    """Killed, not interrupted: nothing is cleaned up."""
    study = tmp_path / "study"
    process = subprocess.Popen([sys.executable, "-m", "bitsynth.cli", *command, "--study", str(study)])
    while process.poll() is None and not (study.exists() and MEASURED in study.read_text()):
        time.sleep(0.05)
    (worker,) = children(process.pid)
    process.kill()
    process.wait()
    for _ in range(200):
        if not os.path.exists(f"/proc/{worker}"):
            break
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{worker}")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()
