"""`bitsynth tune --device`: this machine is the board, by a real ssh server, so that times are a processor's own."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time

import msgspec
import numpy as np
import optuna
import pytest
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from support.case_selection import quick

from bitsynth.cli import main
from bitsynth.host import features
from bitsynth.host.facts import here
from bitsynth.isa import load
from bitsynth.layers import Conv2d
from bitsynth.store.matmul import MATMUL
from bitsynth.tune.measurer import TaskOperands

HERE = [name for name in load.names() if features.matches(load.load(name).table)]
pytestmark = [
    pytest.mark.toolchains,
    pytest.mark.skipif(not HERE, reason="code needs a processor with a shipped instruction set; this one lacks it"),
]
SIZES = ["--in-channels", "5", "--out-channels", "70", "--image", "6x7", "--padding", "1"]
MEASURED = '"values":['

WRAP = f"""\
{shutil.which("chmod")} "$@"
case $2 in */runner.part)
    mv "$2" "${{2%.part}}.real"
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
    MATMUL.forget()


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
        count = f"n=1\nuntil mkdir {tmp_path}/run-$n 2>/dev/null; do n=$((n + 1)); done"
        server.tool("before-run", f"{count}\nif [ $n = {number} ]; then\n{what}\nfi")

    return prepare


@pytest.fixture
def boards(server):
    """The server is another board each time it is asked."""
    head, random = shutil.which("head"), "/proc/sys/kernel/random"
    server.tool("head", f'case "$*" in *{random}/boot_id) set -- {random}/uuid ;; esac; exec {head} "$@"')


def on(*hosts):
    return [word for name in hosts for word in ("--device", name)]


@pytest.fixture
def answer(capsys):
    """What the command says in JSON."""

    def run(*argv):
        assert main([*argv, "--json"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        (fields,) = json.loads(out)
        return fields

    return run


def layer():
    return Conv2d(np.ones((70, 5, 3, 3), int), 2, 1, padding=1, isa=HERE[0], image=(6, 7))


def test_a_study_runs_on_one_board(server, command, answer):
    text = answer(*command, *on("board"), "--trials", "1")
    assert server.left() == []
    assert (text["trials"], text["failures"]) == (1, [])
    (board,) = text["boards"]
    assert (board["host"], board["trials"], board["lost"]) == ("board", 1, "")
    for facts in (board["before"], board["after"], text["board"]):
        assert f"{here().bits}-bit {here().machine}" in facts
        assert here().kernel in facts
    assert text["processor"] == here().kind
    assert msgspec.to_builtins(layer().schedule) == text["schedule"]
    assert f"(tuned on {here().kind}, " in layer().explain()


@pytest.mark.slow
def test_a_study_goes_on(server, command, study, capsys):
    for trials, measured in ((2, 2), (3, 1)):
        assert main([*command, *on("board"), "--trials", str(trials)]) == 0
        output = capsys.readouterr().out
        assert output.startswith("layer  default ms  tuned ms  ratio  trials  failed  schedule\nown")
        assert f"own  board, {measured} trial" in output
    assert study.read_text().count(MEASURED) == 3


@pytest.mark.slow
def test_two_boards_share_a_study(server, boards, command, answer, study):
    text = answer(*command, *on("left", "right"), "--trials", "7")
    counts = {x["host"]: x["trials"] for x in text["boards"]}
    assert set(counts) == {"left", "right"}
    assert sum(counts.values()) == text["trials"] == study.read_text().count(MEASURED) == 7
    assert min(counts.values()) > 0
    assert server.left() == []


@pytest.mark.slow
def test_a_board_that_disappears_loses_its_trial(boards, before_run, command, study, capsys):
    before_run(4, CUT_OFF)
    assert main([*command, *on("left", "right"), "--trials", "7"]) == 0
    out, err = capsys.readouterr()
    (lost,) = re.findall(r"warning: a board was lost: (left|right): the connection was lost", err)
    left = "right" if lost == "left" else "left"
    counts = {name: int(n) for name, n in re.findall(r"own  (left|right), (\d+) trials?:", out)}
    assert counts[left] + counts[lost] == study.read_text().count(MEASURED) == 7
    assert counts[lost] < counts[left]
    assert states(study).count(TrialState.RUNNING) == 0


def states(study):
    """Of all trials, queued ones included."""
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(study)))
    (found,) = storage.get_all_studies()
    return [t.state for t in storage.get_all_trials(found._study_id)]


@pytest.mark.slow
def test_the_last_board_disappears(before_run, command, study, fails, answer):
    before_run(3, CUT_OFF)
    message = fails(4, *command, *on("board"), "--trials", "4")
    assert message.startswith("error: board: the connection was lost: ")
    assert study.read_text().count(MEASURED) == 2
    assert states(study).count(TrialState.RUNNING) == 0
    again = answer(*command, *on("board"), "--trials", "4")
    assert (again["trials"], again["failures"], again["boards"][0]["trials"]) == (4, [], 2)


@pytest.mark.slow
def test_a_killed_runner_loses_its_trial(before_run, command, answer):
    before_run(2, "kill -9 $$")
    text = answer(*command, *on("board"), "--trials", "3")
    assert text["failures"] == ["board: the runner was killed by SIGKILL, perhaps for want of memory"]
    assert (text["trials"], text["boards"][0]["trials"], text["boards"][0]["lost"]) == (3, 2, "")


@pytest.mark.slow
def test_a_runner_that_does_not_end_loses_its_trial(before_run, command, answer):
    before_run(2, "exec cat")
    text = answer(*command, *on("board"), "--trials", "3", "--timeout-s", "20")
    assert text["failures"] == ["board: took longer than 20 s"]
    assert (text["trials"], text["boards"][0]["trials"]) == (3, 2)


@pytest.mark.slow
def test_a_board_that_dies_with_its_runner_fails_no_schedule(server, before_run, command, study, fails, answer):
    """It accepts connections and loses them."""
    server.tool("cut-off", CUT_OFF)
    before_run(2, f"cp {server.bin}/cut-off {server.bin}/sh\nexec sleep 600")
    message = fails(4, *command, *on("board"), "--trials", "3", "--timeout-s", "20")
    assert message.startswith("error: board: the connection was lost: ")
    (server.bin / "sh").unlink()
    again = answer(*command, *on("board"), "--trials", "3")
    assert (again["failures"], again["boards"][0]["trials"]) == ([], 2)


@pytest.mark.slow
def test_a_runner_that_is_killed_with_the_default_schedule(before_run, command, study, fails):
    before_run(1, "kill -9 $$")
    message = fails(4, *command, *on("board"))
    assert re.match(
        "error: the default schedule, .*, cannot be measured: board: the runner was killed by SIGKILL", message
    )
    assert study.read_text().count(MEASURED) == 0


@pytest.mark.slow
def test_other_results_are_refuted(server, command, fails, monkeypatch):
    exact = TaskOperands.exact
    monkeypatch.setattr(TaskOperands, "exact", lambda self: exact(self) + 1)
    assert "the default schedule gives other results on board than here" in fails(1, *command, *on("board"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "nowhere: no such host: check its name"),
        ("refusing", "refusing: it refuses connections: is its ssh server running"),
        ("stranger", "stranger: it accepts none of your keys: try `ssh-copy-id stranger`"),
    ],
)
def test_a_board_that_cannot_be_reached(server, command, fails, study, name, message):
    assert fails(4, *command, *on("board", name)).startswith(f"error: {message}")
    assert not study.exists()


def test_a_name_that_is_no_host(command, fails):
    assert "'-oProxyCommand=true' is no host" in fails(2, *command, "--device=-oProxyCommand=true")


@pytest.mark.parametrize("file", quick(["runner"], of=["runner", "job"]))
def test_a_full_disk(server, command, fails, study, file):
    server.tool("mktemp", f'd=$({shutil.which("mktemp")} "$@") && ln -s /dev/full "$d/{file}.part" && echo "$d"')
    message = fails(4, *command, *on("board"))
    assert message.startswith(f"error: board: its disk is full: no room for {file} in {server.tmp}")
    assert states(study).count(TrialState.RUNNING) == 0


def test_a_board_of_another_architecture_is_refused(server, command, fails):
    elsewhere = "avx2" if features.arch() == "aarch64" else "neon"
    message = fails(4, *command, "--isa", elsewhere, *on("board"))
    assert f"error: board is {here().machine}, 64-bit: it does not run {elsewhere} code, which is for " in message
    assert HERE[0] in message


def test_a_processor_that_lacks_features(server, command, fails):
    """As the board's sed finds none."""
    server.tool("sed", "exit 0")
    assert f"board: {HERE[0]} code needs a processor with " in fails(4, *command, *on("board"))


def test_an_emulator_is_refused(server, command, fails):
    server.tool("systemd-detect-virt", "echo qemu")
    want = "board runs programs by {}, and an emulator tells no time: name a board whose own processor runs {}"
    assert want.format("qemu, a whole system", HERE[0]) in fails(2, *command, *on("board"))
    message = fails(2, *command, "--isa", "neon", *on("board"), "--device-runner", "qemu-aarch64")
    assert want.format("qemu-aarch64", "neon") in message


def test_boards_with_unlike_processors_are_refused(server, boards, command, fails, tmp_path):
    server.processor(f"cd {tmp_path}; for n in A53 A72; do mkdir $n 2>/dev/null && exec echo Model name: $n; done")
    message = fails(2, *command, *on("left", "right"))
    assert "error: left has A53, right A72: what is fast on one need not be on the other" in message


@pytest.mark.skipif(not here().boot, reason="this system does not say when it was started")
def test_two_names_of_one_board(server, command, fails, study):
    message = fails(2, *command, *on("left", "board", "right"))
    assert message.startswith("error: left and board are one board: ")
    assert not study.exists()


@pytest.mark.slow
def test_studies_and_results_are_of_one_kind_of_processor(server, command, fails, answer):
    server.processor("echo Model name: A53")
    assert answer(*command, *on("board"), "--trials", "1")["processor"] == "A53"
    assert "(default; what was tuned on A53 is for that alone" in layer().explain()
    for name in ("lscpu", "sed"):
        (server.bin / name).unlink()
    message = fails(2, *command, *on("board"))
    assert "has a study of this layer made with another compiler, other kernels, another processor or" in message


@pytest.mark.slow
def test_an_interrupt_ends_all_boards(server, boards, command, study, answer):
    argv = [sys.executable, "-m", "bitsynth.cli", *command, *on("left", "right")]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (study.exists() and study.read_text().count(MEASURED) > 1):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "interrupted\n")
    assert process.returncode == 130
    assert server.left(20) == []
    kept = study.read_text().count(MEASURED)
    assert states(study).count(TrialState.RUNNING) == 0
    assert answer(*command, *on("board"), "--trials", str(kept))["boards"][0]["trials"] == 0
