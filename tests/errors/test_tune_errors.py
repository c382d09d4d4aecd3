"""`bitsynth tune` with bad input: one clear message and its exit code, before anything is measured."""

import errno
import importlib.util
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from optuna.storages.journal import JournalFileBackend

from bitsynth import paths
from bitsynth.host import placement
from bitsynth.host.facts import Facts
from bitsynth.layers import tuned
from bitsynth.tune import local
from bitsynth.tune.measurer import Timing

COMMAND = ["tune", "--isa", "avx2", "--act-bits", "2", "--w-bits", "1"]
OWN = ["--in-channels", "8", "--out-channels", "8"]


@pytest.fixture(autouse=True)
def idle(user, monkeypatch):
    monkeypatch.setattr(local, "start_measurer", lambda *args: pytest.fail("something is measured"))
    monkeypatch.setattr(placement, "runs_natively", lambda table: True)
    monkeypatch.setattr(placement, "here", lambda: Facts(machine="x86_64"))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--layers", "C2,C1"], "--layers: unknown 'C1'; known: C2, C3, C4"),
        (["--layers", ","], "--layers: unknown ''"),
        (["--trials", "0"], "invalid value for '--trials'"),
        (["--threads", "0"], "invalid value for '--threads'"),
        (["--timeout-s", "nan"], "--timeout-s: want a number of seconds from 1 on, not nan"),
        (["--timeout-s", "0.5"], "want a number of seconds from 1 on, not 0.5"),
        (["--in-channels", "8"], "takes both --in-channels and --out-channels"),
        ([*OWN, "--layers", "C2"], "--layers or the channels of a layer of your own, not both"),
        (
            [*OWN, "--groups", "8"],
            "bs_dw_a2_w2_s32_avx2_32x2, a depthwise kernel: it has no tiles to tune",
        ),
        ([*OWN, "--groups", "3"], "8 input channels cannot be shared by 3 groups"),
        ([*OWN, "--image", "28x"], "--image: want height and width, such as 28x28, not '28x'"),
        ([*OWN, "--image", "0"], "--image: want height and width, such as 28x28, not '0'"),
        ([*OWN, "--image", "2", "--kernel", "3"], "an input of 2 x 2 has no room for a window that reaches over 3"),
        ([*OWN, "--stride", "99999"], "stride must be a whole number from 1 to 32,767"),
        (["--act-bits", "9"], "bits must be a whole number from 1 to 8, not 9"),
        (["--isa", "avx3"], "avx3"),
    ],
)
def test_bad_input_is_refused(fails, argv, message):
    assert message in fails(2, *COMMAND, *argv)


def test_a_missing_kernel_is_reported(fails):
    assert "no kernel of 7-bit unsigned x 8-bit" in fails(1, *COMMAND, "--act-bits", "7", "--w-bits", "8")


def test_what_this_processor_does_not_run(fails, monkeypatch):
    monkeypatch.setattr(placement, "runs_natively", lambda table: False)
    assert "does not run avx2, and an emulator tells no time: name a board that runs it with --device" in fails(
        2, *COMMAND
    )


def test_a_study_that_cannot_be_written(fails, tmp_path):
    (tmp_path / "file").touch()
    message = fails(4, *COMMAND, "--study", str(tmp_path / "file" / "study"))
    assert message.endswith("name another file with --study\n")


def test_a_study_that_is_no_file(fails, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name, word in [("fifo", "fifo is not a regular"), ("folder", "folder is not a regular"), ("link", "link is a")]:
        assert word in fails(2, *COMMAND, "--study", str(tmp_path / name))
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "cache") == ["fifo", "folder", "link"]


@pytest.mark.parametrize(
    "text", ["a line that does not end", '{"my": "settings"}', "\x7fELF\0\n\0", '{"op_code":0,', "["]
)
def test_a_file_of_the_users_is_left_as_it_is(fails, tmp_path, text):
    study = tmp_path / "notes"
    study.write_text(text)
    assert "notes is not a study" in fails(2, *COMMAND, "--study", str(study))
    assert study.read_text() == text
    assert not (tmp_path / "notes.lock").exists()


def test_a_lock_that_is_another_file_is_left_as_it_is(fails, tmp_path):
    """As `poetry.lock` is beside a study called `poetry`."""
    (tmp_path / "poetry.lock").write_text("packages")
    assert "poetry.lock would be an empty file" in fails(2, *COMMAND, "--study", str(tmp_path / "poetry"))
    assert (tmp_path / "poetry.lock").read_text() == "packages"


def test_a_study_that_is_nested_deeply(fails, tmp_path):
    (tmp_path / "study").write_text('{"op_code":' + "[" * 200_000 + "\n")
    assert "study is not a study" in fails(2, *COMMAND, "--study", str(tmp_path / "study"))


def test_a_disk_that_is_full_in_a_study(fails, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JournalFileBackend, "append_logs", full)
    message = fails(4, *COMMAND, "--study", str(tmp_path / "study"))
    assert message == f"error: cannot write {tmp_path}/study: No space left on device; name another file with --study\n"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder where no file can be made")
def test_a_study_where_no_file_can_be_made(fails):
    message = fails(4, *COMMAND, "--study", "/proc/study")
    assert message == "error: cannot write /proc/study: No such file or directory; name another file with --study\n"


def test_a_file_that_is_no_study(fails, tmp_path):
    (tmp_path / "study").write_text("text\n")
    assert "study is not a study" in fails(2, *COMMAND, "--study", str(tmp_path / "study"))


def test_a_folder_of_results_that_cannot_be_written(fails, tmp_path):
    (tmp_path / "file").touch()
    assert "cannot write to" in fails(4, *COMMAND, "-o", str(tmp_path / "file"))


@pytest.mark.filterwarnings("default")
def test_results_that_are_broken_are_told_of_and_replaced(ended, monkeypatch):
    """By the command that their warning names; nothing of them is lost."""
    path = paths.user_schedules() / "avx2" / "a2w1.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    monkeypatch.setattr(local, "start_measurer", lambda *args: nullcontext(Pretended()))
    out, err = ended(0, *COMMAND, *OWN, "--padding", "1", "--trials", "1")
    assert f"wrote  {path}" in out
    passed_over, kept = err.splitlines()
    for line in (passed_over, kept):
        assert line.startswith(f"warning: {path} has no tuned schedules of this version (Object missing required field")
    assert kept.endswith(f"; it is kept as {path}.damaged")
    assert Path(f"{path}.damaged").read_text() == "{}"
    assert len(tuned.read(path)) == 1


class Pretended:
    """A measurer to which all schedules are alike."""

    longest_s = 1.0

    def measure(self, schedule, rounds):
        return Timing(1e6, 1e6)


def test_tuning_without_optuna_is_refused(fails, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "optuna" else find(name))
    assert "optuna is not installed: pip install 'bitsynth[tune]'" in fails(4, *COMMAND)
