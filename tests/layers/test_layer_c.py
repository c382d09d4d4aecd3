"""The C of layers: clean under every compiler, exact buffers between guard pages, no undefined behaviour, no races."""

import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from support.case_selection import quick
from support.layer_cases import QUIET, Case, cases, machine

from bitsynth import toolchain
from bitsynth.emit.layer_program import NO_PROGRAMS
from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.isa.load import load, names
from bitsynth.layers.library import FLAGS, files, shared_files

STRICT = ("-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes")
QUICK = ("-O1",)
"""Flags that the slow suite uses with the shipped kernels."""
SANITIZERS = ("address,undefined", "thread")
DRIVER = (Path(__file__).parent / "layer_driver.c").read_text(encoding="utf-8")
MACHINES = [
    machine("avx2", "lookup", 2, 2, "bipolar", "signed"),
    machine("avx2", "popcount", 2, 1),
    machine("avx2", "popcount", 2, 3, "signed", "bipolar", unroll=3, bit_axis="outer"),
    machine("avx2", "lookup", 3, 2, "signed", "ternary"),
    machine("avx2", "multiply", 4, 3, "unsigned", "unsigned"),
]
ALL = [
    machine("avx2", "lookup", 2, 1),
    machine("avx512", "popcount", 2, 2, "ternary", "signed"),
    machine("neon", "lookup", 2, 2, "bipolar", "signed"),
    machine("neon", "popcount", 2, 2, unroll=2, bit_axis="outer"),
    machine("neon_dotprod", "dot", 3, 2, "signed", "bipolar"),
    machine("armv7_neon", "popcount", 1, 1, "bipolar", "bipolar"),
    machine("armv7_neon", "multiply", 3, 2, "signed", "ternary"),
]
RACES = [(m, s) for s in SANITIZERS for m in (MACHINES[:2] if s == "thread" else MACHINES[::2])]
"""All layers share the code of threads: two layers with it under a sanitizer are enough."""
COMPILERS = [(m, c) for m in ALL for c in toolchain.compilers(load(m.isa))]
SMALL = Case(MACHINES[0], 1, (2, 2), (3, 3), (1, 1), gather="im2col")


def kernel(m):
    return replace(SMALL, machine=m).prepared()[0].kernel


def native(m):
    return next((c for c in toolchain.compilers(load(m.isa)) if c.family in ("gcc", "clang")), None)


@cache
def driver(m, flags=(), programs=NO_PROGRAMS):
    """The driver around the layers of a kernel and an epilogue; skips where this machine cannot run it."""
    isa, k, compiler = load(m.isa), kernel(m), native(m)
    if not compiler or features.lacking(k.c.needs.host):
        pytest.skip(f"{m.isa} code needs a processor with it and gcc or clang; this one lacks it")
    sources = {**files(k, programs, threads=True), "layer_driver.c": DRIVER.replace("NAME", k.name)}
    how = {"flags": (*STRICT, "-pthread", *flags), "shared": False, "compiler": compiler, "cached": shared_files(k)}
    return toolchain.compile_for(isa, sources, needs=k.c.needs, **how)


def written(case, path, cut=0, change=0):
    """A file for the driver: of `case`, but for `cut` bytes of input, and the first byte of output changed."""
    layer, x, want = case.prepared()
    more, kept = case.residual_and_sums()
    codes = x if case.layout == "packed" else case.machine.act.encode(x, "x")
    numbers, constants = layer.describe(codes)
    given = codes.tobytes()[: codes.nbytes - cut]
    output = bytearray(want.astype(layer.packed.out_type).tobytes())
    output[0] ^= change
    parts = [numbers.tobytes(), constants.tobytes(), given, more.tobytes(), output, kept.tobytes()]
    path.write_bytes(np.array([*map(len, parts), case.threads]).tobytes() + b"".join(parts))
    return path


def drawn(m, folder, count, threads=(1, 2, 3, 4), residual="", **few):
    """Files of `count` cases, by the programs of their epilogue."""
    result: dict[Any, list[Any]] = {}

    @settings(max_examples=count, **QUIET)
    @given(case=cases([m], **few))
    def draw(case):
        case = replace(case, threads=threads[case.threads % len(threads)], residual=residual)
        programs = case.prepared()[0].packed.programs
        result.setdefault(programs, []).append(written(case, folder / f"case{sum(map(len, result.values()))}"))

    draw()
    return result


def run(program, *paths):
    done = subprocess.run([str(program), *map(str, paths)], capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stderr


def run_all(m, flags, result):
    """What went wrong in `drawn` cases."""
    found = [run(driver(m, flags, programs), *paths) for programs, paths in result.items()]
    return [x for x in found if x != (0, "")]


def test_buffers_of_exact_size(tmp_path):
    assert run_all(MACHINES[0], QUICK, drawn(MACHINES[0], tmp_path, 30, levels=(3,))) == []


@pytest.mark.slow
@pytest.mark.parametrize("m", MACHINES, ids=str)
def test_buffers_of_exact_size_of_many(m, tmp_path):
    assert run_all(m, FLAGS, drawn(m, tmp_path, 50)) == []


def test_buffers_of_exact_size_with_residuals(tmp_path):
    few = {"epilogues": ("thresholds",), "levels": (3,), "residual": "uint8"}
    assert run_all(MACHINES[0], QUICK, drawn(MACHINES[0], tmp_path, 20, **few)) == []


@pytest.mark.slow
@pytest.mark.parametrize("m", MACHINES[:2], ids=str)
def test_buffers_of_exact_size_with_any_residual(m, tmp_path):
    """Requantize of one shift: of others there may be no program."""
    few = [("thresholds", "uint8"), ("thresholds", "int32"), ("scale", "float32"), ("scale", "int16")]
    for n, (epilogue, kind) in enumerate(few):
        (tmp_path / str(n)).mkdir()
        result = drawn(m, tmp_path / str(n), 15, epilogues=(epilogue,), levels=(3,), residual=kind)
        assert run_all(m, (*FLAGS, "-fsanitize=undefined"), result) == []


PIXELS = [
    Case(
        m, 2, (5, 3), (channels, 7), (1, 1), stride, epilogue="requantize", gather="direct", groups=groups, band_rows=2
    )
    for m in (machine("avx512", "dot", 8, 8, wgt="signed"), machine("avx2", "multiply", 4, 4, wgt="signed"))
    for channels, groups in ((8, 1), (8, 2), (6, 1), (64, 1))
    for stride in ((1, 1), (2, 2))
]


@pytest.mark.parametrize("case", quick(PIXELS[::2], of=PIXELS), ids=str)
def test_rows_that_are_the_pixels_of_the_input(case, tmp_path):
    """Nothing behind the last pixel is read; six channels are no whole step."""
    programs = case.prepared()[0].packed.programs
    assert run(driver(case.machine, QUICK, programs), written(case, tmp_path / "case")) == (0, "")


def test_the_driver_sees_a_wrong_result(tmp_path):
    code, output = run(driver(SMALL.machine, QUICK), written(SMALL, tmp_path / "case", change=1))
    assert (code, "memcmp" in output) == (1, True)


def test_the_driver_sees_a_read_beyond_the_input(tmp_path):
    code, _ = run(driver(SMALL.machine, QUICK), written(SMALL, tmp_path / "case", cut=1))
    assert code < 0


@pytest.mark.slow
@pytest.mark.parametrize(("m", "sanitizer"), RACES, ids=str)
def test_no_undefined_behaviour_and_no_race(m, sanitizer, tmp_path):
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-O1", "-g")
    driver(m)
    try:
        empty = {"empty.c": "int main(void) { return 0; }\n"}
        toolchain.compile_for(load(m.isa), empty, flags=flags, shared=False, compiler=native(m))
    except ToolError:
        pytest.skip("the compiler has no sanitizer runtime here")
    threads = (4,) if sanitizer == "thread" else (1, 3)
    assert run_all(m, flags, drawn(m, tmp_path, 20, threads)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("m", "compiler"), COMPILERS[::5], ids=lambda x: getattr(x, "name", str(x)))
def test_clean_under_every_compiler(m, compiler):
    k = kernel(m)
    threads = features.arch() == load(m.isa).table.arch
    sources = files(k, threads=threads)
    toolchain.compile_for(load(m.isa), sources, needs=k.c.needs, flags=(*STRICT, *FLAGS), compiler=compiler)


def test_every_architecture_is_compiled_for():
    assert {load(n).table.arch for n in names()} == {load(m.isa).table.arch for m, _ in COMPILERS}
