"""Folders that are none, read-only or full; two processes that write one kernel."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest
from support.run_commands import COMMAND, ONE_METHOD, SYNTH, files, shipped_file, strays

from bitsynth.cli import main

pytestmark = pytest.mark.usefixtures("user")


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("argv", [SYNTH, [*SYNTH, "--fresh"]])
def test_a_cache_that_cannot_be_a_folder(fails, tmp_path, monkeypatch, argv):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "file" / "cache"))
    assert "choose another folder with BITSYNTH_CACHE or -o" in fails(4, *argv)
    assert main(["list"]) == 0


def test_an_output_that_cannot_be_a_folder(fails, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write" in fails(4, *SYNTH, "-o", str(tmp_path / "file"))
    assert "cannot write" in fails(4, *SYNTH, "--fresh", "-o", str(tmp_path / "file"))


def without_privilege():
    """What to put before a command so that even root must heed permissions."""
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("root may write to read-only folders, and there is no setpriv to forbid it")
    return ["setpriv", "--bounding-set=-dac_override"]


def test_a_read_only_cache(user):
    user.mkdir(mode=0o555)
    command = [*without_privilege(), *COMMAND, *SYNTH]
    for argv in ([], ["--fresh"]):
        done = subprocess.run([*command, *argv], capture_output=True, text=True, check=False)
        assert done.returncode == 4
        assert done.stderr.startswith("error: cannot write ")
        assert "Permission denied; choose another folder with BITSYNTH_CACHE or -o" in done.stderr
    subprocess.run([*command, "-o", user.parent / "out"], check=True)


@pytest.mark.parametrize("call", ["replace", "fchmod", "mkdir"])
def test_a_full_disk(fails, works, user, monkeypatch, call):
    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        assert "No space left on device" in fails(4, *ONE_METHOD, "--fresh")
        assert "No space left on device" in fails(4, *SYNTH)
    assert not files(user)
    assert works(*SYNTH)["cached"]


def test_a_full_disk_is_noticed_before_the_work(fails, monkeypatch):
    from bitsynth.synth import synthesize

    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    monkeypatch.setattr(synthesize, "synthesize", lambda *a, **k: pytest.fail("worked in vain"))
    assert "No space left on device" in fails(4, *SYNTH, "--fresh")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    "argv",
    [
        ["--version"],
        pytest.param(["list"], marks=pytest.mark.slow),
        pytest.param(["list", "--json"], marks=pytest.mark.slow),
        pytest.param(["show", shipped_file().stem, "--c"], marks=pytest.mark.slow),
    ],
)
def test_an_output_that_is_full(argv):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([*COMMAND, *argv], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr == "error: No space left on device\n"


@pytest.mark.slow
def test_two_processes_write_the_same_kernel(user, works):
    both = [
        subprocess.Popen([*COMMAND, *ONE_METHOD, "--fresh", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    found = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0]
    assert [err for _, err in found] == [b"", b""]
    names = {json.loads(out)["name"] for out, _ in found}
    assert len(names) == 1
    assert not strays(user)
    assert [p.stem for p in user.rglob("*.json")] == list(names)
    assert works(*ONE_METHOD)["cached"]


def test_processes_that_store_other_tiles_leave_one(user):
    """Each waits between writing its own file and removing what it saw of the others."""
    code = (
        "import sys, time; from pathlib import Path; from bitsynth.store.matmul import MATMUL\n"
        "seen = MATMUL.find_superseded\n"
        "MATMUL.find_superseded = lambda *a: (time.sleep(0.5), found := seen(*a), time.sleep(0.5))[1]\n"
        "from bitsynth.spec.options import KernelOptions; from bitsynth.store.entry import ProvedEntry\n"
        "MATMUL.store(ProvedEntry(MATMUL.load(Path(sys.argv[1])).proved, KernelOptions(), (), 0.0))"
    )
    other = next((shipped_file().parent / "popcount-c64").glob(f"{shipped_file().stem.rsplit('_', 1)[0]}_*.json"))
    both = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for path in (shipped_file(), other)]
    assert [p.wait(timeout=60) for p in both] == [0, 0]
    assert len(list(user.rglob("*.json"))) == 1
