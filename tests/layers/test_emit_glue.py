"""Glue as C: the table that Python shares with its header, texts that test themselves, buffers of exact size."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from support.glue_cases import cases, layers
from support.layer_cases import QUIET

from bitsynth import SpecError, runtime, toolchain
from bitsynth.cli import main
from bitsynth.cli.commands.emit_glue import parse_glue
from bitsynth.emit.glue import glue_program_source
from bitsynth.emit.glue_abi import ARRAYS, ENUMS, INPUTS, NUMBERS
from bitsynth.emit.render import WIDTH
from bitsynth.emit.runtime_files import glue_call_source, glue_files, runtime_files
from bitsynth.errors import ToolError
from bitsynth.isa.load import load
from bitsynth.layers import Requantize
from bitsynth.layers.glue import Add, AvgPool2d, Concatenate, MaxPool2d, Quantization, Quantize
from bitsynth.layers.glue.programs import programs, requirements
from bitsynth.run.runner import runner_for

HEADER = (Path(runtime.__file__).parent / "bs_glue.h").read_text(encoding="utf-8")
DRIVER = (Path(__file__).parent / "glue_driver.c").read_text(encoding="utf-8")
STRICT = ("-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes")
Q: Any = Quantization
LAYERS: dict[str, Any] = {
    "words": MaxPool2d(70, 2, 3, padding=1, layout="packed"),
    "two inputs": Add(5, Q(2, 0.3), Q(3), Q(2, 0.9)),
    "tables": Concatenate([(3, Q(2)), (2, Q(4, 0.1))], Q(2)),
    "sums": AvgPool2d(5, Q(2, 1.0, 0, "ternary"), 2, "int32", layout="packed"),
    "floats": Quantize(3, Q(8, 0.1, 3, "signed"), layout="packed"),
}


def selftest(files, name):
    """What the self-test of these files returns."""
    isa, needs = load(name), requirements(name)
    flags = ["-O1", "-pthread", "-DBITSYNTH_NO_MAIN", *STRICT]
    sources = {n: t for n, t in files.items() if n.endswith((".c", ".h"))}
    library = toolchain.compile_for(isa, sources, needs=needs, flags=flags, cached=sources)
    return runner_for(isa, library, needs=needs).call("made_selftest", bits=32)


def sources(name, **threads):
    """The C of glue on an instruction set, and what runs it by numbers."""
    return {**glue_files(**threads), **glue_call_source(), **glue_program_source(programs(name))}


def test_the_header_names_the_command():
    """Which makes the same layer."""
    for layer in LAYERS.values():
        files = layer.files("made")
        text = " ".join(files["made.h"].replace("\n *", " ").split())
        found = re.search(r'command bitsynth emit-glue "(.*)" --isa (\w+) --name made -o FOLDER', text)
        assert found is not None
        assert parse_glue(found[1], found[2]).files("made") == files


@pytest.mark.parametrize("case", LAYERS)
def test_emitted_glue_tests_itself(case):
    layer = LAYERS[case]
    files = layer.files("made")
    lines = (line for name, text in files.items() if name.endswith((".c", ".h")) for line in text.splitlines())
    assert max(map(len, lines)) <= WIDTH
    assert selftest(files, layer.isa) == 0


def test_no_array_is_empty():
    assert "numbers[" not in Quantize(3, Q(1, 0.3, 0, "bipolar")).files("made")["made.c"]


def test_the_selftest_sees_a_wrong_result():
    files = LAYERS["words"].files("made")
    text = files["made_selftest.c"]
    start = text.index("0x", text.index("want["))
    wrong = f"{text[:start]}0x{int(text[start : start + 18], 16) ^ 1:016x}{text[start + 18 :]}"
    assert selftest({**files, "made_selftest.c": wrong}, LAYERS["words"].isa) == 1


def test_names_are_the_layers_own():
    files = LAYERS["tables"].files("made")
    assert "#define bs_glue_run made_bs_glue_run" in files["made_names.h"]
    assert files["bs_glue.c"].count('#include "made_names.h"') == 1
    with pytest.raises(SpecError, match="cannot be named"):
        LAYERS["words"].files("bs_pool")


def fields(struct):
    """Names of its fields, with their types, an array's elements one by one."""
    (body,) = re.findall(rf"struct {struct} {{(.*?)\n}};", re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL), re.DOTALL)
    for line in filter(None, (" ".join(x.split()) for x in body.split(";"))):
        first, *others = line.split(",")
        ctype, first = re.fullmatch(r"(.*[ *])([\w\[\]]+)", first).groups()
        for name in (first, *(x.strip() for x in others)):
            count = name.endswith("[BS_GLUE_INPUTS]")
            names = [f"{name.partition('[')[0]}[{i}]" for i in range(INPUTS)] if count else [name]
            yield from ((n, ctype.strip()) for n in names)


def test_the_table_is_the_headers():
    ours = [*NUMBERS, *((name, f"const {ctype} *") for name, ctype in ARRAYS)]
    assert sorted(fields("bs_glue")) == sorted(ours)
    assert f"BS_GLUE_INPUTS = {INPUTS}" in HEADER
    for enum in (ENUMS["op"], ENUMS["rounding"]):
        (body,) = re.findall(rf"{enum.ctype} {{(.*?)}}", HEADER, re.DOTALL)
        assert [x.strip() for x in body.split(",")] == list(enum.enumerators.values())


def test_layers_of_weights_carry_no_glue():
    assert not any(name.startswith("bs_glue") for name in runtime_files(threads=True))


def program(flags=()):
    name = LAYERS["words"].isa
    isa, needs = load(name), requirements(name)
    compiler = next((c for c in toolchain.compilers(isa) if c.family in ("gcc", "clang")), None)
    if compiler is None:
        pytest.skip("no gcc and no clang")
    files = {**sources(name, threads=True), "glue_driver.c": DRIVER}
    flags = (*STRICT, "-pthread", *flags)
    return toolchain.compile_for(isa, files, needs=needs, flags=flags, shared=False, compiler=compiler)


def written(case, path, threads, change=0):
    """A file for the driver; the first byte of the output changed."""
    given = case.laid()
    want = bytearray(case.layer.output.lay_out(case.layer.meaning(*case.given)).tobytes())
    want[0] ^= change
    described = case.layer.constants.describe((*given[0].shape[:3], 0, 1))
    parts = [described.tobytes(), bytes(want), *(x.tobytes() for x in given), *[b""] * (INPUTS - len(given))]
    path.write_bytes(np.array([threads, *map(len, parts)]).tobytes() + b"".join(parts))
    return path


def drawn(folder, count, threads=(1, 3)):
    result: list[Path] = []

    @settings(max_examples=count, **QUIET)
    @given(case=cases())
    def draw(case):
        result.append(written(case, folder / f"case{len(result)}", threads[len(result) % len(threads)]))

    draw()
    return result


def run(path, *files):
    done = subprocess.run([str(path), *map(str, files)], capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stderr


def test_buffers_of_exact_size(tmp_path):
    files = drawn(tmp_path, 100)
    assert run(program(("-O1",)), *files) == (0, "")
    raw = bytearray(files[0].read_bytes())
    sizes = np.frombuffer(raw[: 8 * (2 + 1 + INPUTS)], np.int64)
    raw[sizes.nbytes + int(sizes[1])] ^= 1
    files[0].write_bytes(raw)
    assert run(program(("-O1",)), files[0])[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_no_undefined_behaviour_and_no_race(sanitizer, tmp_path):
    try:
        result = program((f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-O1", "-g"))
    except ToolError:
        pytest.skip("the compiler has no sanitizer runtime here")
    assert run(result, *drawn(tmp_path, 400, threads=(4,) if sanitizer == "thread" else (1, 3))) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx2", "avx512", "neon", "armv7_neon"])
def test_clean_under_every_compiler(isa):
    for compiler in toolchain.compilers(load(isa)):
        files, flags = sources(isa, threads=False), (*STRICT, "-O3")
        toolchain.compile_for(load(isa), files, needs=requirements(isa), flags=flags, compiler=compiler)


@pytest.mark.slow
def test_any_layer_is_emitted():
    @settings(max_examples=25, **QUIET)
    @given(layer=layers())
    def each(layer):
        assert selftest(layer.files("made"), layer.isa) == 0

    each()


def command(text, folder, *more, name="pool"):
    return ["emit-glue", text, "--name", name, "-o", str(folder), *more]


def emit(*words, **name):
    return main(command(*words, **name))


@pytest.mark.parametrize(
    ("text", "layer"),
    [
        ('MaxPool2d(70, 2, 3, padding=1, layout="packed")', LAYERS["words"]),
        ("Add(5, Quantization(2, 0.3), Quantization(3), out=Quantization(2, 0.9))", LAYERS["two inputs"]),
        ("Concatenate([(3, 2), (2, Quantization(4, 0.1))], 2)", Concatenate([(3, 2), (2, Q(4, 0.1))], 2)),
    ],
)
def test_the_command_writes_what_python_gives(text, layer, tmp_path, capsys):
    assert emit(text, tmp_path / "c", "--json") == 0
    fields = json.loads(capsys.readouterr().out)
    assert {p.name: p.read_text() for p in (tmp_path / "c").iterdir()} == layer.files("pool")
    assert sorted(fields["files"]) == sorted(str(tmp_path / "c" / name) for name in layer.files("pool"))
    assert emit(text, tmp_path / "c") == 0
    assert f"in {tmp_path}/c: pool.h, pool.c and others" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("", [], "want a layer such as 'MaxPool2d(64, 2, 2)', not ''"),
        ("MaxPool2d(64, 2, 2", [], "was never closed"),
        ("MaxPool2d(64, 2, " + "-" * 800 + "2)", [], "recursion"),
        ("Glue([], 1, {})", [], "is not a layer; known: Add, AvgPool2d"),
        ("__import__('os')", [], "is not a layer"),
        ("MaxPool2d(64, 2, open('x'))", [], "is not a part of a layer; known: Quantization, Requantize"),
        ("MaxPool2d(64, 2, x)", [], "'x' is no number, word or list of them"),
        ("MaxPool2d(64, 2)", [], "MaxPool2d: missing a required argument: 'window'"),
        ("MaxPool2d(64, 2, 2, size=3)", [], "unexpected keyword argument 'size'"),
        ("MaxPool2d(*[64, 2, 2])", [], "write each argument by itself"),
        ("MaxPool2d(64, 2, 2, **{})", [], "write each argument by itself"),
        ("MaxPool2d(64, 2, 2, isa='neon')", [], "isa is not an argument of the text"),
        ("MaxPool2d(64, 9, 2)", [], "bits must be a whole number from 1 to 8, not 9"),
        ("Lookup(4, [1, 2, 3], 2)", [], "table must be integers of shape (4,)"),
        ("Add(4, Quantization(2, 0.0), 2, 2)", [], "scale must be above 0"),
        ("MaxPool2d(64, 2, 2)", ["--isa", "sparc"], "unknown instruction set 'sparc'"),
    ],
)
def test_bad_input_writes_nothing(text, more, message, tmp_path, fails):
    assert message in fails(2, *command(text, tmp_path / "c", *more))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("text", ["Pad2d(16777216, 8, 1)", "MaxPool2d(1, 8, 32767)", "Resize(3, 8, 32767)"])
def test_a_selftest_beyond_all_memory_is_refused(text):
    with pytest.raises(SpecError, match=r"its self-test would have [\d,]+ numbers; the most is 4,194,304"):
        parse_glue(text, "avx2").files("made")


def test_names_and_folders_of_the_command(tmp_path, capsys):
    assert emit("Pad2d(64, 2, 1)", tmp_path / "c", name="bs_pool") == 2
    assert "a layer cannot be named" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert emit("Pad2d(64, 2, 1)", tmp_path / "file") == 4
    assert "choose another folder with -o" in capsys.readouterr().err


def test_text_has_parts_of_layers():
    glue = parse_glue("AvgPool2d(8, 4, (2, 3), Requantize(7, 9, 4, rounding='even'))", "avx2")
    want = AvgPool2d(8, 4, (2, 3), Requantize(7, 9, 4, rounding="even"), isa="avx2")
    assert glue.files("made") == want.files("made")
