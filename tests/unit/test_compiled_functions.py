"""Compiled functions give the same results from every compiler, wherever they run."""

import gc
import os
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.case_selection import quick

from bitsynth import toolchain
from bitsynth.errors import SpecError, ToolError
from bitsynth.host import features
from bitsynth.isa import architecture, load
from bitsynth.processes import tool
from bitsynth.run import qemu
from bitsynth.run.runner import runner_for

pytestmark = pytest.mark.toolchains

SOURCES = {
    "one.c": """
#include "one.h"
static const char *const names[] = {"zero", "one", "two"};
static intptr_t calls = 40;
intptr_t sum10(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, intptr_t f, intptr_t g, intptr_t h,
    intptr_t i, intptr_t j) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}
int32_t negate(int32_t x) { return -x; }
intptr_t next_call(void) { return ++calls; }
intptr_t letter(intptr_t i, intptr_t j) { return names[i][j]; }
intptr_t is_null(const void *p) { return p == NULL; }
int word(void) { return 8 * (int)sizeof(void *); }
""",
    "two.c": """
#include "one.h"
void add(const uint8_t *a, const uint8_t *b, uint8_t *out, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(a[i] + b[i]);
}
void copy(uint8_t *to, const uint8_t *from, size_t n) { memcpy(to, from, n); }
void fill(uint8_t *to, int value, size_t n) { memset(to, value, n); }
void slide(uint8_t *to, size_t by, size_t n) { memmove(to + by, to, n); }
int compare(const uint8_t *a, const uint8_t *b, size_t n) { return memcmp(a, b, n); }
intptr_t read_at(const uint8_t *a, intptr_t i) { return ((const volatile uint8_t *)a)[i]; }
intptr_t recurse(intptr_t n) {
  volatile intptr_t m = n;
  return m ? recurse(n - 1) - m + n : 0;
}
void write_at(uint8_t *a, intptr_t i, intptr_t x) { ((volatile uint8_t *)a)[i] = (uint8_t)x; }
""",
    "one.h": """
#include <stddef.h>
#include <stdint.h>
#include <string.h>
intptr_t sum10(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t);
int32_t negate(int32_t);
intptr_t next_call(void);
intptr_t letter(intptr_t, intptr_t);
intptr_t is_null(const void *);
int word(void);
void add(const uint8_t *, const uint8_t *, uint8_t *, size_t);
void copy(uint8_t *, const uint8_t *, size_t);
void fill(uint8_t *, int, size_t);
void slide(uint8_t *, size_t, size_t);
int compare(const uint8_t *, const uint8_t *, size_t);
intptr_t read_at(const uint8_t *, intptr_t);
void write_at(uint8_t *, intptr_t, intptr_t);
intptr_t recurse(intptr_t);
""",
}
COMPILERS = ("gcc", "clang", "zig")
NATIVE = [(name, "native") for name in load.names() if features.matches(load.load(name).table)]
EMULATED = [
    (name, kind)
    for name in load.names()
    if architecture.find_architecture(load.load(name).table.arch).emulator
    for kind in ("qemu", "unicorn")
]
FIRST = {load.load(name).table.arch: name for name in reversed(load.names())}
PLACES = [*NATIVE, *EMULATED]
QUICK = [(name, kind) for name, kind in PLACES if name in FIRST.values()]
"""The first instruction set of each architecture: the others share its compilers and emulators."""


@pytest.fixture(scope="module", autouse=True)
def _build_cache(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("BITSYNTH_BUILD_CACHE", str(tmp_path_factory.mktemp("build")))
    yield
    patch.undo()


def place(monkeypatch, name, kind):
    """The instruction set `name`, set up to run by `kind`; skips if it cannot."""
    isa = load.load(name)
    emulator = architecture.find_architecture(isa.table.arch).emulator
    if kind == "qemu" and qemu.find(emulator.qemu) is None:
        pytest.skip("qemu is not on PATH")
    if kind == "unicorn":
        pytest.importorskip("unicorn", reason="unicorn is not installed")
    monkeypatch.setenv("BITSYNTH_RUNNER", kind)
    return isa


@pytest.fixture(scope="module")
def library():
    """The library for an instruction set, as a kind of runner loads it, by a family of compilers, or None."""

    @cache
    def made(name, kind, family):
        isa = load.load(name)
        found = [c for c in toolchain.compilers(isa) if c.family == family]
        return toolchain.compile_for(isa, SOURCES, compiler=found[0]) if found else None

    return made


@pytest.fixture(scope="module")
def shared():
    """The runner of a library by the instruction set's name and the kind of runner, made once."""
    with ExitStack() as result:
        yield cache(lambda name, kind, path: result.enter_context(closing(runner_for(load.load(name), path))))


@pytest.fixture(params=quick([*product(QUICK, COMPILERS)], of=product(PLACES, COMPILERS)), ids=str)
def compiled(request, monkeypatch, library):
    """Names of an instruction set and of a runner that is asked for, and a library; skips if there is none."""
    (name, kind), family = request.param
    place(monkeypatch, name, kind)
    if not (path := library(name, kind, family)):
        pytest.skip(f"{family} does not compile for {name} here")
    return name, kind, path


@pytest.fixture
def runner(compiled, shared):
    return shared(*compiled)


@pytest.fixture(params=EMULATED, ids="-".join)
def guarded(request, monkeypatch, shared):
    return shared(*request.param, toolchain.compile_for(place(monkeypatch, *request.param), SOURCES))


def test_integers(runner):
    assert runner.call("sum10", *range(1, 11)) == 385
    word = runner.call("word", bits=32)
    assert runner.call("sum10", -(1 << word - 1), *[0] * 9) == -(1 << word - 1)
    assert runner.call("sum10", (1 << word) - 1, np.int8(3), True, *[0] * 7) == -1 + 6 + 3
    assert runner.call("negate", 5, bits=32) == -5
    assert runner.call("negate", -(1 << 31) + 1, bits=32) == (1 << 31) - 1
    assert runner.instructions is None


def test_globals_relocations_and_null(compiled):
    name, _, path = compiled
    runner = runner_for(load.load(name), path)
    assert [runner.call("next_call") for _ in range(3)] == [41, 42, 43]
    assert "".join(chr(runner.call("letter", 2, j)) for j in range(3)) == "two"
    assert runner.call("is_null", None) == 1
    assert runner.call("is_null", np.zeros(1, np.uint8)) == 0
    runner.close()


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 4095, 4096, 4097, 70000])
def test_arrays_come_back(runner, n):
    rng = np.random.default_rng(n)
    a, b = rng.integers(0, 256, (2, n), np.uint8)
    a.flags.writeable = False
    out = np.zeros(n, np.uint8)
    runner.call("add", a, b, out, n)
    assert (out == a + b).all()
    runner.call("add", out, out, out, n)
    assert (out == (a + b) * 2).all()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 100])
def test_memory_functions(runner, n):
    a = np.arange(n, dtype=np.uint8)
    b = np.zeros(n, np.uint8)
    runner.call("copy", b, a, n)
    assert (a == b).all()
    assert runner.call("compare", a, b, n, bits=32) == 0
    runner.call("fill", b, 0x1C7, n)
    assert (b == 0xC7).all()
    assert runner.call("compare", a, b, n, bits=32) < 0 or n == 0
    c = np.arange(n + 3, dtype=np.uint8)
    runner.call("slide", c, 3, n)
    assert (c[3:] == np.arange(n)).all()


def test_shapes_types_and_views(runner):
    words = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    out = np.zeros_like(words)
    runner.call("copy", out, words, words.nbytes)
    assert (out == words).all()
    both = np.arange(20, dtype=np.uint8)
    runner.call("copy", both[10:], both[:10], 10)
    assert (both[10:] == np.arange(10)).all()


@pytest.mark.parametrize(
    ("args", "kind", "text"),
    [
        ((1.5,), TypeError, "argument 0 is float"),
        ((np.zeros((4, 4))[:, 0],), TypeError, "argument 0 is an array that is not C-contiguous"),
        ((0, 1 << 64), OverflowError, "argument 1"),
        ((0,) * 11, TypeError, "11 arguments"),
        ((np.array([None]),), TypeError, "Python objects"),
    ],
)
def test_what_cannot_be_passed(runner, args, kind, text):
    with pytest.raises(kind, match=text):
        runner.call("is_null", *args)


def test_unknown_function(runner):
    with pytest.raises(ToolError, match="has no function 'nothing'"):
        runner.call("nothing")
    assert runner.call("negate", 5, bits=32) == -5


@pytest.mark.parametrize("n", [1, 16, 30, 4096, 5000])
def test_a_read_past_the_end_names_the_array(guarded, n):
    a, b = np.arange(n, dtype=np.uint8), np.zeros(16, np.uint8)
    assert guarded.call("read_at", a, n - 1) == (n - 1) % 256
    with pytest.raises(ToolError, match=rf"^copy .*argument 1, uint8\[{n}\], {n} bytes"):
        guarded.call("copy", np.zeros(n + 16, np.uint8), a, n + 16)
    assert guarded.call("read_at", a, 0) == 0
    with pytest.raises(ToolError, match=r"^read_at .*offset 16 of argument 0, uint8\[16\]"):
        guarded.call("read_at", b, 16)


@pytest.mark.parametrize(("n", "at"), [(16, 16), (16, -1), (17, 17), (17, -1), (30, 31), (4096, -1), (1, 4000)])
def test_a_write_outside_names_the_array(guarded, n, at):
    a = np.zeros(n, np.uint8)
    with pytest.raises(ToolError, match=rf"^write_at.*argument 0, uint8\[{n}\], {n} bytes"):
        guarded.call("write_at", a, at, 7)
    assert not a.any()
    guarded.call("write_at", a, n - 1, 7)
    assert a[-1] == 7


def test_a_write_to_a_read_only_array(guarded):
    a = np.zeros(8, np.uint8)
    a.flags.writeable = False
    with pytest.raises(ToolError, match="argument 0, uint8"):
        guarded.call("write_at", a, 0, 1)


def test_a_wild_access(guarded):
    with pytest.raises(ToolError, match="address 0x8, in none"):
        guarded.call("read_at", 0, 8)


def test_arrays_that_overlap_are_refused(guarded):
    a = np.zeros(32, np.uint8)
    with pytest.raises(ToolError, match="arguments 0 and 1 overlap"):
        guarded.call("copy", a, a[8:], 8)


def test_alignment(monkeypatch):
    isa = place(monkeypatch, "neon", "unicorn")
    tight = runner_for(isa, toolchain.compile_for(isa, SOURCES), align=1)
    with pytest.raises(ToolError, match="offset 17 of argument 0"):
        tight.call("read_at", np.zeros(17, np.uint8), 17)


@pytest.mark.parametrize("name", dict(EMULATED))
def test_instructions_are_counted(monkeypatch, name):
    """To the instruction, beside what entering and leaving a function takes with this compiler."""
    isa = place(monkeypatch, name, "unicorn")
    source = """
long none(long n);
long none(long n) { return n; }
long spin(long n);
long spin(long n) { __asm__ volatile("1: subs %0, %0, #1\\n bne 1b" : "+r"(n) : : "cc"); return n; }
"""
    counting = runner_for(isa, toolchain.compile_for(isa, {"spin.c": source}), count=True)
    assert counting.instructions is None
    assert counting.call("none", 5) == 5
    around = counting.instructions
    assert 1 <= around <= 8
    for n in (1, 2, 1000):
        assert counting.call("spin", n) == 0
        assert counting.instructions == 2 * n + around


@pytest.mark.parametrize(("name", "kind"), EMULATED)
def test_an_illegal_instruction(monkeypatch, name, kind):
    isa = place(monkeypatch, name, kind)
    source = "void bad(void);\nvoid bad(void) { __builtin_trap(); }\n"
    runner = runner_for(isa, toolchain.compile_for(isa, {"bad.c": source}))
    with pytest.raises(ToolError, match=r"^bad did"):
        runner.call("bad")
    runner.close()


def test_a_stack_overflow(guarded):
    with pytest.raises(ToolError, match=r"^recurse"):
        guarded.call("recurse", 1 << 30)
    assert guarded.call("recurse", 9) == 0


@pytest.mark.parametrize("script", ["exit 9", "echo no such cpu >&2; exit 1"])
def test_a_qemu_that_does_not_work(monkeypatch, tmp_path, script):
    isa = place(monkeypatch, "neon", "qemu")
    path = toolchain.compile_for(isa, SOURCES)
    fake = tmp_path / "qemu-aarch64"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ToolError, match="qemu ended with exit code"):
        runner_for(isa, path)
    monkeypatch.delenv("BITSYNTH_RUNNER")
    if not features.matches(isa.table):
        assert "unicorn" in runner_for(isa, path).description


def test_qemu_leaves_no_process(monkeypatch):
    isa = place(monkeypatch, "neon", "qemu")
    result: Any = runner_for(isa, toolchain.compile_for(isa, SOURCES))
    tool = result._machine._process
    assert tool.poll() is None
    del result
    gc.collect()
    assert tool.poll() is not None


def test_the_same_sources_are_compiled_once():
    isa = load.load(next(n for n in load.names() if toolchain.compilers(load.load(n))))
    source = {"a.c": "int a(void);\nint a(void) { return 1; }\n"}
    path = toolchain.compile_for(isa, source)
    stamp = path.stat().st_mtime_ns
    assert toolchain.compile_for(isa, source) == path
    assert path.stat().st_mtime_ns == stamp
    assert toolchain.compile_for(isa, source, flags=["-DX"]) != path
    assert toolchain.compile_for(isa, source | {"b.h": ""}) != path
    path.unlink()
    assert toolchain.compile_for(isa, source) == path
    assert path.exists()


@pytest.mark.parametrize("name", ["../a.c", "a.s", "/a.c", "d/a.c", ""])
def test_file_names(name):
    with pytest.raises(SpecError, match=r"no plain name of a \.c or \.h file"):
        toolchain.compile_for(load.load("neon"), {name: ""})


@pytest.mark.parametrize("name", dict(EMULATED))
def test_a_static_program(monkeypatch, name):
    isa = place(monkeypatch, name, "qemu")
    if not any(c.family == "gcc" for c in toolchain.compilers(isa)):
        pytest.skip("no cross gcc")
    path = toolchain.compile_for(isa, {"m.c": "int main(void) { return 42; }\n"}, shared=False)
    program = qemu.find(architecture.find_architecture(isa.table.arch).emulator.qemu)
    assert subprocess.run([str(program), path], check=False).returncode == 42


def test_importing_is_light():
    heavy = {"cffi", "unicorn", "elftools", "filelock", "z3", "matplotlib"}
    modules = "bitsynth.toolchain, bitsynth.run.runner, bitsynth.cli.checks"
    code = f"import sys, {modules}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_child_ends_by_the_deadline(tmp_path):
    """The earliest of those it has, and no longer than the block that sets it."""
    begun = time.monotonic()
    with tool.deadline(begun + 0.5), tool.deadline(begun + 60), pytest.raises(ToolError, match="did not end"):
        tool.run(["sleep", "60"], tmp_path, {})
    assert 0.5 <= time.monotonic() - begun < 30
    assert tool.run(["echo", "more"], tmp_path, {}) == "more\n"


@pytest.mark.slow
def test_two_processes_compile_the_same_source(tmp_path):
    code = (
        "from bitsynth import toolchain; from bitsynth.isa import load\n"
        "print(toolchain.compile_for(load.load('neon'), {'a.c': '#include <arm_neon.h>\\nint a;'}))"
    )
    env = {**os.environ, "BITSYNTH_BUILD_CACHE": str(tmp_path)}
    if not toolchain.compilers(load.load("neon")):
        pytest.skip("no compiler for neon")
    children = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    paths = {child.communicate()[0].strip() for child in children}
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(paths) == 1
    assert Path(paths.pop()).exists()
    assert not list((tmp_path / "unfinished").iterdir())
