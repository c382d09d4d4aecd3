"""`bitsynth verify` of folders: what holds, what was changed, and what is no certificate."""

import json
import operator
from functools import reduce

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.certificates import program_of, reading_of, written
from support.onnx_files import model, node

from bitsynth import Refuted, SpecError
from bitsynth.files import write_texts
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.types import Integers, Reals
from bitsynth.network.certificate import checker, digest
from bitsynth.network.certificate.read import check_certificate, render_library
from bitsynth.network.library import NetworkText
from bitsynth.network.run import Network


@pytest.fixture
def graph(rng):
    """A product of integers."""
    builder = GraphBuilder("net", "exact")
    x = builder.input("x", (1, 8), "float32", Integers.between(0, 3, 0.5))
    w = builder.constant(rng.integers(-1, 2, (8, 4)).astype(np.float32), "w")
    return builder.build((builder.add("matmul", x, w, name="y"),))


@pytest.fixture
def folder(graph, tmp_path):
    """Its certificate."""
    return written(graph, tmp_path)


@pytest.fixture
def edited(folder):
    """Writes the certificate with something changed, and its digest made anew; the folder."""

    def edit(**changes):
        path = folder / "net.certificate.json"
        result = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({**result, "digest": digest(result)}))
        return str(folder)

    return edit


@pytest.mark.smoke
def test_a_folder_is_checked(folder, ended):
    out, _ = ended(0, "verify", str(folder), "--no-z3")
    assert "1 of 1 step, for every input; instruction lemmas were not discharged again" in out
    assert "checked," in out


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_what_the_caller_gives_may_be_moved_first(dtype, tmp_path, ended):
    """Real numbers in another shape, and integers beyond int32 that are copied: each was refused by its own checker."""
    if dtype == "float32":
        nodes, constants = [node("Reshape", "x s", "r"), node("MatMul", "r w")], {"s": np.array([6, 4])}
        constants["w"] = np.full((4, 5), 0.3, np.float32)
        onnx_model = model(nodes, {"x": (2, 3, 4)}, constants)
    else:
        nodes = [node("Greater", "x c", "b"), node("Cast", "b", to=TensorProto.FLOAT)]
        onnx_model = model(nodes, {"x": (4,)}, {"c": np.array(5)}, dtype=TensorProto.INT64)
    onnx.save(onnx_model, tmp_path / "net.onnx")
    ended(0, "compile", str(tmp_path / "net.onnx"), "--isa", "avx2", "-o", str(tmp_path / "out"))
    ended(0, "verify", str(tmp_path / "out"), "--no-z3")


def test_its_kernels_are_proved_again(folder, ended):
    found = json.loads(ended(0, "verify", str(folder / "net.certificate.json"), "--json")[0])
    assert found["proved"]
    assert found["steps_proved"] == 1
    assert found["steps"][0]["by"] == ["sums"]
    assert "discharged by Z3" in found["checks"][-1]["verdict"]


def test_real_numbers_in_another_shape_have_the_range_they_had(tmp_path, ended):
    """A reshape is the same memory: the certificate of squares of codes was refused by its own checker."""
    builder = GraphBuilder("net", "exact")
    x = builder.input("x", (1, 4, 4), "float32", Integers.between(0, 3, 0.3))
    squares = builder.add("reshape", builder.add("mul", x, x), sizes=(1, 16))
    graph = builder.build((builder.add("reduce_sum", builder.add("exp", squares), axes=(1,), name="y"),))
    out, _ = ended(0, "verify", str(written(graph, tmp_path)), "--no-z3")
    assert "1 of 4 steps, for every input" in out


def test_steps_without_claims_are_named(tmp_path, ended):
    builder = GraphBuilder("net", "exact")
    edge = builder.add("softmax", builder.input("x", (1, 4), "float32", Reals()), axes=(1,), name="y")
    folder = str(written(builder.build((edge,)), tmp_path))
    out, _ = ended(0, "verify", folder, "--no-z3")
    assert ["others", "y", "nothing", "claimed:"] in [line.split()[:4] for line in out.splitlines()]
    assert "nothing is claimed of y: plain C" in ended(1, "verify", folder, "--no-z3", "--strict")[1]


def test_strict_is_content_where_all_is_claimed(folder, ended):
    ended(0, "verify", str(folder), "--no-z3", "--strict")
    assert "--strict is for compiled networks" in ended(2, "verify", "bs_mm_a1b_w1b_s32_avx2_2x64x4", "--strict")[1]


def test_a_changed_file_is_refuted(folder, ended):
    (folder / "net.c").write_text("int main(void) {}\n")
    assert "net.c was changed; compile the network again" in ended(1, "verify", str(folder), "--no-z3")[1]


def test_weights_as_a_file_are_checked(graph, tmp_path, ended):
    """They have their own digest, and the same bytes as the array; written again they are replaced."""
    network = Network(program_of(graph), reading=reading_of(graph))
    write_texts(tmp_path, files := network.files("net", weights_file=True))
    array = NetworkText("net", network.program, network.plan)
    weights = tmp_path / "net_weights.bin"
    assert len(weights.read_bytes()) == 64 + array.weight_bytes
    assert "incbin" in files["net_weights.c"]
    assert "incbin" not in array.files()["net_weights.c"]
    ended(0, "verify", str(tmp_path), "--no-z3")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    assert "net_weights.bin was changed" in ended(1, "verify", str(tmp_path), "--no-z3")[1]
    write_texts(tmp_path, files)
    ended(0, "verify", str(tmp_path), "--no-z3")


def test_a_missing_file_is_refuted(folder, ended):
    (folder / "net.c").unlink()
    assert "there is no file net.c" in ended(1, "verify", str(folder), "--no-z3")[1]


def test_no_file_outside_of_the_folder_is_read(edited, ended):
    assert "there is no file ../x" in ended(1, "verify", edited(files={"../x": "0"}), "--no-z3")[1]


def test_kernels_are_those_of_the_certificate(folder, edited, ended):
    (kernel,) = json.loads((folder / "net.certificate.json").read_text())["kernels"]
    _, err = ended(2, "verify", edited(kernels=[{**kernel, "digest": "0" * 64}]), "--no-z3")
    assert f"no kernel {kernel['name']} with the digest 000000000000 is stored" in err


@pytest.mark.parametrize(
    ("left_out", "message"), [("files", "it says nothing of net.c"), ("kernels", "it does not list the kernel bs_")]
)
def test_nothing_may_be_left_out(folder, edited, ended, left_out, message):
    empty = type(json.loads((folder / "net.certificate.json").read_text())[left_out])()
    assert message in ended(1, "verify", edited(**{left_out: empty}), "--no-z3")[1]


def test_a_folder_without_a_certificate(tmp_path, ended):
    assert "want one certificate in" in ended(2, "verify", str(tmp_path))[1]


def test_a_folder_that_is_not_there(tmp_path, ended):
    assert "there is no such file" in ended(2, "verify", str(tmp_path / "net.certificate.json"))[1]


HOSTILE = {
    "empty": "",
    "cut off": '{"format": 1, "steps": [',
    "a list": "[]",
    "deep": "[" * 100_000,
    "deep inside": '{"format": 1, "steps": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "another format": '{"format": 2}',
    "no keys": '{"format": 1}',
    "a huge number": '{"format": ' + "9" * 5000 + "}",
    "not text": "\udcff",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_certificate_is_said_in_one_line(tmp_path, ended, case):
    (tmp_path / "x.certificate.json").write_bytes(HOSTILE[case].encode("utf-8", "surrogateescape"))
    _, err = ended(2, "verify", str(tmp_path))
    assert "is no certificate of" in err
    assert err.count("\n") <= 2


NUMBERS = {
    "nan": ('"zero": 0', '"zero": NaN', 2),
    "too great": ('"zero": 0', '"zero": 1' + "0" * 40, 2),
    "a number for a text": ('"by": "sums"', '"by": 5', 2),
    "a list": ('"factor": 0', '"factor": []', 2),
    "many elements": ('"shape": [1, 8]', '"shape": [1000000000, 1000000000]', 1),
    "bits": ('"bits": 2', '"bits": 0.0001', 2),
    "a kind of kernel": ('"kind": "product"', '"kind": "other"', 2),
    "nodes": ('"nodes": [["y", "matmul"]]', '"nodes": 3', 2),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_odd_numbers_are_refused_in_one_line(folder, ended, case):
    path = folder / "net.certificate.json"
    old, new, code = NUMBERS[case]
    text = path.read_text()
    assert old in text
    fields = json.loads(text.replace(old, new))
    path.write_text(json.dumps({**fields, "digest": digest(fields)}))
    assert ended(code, "verify", str(folder), "--no-z3")[1].count("\n") <= 3


STEP = ("steps", 0)
FORGED_TEXTS = {
    "buffer": (*STEP, "inputs", 0),
    "formula": (*STEP, "claims", 0, "by"),
    "class": (*STEP, "c", "spec", "is"),
    "reference": ("reference",),
}


@pytest.mark.parametrize("case", FORGED_TEXTS)
def test_messages_cut_long_texts_of_a_certificate(folder, capsys, case):
    """Messages of `bitsynth verify` and of the checker by itself have at most 80 characters of a word."""
    path = folder / "net.certificate.json"
    fields = json.loads(path.read_text())
    *places, last = FORGED_TEXTS[case]
    part = reduce(operator.getitem, places, fields)
    assert isinstance(part[last], str)
    part[last] = "x" * 100_000
    path.write_text(json.dumps({**fields, "digest": digest(fields)}))
    with pytest.raises((Refuted, SpecError)) as error:
        render_library(check_certificate(path), path)
    assert "xxx" in str(error.value)
    assert "x" * 81 not in str(error.value)
    if checker.main([str(path)]):
        assert "x" * 81 not in capsys.readouterr().err


def test_one_line_says_how_much_was_checked_and_of_which_file(folder, ended):
    found = json.loads((folder / "net.certificate.json").read_text())
    out, _ = ended(0, "verify", str(folder), "--no-z3")
    files = len(found["files"])
    message = f"verified  1 of 1 step, 1 kernel, {files} files, of net.certificate.json with digest {found['digest']}"
    assert out.splitlines()[-1] == message
    shown = json.loads(ended(0, "verify", str(folder), "--no-z3", "--json")[0])
    assert shown["verified"] == {
        "steps": 1,
        "steps_proved": 1,
        "steps_of_plain_c": 0,
        "kernels": 1,
        "files": files,
        "certificate": "net.certificate.json",
        "digest": found["digest"],
    }
    assert shown["further_files"] == []


def test_files_of_no_certificate_are_named(folder, ended):
    (folder / "notes.txt").write_text("")
    (folder / "build").mkdir()
    (folder / "build" / "net.o").write_text("")
    out, _ = ended(0, "verify", str(folder), "--no-z3")
    assert ["further", "build/net.o,", "notes.txt"] in [line.split()[:3] for line in out.splitlines()]
    assert json.loads(ended(0, "verify", str(folder), "--no-z3", "--json")[0])["further_files"] == [
        "build/net.o",
        "notes.txt",
    ]


@pytest.mark.parametrize("name", ["string.h", "sys/types.h", "net/inner.h"])
def test_a_header_of_no_certificate_is_refused(folder, ended, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("")
    assert f"{name} is a header of no certificate here" in ended(1, "verify", str(folder), "--no-z3")[1]


def test_another_library_in_the_folder_is_not_refused(graph, folder, ended):
    Network(program_of(graph), reading=reading_of(graph)).emit(folder / "other", "second")
    for path in (folder / "other").iterdir():
        if path.name.startswith("second"):
            (folder / path.name).write_bytes(path.read_bytes())
        path.unlink()
    out, _ = ended(0, "verify", str(folder / "net.certificate.json"), "--no-z3")
    assert "second.h" in out
