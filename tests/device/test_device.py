"""Layers on a board behind a real ssh server: right there, timed only by a processor, nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from support import ssh_server
from support.case_selection import quick

from bitsynth.cli import main
from bitsynth.device import Device, Facts, job, program
from bitsynth.device.device import RunFailed
from bitsynth.device.ssh import TimedOut
from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.host import features
from bitsynth.isa import architecture, load
from bitsynth.layers import Conv2d, Dense, Residual, Scale, Thresholds
from bitsynth.layers.candidates import candidates
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.spec.matmul import Encoding, MatmulOperand

pytestmark = pytest.mark.toolchains

RNG = np.random.default_rng(6)


@cache
def layers(isa):
    """A plain layer, an odd one, one between packed codes and a dense one."""
    square, odd = RNG.choice([-1, 1], (16, 24, 3, 3)), RNG.choice([-1, 1], (10, 5, 3, 2))
    thresholds = Thresholds(np.sort(RNG.integers(-40, 40, (16, 3)), axis=1))
    packed = Conv2d(square, 2, 1, padding=1, layout="packed", epilogue=thresholds, isa=isa)
    return [
        ("plain", Conv2d(square, 2, 1, padding=1, isa=isa), RNG.integers(0, 4, (1, 9, 8, 24)).astype(np.uint8)),
        (
            "odd",
            Conv2d(odd, 1, 1, stride=2, padding=(1, 2), groups=2, layout="NCHW", isa=isa),
            RNG.integers(0, 2, (2, 10, 7, 6)).astype(np.uint8),
        ),
        ("packed", packed, RNG.integers(0, 1 << 24, (1, 5, 5, 2)).astype(np.uint64)),
        (
            "dense",
            Dense(RNG.choice([-1, 1], (9, 70)), 2, 1, isa=isa),
            RNG.integers(0, 4, (3, 70)).astype(np.uint8),
        ),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("isa", quick(["auto"], of=["auto", "armv7_neon"]))
def test_layers_are_checked_under_an_emulator_and_not_timed(server, isa, skip_isa):
    """Of this processor's code `env` is the emulator: other tests have compiled that."""
    emulator = "env" if isa == "auto" else ssh_server.emulator(isa, skip_isa)
    server.tool("board-emulator", ssh_server.tool_of(emulator))
    given = layers(isa)
    with Device("board", emulator="board-emulator") as board:
        got = board.measure(given, threads=2, repeats=3, onnxruntime=True)
    assert server.left() == []
    assert [x.name for x in got.layers] == ["plain", "odd", "packed", "dense"]
    assert got.emulator == "board-emulator"
    assert not any(x.ns or x.fp32_ns or x.onnxruntime_ns for x in got.layers)
    assert got.left_out == {"onnxruntime": "an emulator tells no times"}


@pytest.mark.slow
def test_bench_resnet18_on_a_board(server, skip_isa, capsys, tmp_path):
    """By an emulator each layer is checked and none timed; by this processor they are."""
    server.tool("board-emulator", ssh_server.tool_of(ssh_server.emulator("neon", skip_isa)))
    command = ["bench", "resnet18", "--layers", "C12", "--act-bits", "1", "--baseline", "", "--device", "board"]
    assert main([*command, "--isa", "neon", "--device-runner", "board-emulator", "--rounds", "1"]) == 0
    assert "neon: 1 layer right on " in (output := capsys.readouterr().out)
    assert "run by board-emulator, so no times" in output.replace("\n", " ")
    server.tool("python3", "exit 1")
    assert main([*command, "--rounds", "2", "--json", str(tmp_path / "x.json")]) == 0
    rows = json.loads((tmp_path / "x.json").read_text())["reports"][0]["rows"]
    assert {(r["contender"], r["layer"]) for r in rows} == {
        (c, x) for c in ("bitsynth fp32", "A1W1") for x in ("C12", "sum")
    }


@pytest.mark.slow
def test_layers_are_timed_by_a_processor(server):
    server.tool("python3", "exit 1")
    with Device("board") as board:
        facts, sets = board.facts(), board.isas()
        got = board.measure(layers("auto"), threads=2, repeats=4, onnxruntime=True)
        again = board.measure(layers("auto")[:1], repeats=1)
    assert server.left() == []
    assert facts == got.before
    assert got.after.machine == facts.machine in architecture.find_architecture(features.arch()).machines
    assert layers("auto")[0][1].kernel.spec.isa in sets
    assert [len(x.ns) for x in got.layers] == [4, 4, 4, 4]
    assert [len(x.fp32_ns) for x in got.layers] == [4, 0, 4, 4]
    assert all(ns > 0 for x in got.layers for ns in (*x.ns, *x.fp32_ns))
    assert got.left_out == {"onnxruntime": "board has no python3 with onnxruntime"}
    assert got.emulator == ""
    assert got.threads == 2
    assert len(again.layers[0].ns) == 1


@pytest.mark.slow
def test_onnxruntime_is_timed_where_it_is_installed(server):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    server.tool("python3", ssh_server.tool_of(sys.executable))
    with Device("board") as board:
        got = board.measure(layers("auto")[:2], repeats=3, onnxruntime=True)
    assert [len(x.onnxruntime_ns) for x in got.layers] == [3, 3]
    assert got.left_out == {}


@cache
def two_schedules(isa):
    """A layer by two methods, whose kernels have one name on avxvnni."""
    weight, codes = RNG.choice([-1, 1], (16, 24, 3, 3)), RNG.integers(0, 4, (1, 9, 8, 24)).astype(np.uint8)
    found = candidates(MatmulOperand(2, Encoding.UNSIGNED), MatmulOperand(1, Encoding.BIPOLAR), isa)
    schedules = [LayerSchedule(isa, x.method, x.channels, "direct", rows=2) for x in found]
    return [Conv2d(weight, 2, 1, padding=1, isa=isa, schedule=s) for s in schedules], codes


def soon(seconds):
    return time.monotonic() + seconds


def in_turn(board, isa, repeats):
    """What the board makes of one program with all kernels, whose layers take turns."""
    result, codes = two_schedules(isa)
    right = result[0].run(codes)
    work = [job.Work(x.schedule.method, x, codes, right) for x in result]
    one = program.compile_program(result)
    sampling = job.Sampling(repeats, together=len(work), sample_ns=10**6, times_float=False)
    return board.run(one, work, 1, sampling, soon(60))


def test_a_layer_with_a_residual(server):
    """A job of a residual that is another's is told apart by the results."""
    x, more = RNG.integers(0, 4, (1, 4, 4, 24)).astype(np.uint8), RNG.integers(-99, 99, (1, 4, 4, 16)).astype(np.int16)
    how = Thresholds([-50, 0, 50], residual=Residual("int16", 2, keep_sum=True))
    layer = Conv2d(RNG.choice([-1, 1], (16, 24, 3, 3)), 2, 1, padding=1, epilogue=how)
    one, sampling = program.compile_program([layer]), job.Sampling(1)
    with Device("board") as board:
        board.run(one, [job.Work.of("right", layer, x, more)], 1, sampling, soon(60))
        wrong = replace(job.Work.of("wrong", layer, x, more), residual=more + np.int16(40))
        with pytest.raises(Refuted):
            board.run(one, [wrong], 1, sampling, soon(60))


@pytest.mark.slow
def test_layers_of_all_methods_take_turns_in_one_program(server, skip_isa):
    server.tool("board-emulator", ssh_server.tool_of(ssh_server.emulator("neon", skip_isa)))
    with Device("board", emulator="board-emulator") as board:
        assert [(x.name, x.ns) for x in in_turn(board, "neon", 3)] == [
            ("popcount", ()),
            ("lookup", ()),
            *[("pairs", ())] * 3,
            ("multiply", ()),
        ]


def test_kernels_of_one_name_take_turns(server, skip_isa):
    if missing := features.missing(load.load("avxvnni").table):
        skip_isa("avxvnni", f"code needs a processor with {', '.join(missing)}; this one lacks it")
    assert len({x.kernel.name for x in two_schedules("avxvnni")[0]}) < len(two_schedules("avxvnni")[0])
    with Device("board") as board:
        got = in_turn(board, "avxvnni", 3)
    assert all(len(x.ns) == 3 and not x.fp32_ns for x in got)


@pytest.mark.slow
def test_a_copy_that_ends_there_but_not_here(server):
    """The board then has another program than the last that it ran."""
    works = [job.Work.of(*x) for x in layers("auto")[:2]]
    first, second = [(program.compile_program([w.layer]), [w]) for w in works]
    checking = 1, job.Sampling(0)
    with Device("board") as board:
        board.run(*first, *checking, soon(60))
        server.tool("mv", f'{shutil.which("mv")} "$@"; exec sleep 2')
        with pytest.raises(TimedOut, match="did not end within 1 s"):
            board.run(*second, *checking, soon(1))
        (server.bin / "mv").unlink()
        assert [x.name for x in board.run(*first, *checking, soon(60))] == ["plain"]


def test_a_file_of_which_a_part_comes_is_none(server):
    """As when ssh is killed: the board's cat takes the end of its input for the file's."""
    with Device("board") as board:
        server.tool("cat", f"{shutil.which('head')} -c 100")
        with pytest.raises(ToolError, match=r"board: cannot write .*/runner: only a part of it came"):
            board.measure(layers("auto")[:1])
        assert not list(server.tmp.rglob("runner"))


def test_a_wrong_result_is_refuted(server, monkeypatch):
    right = job.Work.of

    def wrong(name, layer, codes):
        work = right(name, layer, codes)
        work.output.reshape(-1)[-1] += name == "odd"
        return work

    monkeypatch.setattr(job.Work, "of", wrong)
    with Device("board") as board, pytest.raises(Refuted, match="odd gives other results on board than here"):
        board.measure(layers("auto")[:2])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "nowhere: no such host: check its name"),
        ("refusing", "refusing: it refuses connections: is its ssh server running"),
        ("stranger", "stranger: it accepts none of your keys: try `ssh-copy-id stranger`"),
        ("unknown", "unknown: its host key is not known: connect once with `ssh unknown`"),
        ("changed", "changed: its host key is not the one that is known"),
    ],
)
def test_a_board_that_cannot_be_reached(server, name, message):
    with pytest.raises(ToolError) as caught, Device(name):
        pass
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_board_that_does_not_answer(server):
    with pytest.raises(ToolError, match="silent: it does not answer: is it on"), Device("silent"):
        pass


CUT_OFF = """\
p=$$
until grep -q sshd /proc/$p/comm; do p=$(sed 's/.*) . //; s/ .*//' /proc/$p/stat); done
kill -9 $p
"""


@pytest.mark.slow
def test_a_connection_that_is_lost(server):
    server.tool("cut-off", CUT_OFF)
    with Device("board", emulator="cut-off") as board, pytest.raises(ToolError, match="board: the connection was lost"):
        board.measure(layers("auto")[:1])


@pytest.mark.parametrize("file", quick(["job"], of=["runner", "job"]))
def test_a_full_disk(server, file):
    server.tool("mktemp", f'd=$({shutil.which("mktemp")} "$@") && ln -s /dev/full "$d/{file}.part" && echo "$d"')
    with Device("board") as board, pytest.raises(ToolError) as caught:
        board.measure(layers("auto")[:1])
    assert f"board: its disk is full: no room for {file} in {server.tmp}" in str(caught.value)


def test_no_folder_can_be_made(server):
    server.tool("mktemp", "echo 'mktemp: No space left on device' >&2; exit 1")
    with pytest.raises(ToolError, match="board: cannot make a folder there: mktemp: No space"), Device("board"):
        pass


@pytest.mark.timeout(60)
@pytest.mark.parametrize("where", quick([""], of=["", ">&2"]))
def test_a_runner_that_sends_without_end(server, where):
    server.tool("babble", f"exec yes {where}")
    with (
        Device("board", emulator="babble") as board,
        pytest.raises(ToolError, match=r"board: it sent more than [\d,]+ bytes, and was not read on"),
    ):
        board.measure(layers("auto")[:1])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", quick(["yes"], of=["yes", "cat /dev/zero"]))
def test_a_board_that_sends_without_end(server, what):
    server.tool("sh", f"exec {what}")
    with pytest.raises(ToolError, match=r"board: it sent more than [\d,]+ bytes, and was not read on"), Device("board"):
        pass


@pytest.mark.slow
def test_what_a_board_says_is_shown_and_not_obeyed(server, capsys):
    server.tool("uname", r"printf '\033]0;owned\007\033[2J\n'")
    argv = ["bench", "resnet18", "--layers", "C12", "--act-bits", "1", "--w-bits", "1", "--device", "board"]
    assert main([*argv, "--isa", "neon"]) == 4
    text = "".join(capsys.readouterr())
    assert r"board is \x1b]0;owned" in text
    assert "\x1b" not in text


def test_a_killed_runner(server):
    server.tool("killed", "kill -9 $$")
    with Device("board", emulator="killed") as board, pytest.raises(ToolError) as caught:
        board.measure(layers("auto")[:1])
    assert str(caught.value) == "board: the runner was killed by SIGKILL, perhaps for want of memory"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "kind", "message"),
    [
        ("-s 64 -v 20000", RunFailed, "board: the runner failed with exit code 11: not enough memory"),
        ("-s 64000 -v 20000", ToolError, "board: the system gives no thread"),
    ],
)
def test_a_board_that_gives_too_little(server, limits, kind, message):
    """Memory for a job may be had for another one, threads may not."""
    size, address_space = limits.split(" -v ")
    server.tool("little", f'ulimit {size}\nulimit -v {address_space}\nexec "$@"')
    layer = Conv2d(np.ones((512, 1, 1, 1), int), 1, 1)
    with Device("board", emulator="little") as board, pytest.raises(ToolError) as caught:
        board.measure([("large", layer, np.zeros((1, 128, 128, 1), np.uint8))])
    assert (type(caught.value), str(caught.value)) == (kind, message)


@pytest.mark.slow
def test_a_runner_that_does_not_end(server):
    server.tool("hang", "exec cat")
    with (
        Device("board", emulator="hang", seconds=4) as board,
        pytest.raises(ToolError, match=r"did not end within [1-4] s"),
    ):
        board.measure(layers("auto")[:1])


@pytest.mark.slow
def test_copies_and_run_share_the_time(server):
    server.tool("mv", f'{shutil.which("mv")} "$@"; exec sleep 0.6')
    with (
        Device("board", seconds=1) as board,
        pytest.raises(TimedOut, match=r"board: (did not end within|no time is left)"),
    ):
        board.measure(layers("auto")[:1])


def elsewhere():
    """An instruction set of another architecture."""
    return "avx2" if features.arch() == "aarch64" else "neon"


@pytest.mark.slow
def test_a_board_of_another_architecture(server):
    with Device("board") as board, pytest.raises(ToolError) as caught:
        board.measure(layers(elsewhere())[:1])
    assert f"does not run {elsewhere()} code, which is for" in str(caught.value)
    assert layers("auto")[0][1].kernel.spec.isa in str(caught.value)


def test_a_32_bit_board(server):
    server.tool("uname", "echo armv7l")
    server.tool("getconf", "echo 32")
    with (
        Device("board") as board,
        pytest.raises(ToolError, match=r"board is armv7l, 32-bit: it does not run neon code"),
    ):
        board.measure(layers("neon")[:1])


@pytest.mark.slow
def test_a_program_the_board_cannot_start(server):
    """The board claims to run it."""
    with Device("board", emulator="env") as board, pytest.raises(ToolError) as caught:
        board.measure(layers(elsewhere())[:1])
    assert f"board: it cannot run programs for {elsewhere()} (" in str(caught.value)


def test_a_processor_that_lacks_features(server, monkeypatch):
    with Device("board") as board:
        monkeypatch.setattr(Facts, "lacking", lambda *_: ["a feature"])
        with pytest.raises(ToolError, match="needs a processor with a feature; it lacks it"):
            board.measure(layers("auto")[:1])


INTERRUPTED = """
    import sys, numpy as np
    from bitsynth.device import Device
    from bitsynth.layers import Conv2d
    layer = Conv2d(np.ones((8, 8, 1, 1), int), 1, 1)
    with Device("board", emulator="hang") as board:
        board.measure([("one", layer, np.zeros((1, 4, 4, 8), np.uint8))])
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_we_are_stopped(server, tmp_path, sent):
    server.tool("hang", f"touch {tmp_path}/started; exec cat > {tmp_path}/said")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", textwrap.dedent(INTERRUPTED)]
    ours = subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL)
    with ours:
        while not (tmp_path / "started").exists():
            assert ours.poll() is None
        assert server.left()
        ours.send_signal(sent)
    assert ours.returncode
    assert server.left(20) == []


def test_ssh_is_not_installed(server, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"cannot start ssh: .*; install OpenSSH's client"), Device("board"):
        pass


@pytest.mark.parametrize("name", ["", "-oProxyCommand=true", "a b", " board"])
def test_names_that_are_no_hosts(name):
    with pytest.raises(SpecError, match="is no host"):
        Device(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threads": 0}, "threads must be a whole number from 1 to 256, not 0"),
        ({"repeats": 0}, "repeats must be a whole number from 1"),
        ({"repeats": True}, "repeats must be a whole number from 1"),
    ],
)
def test_numbers_out_of_range_are_refused(change, message):
    with pytest.raises(SpecError, match=message):
        Device("board").measure(layers("auto")[:1], **change)


def test_layers_that_are_not_measured():
    one = layers("auto")[0]
    floats = Conv2d(np.ones((1, 1, 1, 1), int), 1, 1, epilogue=Scale(1.0))
    for given in ([], [one, one], [("floats", floats, np.zeros((1, 1, 1, 1), np.uint8))]):
        with pytest.raises(SpecError, match=r"want layers with names of their own|leave out Scale"):
            Device("board").measure(given)


@pytest.fixture(scope="module")
def runner():
    """The program for this machine, and a layer's job."""
    name, layer, codes = layers("auto")[0]
    work = job.Work.of(name, layer, codes)
    result = program.compile_program([layer])
    return result.path, job.pack([work], result, 1, job.Sampling(2))


def ran(runner, data, tmp_path, *, stdin):
    (tmp_path / "job").write_bytes(data)
    reading, writing = os.pipe()
    if stdin == "ends":
        os.close(writing)
    done = subprocess.run([runner[0], tmp_path / "job"], stdin=reading, capture_output=True, text=True, check=False)
    os.close(reading)
    if stdin != "ends":
        os.close(writing)
    return done


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0, 3, 40, 400, -1])
def test_a_torn_job_is_refused(runner, tmp_path, cut):
    done = ran(runner, runner[1][:cut], tmp_path, stdin="lasts")
    assert done.returncode == 10
    assert done.stderr == "the job is none, or was cut short\n"


@pytest.mark.slow
def test_the_runner_ends_with_whoever_started_it(runner, tmp_path):
    """A job of so many repeats would take a day."""
    words = np.frombuffer(runner[1], "<i8").copy()
    words[3] = 10**7
    assert ran(runner, words.tobytes(), tmp_path, stdin="ends").returncode == 12
