"""The C library of a network: each part once, names of its own, a self-test that finds the step that is wrong."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.cmake_builds import commands, with_cmake
from support.network_programs import by_hand, golden_of

from bitsynth import SpecError, Thresholds, toolchain
from bitsynth.emit.render import WIDTH
from bitsynth.files import MARK, write_texts
from bitsynth.graph.read import InputCodes
from bitsynth.host import placement
from bitsynth.host.features import arch
from bitsynth.isa.load import load
from bitsynth.layers.packed import PackedLayer
from bitsynth.network.arena import plan_arena
from bitsynth.network.library import NetworkText
from bitsynth.network.library.golden import Golden, choices, digest
from bitsynth.network.library.parts import Parts
from bitsynth.network.program import LayerStep
from bitsynth.network.reading import Reading


def text(isa, name="net"):
    program, wanted = by_hand(isa)
    return NetworkText(name, program, plan_arena(program), golden_of(program, wanted))


@pytest.fixture(scope="module")
def files():
    return text("avx2" if arch() == "x86_64" else "neon").files()


def test_every_file_is_ours_and_no_line_is_long(files):
    assert all(MARK in each.partition("\n")[0] for each in files.values())
    lines = (line for name, each in files.items() if name.endswith((".c", ".h")) for line in each.splitlines())
    assert max(map(len, lines)) <= WIDTH


def test_every_file_has_a_licence(files):
    """The runtime keeps the project's; what is generated asks for nothing."""
    names = {
        name: {line for line in each.splitlines() if "SPDX-License-Identifier" in line} for name, each in files.items()
    }
    assert names["bs_layer.c"] == names["bs_pool.h"] == {"/* SPDX-License-Identifier: MIT */"}
    assert names["net.c"] == names["net_names.h"] == {"/* SPDX-License-Identifier: MIT-0 */"}
    assert names["CMakeLists.txt"] == {"# SPDX-License-Identifier: MIT-0"}
    assert all(len(lines) == 1 for lines in names.values())


def test_the_header_names_the_command():
    program, _ = by_hand("avx2")
    reading = Reading(batch=3, codes=InputCodes(2, 0.5, "signed"))
    result = NetworkText("net", program, plan_arena(program), has_weights_file=True, reading=reading).own()["net.h"]
    text = " ".join(result.replace("\n *", " ").split())
    assert (
        "command bitsynth compile MODEL.onnx --isa avx2 --batch 3 --reference exact --input-bits 2 --input-scale 0.5 "
        "--input-encoding signed --weights-file --name net -o FOLDER" in text
    )
    fixed = NetworkText("net", program, plan_arena(program), reading=Reading(fixed={"x": None})).own()["net.h"]
    assert "bitsynth compile" not in fixed


def test_names_are_the_networks_own(files):
    for name in ("bs_layer_run", "bs_glue_run", "bs_glue_max_pool", "bs_glue_programs", "bs_pack_codes"):
        assert f"#define {name} net_{name}\n" in files["net_names.h"]
    assert "bs_pool_create" not in files["net_names.h"]
    assert "net_names.h" not in files["net.h"] + files["bs_pool.c"]


def test_parts_are_there_once():
    program, _ = by_hand("avx2")
    steps = [s for s in program.steps if isinstance(s, LayerStep)]
    parts = Parts("avx2")
    one, two = parts.layer_names(steps[0].layer), parts.layer_names(steps[0].layer)
    assert one == two
    assert len(parts.kernels) == len(parts.epilogues) == 1


def test_programs_of_one_kernel_do_not_clash():
    layer = next(s.layer for s in by_hand("avx2")[0].steps if isinstance(s, LayerStep))
    few = Thresholds(np.zeros((64, 1), int))
    other = PackedLayer(layer.plan, layer.codes, few)
    parts = Parts("avx2")
    (kernel, named), (same, differently) = parts.layer_names(layer), parts.layer_names(other)
    assert kernel == same
    assert named["program"] != differently["program"]
    assert len(parts.epilogues) == 2


def test_what_has_the_same_name_and_another_text_is_renamed():
    from bitsynth.network.library.parts import _keep

    parts: dict[str, Any] = {}
    items = [_keep(parts, "bs_x", {"bs_x.h": f"int bs_x_{k}; BS_X_H"}) for k in (1, 2, 1)]
    assert items == ["bs_x", "bs_x_2", "bs_x"]
    assert parts["bs_x_2"] == {"bs_x_2.h": "int bs_x_2_2; BS_X_2_H"}


def test_equal_constants_are_there_once():
    program, _ = by_hand("avx2")
    once = NetworkText("net", program, plan_arena(program))
    twice = replace(program, steps=(*program.steps[:2], program.steps[1], *program.steps[2:]))
    assert NetworkText("net", twice, plan_arena(twice)).weight_bytes == once.weight_bytes > 0


def test_glue_of_another_set_is_refused():
    program, _ = by_hand("avx2")
    with pytest.raises(SpecError, match="is for avx2, in a network for avx512"):
        Parts.of(replace(program, isa="avx512"))


def test_places_and_digests_are_of_all_bits():
    assert len({*choices(4096, 0).tolist()}) == 256
    assert (choices(64, 0) != choices(64, 1)).any()
    memory = np.arange(19, dtype=np.uint8)
    assert len({digest(memory), digest(memory[:18]), digest(np.roll(memory, 8)), digest(memory[::-1].copy())}) == 4


def test_the_golden_input_spans_its_range():
    program, _ = by_hand("avx2")
    assert sorted({*Golden(program).inputs["x"].reshape(-1).tolist()}) == [0, 1, 2, 3]


def selftest(result, files):
    """What the self-test returns, and prints."""
    sources = {n: t for n, t in files.items() if n.endswith((".c", ".h")) and n != "main.c"}
    program = toolchain.compile_for(
        load("avx2"),
        sources,
        needs=result.needs,
        flags=["-O1", "-pthread"],
        shared=False,
        cached={*result.parts.files(threads=True)},
    )
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(arch() != "x86_64", reason="runs here")
def test_the_selftest_names_the_first_step_that_differs():
    library = text("avx2")
    files = library.files()
    assert selftest(library, files) == (0, "net: right\n")
    wrong = files["net.c"].replace(".pad_code = 0,", ".pad_code = 1,", 1)
    assert selftest(library, {**files, "net.c": wrong}) == (1, "step 1, first: t differs\nnet: wrong, or no memory\n")
    other = files["net.c"].replace("(float)in0[k] * k0", "(float)in0[k] + k0")
    assert selftest(library, {**files, "net.c": other}) == (1, "output: element 0 differs\nnet: wrong, or no memory\n")


@pytest.mark.slow
@pytest.mark.skipif(arch() != "x86_64", reason="runs here")
@pytest.mark.parametrize(("word", "step"), [(0, "1, first"), (700, "1, first"), (1300, "3, last"), (-1, "4, scale")])
def test_the_selftest_names_the_step_whose_weights_were_changed(word, step):
    """Any bit of them, also where no result depends on it: the last word is padding."""
    library = text("avx2")
    files = library.files()
    found = [*re.finditer(r"0x[0-9a-f]{16},", files["net_weights.c"])][word]
    other = f"0x{int(found[0][:-1], 16) ^ 1 << 40:016x},"
    changed = files["net_weights.c"][: found.start()] + other + files["net_weights.c"][found.end() :]
    message = f"step {step}: its weights were changed\nnet: wrong, or no memory\n"
    assert selftest(library, {**files, "net_weights.c": changed}) == (1, message)


POOL_CALLER = """
#include "left.h"
#include "right.h"
#include <stdlib.h>
#include <string.h>
int main(void)
{
    struct bs_pool *pool = bs_pool_create(2);
    const size_t bytes = left_arena_bytes(2);
    void *arena = malloc(bytes);
    float *in = calloc(left_input_elements, sizeof *in);
    float *a = malloc(left_output_elements * sizeof *a), *b = malloc(right_output_elements * sizeof *b);
    int bad = left_run(in, a, arena, bytes, pool) | right_run(in, b, arena, bytes, pool);
    bad |= memcmp(a, b, left_output_elements * sizeof *a) != 0;
    bs_pool_destroy(pool);
    return bad;
}
"""

CALLER = """
#include "left.h"
#include "right.h"
#include <vector>
int main()
{
    std::vector<float> in(left_input_elements, 1), a(left_output_elements), b(right_output_elements);
    std::vector<char> arena(left_arena_bytes(2) + 1);
    bs_pool *pool = bs_pool_create(2);
    /* At any address. */
    int bad = left_run(in.data(), a.data(), arena.data() + 1, arena.size() - 1, pool);
    bad |= right_run(in.data(), b.data(), arena.data(), arena.size(), nullptr) | (a != b);
    in[5] = 77;
    b = a;
    bad |= left_run(in.data(), a.data(), arena.data(), arena.size(), pool) != left_CODES || a != b;
    bs_pool_destroy(pool);
    return bad;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(arch() != "x86_64", reason="runs here")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_objects_of_two_networks_make_one_program(tmp_path, compiler):
    """Without archives, from which a linker takes a symbol once: every symbol is one network's, but for the pool's."""
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    for name in ("left", "right"):
        write_texts(tmp_path / name, text("avx2", name).files())
    sources = [p for p in tmp_path.glob("*/*.c") if p.name != "main.c" and not p.stem.endswith("selftest")]
    (tmp_path / "caller.c").write_text(POOL_CALLER)
    flags = ["-std=c11", "-O0", "-pthread", *text("avx2").needs.cc_flags]
    for folder in ("left", "right"):
        own = [p.name for p in sources if p.parent.name == folder]
        subprocess.run([compiler, *flags, "-c", *own], cwd=tmp_path / folder, check=True)
    objects = [source.with_suffix(".o") for source in sources]
    listed = subprocess.run(["nm", "-g", "--defined-only", *objects], capture_output=True, text=True, check=True)
    defined = {line.split()[-1]: line.split()[-2] for line in listed.stdout.splitlines() if len(line.split()) == 3}
    assert {n: k for n, k in defined.items() if not n.startswith(("left_", "right_"))} == {
        "bs_pool_create": "W",
        "bs_pool_destroy": "W",
    }
    paths = ["-iquote", tmp_path / "left", "-iquote", tmp_path / "right"]
    subprocess.run([compiler, *flags, *paths, tmp_path / "caller.c", *objects, "-o", tmp_path / "both"], check=True)
    assert subprocess.run([tmp_path / "both"], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(arch() != "x86_64" or not shutil.which("g++"), reason="there is no g++")
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_two_networks_in_a_program_of_cpp(tmp_path, sanitizer):
    needs = text("avx2").needs
    for name in ("left", "right"):
        write_texts(tmp_path / name, text("avx2", name).files())
    (tmp_path / "caller.cpp").write_text(CALLER)
    sources = [p for p in tmp_path.glob("*/*.c") if p.name != "main.c" and not p.stem.endswith("selftest")]
    flags = [
        *needs.cc_flags,
        f"-fsanitize={sanitizer}",
        "-fno-sanitize-recover=all",
        "-O0",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    with ThreadPoolExecutor(2) as pool:
        argv = (["gcc", "-std=c11", *flags, "-c", source, "-o", source.with_suffix(".o")] for source in sources)
        assert not any(pool.map(subprocess.call, argv))
    linked = ["-iquote", tmp_path / "left", "-iquote", tmp_path / "right", *(s.with_suffix(".o") for s in sources)]
    done = subprocess.run(
        ["g++", *flags, tmp_path / "caller.cpp", *linked, "-o", tmp_path / "both", "-pthread"], check=False
    )
    assert done.returncode == 0
    ran = subprocess.run([tmp_path / "both"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.parametrize(("isa", "has_weights_file"), [("avx2", True), ("neon", False)])
def test_cmake_builds_and_tests_it_with_every_compiler(isa, has_weights_file, tmp_path, skip_isa):
    found = [x for x in commands(isa) if x[2] != [None] and x[0].family != "zig"]
    if not found or (load(isa).table.arch == arch() and not placement.runs_natively(load(isa).table)):
        skip_isa(isa, f"no compiler and emulator for {isa}")
    replaced = replace(text(isa), has_weights_file=has_weights_file)
    write_texts(tmp_path / "c", {**replaced.files(), **replaced.binaries})
    (tmp_path / "picture.pgm").write_bytes(b"P5 1 1 255\n1")
    (tmp_path / "c" / "string.h").write_text("#error a header beside the C took the place of the system's\n")
    # Both compilers for this machine; those of the Arm sets are as many, and take turns.
    used = {"avx2": found, "neon": found[:1], "armv7_neon": found[-1:]}[isa]
    for compiler, command, emulator in used:
        folder = tmp_path / compiler.name
        with_cmake(folder, tmp_path / "c", compiler, command, emulator)
        done = subprocess.run(["ctest", "--test-dir", folder, "-V"], capture_output=True, text=True, check=False)
        assert "100% tests passed, 0 tests failed out of 1" in done.stdout
        example = [*emulator, folder / "net_example"]
        assert subprocess.run(example, capture_output=True, check=False).returncode == 0
        assert subprocess.run([*example, tmp_path / "picture.pgm"], capture_output=True, check=False).returncode == 2
