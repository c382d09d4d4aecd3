"""`bitsynth emit-layer`: C that builds anywhere and tests itself; bad input is told in one line."""

import io
import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support import lacking_processors
from support.case_selection import HERE, quick
from support.cmake_builds import commands, with_cmake

import bitsynth
from bitsynth import paths, toolchain
from bitsynth.cli import main
from bitsynth.emit.c_names import require_name
from bitsynth.errors import SpecError
from bitsynth.files import MARK
from bitsynth.host import placement
from bitsynth.host.features import arch
from bitsynth.isa import load
from bitsynth.layers import Conv2d, Dense, Requantize, Rescale, Residual, Scale, Thresholds
from bitsynth.run.runner import runner_for

pytestmark = pytest.mark.toolchains

RNG = np.random.default_rng(4)
CODES = Residual("uint8", RNG.integers(-3, 4, 70), zero_point=9)
FLOATS = Residual("float32", RNG.normal(size=10).astype(np.float32))
CASES = ("int32", "first", "floats", "packed", "mixed", "dense", "depthwise", "block", "sums", "gated", "biased")


def levels(channels, count=3):
    return np.sort(RNG.integers(-40, 60, (channels, count)), axis=1)


def layers(isa):
    """One of every epilogue, layout, gather and a dense one."""
    odd = {"stride": 2, "padding": (1, 0, 2, 1), "dilation": (1, 2), "groups": 2, "isa": isa}
    plain = {"padding": 1, "isa": isa}
    binary = RNG.choice([-1, 1], (10, 7, 3, 3))
    wide = RNG.choice([-1, 1], (70, 65, 3, 3))
    three = RNG.choice([-3, -1, 1, 3], (9, 33))
    own = RNG.choice([-3, -1, 1, 3], (70, 1, 3, 3))
    return {
        "int32": Conv2d(binary, 2, 1, **odd),
        "first": Conv2d(binary, 1, 1, layout="NCHW", act_encoding="bipolar", **odd),
        "floats": Conv2d(binary, 2, 1, epilogue=Scale(RNG.normal(size=10), RNG.normal(size=10)), **plain),
        "packed": Conv2d(wide, 2, 1, layout="packed", epilogue=Thresholds(levels(70)), **plain),
        "mixed": Conv2d(wide, 1, 1, layout="packed", zero_point=1, bias=-7, **plain),
        "dense": Dense(three, 3, 2, epilogue=Requantize(RNG.integers(1, 200, 9), 7, 3), bias=range(9), isa=isa),
        "depthwise": Conv2d(own, 4, 2, groups=70, epilogue=Requantize(RNG.integers(1, 99, 70), 7, 8), **plain),
        "block": Conv2d(wide, 2, 1, out_layout="packed", epilogue=Thresholds(levels(70), residual=CODES), **plain),
        "sums": Conv2d(binary, 2, 1, epilogue=Scale(RNG.normal(size=10), residual=FLOATS), **plain),
        "gated": Conv2d(binary, 2, 1, epilogue=Rescale(0.3, 8, 7, bias=0.25, gate=(0.1, 0.5)), bias=3, **plain),
        "biased": Conv2d(binary, 2, 1, epilogue=Rescale(0.3, 8, 100, residual=FLOATS), bias=-2, **plain),
    }


def selftest(layer, files):
    """What the self-test of these files returns."""
    isa, needs = load.load(layer.kernel.spec.isa), layer.kernel.needs
    sources = {n: t for n, t in files.items() if n.endswith((".c", ".h")) and n != "main.c"}
    flags = ["-O0", "-pthread", "-DBITSYNTH_NO_MAIN"]
    library = toolchain.compile_for(isa, sources, needs=needs, flags=flags, cached=sources)
    return runner_for(isa, library, needs=needs).call("layer_selftest", bits=32)


@pytest.fixture(scope="module")
def here():
    return layers(HERE)


@pytest.mark.smoke
@pytest.mark.parametrize("case", quick(["packed", "dense", "depthwise"], of=CASES))
def test_an_emitted_layer_is_right(here, case):
    assert selftest(here[case], here[case].files("layer")) == 0


def test_arrays_have_elements():
    """C has none of 0, which gcc takes; channels of this epilogue have no constants."""
    epilogue = Rescale(0.01, 8, bias=1.5, residual=Residual("float32", 0.5))
    text = Conv2d(np.ones((33, 16, 1, 1), int), 2, 1, isa="avx2", epilogue=epilogue).files("layer")["layer.c"]
    assert "unit_constants[1] = {0x0000000000000000}" in text


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_emitted_layer_of_the_best_set_is_right(case):
    layer = layers("auto")[case]
    assert selftest(layer, layer.files("layer")) == 0


def mutated(text, at):
    """The first word of an array's initializer with one bit changed."""
    start = text.index("0x", text.index(at))
    word = int(text[start : start + 18], 16) ^ 1
    return f"{text[:start]}0x{word:016x}{text[start + 18 :]}"


@pytest.mark.parametrize(("file", "at"), [("layer.c", "weights["), ("layer_selftest.c", "weights[")])
def test_the_selftest_sees_a_wrong_weight(here, file, at):
    files = here["int32"].files("layer")
    assert selftest(here["int32"], {**files, file: mutated(files[file], at)}) == 1


def test_the_selftest_sees_wrong_thresholds(here):
    files = here["packed"].files("layer")
    text = files["layer.c"]
    start = text.index("0x", text.index("unit_constants["))
    assert selftest(here["packed"], {**files, "layer.c": f"{text[:start]}0x7fff7fff7fff7fff{text[start + 18 :]}"}) == 1


@pytest.mark.parametrize(("case", "array"), [("gated", "unit_constants["), ("biased", "residual_constants[")])
def test_the_selftest_sees_wrong_scales(here, case, array):
    files = here[case].files("layer")
    text = files["layer.c"]
    start = text.index("0x", text.index(array))
    assert selftest(here[case], {**files, "layer.c": f"{text[:start]}0x4100000041000000{text[start + 18 :]}"}) == 1


BOTH = """#include "left.h"
#include "right.h"
int main(void) { return left_missing_feature() || right_missing_feature() ? 77 : 0; }
"""


@pytest.mark.slow
def test_two_layers_in_one_program(tmp_path):
    """Each with a kernel and a runtime of its own, though both are called alike; the linker keeps one pool."""
    layer = Conv2d(np.ones((4, 8, 1, 1), int), 2, 1, isa=HERE)
    compiler = toolchain.compilers(load.load(HERE))[0]
    command = [*compiler.command, *layer.kernel.needs.cc_flags, "-std=c11", "-Wall", "-Wextra", "-Werror"]
    for name in ("left", "right"):
        layer.emit(tmp_path / name, name)
    (tmp_path / "both.c").write_text(BOTH)
    sources = [p for p in tmp_path.glob("*/*.c") if p.name != "main.c" and not p.stem.endswith("selftest")]
    linked = [
        "-iquote",
        tmp_path / "left",
        "-iquote",
        tmp_path / "right",
        tmp_path / "both.c",
        *sources,
        "-o",
        tmp_path / "both",
    ]
    done = subprocess.run([*command, *linked, "-pthread"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([tmp_path / "both"], check=False).returncode in (0, 77)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.parametrize("isa", ["avx2", "armv7_neon"])
def test_cmake_builds_and_tests_it_with_every_compiler(isa, tmp_path, skip_isa):
    found = [x for x in commands(isa) if x[2] != [None]]
    if not found or (load.load(isa).table.arch == arch() and not placement.runs_natively(load.load(isa).table)):
        skip_isa(isa, f"no compiler and emulator for {isa}")
    cases = ("int32", "packed", "dense", "depthwise")
    for k, case in enumerate(cases[::2] if isa == "avx2" else cases[3:]):
        layers(isa)[case].emit(tmp_path / case, "layer")
        compiler, command, emulator = found[k % len(found)]
        with_cmake(tmp_path / f"{case} built", tmp_path / case, compiler, command, emulator)
        ctest = ["ctest", "--test-dir", tmp_path / f"{case} built", "--output-on-failure"]
        done = subprocess.run(ctest, capture_output=True, text=True, check=False)
        assert "100% tests passed, 0 tests failed out of 1" in done.stdout


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.parametrize("isa", lacking_processors.SETS)
def test_its_programs_say_what_a_processor_lacks(isa, tmp_path, skip_lesser):
    skip_lesser(isa)
    if not (qemu := lacking_processors.emulator(isa)):
        pytest.skip("qemu is not on PATH")
    Dense(RNG.choice([-1, 1], (9, 33)), 2, 1, isa=isa).emit(tmp_path / "c", "layer")
    compiler, native = lacking_processors.linker(isa), load.load(isa).table.arch == arch()
    with_cmake(tmp_path / "built", tmp_path / "c", compiler, list(compiler.command), [] if native else [qemu], "Debug")
    for name in ("layer_selftest", "layer_example"):
        lacking_processors.check(isa, tmp_path / "built" / name, "layer")


@pytest.fixture
def weights(tmp_path):
    """Writes a .npz file."""

    def write(**arrays):
        np.savez(tmp_path / "w.npz", **arrays)
        return str(tmp_path / "w.npz")

    return write


WEIGHT = RNG.choice([-1, 1], (4, 3, 3, 3))
OPTIONS = ["--act-bits", "2", "--w-bits", "1"]


def command(path, folder, *more, name="conv1"):
    return ["emit-layer", path, *OPTIONS, "--name", name, "-o", str(folder), *more]


def emit(*words, **name):
    return main(command(*words, **name))


def test_the_command_writes_what_python_gives(weights, tmp_path, capsys):
    path = weights(weight=WEIGHT, thresholds=levels(4))
    assert emit(path, tmp_path / "c", "--padding", "1,0", "--stride", "2", "--json") == 0
    fields = json.loads(capsys.readouterr().out)
    with np.load(path) as arrays:
        layer = Conv2d(WEIGHT, 2, 1, padding=(1, 0), stride=2, epilogue=Thresholds(arrays["thresholds"]))
    assert {p.name: p.read_text() for p in (tmp_path / "c").iterdir()} == layer.files("conv1")
    assert sorted(fields["files"]) == sorted(str(tmp_path / "c" / name) for name in layer.files("conv1"))


def test_the_header_names_the_command(weights, tmp_path, capsys):
    """That command writes the same files; a layer with a schedule of its own has none."""
    layer = Conv2d(WEIGHT, 2, 1, padding=(1, 0), stride=2, isa="avx2", cpu="zen5", layout="NCHW", image=(9, 8))
    header = " ".join(layer.files("conv1")["conv1.h"].replace("\n *", " ").split())
    found = re.search(r"command (bitsynth emit-layer WEIGHTS.npz .* -o FOLDER)", header)
    assert found is not None
    words = found[1].replace("WEIGHTS.npz", str(weights(weight=WEIGHT))).split()[1:]
    assert main([*words[:-1], str(tmp_path / "c")]) == 0
    assert {p.name: p.read_text() for p in (tmp_path / "c").iterdir()} == layer.files("conv1")
    given = Conv2d(WEIGHT, 2, 1, isa="avx2", schedule=layer.schedule)
    assert "emit-layer" not in given.files("conv1")["conv1.h"]


def test_the_command_takes_a_residual(weights, tmp_path, capsys):
    more = {"residual_scale": np.arange(4), "residual_type": "int16", "residual_zero_point": 3}
    path = weights(weight=WEIGHT, multiplier=7, shift=9, bits=4, **more)
    assert emit(path, tmp_path / "c") == 0
    epilogue = Requantize(7, 9, 4, residual=Residual("int16", np.arange(4), 3))
    assert {p.name: p.read_text() for p in (tmp_path / "c").iterdir()} == Conv2d(WEIGHT, 2, 1, epilogue=epilogue).files(
        "conv1"
    )
    assert "const void *residual" in (tmp_path / "c" / "conv1.h").read_text()


@pytest.mark.parametrize("name", ["main.c", "CMakeLists.txt"])
def test_the_users_files_stay(weights, tmp_path, capsys, name):
    """Of whoever emits into a project's folder; what was emitted before gives way."""
    path = weights(weight=WEIGHT)
    assert emit(path, tmp_path / "ours") == emit(path, tmp_path / "ours", "--padding", "1") == 0
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / name).write_text("mine\n")
    capsys.readouterr()
    assert emit(path, tmp_path / "c") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: {tmp_path}/c/{name} was not written by bitsynth" in err.replace("\n", " ")
    assert {p.name: p.read_text() for p in (tmp_path / "c").iterdir()} == {name: "mine\n"}
    assert all(MARK in text.partition("\n")[0] for text in Dense(WEIGHT[..., 0, 0], 2, 1).files("conv1").values())


def test_a_dense_layer_from_a_npy_file(tmp_path, capsys):
    np.save(tmp_path / "w.npy", np.ones((5, 6), np.int8))
    assert emit(str(tmp_path / "w.npy"), tmp_path / "c") == 0
    assert "wrote" in capsys.readouterr().out
    assert "6 -> 5 channels, window 1 x 1" in (tmp_path / "c" / "conv1.h").read_text()


@pytest.mark.parametrize(
    ("arrays", "more", "message"),
    [
        ({"w": WEIGHT}, [], "has no array 'weight', but w"),
        ({"weight": WEIGHT, "gain": np.ones(4)}, [], "has gain besides the weight; an epilogue is scale and bias"),
        ({"weight": WEIGHT, "bias": np.ones(4)}, [], "has bias besides the weight"),
        ({"weight": WEIGHT, "scale": np.ones(3)}, [], "scale must be one number or 4 of them"),
        ({"weight": WEIGHT, "thresholds": np.ones((3, 1), int)}, [], "3 channels of thresholds for 4"),
        (
            {"weight": WEIGHT, "multiplier": 3, "shift": [1, 2], "bits": 2},
            [],
            "shift must be one whole number, not int64 (2,)",
        ),
        ({"weight": WEIGHT, "residual_scale": 1}, [], "has residual_scale besides the weight"),
        ({"weight": WEIGHT, "scale": 1.0, "residual_type": "int8"}, [], "has residual_type, but no residual_scale"),
        ({"weight": WEIGHT, "scale": 1.0, "residual_scale": 1, "residual_type": 8}, [], "must be one name of a type"),
        ({"weight": WEIGHT, "scale": 1.0, "residual_scale": 1, "residual_type": "i"}, [], "is one of uint8, int8"),
        ({"weight": WEIGHT, "thresholds": [1], "residual_scale": 0.5}, [], "a residual's scale must be"),
        ({"weight": 2 * WEIGHT}, [], "weight[0, 0, 0, 0] is"),
        ({"weight": WEIGHT * 0.5}, [], "0.5, not a whole number"),
        ({"weight": WEIGHT[0]}, [], "want a weight (OC, IC / groups, KH, KW)"),
        ({"weight": WEIGHT[:0]}, [], "a weight without elements"),
        ({"weight": WEIGHT}, ["--stride", "1,2,3"], "--stride: want 1 or 2 whole numbers"),
        ({"weight": WEIGHT}, ["--stride", "9" * 5000], "--stride: want 1 or 2 whole numbers"),
        ({"weight": WEIGHT}, ["--image", "9" * 5000], "--image: want height and width"),
        ({"weight": WEIGHT}, ["--stride", "0"], "stride must be a whole number from 1 to 32,767"),
        ({"weight": WEIGHT}, ["--padding", "-1"], "--padding: want 1 or 2 or 4 whole numbers"),
        ({"weight": WEIGHT}, ["--image", "9x"], "--image: want height and width, such as 28x28, not '9x'"),
        ({"weight": WEIGHT}, ["--padding", "same", "--stride", "2"], "padding 'same' wants stride 1"),
        ({"weight": WEIGHT}, ["--zero-point", "40000"], "zero_point must be a whole number of at most 32,767"),
        ({"weight": WEIGHT}, ["--groups", "3"], "4 output channels cannot be shared by 3 groups"),
        ({"weight": WEIGHT}, ["--isa", "sparc"], "unknown instruction set 'sparc'"),
        ({"weight": WEIGHT}, ["--layout", "CHWN"], "CHWN"),
        ({"weight": WEIGHT}, ["--out-layout", "packed"], "packed"),
    ],
)
def test_bad_input_writes_nothing(weights, tmp_path, fails, arrays, more, message):
    assert message in fails(2, *command(weights(**arrays), tmp_path / "c", *more))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "name",
    ["main", "stdint", "bs_layer", "bs", "all", "install", "2nd", "a-b", "", "a b", "ä", "../x", "x" * 65, "_x"],
)
def test_names_that_are_none(weights, tmp_path, capsys, name):
    assert emit(weights(weight=WEIGHT), tmp_path / "c", name=name) == 2
    assert "a layer cannot be named" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 torn", b"\x93NUMPY\x01\x00", b"weights: 1"])
def test_files_that_hold_no_arrays(tmp_path, fails, data):
    (tmp_path / "w.npz").write_bytes(data)
    message = fails(2, *command(str(tmp_path / "w.npz"), tmp_path / "c"))
    assert "is no .npy or .npz file of plain arrays" in message


def spoiled(old, new, **more):
    """A .npz of weights with bytes changed, `more` being how they are packed."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", **more) as file:
        member = io.BytesIO()
        np.save(member, WEIGHT)
        file.writestr("weight.npy", member.getvalue())
        file.writestr("plain", b"bytes")
    assert old in raw.getvalue()
    return raw.getvalue().replace(old, new)


ENCRYPTED = (b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01")
METHOD = (b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x63")


@pytest.mark.parametrize(
    "data",
    [
        spoiled(b"'descr'", b"{(((((("),
        spoiled(*ENCRYPTED),
        spoiled(*METHOD),
        spoiled(b"plain", b"plain"),
        spoiled(b"PK\x03\x04", b"PK\x03\x05"),
    ],
    ids=["header", "encrypted", "method", "bytes", "torn"],
)
def test_files_that_are_damaged(tmp_path, capsys, data):
    (tmp_path / "w.npz").write_bytes(data)
    assert emit(str(tmp_path / "w.npz"), tmp_path / "c") == 2
    assert "is no .npy or .npz file of plain arrays" in capsys.readouterr().err


def test_more_than_memory_holds(tmp_path, capsys):
    with (tmp_path / "w.npy").open("wb") as file:
        header = {"descr": "|i1", "fortran_order": False, "shape": (1 << 40, 1 << 20)}
        np.lib.format.write_array_header_1_0(file, header)
    assert emit(str(tmp_path / "w.npy"), tmp_path / "c") == 2
    assert "is no .npy or .npz file of plain arrays: Unable to allocate" in capsys.readouterr().err


def test_pickles_are_not_loaded(tmp_path, capsys):
    np.save(tmp_path / "w.npy", np.array([{}], object))
    assert emit(str(tmp_path / "w.npy"), tmp_path / "c") == 2
    assert "is no .npy or .npz file of plain arrays" in capsys.readouterr().err


def test_no_file_and_no_folder(weights, tmp_path, capsys):
    assert emit(str(tmp_path / "none.npy"), tmp_path / "c") == 4
    assert "none.npy: No such file or directory" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert emit(weights(weight=WEIGHT), tmp_path / "file") == 4
    assert "choose another folder with -o" in capsys.readouterr().err


def test_a_name_is_checked_from_python_too():
    with pytest.raises(SpecError, match="cannot be named 'main'"):
        Conv2d(WEIGHT, 2, 1).files("main")


def test_no_name_of_a_library_hides_a_header_that_its_c_includes():
    package = Path(bitsynth.__file__).parent
    folders = (package / "runtime", package / "emit" / "templates", paths.isa_specs())
    files = [file for folder in folders for file in folder.rglob("*") if file.suffix in (".c", ".h", ".j2", ".toml")]
    included = {name for file in files for name in re.findall(r"#include <(\w+)\.h>", file.read_text(encoding="utf-8"))}
    included |= {Path(load.load(isa).table.header).stem for isa in load.names()}
    assert {"arm_neon", "cpuid", "string"} <= included
    for name in sorted(included):
        with pytest.raises(SpecError):
            require_name(name)
