"""What emitted C says of a processor: right of this one, and of lesser ones before it dies of an instruction."""

import os
import re
import subprocess

import pytest
from support import lacking_processors

from bitsynth import matmul, toolchain
from bitsynth.host import features, placement
from bitsynth.isa import architecture
from bitsynth.isa.load import load, names
from bitsynth.run.runner import runner_for

pytestmark = pytest.mark.toolchains

STRICT = ("-O2", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wmissing-prototypes")
HERE = [name for name in names() if load(name).table.arch == features.arch()]
CASES = [
    pytest.param(isa, c, marks=pytest.mark.slow if n or isa not in ("avx2", "armv7_neon") else ())
    for isa in lacking_processors.LACKING
    for n, c in enumerate(c for c in toolchain.compilers(load(isa)) if c.family != "zig")
]
"""Zig would build a libc first; that its code asks rightly is seen in a library."""


def kernel(isa):
    """One that uses what the set has over others of its architecture."""
    return matmul.get_kernel(isa, 3, 3)


def program(isa, compiler, folder, files):
    """The self-test as a user builds it: the kernel's own file alone with its flags."""
    k, built = kernel(isa), ["-o", "program"]
    for name, text in files.items():
        (folder / name).write_text(text)
    for name in sorted(n for n in files if n.endswith(".c")):
        flags = compiler.flags(k.needs.cc_flags if name == f"{k.name}.c" else [])
        run([*compiler.command, *flags, *STRICT, "-c", name], compiler, folder)
        built.append(name.replace(".c", ".o"))
    run(
        [*compiler.command, *([] if load(isa).table.arch == features.arch() else ["-static"]), *built], compiler, folder
    )
    return folder / "program"


def run(command, compiler, folder):
    env = {**os.environ, **compiler.environment}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("isa", "compiler"), CASES, ids=lambda x: getattr(x, "name", x))
def test_a_selftest_says_what_a_processor_lacks(isa, compiler, tmp_path):
    if not lacking_processors.emulator(isa):
        pytest.skip("qemu is not on PATH")
    k = kernel(isa)
    lacking_processors.check(isa, program(isa, compiler, tmp_path, k.files), k.name)


@pytest.mark.parametrize("isa", lacking_processors.SETS)
def test_without_asking_it_dies(isa, tmp_path):
    """So that the lesser processors are lesser ones."""
    if not lacking_processors.emulator(isa):
        pytest.skip("qemu is not on PATH")
    k = kernel(isa)
    blind = f'#include "{k.name}.h"\nconst char *{k.name}_missing_feature(void)\n{{\n    return NULL;\n}}\n'
    files = {**k.files, f"{k.name}_features.c": blind}
    done = lacking_processors.run_on(
        isa, lacking_processors.LACKING[isa][1], program(isa, lacking_processors.linker(isa), tmp_path, files)
    )
    assert done.returncode in (-4, 132)


@pytest.mark.parametrize("name", HERE)
def test_every_probe_says_what_the_system_says(name, skip_lesser):
    skip_lesser(name)
    isa = load(name)
    if not placement.runs_natively(isa.table):
        pytest.skip(f"{name} code needs a processor with it; this one lacks it")
    asked = list(isa.table.probes)
    text = isa.probe_text(asked)
    text += "".join(f"int {f}(void);\nint {f}(void) {{ return {c}; }}\n" for f, c in isa.table.probes.items())
    for compiler in toolchain.compilers(isa):
        runner = runner_for(isa, toolchain.compile_for(isa, {"ask.c": text}, compiler=compiler))
        assert [f for f in asked if not runner.call(f, bits=32)] == features.lacking(asked)


@pytest.mark.parametrize(("system", "registers"), [("", 0xE6), ("#define __APPLE__ 1\n", 0x06)])
def test_macos_keeps_registers_that_it_does_not_list_yet(system, registers):
    if "avx2" not in HERE:
        pytest.skip("avx2 code needs a processor with it; this one lacks it")
    text = "#undef __APPLE__\n" + system + architecture.find_architecture("x86_64").probe_text()
    text += "int zmm(void);\nint zmm(void) { return has(ZMM, 1, 0, EAX, 0) < 0 ? 0 : ZMM; }\n"
    isa = load("avx2")
    runner = runner_for(isa, toolchain.compile_for(isa, {"ask.c": text}))
    assert runner.call("zmm", bits=32) == registers


@pytest.mark.parametrize("name", names())
def test_a_kernel_asks_for_what_it_needs(name):
    """Each feature once, the base first."""
    k = kernel(name)
    assert re.findall(r'return "(\w+)";', k.files[f"{k.name}_features.c"]) == list(k.needs.host)
