"""Compiled code that somebody else may have written is not loaded; what is damaged is compiled again."""

import errno
import os
import shlex
import shutil
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from bitsynth import toolchain
from bitsynth.cli import checks
from bitsynth.errors import ToolError
from bitsynth.files import file_lock
from bitsynth.host import features
from bitsynth.isa import load
from bitsynth.run.runner import runner_for
from bitsynth.toolchain import compiler as compilers
from bitsynth.toolchain import library
from bitsynth.toolchain.cache import cache_folder, secure

GOOD = {"a.c": "int answer(void);\nint answer(void) { return 42; }\n"}
NOBODY = 65534


@pytest.fixture(scope="module")
def isa():
    found = [
        n for n in load.names() if features.matches(load.load(n).table) and any(compilers.candidates(features.arch()))
    ]
    if not found:
        pytest.skip("no compiler makes code that runs natively here")
    return load.load(found[0])


@pytest.fixture(scope="module")
def built(isa, tmp_path_factory):
    """A build cache with the library of `GOOD`."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITSYNTH_BUILD_CACHE", str(folder))
        toolchain.compile_for(isa, GOOD)
    return folder


@pytest.fixture(autouse=True)
def cache(built, tmp_path, monkeypatch):
    """A copy of it for each test."""
    folder = shutil.copytree(built, tmp_path / "cache")
    monkeypatch.setenv("BITSYNTH_BUILD_CACHE", str(folder))
    return folder


@pytest.fixture
def give_away(monkeypatch):
    """`give_away(path)` makes `path` another user's: root hands it over, others take themselves for another."""
    given, me = [], os.geteuid()

    def give(path):
        if me:
            monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        else:
            os.lchown(path, NOBODY, NOBODY)
            given.append(path)

    yield give
    for path in given:
        os.lchown(path, 0, 0)


def fake(tmp_path, body, arch=None):
    path = tmp_path / "fakecc"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return compilers.Compiler("fake", "gcc", (str(path),), arch or features.arch(), "1")


def answer(isa, **options):
    return runner_for(isa, toolchain.compile_for(isa, GOOD, **options)).call("answer", bits=32)


def refused(isa, text):
    with pytest.raises(ToolError) as caught:
        toolchain.compile_for(isa, GOOD)
    assert "cannot use the build cache" in str(caught.value)
    assert text in str(caught.value)
    assert str(caught.value).endswith("set BITSYNTH_BUILD_CACHE to another folder")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rewrite(path, data):
    path.write_bytes(data)


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path, 0o600)


def replace_folder_by_file(path):
    shutil.rmtree(path)
    rewrite(path, b"")


DAMAGE = {
    "emptied": lambda p: rewrite(p, b""),
    "truncated": lambda p: rewrite(p, p.read_bytes()[:5000]),
    "one bit": lambda p: rewrite(p, p.read_bytes()[:-1] + bytes([p.read_bytes()[-1] ^ 1])),
    "no library": Path.unlink,
    "a folder": lambda p: (p.unlink(), p.mkdir()),
    "a pipe": replace_by_pipe,
    "no digest": lambda p: (p.parent / "sha256").unlink(),
    "another digest": lambda p: rewrite(p.parent / "sha256", b"0" * 64),
    "binary digest": lambda p: rewrite(p.parent / "sha256", b"\xff\xfe"),
    "a file for the entry": lambda p: replace_folder_by_file(p.parent),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_library_is_compiled_again(isa, damage):
    path = toolchain.compile_for(isa, GOOD)
    DAMAGE[damage](path)
    assert answer(isa) == 42
    assert toolchain.compile_for(isa, GOOD) == path
    assert not list((path.parents[1] / "unfinished").iterdir())


def test_what_killed_compilations_left_is_swept_by_any_build_but_not_what_others_compile(isa, cache):
    """Of whatever keys: one whose lock is held is in the making. Other names are none of ours."""
    sources = [{"a.c": GOOD["a.c"].replace("42", number)} for number in ("43", "44")]
    built = [toolchain.compile_for(isa, source).parent for source in sources]
    for folder in built:
        shutil.rmtree(folder)
    # A thread that waits for a lock of its own would wait for ever: both builds take locks of other digits.
    used = {folder.name[:2] for folder in built}
    abandoned, held = [digits for digits in ("ab", "bc", "cd", "de") if digits not in used][:2]
    left, live = (cache / "unfinished" / f"{digits * 16}.x1" for digits in (abandoned, held))
    other = cache / "unfinished" / "notes.1"
    for folder in (left, live, other):
        folder.mkdir()
        (folder / "a.c").touch()
    with file_lock(cache / "locks" / f"{held}.lock"):
        toolchain.compile_for(isa, sources[0])
        assert not left.exists()
        assert (live / "a.c").exists()
    toolchain.compile_for(isa, sources[1])
    assert not live.exists()
    assert (other / "a.c").exists()


@pytest.mark.parametrize("kind", ["file", "link", "link to nothing", "of others", "writable"])
def test_unfinished_compilations_are_made_in_the_caches_own_folder(isa, cache, tmp_path, give_away, kind):
    unfinished, outside = cache / "unfinished", tmp_path / "outside"
    (outside / f"{'0' * 32}.x").mkdir(parents=True)
    shutil.rmtree(unfinished)
    if kind == "file":
        unfinished.touch()
    elif kind.startswith("link"):
        unfinished.symlink_to(tmp_path / "missing" if kind == "link to nothing" else outside)
    else:
        unfinished.mkdir()
        unfinished.chmod(0o777 if kind == "writable" else 0o700)
    if kind == "of others":
        give_away(unfinished)
    with pytest.raises(ToolError, match=f"cannot use the build cache .*{unfinished}"):
        toolchain.compile_for(isa, {"a.c": "int other;\n"})
    assert [x.name for x in outside.iterdir()] == [f"{'0' * 32}.x"]
    assert not (tmp_path / "missing").exists()


def test_builds_of_one_lock_wait_for_each_other(isa, cache, monkeypatch):
    """Keys share locks by their first digits: threads that compile under one take turns, and none fails."""
    monkeypatch.setattr(library, "_lock", lambda folder, key: folder / "locks" / "one.lock")
    sources = [{"a.c": GOOD["a.c"].replace("42", str(number))} for number in range(50, 54)]
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(partial(toolchain.compile_for, isa), sources))
    assert all(path.is_file() for path in paths)
    assert len(set(paths)) == 4


def test_what_others_own_is_refused(isa, give_away):
    path = toolchain.compile_for(isa, GOOD)
    give_away(path)
    refused(isa, "belongs to another user")


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_lies_in_a_folder_of_others_is_refused(isa, give_away, depth):
    """The entry's, the cache's, and one above it."""
    place = [*toolchain.compile_for(isa, GOOD).parents][depth]
    give_away(place)
    refused(isa, "belongs to another user")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_cache_that_others_may_write_is_refused(isa, cache, mode):
    toolchain.compile_for(isa, GOOD)
    cache.chmod(mode)
    refused(isa, f"other users may write {cache}")
    cache.chmod(0o700)
    assert answer(isa) == 42


def test_a_library_that_others_may_write_is_refused(isa):
    path = toolchain.compile_for(isa, GOOD)
    path.chmod(0o722)
    refused(isa, f"other users may write {path}")


def test_folders_above_may_be_shared_if_each_removes_only_their_own(isa, cache):
    toolchain.compile_for(isa, GOOD)
    cache.parent.chmod(0o1777)
    assert answer(isa) == 42
    cache.parent.chmod(0o777)
    refused(isa, f"other users may write {cache.parent}")


def test_a_group_of_more_than_the_user(isa, cache, monkeypatch):
    grp, pwd = pytest.importorskip("grp"), pytest.importorskip("pwd")
    me = "alice"
    named = pwd.struct_passwd((me, "x", os.geteuid(), 0, "", "/", ""))
    monkeypatch.setattr(pwd, "getpwuid", {os.geteuid(): named}.__getitem__)
    toolchain.compile_for(isa, GOOD)
    cache.chmod(0o770)
    for name, members, fine in [(me, [], True), (me, [me], True), (me, [me, "eve"], False), ("users", [], False)]:
        monkeypatch.setattr(grp, "getgrgid", lambda gid, g=(name, members): grp.struct_group((g[0], "x", gid, g[1])))
        if fine:
            assert answer(isa) == 42
        else:
            refused(isa, f"other users may write {cache}")


def test_a_group_of_a_user_without_a_name(isa, cache, monkeypatch):
    pwd = pytest.importorskip("pwd")
    toolchain.compile_for(isa, GOOD)
    cache.chmod(0o770)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    refused(isa, f"other users may write {cache}")


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_what_is_made_is_the_users_alone(isa, cache, umask, monkeypatch):
    monkeypatch.setenv("BITSYNTH_BUILD_CACHE", str(cache / "deeper" / "still"))
    before = os.umask(umask)
    try:
        path = toolchain.compile_for(isa, GOOD)
    finally:
        os.umask(before)
    for place in (path, path.parent / "sha256", *list(path.parents)[:4]):
        assert not place.stat().st_mode & 0o022
    assert answer(isa) == 42


def test_a_link_leads_to_where_the_code_is(isa, cache, tmp_path, monkeypatch):
    """What is checked is what is used: the folder itself, whatever becomes of the link."""
    (tmp_path / "link").symlink_to(cache)
    monkeypatch.setenv("BITSYNTH_BUILD_CACHE", str(tmp_path / "link"))
    assert toolchain.compile_for(isa, GOOD).parents[1] == cache
    assert answer(isa) == 42
    cache.chmod(0o777)
    refused(isa, f"other users may write {cache}")


def test_planted_code_does_not_run(isa, cache, give_away, tmp_path):
    """A library with a constructor, at the place of a good one in a folder that everybody may write."""
    mark = tmp_path / "ran"
    touch = f'__attribute__((constructor)) void f(void) {{ fclose(fopen("{mark}", "w")); }}'
    evil = {"evil.c": f"#include <stdio.h>\nvoid f(void);\n{touch}\n"}
    good, bad = toolchain.compile_for(isa, GOOD), toolchain.compile_for(isa, evil)
    shutil.copytree(bad.parent, good.parent, dirs_exist_ok=True)
    give_away(good)
    for mode in (0o777, 0o700):
        cache.chmod(mode)
        with pytest.raises(ToolError):
            answer(isa)
        assert not mark.exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777])
def test_a_cache_of_another_user_is_one_message(isa, mode, monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        theirs = Path(folder) / "theirs"
        theirs.mkdir()
        Path(folder).chmod(0o755)
        os.chown(theirs, 12345, 12345)
        theirs.chmod(mode)
        monkeypatch.setenv("BITSYNTH_BUILD_CACHE", str(theirs / "build"))
        os.seteuid(NOBODY)
        try:
            refused(isa, str(theirs))
            finding = checks._build_cache()
        finally:
            os.seteuid(0)
    assert not finding.ok
    assert finding.advice.endswith("set BITSYNTH_BUILD_CACHE to another folder")


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("exit 0", "a.c.o"),
        (": > a.c.o", "a.c.o"),
        ("touch library.so; echo > a.c.o", "library.so"),
    ],
)
def test_a_compiler_that_writes_nothing_is_named(isa, cache, tmp_path, body, output):
    before = sorted(p.name for p in cache.iterdir())
    compiler = fake(tmp_path, body)
    for _ in range(2):
        with pytest.raises(ToolError, match=rf"fakecc .* ended with exit code 0 but wrote nothing to {output}$"):
            toolchain.compile_for(isa, GOOD, compiler=compiler)
    assert sorted(p.name for p in cache.iterdir()) == before
    fake(tmp_path, f'exec {shlex.join(compilers.get_preferred(isa).command)} "$@"')
    assert answer(isa, compiler=compiler) == 42


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_line(isa, tmp_path, number):
    message = f"fatal error: error in backend: IO failure on output stream: {os.strerror(number)}"
    compiler = fake(tmp_path, f"echo '{message}'; echo PLEASE submit a bug report; echo Stack dump:; exit 1")
    with pytest.raises(ToolError) as caught:
        toolchain.compile_for(isa, GOOD, compiler=compiler)
    why = f"cannot use the build cache {cache_folder()}: {os.strerror(number)}"
    assert str(caught.value) == f"{why}; set BITSYNTH_BUILD_CACHE to another folder"


def test_one_of_many_that_find_the_same_damage_compiles(isa, tmp_path):
    log = tmp_path / "log"
    compiler = fake(tmp_path, f'echo "$@" >> {log}; exec {shlex.join(compilers.get_preferred(isa).command)} "$@"')
    path = toolchain.compile_for(isa, GOOD, compiler=compiler)
    path.write_bytes(b"")
    log.unlink()
    with ThreadPoolExecutor(4) as pool:
        result = list(pool.map(lambda _: toolchain.compile_for(isa, GOOD, compiler=compiler), range(4)))
    assert result == [path] * 4
    assert len(log.read_text().splitlines()) == 2  # to an object, to a library
    assert sorted(p.name for p in path.parent.iterdir()) == ["a.c", "library.so", "sha256"]
    assert answer(isa, compiler=compiler) == 42


def test_kept_objects_are_compiled_once(isa, tmp_path):
    """Until what they include changes, or they are damaged; the library is the same as without."""
    log = tmp_path / "log"
    compiler = fake(tmp_path, f'echo "$@" >> {log}; exec {shlex.join(compilers.get_preferred(isa).command)} "$@"')
    files = {
        "kept.c": '#include "one.h"\nint two(void) { return NUMBER; }\n',
        "one.h": '#include "other.h"\nint two(void);\n',
        "other.h": "#define NUMBER 40\n",
        "a.c": '#include "one.h"\nint answer(void);\nint answer(void) { return two() + 2; }\n',
    }

    def made(change):
        """The library, its answer, and the files that were compiled."""
        log.write_text("")
        path = toolchain.compile_for(isa, files | change, compiler=compiler, cached=["kept.c", "one.h", "none.c"])
        compiled = [line.split(" -c ")[1].split()[0] for line in log.read_text().splitlines() if " -c " in line]
        return path, runner_for(isa, path).call("answer", bits=32), compiled

    path, *first = made({})
    assert first == [42, ["kept.c", "a.c"]]
    assert toolchain.compile_for(isa, files, compiler=compiler) == path
    other = {"a.c": files["a.c"].replace("+ 2", "+ 3")}
    assert made(other)[1:] == (43, ["a.c"])
    (damaged,) = path.parents[1].glob("*/object.o")
    damaged.write_bytes(b"")
    assert made({"a.c": files["a.c"].replace("+ 2", "+ 4")})[1:] == (44, ["kept.c", "a.c"])
    assert made({"other.h": "#define NUMBER 50\n"})[1:] == (52, ["kept.c", "a.c"])
    assert len(list(path.parents[1].glob("*/object.o"))) == 2


def test_the_check_makes_nothing_unless_asked(cache):
    wanted = cache / "deeper" / "still"
    assert secure(wanted, make=False) == wanted
    assert not wanted.parent.exists()
    assert checks._build_cache().ok


def test_files_that_none_has_begun_when_one_fails_are_not_compiled(isa, monkeypatch):
    monkeypatch.setattr(features, "cores", lambda: 1)
    many = {f"f{n}.c": f"#include <file_{n}_that_is_not_there.h>\n" for n in range(20)}
    tried, run = [], toolchain.library._run_compiler

    def counted(*arguments):
        tried.append(arguments)
        run(*arguments)

    monkeypatch.setattr(toolchain.library, "_run_compiler", counted)
    with pytest.raises(ToolError, match="file_0_that_is_not_there"):
        toolchain.compile_for(isa, many, cached=many)
    assert len(tried) < len(many)


def uses_of(isa, count, before=""):
    """Compile `count` files that include the header of intrinsics, after the text `before`; the libraries' paths."""
    code = f"{before}#include <{isa.table.header}>\nint answer(void);\nint answer(void) {{ return 42; }}\n"
    return [toolchain.compile_for(isa, {"a.c": f"{code}/* {k} */\n"}) for k in range(count)]


@pytest.fixture
def parsed(isa, cache, monkeypatch):
    """A function that returns the headers that are kept parsed."""
    if compilers.get_preferred(isa).family != "gcc":
        pytest.skip("the compiler is not gcc: none but gcc keeps headers parsed")
    monkeypatch.setattr(library, "_uses", Counter())
    monkeypatch.setattr(library, "_parsed", set())
    return lambda: list(cache.glob("*/intrinsics.h.gch"))


def test_a_header_of_intrinsics_is_parsed_once_and_changes_no_code(isa, parsed):
    first = uses_of(isa, 4)
    assert len(parsed()) == 1
    assert len({path.read_bytes() for path in first}) == 1


@pytest.mark.parametrize("before", ["#define _POSIX_C_SOURCE 200809L\n", "#pragma GCC optimize(3)\n"])
def test_headers_that_a_file_may_change_are_not_kept_parsed(isa, parsed, before):
    uses_of(isa, 4, before)
    assert not parsed()


def test_a_damaged_header_is_parsed_again(isa, parsed):
    uses_of(isa, 3)
    header = parsed()[0]
    whole = header.read_bytes()
    header.write_bytes(whole[:1000])
    library._uses.clear()
    uses_of(isa, 5)
    assert header.stat().st_size > 1000


def test_a_parsed_header_that_others_may_write_is_not_read(isa, parsed):
    uses_of(isa, 3)
    (header,) = parsed()
    header.write_bytes(b"")
    header.with_name("intrinsics.h").write_text("#error somebody else wrote this\n")
    header.parent.chmod(0o777)
    library._uses.clear()
    library._parsed.clear()
    uses_of(isa, 5)
