"""Names of files and edges that are long, hidden, empty or there twice, and tensors without elements."""

import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data
from support.onnx_files import QONNX, model, node

from bitsynth.cli import main
from bitsynth.errors import SpecError
from bitsynth.files import read_file
from bitsynth.graph import read, run
from bitsynth.network.compiling import network_of
from bitsynth.network.def_use import NetworkTarget
from bitsynth.printable import one_line, show
from bitsynth.progress import silent

LONG = "n" * 100_000
HIDDEN = "a\x1b[31m\x07\u202eb\nc"
GRID = {"s": np.float32(0.25), "z": np.float32(0), "b": np.float32(2)}


def compiled(result):
    return network_of(read(result), NetworkTarget("avx2"), 1, silent, {})


def relu(name):
    """A quantizer and a Relu whose input, node and output have names with `name` in them."""
    nodes = [node("Quant", "x s z b", "q", domain=QONNX, signed=0, narrow=0), node("Sigmoid", "q")]
    onnx_model = model(nodes, {"x": (1, 4)}, GRID)
    first, last = onnx_model.graph.node
    first.name, last.name = f"{name}1", f"{name}2"
    first.input[0] = onnx_model.graph.input[0].name = f"{name}x"
    first.output[0] = last.input[0] = f"{name}q"
    last.output[0] = onnx_model.graph.output[0].name = f"{name}y"
    onnx_model.graph.name = name
    return onnx_model


# Names as people read them.


def test_names_are_shown_on_one_short_line():
    assert show("a.b/c d") == "a.b/c d"
    assert show(HIDDEN) == r"a\x1b[31m\x07\u202eb\nc"
    assert len(show(LONG)) == len(show("\x1b" * 100_000)) == 120
    assert show(f"first{LONG}last").startswith("firstn")
    assert show(f"first{LONG}last").endswith("nlast")


def test_messages_are_shown_on_one_line():
    assert one_line(f"x {HIDDEN} y") == r"x a\x1b[31m\x07\u202eb\nc y"
    assert len(one_line(f"before {LONG} behind")) < 100
    assert one_line(f"before {LONG} behind").endswith("n behind")
    assert len(one_line("a " * 100_000)) == 4000


@pytest.mark.parametrize("name", [LONG, HIDDEN], ids=["long", "hidden"])
def test_c_of_such_names(name):
    for file, text in compiled(relu(name)).files("net").items():
        if file.endswith((".c", ".h")):
            assert max(map(len, str(text).splitlines())) < 2000
            assert not {"\x1b", "\x07", "\u202e"} & {*str(text)}


@pytest.mark.parametrize("name", [LONG, HIDDEN], ids=["long", "hidden"])
def test_tables_and_pages_of_such_names(tmp_path, capsys, name):
    path, page = tmp_path / "net.onnx", tmp_path / "page.html"
    onnx.save(relu(name), path)
    assert main(["inspect", str(path), "--isa", "avx2", "--html", str(page)]) == 0
    assert main(["compile", str(path), "--isa", "avx2", "-o", str(tmp_path / "out")]) == 0
    for text in (page.read_text(encoding="utf-8"), capsys.readouterr().out.replace(str(tmp_path), "")):
        assert max(map(len, text.splitlines())) < 2000
        assert not {"\x1b", "\x07", "\u202e"} & {*text}


@pytest.mark.parametrize("name", [LONG, HIDDEN], ids=["long", "hidden"])
def test_messages_with_such_names(tmp_path, name):
    onnx_model = relu(name)
    onnx_model.graph.node[1].input[0] = f"{name}none"
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_model.SerializeToString())
    with pytest.raises(SpecError, match="nothing makes its input") as error:
        read(path)
    message = str(error.value)
    assert len(message) < 1000
    assert message.isprintable()


# Names that are there twice, or not at all.


def info(name, shape=None):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@pytest.mark.parametrize("name", ["x", "unread", "w"])
def test_two_inputs_of_one_name(name):
    onnx_model = model([node("Add", "x w")], {"x": (1, 4)}, {"w": np.ones((1, 4), np.float32)})
    onnx_model.graph.input.extend([info(name, (1, 4))] * (1 if name == "x" else 2))
    with pytest.raises(SpecError, match=rf"^input {name} appears twice; give each a name of its own"):
        read(onnx_model)


def test_thousands_of_initializers_of_one_name():
    onnx_model = model([node("Relu", "x")], {"x": (1, 4)}, {f"w{k}": np.float32(1) for k in range(30_000)})
    onnx_model.graph.initializer[-1].name = "w0"
    with pytest.raises(SpecError, match=r"^initializer w0 appears twice"):
        read(onnx_model)


def test_outputs_that_are_there_twice_or_inputs_or_constants():
    onnx_model = model([node("Relu", "x")], {"x": (1, 2)}, {"w": np.float32(3)}, outputs="y y x w")
    net = compiled(onnx_model)
    x = np.array([[-1, 2]], np.float32)
    assert [v.tolist() for v in net(x)] == [[[0, 2]], [[0, 2]], [[-1, 2]], 3]


# Tensors without elements.

NOTHING = {
    "Slice s: y has shape (1, 0), so no elements": [node("Slice", "x one one one", "y", name="s")],
    "Slice s: m has shape (1, 0), so no elements": [
        node("Slice", "x one one one", "m", name="s"),
        node("ReduceSum", "m one", "y"),
    ],
    "Expand e: y has shape (0, 4), so no elements": [node("Expand", "x no", "y", name="e")],
    "MatMul m: w has shape (4, 0), so no elements": [node("MatMul", "x w", "y", name="m")],
    "Split s: y has shape (1, 0), so no elements": [node("Split", "x parts", "y z", name="s", axis=1)],
}


@pytest.mark.parametrize("why", NOTHING)
def test_tensors_of_no_element(why):
    given = {"one": np.array([1]), "no": np.array([0, 4]), "parts": np.array([0, 4]), "w": np.zeros((4, 0), np.float32)}
    with pytest.raises(SpecError) as error:
        read(model(NOTHING[why], {"x": (1, 4)}, given))
    assert str(error.value).startswith(why)


def test_outputs_of_no_element():
    onnx_model = model([node("Relu", "x")], {"x": (1, 4)}, {"w": np.zeros((0, 3), np.float32)}, outputs="y w")
    with pytest.raises(SpecError, match=r"^output w: w has shape \(0, 3\), so no elements; cut it"):
        read(onnx_model)


def test_parts_of_no_element_that_nothing_reads():
    onnx_model = model([node("Split", "x parts", "a y", axis=1)], {"x": (1, 2)}, {"parts": np.array([0, 2])})
    x = np.array([[-1, 2]], np.float32)
    assert compiled(onnx_model)(x).tolist() == [[-1, 2]]


# What a run gives.


def test_a_run_is_a_mapping_of_edges():
    values = run(read(model([node("Relu", "x")], {"x": (1, 2)})), {"x": np.array([[1, -1]], np.float32)})
    assert isinstance(values, Mapping)
    assert "y" in values
    assert "z" not in values
    assert sorted(values) == sorted(values.keys()) == ["x", "y"]
    assert len(values) == 2
    assert values.get("z") is None
    assert dict(values.items())["y"].tolist() == [[1, 0]]


# Files.


def test_no_room_is_made_for_more_than_a_file_has(tmp_path):
    """Of 2 GiB that could be read: with an address space of 1 GiB more than is in use."""
    (tmp_path / "small").write_bytes(b"12345")
    code = f"""
import resource
from pathlib import Path
from typing import Any
from bitsynth.files import read_file
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29),) * 2)
assert read_file(Path({str(tmp_path / "small")!r}), (1 << 31) - 1) == b"12345"
"""
    assert resource.RLIMIT_AS
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert read_file(tmp_path / "small", 5) == b"12345"


def external(folder, **info):
    onnx_model = model([node("MatMul", "x w")], {"x": (1, 4)}, {"w": np.ones((4, 3), np.float32)})
    (weights,) = onnx_model.graph.initializer
    (folder / "w.bin").write_bytes(np.arange(64, dtype=np.float32).tobytes())
    set_external_data(weights, "w.bin", **info)
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    (folder / "net.onnx").write_bytes(onnx_model.SerializeToString())
    return folder / "net.onnx"


@pytest.mark.parametrize("info", [{"length": 49}, {"length": 256}, {"offset": 8, "length": 47}, {"offset": 8}, {}])
def test_external_data_of_another_size_than_shape_and_type_say(tmp_path, monkeypatch, info):
    path = external(tmp_path, **info)
    monkeypatch.setattr(onnx.external_data_helper, "load_external_data_for_tensor", lambda *a: pytest.fail("was read"))
    with pytest.raises(
        SpecError, match=r"w: its data do not fit its type and shape: \d+ bytes in w\.bin, where 48 are"
    ):
        read(path)


def test_external_data_at_the_end_of_a_file(tmp_path):
    graph = read(external(tmp_path, offset=256 - 48))
    assert run(graph, {"x": np.ones((1, 4), np.float32)}).outputs()[0].tolist() == [[226, 230, 234]]


def test_external_data_of_a_name_that_no_file_has(tmp_path):
    path = external(tmp_path)
    onnx_model = onnx.load_model(path, load_external_data=False)
    onnx_model.graph.initializer[0].external_data[0].value = "n" * 3000
    path.write_bytes(onnx_model.SerializeToString())
    with pytest.raises(
        SpecError, match=r"w: external data 'n+.*do not exist; put the file into the folder of the model"
    ):
        read(path)


@pytest.mark.parametrize("command", ["compile", "inspect", "check", "verify", "show"])
@pytest.mark.parametrize("name", ["n" * 3000, "d/" * 3000], ids=["name", "path"])
def test_files_of_names_that_no_file_has(capsys, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    more = ["--name", "net", "-o", "out"] if command == "compile" else []
    assert main([command, name, *more]) in ((4,) if command == "verify" and "/" in name else (2,))
    output = capsys.readouterr().err
    assert output.startswith("error: ")
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    ("to", "why"),
    [("link", "is a link to nothing"), ("link/in", "is a link to nothing"), ("file", "is not a folder")],
)
def test_outputs_where_no_folder_can_be(capsys, tmp_path, to, why):
    onnx.save(model([node("Relu", "x")], {"x": (1, 4)}), tmp_path / "net.onnx")
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "far")
    (tmp_path / "file").write_text("")
    assert main(["compile", str(tmp_path / "net.onnx"), "--isa", "avx2", "-o", str(tmp_path / to)]) == 4
    output = capsys.readouterr().err
    assert f"{tmp_path / to.partition('/')[0]} {why}; choose another folder with -o" in output


def test_advice_is_of_the_option_that_was_given(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    argv = ["synth", "--isa", "neon", "--act-bits", "2", "--w-bits", "1", "-o", str(tmp_path / "file" / "out")]
    assert main(argv) == 4
    assert "BITSYNTH_CACHE" not in capsys.readouterr().err
    assert not Path(tmp_path / "file" / "out").exists()


# What layers and glue do not hold.


def test_residuals_whose_ratio_leaves_int32_are_no_match(rng):
    """Sums on a scale of 2^-38 and codes on one of 2^-6: one step of the codes is 2^32 of the sums."""
    grid: dict[str, Any] = {"domain": QONNX, "signed": 0, "narrow": 0}
    nodes = [
        node("Quant", "x s1 z b8", "a", **grid),
        node("Quant", "x2 s2 z b6", "r", **grid),
        node("MatMul", "a w", "m"),
        node("Add", "r m", "t"),
        node("Quant", "t s3 z b2", **grid),
    ]
    given = {"s1": 2.0**-38, "s2": 2.0**-6, "s3": 2.0**-20, "z": 0, "b8": 8, "b6": 6, "b2": 2}
    constants: dict[str, Any] = {name: np.float32(number) for name, number in given.items()}
    constants["w"] = np.array([[1, 2], [-1, 3], [2, -2]], np.float32)
    net = compiled(model(nodes, {"x": (1, 3), "x2": (1, 2)}, constants))
    x = {"x": rng.uniform(0, 2.0**-30, (1, 3)).astype(np.float32), "x2": np.array([[0, 1]], np.float32)}
    assert np.array_equal(net(x), run(net.graph, x).outputs()[0])


def test_codes_of_more_channels_than_glue_has_are_plain_c():
    nodes = [node("Quant", "x s z b", "q", domain=QONNX, signed=0, narrow=0), node("Neg", "q", "r")]
    nodes.append(node("Quant", "r s z b", domain=QONNX, signed=1, narrow=0))
    net = compiled(model(nodes, {"x": (1, (1 << 24) + 1)}, GRID))
    assert {step.kind for step in net.program.steps} == {"plain"}


def test_memory_that_is_not_there_is_one_message(capsys, tmp_path, monkeypatch):
    onnx.save(model([node("Relu", "x")], {"x": (1, 4)}), tmp_path / "net.onnx")

    def refused(*_):
        raise MemoryError("Unable to allocate 2.00 GiB")

    monkeypatch.setattr("bitsynth.graph.inspect.inspect_graph", refused)
    assert main(["inspect", str(tmp_path / "net.onnx")]) == 4
    message = "error: not enough memory: Unable to allocate 2.00 GiB; give inputs a smaller shape, or this process"
    assert capsys.readouterr().err.startswith(message)
