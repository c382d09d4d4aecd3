"""Missing and failing tools, folders that cannot be written, and interrupts."""

import dataclasses
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from support.running_processes import gone

from bitsynth import paths, toolchain
from bitsynth.cli import checks, main
from bitsynth.conformance import check, harness
from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.host.facts import Facts
from bitsynth.isa import architecture, load
from bitsynth.processes import tool
from bitsynth.run import elf, qemu
from bitsynth.run.runner import runner_for
from bitsynth.toolchain import compiler as compilers

pytestmark = pytest.mark.toolchains

GOOD = {"a.c": "int a(void);\nint a(void) { return 1; }\n"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("BITSYNTH_BUILD_CACHE", str(folder))
    return folder


@pytest.fixture
def bare(monkeypatch):
    """A machine without compilers and emulators."""
    real = importlib.util.find_spec
    hidden = {"ziglang", "unicorn", "elftools"}
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in hidden else real(name, *a))
    for name in [m for m in sys.modules if m.partition(".")[0] in hidden] + sorted(hidden):
        monkeypatch.setitem(sys.modules, name, None)


def native_isa():
    found = [n for n in load.names() if features.matches(load.load(n).table)]
    if not found:
        pytest.skip("no instruction set runs natively here")
    return load.load(found[0])


def fake_compiler(tmp_path, body):
    path = tmp_path / "fakecc"
    path.write_text(f"#!/bin/sh\ncase \"$*\" in *--version*) echo 'fake 1.0'; exit 0;; esac\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", ["avx2", "neon"])
def test_a_missing_compiler_is_reported(name):
    isa = load.load(name)
    assert toolchain.compilers(isa) == []
    with pytest.raises(ToolError) as caught:
        toolchain.compile_for(isa, GOOD)
    text = str(caught.value)
    assert text.startswith(f"no C compiler for {name}")
    assert "pip install 'bitsynth[emulator]'" in text
    assert f"BITSYNTH_CC_{isa.table.arch.upper()}" in text
    assert ("gcc or clang" if isa.table.arch == features.arch() else "Debian's gcc-") in text


def test_a_missing_emulator_is_reported(monkeypatch, request):
    isa = load.load("neon")
    monkeypatch.setenv("BITSYNTH_RUNNER", "unicorn")
    library = toolchain.compile_for(isa, GOOD)
    request.getfixturevalue("bare")
    with pytest.raises(ToolError, match=r"pyelftools: pip install 'bitsynth\[emulator\]'"):
        runner_for(isa, library)
    monkeypatch.setattr(elf, "read_image", elf.Image)
    with pytest.raises(ToolError, match=r"unicorn emulator is not installed: pip install 'bitsynth\[emulator\]'"):
        runner_for(isa, library)
    monkeypatch.setenv("BITSYNTH_RUNNER", "qemu")
    with pytest.raises(ToolError, match="qemu-aarch64 is not on PATH: install Debian's qemu-user"):
        runner_for(isa, library)


def test_a_failing_compile_shows_command_and_output():
    isa = native_isa()
    with pytest.raises(ToolError) as caught:
        toolchain.compile_for(isa, {"broken.c": "int f(void) { return oops; }\n"})
    text = str(caught.value)
    assert "-std=c11 -O2 -Wall -Wextra -Werror" in text
    assert "failed with exit code" in text
    assert "broken.c:1" in text
    assert "oops" in text


def test_a_warning_fails():
    with pytest.raises(ToolError, match="unused"):
        toolchain.compile_for(native_isa(), {"a.c": "int f(int x);\nint f(int x) { return 1; }\n"})


def test_a_failing_compile_leaves_nothing(cache):
    isa = native_isa()
    compiler = compilers.get_preferred(isa)
    before = sorted(p.name for p in cache.iterdir())
    with pytest.raises(ToolError):
        toolchain.compile_for(isa, {"broken.c": "?"}, compiler=compiler)
    assert sorted(p.name for p in cache.iterdir()) == before


@pytest.mark.parametrize(
    ("source", "runner"), [('int puts(const char *);\nint f(void);\nint f(void) { return puts("x"); }\n', "unicorn")]
)
def test_emulated_code_has_no_libc(monkeypatch, source, runner):
    monkeypatch.setenv("BITSYNTH_RUNNER", runner)
    with pytest.raises(ToolError, match="puts"):
        toolchain.compile_for(load.load("neon"), {"a.c": source})


def test_a_forced_compiler_is_used_or_reported(monkeypatch, tmp_path):
    isa = native_isa()
    variable = f"BITSYNTH_CC_{isa.table.arch.upper()}"
    monkeypatch.setenv("BITSYNTH_CC", "no-such-compiler -x")
    with pytest.raises(ToolError, match=r"^BITSYNTH_CC: cannot start no-such-compiler"):
        toolchain.compile_for(isa, GOOD)
    monkeypatch.setenv(variable, str(fake_compiler(tmp_path, "echo cannot do it; exit 3")))
    with pytest.raises(ToolError, match=r"(?s)no C compiler.*exit code 3:\ncannot do it"):
        toolchain.compile_for(isa, GOOD)
    assert toolchain.compilers(isa) == []


def test_a_forced_runner_is_used_or_reported(monkeypatch):
    isa = native_isa()
    library = toolchain.compile_for(isa, GOOD)
    monkeypatch.setenv("BITSYNTH_RUNNER", "magic")
    with pytest.raises(ToolError, match="'magic'; it can be native, qemu, unicorn"):
        runner_for(isa, library)


def test_runner_of_another_processor(monkeypatch, tmp_path):
    other = load.load("neon" if features.arch() == "x86_64" else "avx2")
    monkeypatch.setenv("BITSYNTH_RUNNER", "native")
    with pytest.raises(ToolError, match=f"needs an {other.table.arch} processor; this one is {features.arch()}"):
        runner_for(other, tmp_path / "x.so")


def test_missing_processor_feature_is_named(monkeypatch, tmp_path):
    isa = native_isa()
    monkeypatch.setenv("BITSYNTH_RUNNER", "native")
    monkeypatch.setattr(features, "features", frozenset)
    if not isa.table.host_features:
        pytest.skip("needs no feature")
    with pytest.raises(ToolError, match=f"needs a processor with {isa.table.host_features[0]}"):
        runner_for(isa, tmp_path / "x.so")


def set_with_features():
    """A set of this processor's architecture that has feature sets, and a form of the last one."""
    for name in load.names():
        isa = load.load(name)
        if isa.table.features and isa.table.arch == features.arch() and toolchain.compilers(isa):
            return isa, next(i for i in isa.instrs.values() if i.feature == list(isa.table.features)[-1])
    return pytest.skip(f"code needs an x86_64 processor; this one is {features.arch()}")


def test_a_form_of_a_feature_the_processor_lacks_is_not_run(monkeypatch):
    isa, form = set_with_features()
    wanted = isa.table.features[form.feature].host[0]
    monkeypatch.setattr(features, "features", lambda: frozenset(isa.table.host_features))
    with pytest.raises(ToolError, match=f"{isa.name} code needs a processor with {wanted}; this one lacks it"):
        check.check_isa(isa, forms=[form.name])


def test_a_form_of_another_feature_does_not_compile():
    isa, form = set_with_features()
    claimed = dataclasses.replace(form, feature="")
    wrong = load.Isa(isa.table, {form.name: claimed})
    with pytest.raises(ToolError, match=r"failed with exit code 1(.|\n)*target"):
        harness.captures(wrong, [claimed])


@pytest.mark.parametrize("kind", ["native", "qemu", "unicorn"])
def test_a_library_that_does_not_load_is_reported(monkeypatch, tmp_path, kind):
    monkeypatch.setenv("BITSYNTH_RUNNER", kind)
    isa = native_isa() if kind == "native" else load.load("neon")
    bad = tmp_path / "bad.so"
    for _ in range(2):
        with pytest.raises(ToolError, match=r"cannot load .*bad\.so"):
            runner_for(isa, bad)
        bad.write_bytes(b"not a library")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that even root cannot write to")
@pytest.mark.parametrize("folder", ["/proc/bitsynth", "/dev/null/bitsynth"])
def test_a_cache_folder_that_cannot_be_written(monkeypatch, folder):
    monkeypatch.setenv("BITSYNTH_BUILD_CACHE", folder)
    with pytest.raises(ToolError, match=f"cannot use the build cache {folder}.*set BITSYNTH_BUILD_CACHE"):
        toolchain.compile_for(native_isa(), GOOD)
    with pytest.raises(ToolError, match="set BITSYNTH_BUILD_CACHE"):
        toolchain.compilers(native_isa())


def test_a_read_only_cache_still_serves(cache):
    isa = native_isa()
    path = toolchain.compile_for(isa, GOOD)
    cache.chmod(0o555)
    try:
        if os.access(cache, os.W_OK):
            pytest.skip("this user writes to read-only folders")
        assert toolchain.compile_for(isa, GOOD) == path
        with pytest.raises(ToolError, match="set BITSYNTH_BUILD_CACHE"):
            toolchain.compile_for(isa, {"b.c": "int b;"})
    finally:
        cache.chmod(0o755)


def interrupted(isa, compiler, mark, number):
    """Start a compile in a child, send it a signal once `mark` exists; its exit code."""
    code = (
        "import sys; from bitsynth import toolchain; from bitsynth.isa import load\n"
        f"c = toolchain.Compiler('slow', 'gcc', ({str(compiler)!r},), {isa.table.arch!r}, '1')\n"
        f"toolchain.compile_for(load.load({isa.name!r}), {GOOD!r}, compiler=c)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(number)
    return child.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_compiler_and_all_it_started_end_with_us(cache, tmp_path, number):
    isa = native_isa()
    mark = tmp_path / "started"
    compiler = fake_compiler(tmp_path, f"sleep 60 & echo $! > {mark}.part; mv {mark}.part {mark}; wait")
    _, errors = interrupted(isa, compiler, mark, number)
    assert gone(int(mark.read_text()), 5)
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
        assert sorted(p.name for p in cache.iterdir()) == ["locks", "unfinished"]
        assert not list((cache / "unfinished").iterdir())


@pytest.mark.parametrize("kind", ["qemu", "unicorn"])
def test_an_interrupt_ends_an_emulated_call(monkeypatch, kind):
    if kind == "qemu" and qemu.find(architecture.find_architecture("aarch64").emulator.qemu) is None:
        pytest.skip("qemu-aarch64 is not on PATH")
    monkeypatch.setenv("BITSYNTH_RUNNER", kind)
    code = (
        "from bitsynth import toolchain; from bitsynth.isa import load\n"
        "from bitsynth.run.runner import runner_for; isa = load.load('neon')\n"
        "source = 'void f(void);\\nvoid f(void) { for (;;) __asm__ volatile(\"\"); }\\n'\n"
        "runner = runner_for(isa, toolchain.compile_for(isa, {'f.c': source}))\n"
        "print('ready', flush=True); runner.call('f')"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    try:
        assert "KeyboardInterrupt" in child.communicate(timeout=20)[1]
    finally:
        child.kill()


def test_a_killed_build_is_taken_up_again(cache, tmp_path):
    isa = native_isa()
    mark = tmp_path / "started"
    compiler = fake_compiler(tmp_path, f"echo $$ > {mark}.part; mv {mark}.part {mark}; exec sleep 60")
    interrupted(isa, compiler, mark, signal.SIGKILL)
    assert len(list((cache / "unfinished").iterdir())) == 1
    good = compilers.Compiler("slow", "gcc", (str(compiler),), isa.table.arch, "1")
    compiler.write_text(f'#!/bin/sh\nexec {shlex.join(compilers.get_preferred(isa).command)} "$@"\n')
    assert toolchain.compile_for(isa, GOOD, compiler=good).exists()
    assert not list((cache / "unfinished").iterdir())


def test_compiled_code_that_nobody_uses_is_removed(cache):
    """Of two libraries of two months ago the one that is used again stays; they are looked for once a day."""
    isa, (day, now) = native_isa(), (24 * 60 * 60, time.time())
    others = [{f"{name}.c": f"int {name};\n"} for name in "bcdef"]
    unused, used = (toolchain.compile_for(isa, sources) for sources in others[:2])
    for path in (cache / "locks" / "pruned", unused.with_name("sha256"), used.with_name("sha256")):
        os.utime(path, (now - 60 * day, now - 60 * day))
    assert toolchain.compile_for(isa, others[1]) == used
    toolchain.compile_for(isa, others[2])
    assert (unused.parent.exists(), used.exists()) == (False, True)
    os.utime(used.with_name("sha256"), (now - 31 * day, now - 31 * day))
    toolchain.compile_for(isa, others[3])
    assert used.exists()
    os.utime(cache / "locks" / "pruned", (now - 2 * day, now - 2 * day))
    toolchain.compile_for(isa, others[4])
    assert not used.parent.exists()


def test_compiled_code_that_others_use_or_remove_meanwhile(cache, monkeypatch):
    """Products that another process took, or removed, after they were found."""
    isa, (day, now) = native_isa(), (24 * 60 * 60, time.time())
    taken, removed = (toolchain.compile_for(isa, {f"{name}.c": f"int {name};\n"}) for name in "gh")
    for path in (cache / "locks" / "pruned", taken.with_name("sha256"), removed.with_name("sha256")):
        os.utime(path, (now - 60 * day, now - 60 * day))
    glob = Path.glob

    def found(folder, pattern):
        paths = [*glob(folder, pattern)]
        if removed.parent in paths:
            shutil.rmtree(removed.parent)
        yield from paths
        if removed.parent in paths:
            os.utime(taken.with_name("sha256"))

    monkeypatch.setattr(Path, "glob", found)
    toolchain.compile_for(isa, {"i.c": "int i;\n"})
    assert taken.exists()


def test_versions_are_those_of_importlib():
    """They are read off the names of folders, which is faster."""
    installed = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in metadata.distributions()}
    known = [name for name, *_ in checks._PACKAGES]
    assert {name: checks._version(name) for name in known} == {name: installed.get(name, "") for name in known}
    assert checks._version("no-such-package-anywhere") == ""


def test_short_commands_import_neither_pydantic_nor_email():
    """The flag --help needs no conversion, so that `doctor` does not import what typer converts by."""
    run = "from bitsynth.cli import main; main(['isa', 'list'])"
    code = f"import sys; {run}; print({{'pydantic', 'email'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_doctor_sees_what_is_there():
    report = checks.examine()
    found = {f.name: f for f in report.findings}
    assert found["numpy"].found == metadata.version("numpy")
    assert {v.isa for v in report.verdicts} == set(load.names())
    for verdict in report.verdicts:
        if features.matches(load.load(verdict.isa).table) and toolchain.compilers(load.load(verdict.isa)):
            assert verdict.run == "natively"
    assert all(f.ok or f.advice for f in report.findings)


def test_doctor_counts_what_ships():
    """Every file once, by what it holds: the names of microkernels alone begin with bs_mm."""
    folder = paths.shipped_kernels()
    names = [os.path.join(at, n) for at, _, names in os.walk(folder) for n in names if n.endswith(".json")]
    programs, depthwise = (sum(f"{os.sep}{part}{os.sep}" in n for n in names) for part in ("elementwise", "depthwise"))
    micro = len(names) - programs - depthwise
    message = f"{micro} microkernels, {programs} elementwise programs, {depthwise} depthwise kernels in {folder}"
    assert checks._count_shipped().found == message


def test_doctor_misses_a_kind_that_does_not_ship(tmp_path, monkeypatch):
    (tmp_path / "neon").mkdir()
    (tmp_path / "neon" / "bs_mm_some.json").touch()
    monkeypatch.setattr(paths, "shipped_kernels", lambda: tmp_path)
    assert not checks._count_shipped().ok


def test_a_verdict_is_one_line():
    message = "no C compiler: install one\ncc: cc -c x.c failed:\nx.c: warning: w\nx.c:1: error: boom\nx.c:2: error: b"
    assert (
        str(checks.Verdict("neon", "cannot", message)) == "neon: cannot: no C compiler: install one; x.c:1: error: boom"
    )
    assert str(checks.Verdict("neon", "run", "natively")) == "neon: run: natively"


@pytest.mark.parametrize(
    ("message", "banner"),
    [
        ("gcc (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022\n", "gcc (Debian 12.2.0-14) 12.2.0"),
        ("cc: warning: -lx unused in 1.0\nLLVM\nclang version 14.0.6\nTarget: x\n", "clang version 14.0.6"),
        ("my compiler\n", "my compiler"),
        ("", ""),
    ],
)
def test_the_version_of_a_compiler_is_one_line(message, banner):
    assert compilers._banner(message) == banner


@pytest.mark.usefixtures("bare")
def test_doctor_on_a_bare_machine(monkeypatch):
    monkeypatch.setattr(checks, "_recorded_versions", dict)
    monkeypatch.setattr(metadata, "version", lambda name: (_ for _ in ()).throw(metadata.PackageNotFoundError(name)))
    monkeypatch.setenv("BITSYNTH_CACHE", "/dev/null/kernels")
    monkeypatch.setenv("BITSYNTH_RUNNER", "magic")
    report = checks.examine()
    assert not report.ok
    missing = {f.name for f in report.findings if not f.ok}
    assert {"z3-solver", "ziglang", "unicorn", "qemu-aarch64", "kernel cache"} <= missing
    for verdict in report.verdicts:
        assert verdict.run == "cannot"
        assert "no C compiler" in str(verdict)


def test_doctor_names_a_broken_instruction_set(monkeypatch):
    def broken(name):
        raise ToolError(f"{name} is broken")

    monkeypatch.setattr(load, "load_table", broken)
    report = checks.examine()
    assert [v.why for v in report.verdicts] == [f"{v.isa} is broken" for v in report.verdicts]


@pytest.mark.slow
def test_doctor_names_a_faulty_folder_of_sets_in_one_row(monkeypatch, tmp_path):
    """All other rows are there, and the variable is as it was."""
    sound = checks.examine()
    monkeypatch.setenv("BITSYNTH_ISA", str(tmp_path))
    report = checks.examine()
    *others, fault = report.findings
    assert (tuple(others), report.verdicts) == (sound.findings, sound.verdicts)
    assert (fault.name, fault.ok, report.ok) == ("BITSYNTH_ISA", False, False)
    assert fault.advice.startswith(f"{tmp_path} holds no instruction set")
    assert os.environ["BITSYNTH_ISA"] == str(tmp_path)


def test_a_clang_is_asked_for_its_version_once(monkeypatch, tmp_path):
    """Whatever it compiles for."""
    asked, run = [], tool.run

    def asking(command, *where):
        asked.append(tuple(command))
        return run(command, *where)

    monkeypatch.setattr(tool, "run", asking)
    clang = tmp_path / "clang"
    clang.write_text("#!/bin/sh\necho clang version 1.0\n")
    clang.chmod(0o755)
    found = [
        compilers._identify("clang", (str(clang), *table.clang), arch)
        for arch, table in architecture.load_architectures().items()
    ]
    assert {compiler.version for compiler in found} == {"clang version 1.0"}
    assert asked == [(str(clang), "--version")]


def test_doctor_reads_no_instructions(monkeypatch):
    """Tables of instruction sets say all that it needs; their instructions take half a second to read."""
    monkeypatch.setattr(load, "load_folder", lambda folder: pytest.fail(f"{folder} was read"))
    load._load.cache_clear()
    assert {v.isa for v in checks.examine().verdicts} == set(load.names())


def test_doctor_on_a_board_lists_what_its_own_code_needs(monkeypatch, capsys):
    monkeypatch.setattr(features, "arch", lambda: "aarch64")
    monkeypatch.setattr(features, "features", lambda: frozenset({"asimd"}))
    monkeypatch.setattr(checks, "here", lambda: Facts(processor="Cortex-A72", emulator="an emulator of programs"))
    monkeypatch.setattr(checks, "cpu_here", lambda isa: "a72" if isa.name == "neon" else "")
    monkeypatch.setattr(checks, "_version", lambda name: "")
    monkeypatch.setattr(qemu, "find", lambda table: None)
    monkeypatch.setattr(checks, "candidates", lambda arch: [])
    monkeypatch.setattr(checks, "_verdict", lambda isa: checks.Verdict(isa.name, "cannot", "no compiler"))
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert "Cortex-A72, kernels for a72" in output
    assert "an emulator of programs runs this system" in output
    assert "native C compilers (aarch64)" in output
    others = "cross C compilers", "unicorn", "ziglang", "qemu-", "avx2", "gcc-aarch64"
    assert [word for word in others if word in output] == []
