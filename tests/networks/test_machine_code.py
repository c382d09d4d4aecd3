"""`bitsynth verify --objects`: machine code of a network's kernels, in libraries that are right, wrong or damaged."""

import importlib
import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.certificates import program_of, reading_of

from bitsynth.errors import ToolError
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.types import Integers
from bitsynth.host import features
from bitsynth.network.run import Network

pytestmark = pytest.mark.toolchains

KERNEL = "bs_mm_a8u_w8s_s32_avx2_1x16x2"
FUNCTION = f"net_{KERNEL}"


@cache
def library():
    """The files of a network of one product."""
    builder, rng = GraphBuilder("net", "exact"), np.random.default_rng(15)
    x = builder.input("x", (1, 8), "float32", Integers.between(0, 255, 0.5))
    w = builder.constant(rng.integers(-127, 128, (8, 4)).astype(np.float32), "w")
    graph = builder.build((builder.add("matmul", x, w, name="y"),))
    return Network(program_of(graph), reading=reading_of(graph)).files("net")


@pytest.fixture
def folder(tmp_path):
    """The network's folder, with an archive in its folder `build`: the kernel's object, and one without a kernel."""
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    if features.arch() != "x86_64" or not (shutil.which("gcc") and shutil.which("ar")):
        pytest.skip("needs gcc for x86_64")
    out = tmp_path / "net"
    out.mkdir()
    for name, content in library().items():
        (out / name).write_bytes(content.encode() if isinstance(content, str) else content)
    build = out / "build"
    build.mkdir()
    objects = []
    for source in (f"{KERNEL}.c", "net_features.c"):
        objects.append(f"{source}.o")
        compiler = ["gcc", "-std=c11", "-O3", "-DNDEBUG", "-mavx2", f"-iquote{out}", "-c", str(out / source)]
        subprocess.run([*compiler, "-o", objects[-1]], cwd=build, check=True)
    subprocess.run(["ar", "qc", "libnet.a", *objects], cwd=build, check=True)
    return out


def place_of(path, function):
    """Where the code of a function begins in a file, and its bytes."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as stream:
        elf = ELFFile(stream)
        (symbols,) = elf.iter_sections("SHT_SYMTAB")
        (symbol,) = (x for x in symbols.iter_symbols() if x.name == function)  # type: ignore[attr-defined]
        return elf.get_section(symbol["st_shndx"])["sh_offset"] + symbol["st_value"], symbol["st_size"]


def test_kernels_of_a_library_are_proved_and_the_rest_of_its_code_is_counted(folder, ended):
    path = folder / "build" / "libnet.a"
    facts = json.loads(ended(0, "verify", str(folder), "--object", str(path), "--json")[0])
    (kernel,) = facts["kernels"]
    assert (kernel["kernel"], kernel["function"]) == (KERNEL, FUNCTION)
    assert kernel["verdict"] == "all sizes"
    _, size = place_of(folder / "build" / f"{KERNEL}.c.o", FUNCTION)
    assert [FUNCTION, size] in [[name, size] for name, _, size in kernel["functions"]]
    listed = subprocess.run(["size", "-A", path], capture_output=True, text=True, check=True).stdout
    code = sum(int(line.split()[1]) for line in listed.splitlines() if line.startswith(".text"))
    assert facts["bytes"] == code > facts["proved_bytes"] >= size
    assert facts["library"] == "build/libnet.a"
    record = json.loads((folder / "net_objects.json").read_text())
    assert record["digest"] == facts["digest"]
    assert record["kernels"] == facts["kernels"]
    shown = ended(0, "verify", str(folder), "--no-z3", "--strict")[0]
    assert "build/libnet.a: as it was proved: 1 of 1 kernel proved" in shown
    assert "net_objects.json" not in shown, "it is no further file"


@pytest.mark.slow
def test_a_record_that_no_longer_fits_is_named(folder, ended):
    path = folder / "build" / "libnet.a"
    ended(0, "verify", str(folder), "--object", str(path))
    path.write_bytes(path.read_bytes() + b"\n")
    text = "net_objects.json: build/libnet.a is another library now"
    assert text in ended(0, "verify", str(folder), "--no-z3")[0]
    assert "is another library now" in ended(1, "verify", str(folder), "--no-z3", "--strict")[1]
    path.unlink()
    assert "build/libnet.a is not there any more" in ended(0, "verify", str(folder), "--no-z3")[0]
    record = folder / "net_objects.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "certificates": {"net.certificate.json": ""}}))
    assert "it is of another network" in ended(0, "verify", str(folder), "--no-z3")[0]
    record.write_text("{}")
    assert "is no record of machine code" in ended(2, "verify", str(folder), "--no-z3")[1]


@pytest.mark.slow
def test_a_path_in_a_record_may_be_any_text(folder, ended):
    ended(0, "verify", str(folder), "--object", str(folder / "build" / "libnet.a"))
    path = folder / "net_objects.json"
    written = json.loads(path.read_text())
    for library, name in {"\0": r"\x00", "a\nproved": r"a\nproved", ".": ".", "x" * 9999: "xxx..."}.items():
        path.write_text(json.dumps({**written, "library": library}))
        shown = ended(0, "verify", str(folder), "--no-z3")[0]
        assert f"{name}" in shown
        assert "is not there any more" in shown
        assert "\nproved" not in shown.partition("objects ")[2].partition("is not there")[0]


@pytest.mark.slow
def test_a_record_of_somebody_else_is_not_replaced(folder, ended):
    """Nor is a library written where there can be no record."""
    path, arguments = (
        folder / "net_objects.json",
        ("verify", str(folder), "--object", str(folder / "build" / "libnet.a")),
    )
    path.write_text("notes")
    assert "was not written by bitsynth, so it is not replaced" in ended(2, *arguments)[1]
    assert path.read_text() == "notes"
    path.unlink()
    path.mkdir()
    assert "was not written by bitsynth" in ended(2, *arguments)[1]
    path.rmdir()
    for _ in range(2):
        ended(0, *arguments)


def test_files_of_a_compiler_are_left_in_its_folder_alone(tmp_path, monkeypatch):
    """A compiler that is ended has no time to remove them."""
    from bitsynth.isa.load import load
    from bitsynth.toolchain import build_library, find_compiler

    compiler, seen = find_compiler(load("avx2"), ""), []
    monkeypatch.setattr("bitsynth.toolchain.cmake.shutil.which", lambda name: name)
    monkeypatch.setattr("bitsynth.toolchain.cmake.tool.run", lambda command, folder, env: seen.append(env["TMPDIR"]))
    with pytest.raises(ToolError, match=r"made no libnet\.a"):
        build_library(tmp_path, "net", tmp_path, compiler)
    assert seen == [str(tmp_path)] * 2


def test_a_changed_kernel_is_refused_and_nothing_is_written(folder, ended):
    at, size = place_of(folder / "build" / f"{KERNEL}.c.o", FUNCTION)
    whole, path = (folder / "build" / f"{KERNEL}.c.o").read_bytes(), folder / "build" / "libnet.a"
    archive = bytearray(path.read_bytes())
    multiply = whole.index(bytes.fromhex("f5"), at, at + size)  # The opcode of vpmaddwd; f4 is vpmuludq's.
    archive[archive.index(whole) + multiply] = 0xF4
    path.write_bytes(archive)
    shown, message = ended(1, "verify", str(folder), "--object", str(path))
    assert f"{KERNEL} is not proved" in message
    assert "refused" in shown
    assert not (folder / "net_objects.json").exists()


def test_what_is_no_library_of_the_network_is_bad_input(folder, ended, tmp_path):
    path, other = folder / "build" / "libnet.a", tmp_path / "other.a"

    def refusal(data):
        other.write_bytes(data)
        shown, message = ended(2, "verify", str(folder), "--object", str(other))
        assert not shown
        return message

    data = path.read_bytes()
    assert "is truncated: an object at byte" in refusal(data[: len(data) // 2])
    assert "is no archive: its table is damaged at byte 8" in refusal(b"!<arch>\n" + bytes(60))
    assert "thin archive" in refusal(b"!<thin>\n")
    assert "want an ELF object or library" in refusal(b"no library")
    features_alone = (folder / "build" / "net_features.c.o").read_bytes()
    assert f"has no function {FUNCTION}; it has net_missing_feature" in refusal(features_alone)
    stripped = tmp_path / "stripped.o"
    shutil.copyfile(folder / "build" / f"{KERNEL}.c.o", stripped)
    subprocess.run(["strip", stripped], check=True)
    assert "was stripped of the names of its functions" in refusal(stripped.read_bytes())
    subprocess.run(["ar", "qc", "stripped.a", "stripped.o"], cwd=tmp_path, check=True)
    assert "stripped.o was stripped" in refusal((tmp_path / "stripped.a").read_bytes())
    twice = folder / "build" / "twice.a"
    subprocess.run(["ar", "qc", twice, *[folder / "build" / f"{KERNEL}.c.o"] * 2], check=True)
    assert f"2 of its objects have a function {FUNCTION}" in refusal(twice.read_bytes())
    assert "No such file" in ended(2, "verify", str(folder), "--object", str(tmp_path / "missing.a"))[1]
    assert "--objects is for compiled networks" in ended(2, "verify", KERNEL, "--objects")[1]
    assert not (folder / "net_objects.json").exists()


def test_without_the_packages_it_says_what_to_install(folder, ended, monkeypatch):
    arguments = "verify", str(folder), "--object", str(folder / "build" / "libnet.a")
    for package in ("capstone", "elftools.elf.elffile"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            assert "pip install 'bitsynth[objects]'" in ended(4, *arguments)[1]


def test_a_kernel_of_which_no_object_can_be_proved_is_reported(folder, ended, monkeypatch):
    """A patch refuses it: objects of each kernel that compiles on x86 can be proved."""
    from bitsynth.errors import SpecError

    def refuse(isa):
        raise SpecError(f"{isa}: objects cannot be proved")

    monkeypatch.setattr(importlib.import_module("bitsynth.network.certificate.objects"), "require_provable", refuse)
    arguments = "verify", str(folder), "--object", str(folder / "build" / "libnet.a")
    assert "0 of 1 kernel" in ended(0, *arguments)[0]
    assert "objects cannot be proved" in ended(1, *arguments, "--strict")[1]


@pytest.mark.slow
def test_a_layer_that_is_wrong_is_refused_and_nothing_is_written(folder, ended, monkeypatch):
    """What is not covered is reported, and with --strict an error."""
    module = importlib.import_module("bitsynth.network.certificate.objects")
    arguments = "verify", str(folder), "--object", str(folder / "build" / "libnet.a")

    def with_verdict(verdict):
        layer = {"step": 0, "node": "y", "kernel": KERNEL, "function": FUNCTION, "verdict": verdict, "why": "a reason"}
        monkeypatch.setattr(module, "prove_layers", lambda *_: [module.LayerVerdict(**layer)])

    with_verdict("refused")
    assert "step 0, y is not proved: a reason" in ended(1, *arguments)[1]
    assert not (folder / "net_objects.json").exists()
    with_verdict("not covered")
    shown = ended(0, *arguments)[0]
    assert "step 0: a reason" in shown
    assert "0 of 1 layer" in shown
    assert "step 0, y is not proved: a reason" in ended(1, *arguments, "--strict")[1]
    with_verdict("not understood")
    (layer,) = json.loads(ended(0, *arguments, "--json")[0])["layers"]
    assert (layer["verdict"], layer["why"]) == ("not understood", "a reason")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_the_library_that_cmake_builds_is_proved_and_kept(folder, ended):
    facts = json.loads(ended(0, "verify", str(folder), "--objects", "--compiler", "gcc", "--json")[0])
    assert [kernel["function"] for kernel in facts["kernels"]] == [FUNCTION]
    assert [(layer["verdict"], layer["results"], layer["calls"]) for layer in facts["layers"]] == [("proved", 4, 1)]
    assert {"-O3", "-DNDEBUG", "-mavx2"} <= {*facts["flags"][f"{KERNEL}.c"]}
    assert facts["compilers"][0].startswith("GCC")
    assert {share["part"] for share in facts["code"]} >= {"kernels", "network", "runtime"}
    assert (folder / facts["library"]).is_file()
    assert "1 of 1 kernel proved, 1 for all sizes; 1 of 1 layer" in ended(0, "verify", str(folder), "--no-z3")[0]


def test_archives_name_their_objects_in_several_ways():
    """Long names lie in a table of their own, or before the object; names may be equal; indices are left out."""
    pytest.importorskip("elftools")
    module = importlib.import_module("bitsynth.objects.library")

    def member(name, content):
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode()
        return head + content + b"\n" * (len(content) % 2)

    long = b"bs_a_name_of_more_than_16_letters.c.o/\n"
    parts = [member("/", b"index"), member("//", long), member("/0", b"1"), member("x.o/", b"22")]
    path = Path("lib.a")
    data = b"!<arch>\n" + b"".join([*parts, member("#1/8", b"abcdef.o333")])
    assert list(module._members(path, data)) == [
        ("bs_a_name_of_more_than_16_letters.c.o", b"1"), ("x.o", b"22"), ("abcdef.o", b"333")
    ]  # fmt: skip
