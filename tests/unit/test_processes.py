"""Children end with who started them, say no more than they may, and leave nothing behind."""

import ast
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from support.running_processes import alive, gone, running_in

import bitsynth
from bitsynth.errors import ToolError
from bitsynth.processes.child import PIPE, Child, TooLate, TooMuch
from bitsynth.processes.tool import several_at_once
from bitsynth.processes.worker import Worker, WorkerEnded, answers

PACKAGE = Path(bitsynth.__file__).parent
STARTERS = {"subprocess", "multiprocessing", "pty"}


def test_nothing_else_starts_processes():
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        if any(name in (text := path.read_text()) for name in STARTERS)
        for node in ast.walk(ast.parse(text))
        for name in imported(node)
        if name in STARTERS
    }
    assert found == {("processes/child.py", "subprocess")}


def imported(node):
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [(node.module or "").partition(".")[0]] if isinstance(node, ast.ImportFrom) else []


def test_what_it_says():
    with Child(["sh", "-c", "echo said; echo complained >&2; exit 3"]) as child:
        assert child.output(30) == (b"said\n", b"complained\n")
    assert child.returncode == 3


def test_no_other_process_is_left_at_the_end():
    with Child(["sh", "-c", "sleep 60 & echo $!"]) as child:  # It keeps the pipes open.
        started = int(child.output(30)[0])
    assert gone(started, 10)
    assert all(gone(pid, 10) for pid in running_in(child.pid))


def test_a_command_sees_no_children_but_its_own():
    """One that waits for all of them must not wait for what watches over it."""
    code = "import os\ntry: print(os.wait())\nexcept ChildProcessError: print('none')"
    with Child([sys.executable, "-c", code]) as child:
        assert child.output(30)[0] == b"none\n"


def test_one_that_takes_too_long():
    with Child(["sleep", "60"]) as child, pytest.raises(TooLate):
        child.output(0.05)
    assert child.returncode == -signal.SIGKILL
    with Child(["sh", "-c", "exec >&- 2>&-; exec sleep 60"]) as child, pytest.raises(TooLate):
        child.output(0.2)


INTERRUPTED = """
import threading
from bitsynth.processes.child import Child
def interrupted(timer):
    raise KeyboardInterrupt
threading.Timer.cancel = interrupted
with Child(["sleep", "60"]) as child, child.limit(60):
    pass
"""


def test_an_interrupt_before_its_time_is_cancelled_is_not_held_up():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, timeout=30, check=False)
    assert done.stderr.endswith(b"KeyboardInterrupt\n")


@pytest.mark.timeout(60)
def test_one_that_takes_too_long_and_talks():
    with Child(["sh", "-c", "while :; do echo; sleep 0.01; done"]) as child, pytest.raises(TooLate):
        child.output(0.5)


@pytest.mark.timeout(60)
def test_one_that_leaves_another_that_talks():
    with Child(["sh", "-c", "while :; do echo; sleep 0.01; done & echo said"]) as child:
        assert b"said\n" in child.output(30)[0]


@pytest.mark.parametrize("where", ["", ">&2"])
def test_one_that_says_too_much(where):
    with Child(["sh", "-c", f"yes {where}"]) as child, pytest.raises(TooMuch):
        child.output(30, 1 << 20)
    assert gone(child.pid, 10)


def test_one_that_cannot_be_started(tmp_path):
    (tmp_path / "file").touch()
    for command, error in (("no-such-command", FileNotFoundError), (str(tmp_path / "file"), PermissionError)):
        with pytest.raises(error) as why:
            Child([command])
        assert why.value.filename == command


def test_it_outlives_the_thread_that_started_it():
    started = []
    thread = threading.Thread(target=lambda: started.append(Child(["cat"], stdin=PIPE)))
    thread.start()
    thread.join()
    with started[0] as child:
        child.stdin.write(b"still there\n")
        assert child.stdout.readline() == b"still there\n"


FORKED = """
import os, sys, time
from bitsynth.processes.child import PIPE, Child
def say(pid):
    os.write(1, b"%d\\n" % pid)  # A whole line: both processes write here.
first = Child(["sleep", "60"])
say(first.pid)
if os.fork() == 0:
    say(Child(["sleep", "60"]).pid)
    time.sleep(60)
say(os.getpid())
time.sleep(60)
"""


def test_a_fork_has_children_of_its_own():
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", FORKED], stdout=subprocess.PIPE) as ours:
        first = int(ours.stdout.readline())
        both = {int(ours.stdout.readline()) for _ in range(2)}
        (other,) = both - {ours.pid}
        ours.kill()
        assert gone(first, 10)
        assert alive(other)
        os.kill(os.getpgid(other) and parent(other), signal.SIGKILL)
        assert gone(other, 10)


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


DOUBLER = "import sys\nfor line in sys.stdin: print(2 * int(line), flush=True)"


@pytest.mark.parametrize("workers", [1, 3, 9])
def test_workers_that_share_questions(workers):
    questions = [str(n).encode() for n in range(1, 6)]
    found = answers([sys.executable, "-c", DOUBLER], questions, workers)
    assert sorted(int(line) for line in found) == [2, 4, 6, 8, 10]


@pytest.mark.timeout(60)
def test_workers_of_whom_one_ends(tmp_path):
    command = ["sh", "-c", f'echo $$ >>{tmp_path}/pids; read -r x; [ "$x" = 2 ] && exit 3; sleep 60']
    with pytest.raises(WorkerEnded, match="ended with exit code 3: it printed nothing"):
        list(answers(command, [b"1", b"2"], 2))
    assert all(gone(int(pid), 10) for pid in (tmp_path / "pids").read_text().split())


def test_a_worker_that_is_asked():
    with closing(Worker([sys.executable, "-c", DOUBLER])) as worker:
        assert worker.ask(b"21", 30) == b"42\n"
        with pytest.raises(WorkerEnded, match=r"ended with exit code 1: .*ValueError"):
            worker.ask(b"x")
    with closing(Worker(["sleep", "60"])) as worker, pytest.raises(TooLate):
        worker.ask(b"", 0.1)
    with closing(Worker(["cat", "/dev/zero"])) as worker, pytest.raises(WorkerEnded, match="SIGKILL"):
        worker.ask(b"")


def test_a_worker_that_babbles():
    worker = Worker(["tr", "-d", "\\n"])
    worker.send(b"x" * 100)
    worker.child.stdin.close()
    assert worker.line() == b"x" * 100
    worker.close()
    worker = Worker(["cat", "/dev/zero"])
    try:
        assert not worker.line().endswith(b"\n")
    finally:
        worker.close()
    assert worker.child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("end", [KeyboardInterrupt, ToolError])
def test_an_interrupt_leaves_undone_what_no_thread_has_begun(end):
    begun, may_end = [], threading.Event()

    def work(number):
        begun.append(number)
        may_end.wait(5)

    def begin():
        with several_at_once(1) as submit:
            waiting = [submit(work, number) for number in range(9)]
            waiting[-1].add_done_callback(lambda _: may_end.set())  # the last is given up: so are those before it
            raise end

    with pytest.raises(end):
        begin()
    assert begun == [0]
