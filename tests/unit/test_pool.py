"""The thread pool of emitted layers: every task once, whoever calls, with more threads than cores or fewer."""

import subprocess
from functools import cache
from pathlib import Path

import pytest

from bitsynth import paths, toolchain
from bitsynth.host import features
from bitsynth.isa import architecture, load
from bitsynth.run import qemu

pytestmark = pytest.mark.toolchains

STRICT = ("-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes")
FILES = {name: (paths.runtime() / name).read_text() for name in ("bs_pool.h", "bs_pool.c")}
DRIVER = {**FILES, "pool_driver.c": (Path(__file__).parent / "pool_driver.c").read_text()}
ALL = [load.load(name) for name in ("avx2", "neon", "armv7_neon")]
NATIVE = [isa for isa in ALL if features.matches(isa.table)]
COMPILERS = [(isa, c) for isa in NATIVE for c in toolchain.compilers(isa)]
EMULATED = [(isa, c) for isa in ALL if isa not in NATIVE for c in toolchain.compilers(isa)[:1]]
SANITIZERS = ("thread", "address,undefined")
CHECKS = ("sums", "serial", "parallel", "nested", "concurrent", "own", "lives")
THREADS = (1, 2, 3, 8)
SECONDS = 120
UNBOUNDED = 77


@cache
def program(isa, compiler, flags=()):
    given = (*STRICT, "-pthread", *flags)
    return toolchain.compile_for(isa, DRIVER, flags=given, shared=False, compiler=compiler)


def check(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode == UNBOUNDED:
        pytest.skip("this system, which is emulated, does not bound a process's memory")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def native():
    if not COMPILERS:
        pytest.skip("no compiler for this machine")
    return program(*COMPILERS[0])


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("what", CHECKS)
def test_a_property_of_the_pool_holds(native, what, threads):
    check(native, what, threads)


def test_idle_threads_burn_no_time(native):
    check(native, "idle", 8)


def test_threads_that_cannot_be_made(native):
    """NULL, with nothing left behind that hinders the next pool."""
    check(native, "no_room", 2)


def test_the_driver_refuses_an_unknown_check(native):
    with pytest.raises(AssertionError):
        check(native, "nothing", 2)


@pytest.mark.parametrize(("isa", "compiler"), COMPILERS, ids=lambda x: x.name)
def test_clean_under_every_compiler(isa, compiler):
    toolchain.compile_for(isa, FILES, flags=(*STRICT, "-pthread"), compiler=compiler)


@pytest.mark.slow
@pytest.mark.parametrize("what", CHECKS)
@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize(
    ("isa", "compiler"), [(i, c) for i, c in COMPILERS if c.family in ("gcc", "clang")], ids=lambda x: x.name
)
def test_no_race_and_no_undefined_behaviour(isa, compiler, sanitizer, what):
    sanitized = program(isa, compiler, (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-O1", "-g"))
    for threads in THREADS:
        check(sanitized, what, threads)


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "compiler"), EMULATED, ids=lambda x: x.name)
def test_holds_under_emulation(isa, compiler):
    emulator = architecture.find_architecture(isa.table.arch).emulator
    path = emulator and qemu.find(emulator.qemu)
    if not path:
        pytest.skip(f"no emulator of processes for {isa.name}")
    for what in CHECKS:
        check(path, program(isa, compiler), what, 3)
