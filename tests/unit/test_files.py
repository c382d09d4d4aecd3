"""Files of users: what is no regular file is refused at once, and what a killed writer left is removed by the next."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from support.case_selection import quick

import bitsynth
from bitsynth import paths
from bitsynth.cli import main
from bitsynth.cli.commands import emit_layer
from bitsynth.errors import SpecError, ToolError
from bitsynth.files import MARK, file_lock, hold_lock, mark, replace_file, reserve_folder, write_texts
from bitsynth.isa import architecture, toml
from bitsynth.layers import array_files, tuned
from bitsynth.store import files
from bitsynth.store.matmul import MATMUL

pytestmark = pytest.mark.timeout(60)


def endless(path):
    path.symlink_to("/dev/zero")


def huge(path):
    path.touch()
    os.truncate(path, 1 << 40)


KINDS = [os.mkfifo, endless, huge, os.mkdir]
READERS = [MATMUL.read, toml.read, architecture.read, emit_layer.read_layer_file, lambda path: list(tuned.read(path))]
REFUSED = r"is not a regular file|has [\d,]+ bytes, more than"


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("read", READERS)
def test_what_is_no_file_to_be_read(tmp_path, make, read):
    make(tmp_path / "file")
    with pytest.raises(SpecError, match=REFUSED):
        read(tmp_path / "file")


@pytest.mark.parametrize("make", quick(KINDS[:1], of=KINDS[:2]))
def test_a_cache_with_what_is_no_file(tmp_path, monkeypatch, capsys, make):
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path))
    shipped = MATMUL.find(bitsynth.get_kernel("avx2", 2, 1).spec, "")
    mine = tmp_path / "avx2" / shipped.name
    mine.parent.mkdir()
    make(mine)
    with pytest.raises(SpecError, match=REFUSED):
        bitsynth.get_kernel("avx2", 2, 1)
    assert main(["list"]) == 0
    assert mine.name in capsys.readouterr().err


def test_a_kernels_file_is_read_again_if_it_was_changed(tmp_path, monkeypatch):
    """Also at once, in its place and with the time that it had: its content differs from the content that was read."""
    shipped = next(paths.shipped_kernels().glob("avx2/bs_mm_*.json"))
    path = tmp_path / shipped.name
    path.write_bytes(shipped.read_bytes())
    before = os.stat(path)
    monkeypatch.setattr(files, "_SETTLED_NS", -(1 << 62))
    assert MATMUL.read(path) is MATMUL.read(path)
    monkeypatch.undo()
    assert MATMUL.read(path) is not MATMUL.read(path)
    text = shipped.read_text()
    path.write_text(text.replace("bs_mm_", "bs_mn_", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(SpecError, match="digest does not match"):
        MATMUL.read(path)


def test_arrays_that_unpack_to_too_much(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "w.npz", weight=np.zeros(10_000))
    monkeypatch.setattr(array_files, "MAX_BYTES", 20_000)
    with pytest.raises(SpecError, match=r"unpacks to more than the 20,000 bytes"):
        emit_layer.read_layer_file(tmp_path / "w.npz")


OTHERS = {
    "text": lambda path: path.write_text("int mine;"),
    "empty": lambda path: path.touch(),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 100),
    "pipe": os.mkfifo,
    "endless": endless,
    "folder": os.mkdir,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "mark further down": lambda path: path.write_text(f"int mine;\n/* {MARK} */\n"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_files_of_others_are_not_replaced_and_nothing_is_written(tmp_path, other):
    OTHERS[other](tmp_path / "b.c")
    before = (tmp_path / "b.c").lstat()
    with pytest.raises(SpecError, match=rf"{tmp_path}/b\.c was not written by bitsynth.*; choose another folder$"):
        write_texts(tmp_path, mark({"a.c": "int a;", "b.c": "int b;"}))
    after = (tmp_path / "b.c").lstat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert [p.name for p in tmp_path.iterdir()] == ["b.c"]


@pytest.mark.parametrize("other", ["file", "link to nothing"])
def test_what_lies_in_the_place_of_a_folder_is_told_before_anything_is_written(tmp_path, other):
    OTHERS.get(other, lambda path: path.write_text("mine"))(tmp_path / "apart")
    with pytest.raises(ToolError, match=rf"^cannot write into {tmp_path}/apart, which is no folder; choose another"):
        write_texts(tmp_path, mark({"a.c": "int a;", "apart/b.c": "int b;"}))
    assert [p.name for p in tmp_path.iterdir()] == ["apart"]


def test_what_we_wrote_is_replaced_and_what_is_there_already_is_left(tmp_path):
    for text in ("int a;", "int b;", "int b;"):
        files = mark({"a.c": text, "CMakeLists.txt": f"# {text}"})
        assert {path.name: path.read_text() for path in write_texts(tmp_path, files)} == files
    (tmp_path / "same.c").write_text("unmarked")
    before = (tmp_path / "same.c").stat()
    write_texts(tmp_path, {"same.c": "unmarked"})
    assert (tmp_path / "same.c").stat().st_ino == before.st_ino


def test_a_folder_has_one_library(tmp_path):
    def library(name):
        return mark({"CMakeLists.txt": f"project({name} C)\n", "bs_layer.c": f"int {name};"})

    write_texts(tmp_path, library("left"))
    write_texts(tmp_path, library("left"))
    with pytest.raises(SpecError, match=r"has the library left, whose files right would replace"):
        write_texts(tmp_path, library("right"))
    assert "int left;" in (tmp_path / "bs_layer.c").read_text()


LATE = """
import sys
from pathlib import Path
from bitsynth import files
replace = files._replace_together
files._replace_together = lambda *given: (print("writing", flush=True), sys.stdin.read(), replace(*given))
files.write_texts(Path(sys.argv[1]), files.mark({"CMakeLists.txt": "project(left C)\\n"}))
"""


def test_who_writes_into_a_folder_waits_for_others(tmp_path):
    """So the second sees the library of the first; the lock leaves nothing there."""
    first = subprocess.Popen(
        [sys.executable, "-c", LATE, tmp_path / "out"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    first.stdout.readline()
    right = "write_texts(Path(sys.argv[1]), mark({'CMakeLists.txt': 'project(right C)\\n'}))"
    code = f"import sys; from pathlib import Path; from bitsynth.files import *; {right}"
    second = subprocess.Popen([sys.executable, "-c", code, tmp_path / "out"], stderr=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.5)
    first.communicate()
    assert b"has the library left, whose files right would replace" in second.communicate()[1]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["CMakeLists.txt"]


HOLDER = """
import sys
from pathlib import Path
from bitsynth.files import mark, reserve_folder, write_texts
with reserve_folder(Path(sys.argv[1])):
    print("reserved", flush=True)
    sys.stdin.read()
    write_texts(Path(sys.argv[1]), mark({"a.c": "int a;\\n"}))
"""


def test_a_reserved_folder_is_refused_to_others(tmp_path):
    """So that a folder holds what one process computed; its owner writes into it."""
    out = tmp_path / "some" / "out"
    first = subprocess.Popen([sys.executable, "-c", HOLDER, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    first.stdout.readline()
    with pytest.raises(ToolError, match=f"another process writes to {out} now"), reserve_folder(out):
        pytest.fail("reserved twice")
    first.communicate()
    assert first.returncode == 0
    with reserve_folder(out):
        assert [p.name for p in out.iterdir()] == ["a.c"]


def test_a_reserved_folder_that_stays_empty_is_removed(tmp_path):
    with pytest.raises(SpecError), reserve_folder(tmp_path / "some" / "out"):
        raise SpecError("the model is none")
    assert not list(tmp_path.iterdir())


WRITER = """
import sys
from pathlib import Path
from bitsynth import files
files.os.replace = lambda *paths: (print("writing", flush=True), sys.stdin.read())
files.replace_file(Path(sys.argv[1]), b"text")
"""


def test_what_killed_writers_left_is_removed_and_what_others_write_is_not(tmp_path):
    (tmp_path / ".bitsynth-notes").touch()
    command = [sys.executable, "-c", WRITER, tmp_path / "file"]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    for writer in both:
        writer.stdout.readline()
    assert len(list(tmp_path.iterdir())) == 3
    both[0].kill()
    both[0].communicate()
    replace_file(tmp_path / "other", b"more")
    assert len(list(tmp_path.glob(".bitsynth-*.part"))) == 1
    both[1].communicate()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".bitsynth-notes", "other"]
    assert both[0].returncode == -signal.SIGKILL


def test_a_file_that_was_taken_for_left_behind_is_written_again(tmp_path, monkeypatch):
    """A sweeper may come between the making of a file and its lock."""
    from bitsynth import files

    real = files._is_ours
    swept: list[Any] = []

    def sweep_first(file):
        if not swept:
            swept.append(file.name)
            files._sweep(tmp_path)
        return real(file)

    monkeypatch.setattr(files, "_is_ours", sweep_first)
    replace_file(tmp_path / "file", b"text")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"text"


@pytest.mark.parametrize("place", ["b.c", "apart/b.c"])
def test_a_disk_that_is_full_leaves_all_as_it_was(tmp_path, place):
    """What a full disk says is said here by a limit of a file's size; the first file would have fitted."""
    write_texts(tmp_path, before := mark({"a.c": "int a;"}))
    text = f"""
import resource, sys
from pathlib import Path
from bitsynth import files
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
files.write_texts(Path(sys.argv[1]), files.mark({{"a.c": "int c;", {place!r}: "int b;" * 1000}}))
"""
    done = subprocess.run([sys.executable, "-c", text, tmp_path], capture_output=True, text=True, check=False)
    assert f"ToolError: cannot write {tmp_path / place}: File too large; choose another folder" in done.stderr
    left = {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == before


@pytest.mark.parametrize("name", ["a.c", "apart/a.c"])
def test_what_a_killed_writer_staged_is_removed(tmp_path, name):
    left = (tmp_path / name).with_name(".bitsynth-x.part")
    left.mkdir(parents=True)
    (left / "0").write_text("int a;")
    write_texts(tmp_path, mark({name: "int a;"}))
    assert [path.name for path in left.parent.iterdir()] == ["a.c"]


def test_a_folder_in_the_place_of_a_file_of_ours_leaves_all_as_it_was(tmp_path):
    (tmp_path / "b.c").mkdir()
    with pytest.raises(ToolError, match=rf"cannot write {tmp_path}/b\.c: Is a directory; choose another folder"):
        write_texts(tmp_path, mark({"a.c": "int a;", "b.c": "int b;"}), ours=True)
    assert [path.name for path in tmp_path.iterdir()] == ["b.c"]


def test_folders_may_be_in_several_file_systems(tmp_path, monkeypatch):
    """A file cannot be renamed from one to another: each is staged where it goes."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "apart").symlink_to(tmp_path / "elsewhere")
    rename = Path.replace

    def within(self, target):
        if self.resolve().parent.parent != target.parent.resolve():
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", within)
    texts = mark({"apart/b.c": "int b;", "a.c": "int a;"})
    write_texts(tmp_path / "out", texts)
    assert {name: (tmp_path / "out" / name).read_text() for name in texts} == texts
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["b.c"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    """Such as /dev/null, which the superuser's commands would make a file."""
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(ToolError, match="not a regular file; elsewhere"):
        replace_file(pipe, b"text", "elsewhere")
    assert pipe.is_fifo()
    assert [*tmp_path.iterdir()] == [pipe]


def test_an_interrupt_frees_a_lock_that_it_finds_taken(tmp_path, monkeypatch):
    """One that comes between the taking of a lock and the block it guards, while its traceback is kept."""
    path = tmp_path / "locks" / "lock"

    def taken_and_interrupted(lock, *args, **options):
        acquire(lock, *args, **options)
        raise KeyboardInterrupt

    acquire = FileLock.acquire
    with monkeypatch.context() as patch:
        patch.setattr(FileLock, "acquire", taken_and_interrupted)
        with pytest.raises(KeyboardInterrupt) as kept, hold_lock(path, unwanted):
            pass
    with hold_lock(path, unwanted, wait=False):
        pass
    assert kept.value.__traceback__


def test_a_lock_that_another_has_is_not_waited_for(tmp_path):
    with (
        hold_lock(tmp_path / "lock", unwanted),
        pytest.raises(ToolError, match="taken"),
        hold_lock(tmp_path / "lock", lambda _: ToolError("taken"), wait=False),
    ):
        pass


def unwanted(error):
    pytest.fail(f"no lock: {error}")


def test_a_lock_is_an_empty_file(tmp_path):
    (tmp_path / "lock").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("lock", "link"):
        with pytest.raises(SpecError, match="would be an empty file to lock"):
            file_lock(tmp_path / name)
    assert (tmp_path / "lock").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()
