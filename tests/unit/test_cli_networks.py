"""Commands of networks: tables that fit a terminal, names of weights and of libraries, batches, missing peers."""

import re
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.run_commands import terminal

from bitsynth import paths
from bitsynth.bench import network_peers
from bitsynth.cli import machines, main, output
from bitsynth.cli.reports.weight_names import is_number

FASHION = paths.shipped_kernels().parent / "examples" / "fashion" / "fashion_a2w2_qonnx.onnx"
_CODES = ("scale", "zero")


def _quantized(nodes, name, given):
    nodes.append(helper.make_node("QuantizeLinear", [given, *_CODES], [f"{name}.q"]))
    nodes.append(helper.make_node("DequantizeLinear", [f"{name}.q", *_CODES], [name]))


def _conv(nodes, constants, weight, name, given):
    values = np.random.default_rng(len(constants)).integers(-2, 2, (16, 16, 3, 3)).astype(np.int8)
    constants.append(numpy_helper.from_array(values, weight))
    nodes.append(helper.make_node("DequantizeLinear", [weight, "factor"], [f"{name}0"]))
    nodes.append(helper.make_node("Conv", [given, f"{name}0"], [name], pads=[1] * 4, name=f"Conv_{name}"))


@pytest.fixture
def numbered(tmp_path):
    """A residual network in which nodes and edges have numbers, and weights names."""
    one = np.array(1, np.float32)
    constants = [numpy_helper.from_array(x, n) for x, n in ((one, "scale"), (np.array(0, np.uint8), "zero"))]
    constants.append(numpy_helper.from_array(one, "factor"))
    nodes: list[onnx.NodeProto] = []
    _quantized(nodes, "1", "x")
    for k, before in enumerate(("1", "5")):
        first, second, added, out = (f"{4 * k + n}" for n in range(2, 6))
        _conv(nodes, constants, f"f.{k}.first.weight", f"{first}1", before)
        _quantized(nodes, first, f"{first}1")
        _conv(nodes, constants, f"f.{k}.second.weight", second, first)
        nodes.append(helper.make_node("Add", [second, before], [added]))
        _quantized(nodes, out, added)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 8, 8])
    result = helper.make_tensor_value_info("9", TensorProto.FLOAT, [1, 16, 8, 8])
    graph = helper.make_graph(nodes, "numbered", [image], [result], constants)
    file = tmp_path / "numbered.onnx"
    file.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )
    return file


@pytest.fixture
def reshaped(tmp_path):
    """A network with an open batch, in which a reshape has a batch of 1."""
    constants = [
        numpy_helper.from_array(np.ones((16, 10), np.float32), "w"),
        numpy_helper.from_array(np.array([1, 16]), "s"),
    ]
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4, 2, 2])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "reshaped", [given], [result], constants)
    file = tmp_path / "reshaped.onnx"
    file.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )
    return file


def _seen(*argv, after=""):
    """Return the lines that a terminal of 80 columns shows of a command, from one with the text `after` on."""
    text, code = terminal(*map(str, argv), columns=80)
    assert code == 0, text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2].rstrip() for line in plain.split("\n")]
    return lines[next(k for k, line in enumerate(lines) if after in line) :]


@pytest.mark.parametrize(
    ("command", "network"),
    [
        pytest.param("inspect", "fashion", marks=pytest.mark.slow),
        ("inspect", "numbered"),
        ("inspect --isa neon", "numbered"),
        ("compile --isa neon --name n", "numbered"),
        pytest.param("inspect --isa neon", "fashion", marks=pytest.mark.slow),
        pytest.param("compile --isa neon --name n", "fashion", marks=pytest.mark.slow),
    ],
)
def test_a_row_of_a_network_is_a_line_of_a_terminal(command, network, numbered, tmp_path):
    """No cell is folded: behind the heading and a blank line, each line of the table has a shape."""
    name, *options = command.split()
    to = ["-o", tmp_path / "out"] if name == "compile" else []
    lines = _seen(name, FASHION if network == "fashion" else numbered, *options, *to, after="reference exact")
    assert max(map(len, lines)) <= 80
    table = lines[3 : lines.index("", 3)]
    assert len(table) >= 3
    assert [line for line in table if not re.search(r"\d+x\d+| one ", line)] == []


@pytest.mark.parametrize("kind", ["bs_mm_a2u_w1b", "depthwise/bs_dw", "elementwise/rescale"])
def test_a_page_of_a_kernel_fits_a_terminal(kind):
    path = next(iter(sorted(paths.shipped_kernels().glob(f"neon/{kind}*.json"))))
    lines = _seen("show", path.stem)
    assert len(lines) > 20
    assert max(map(len, lines)) <= 80


def test_a_step_has_the_name_of_its_weight_where_nodes_have_numbers(numbered, tmp_path, capsys):
    assert main(["compile", str(numbered), "--isa", "neon", "-o", str(tmp_path / "out")]) == 0
    steps = capsys.readouterr().out.split("\n\n")[1]
    assert re.findall(r"^(f\S+)", steps, re.MULTILINE) == [
        f"f.{k}.{which}.weight" for k in (0, 1) for which in ("first", "second")
    ]
    assert main(["inspect", str(numbered)]) == 0
    assert "21 (f.0.first.weight)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("45", True), ("Conv_12.conv", True), ("onnx::Add_73", True), ("conv2d_3", True), ("f.3.weight", False)],
)
def test_numbers_of_exporters(name, is_one):
    assert is_number(name) == is_one


def test_names_are_cut_in_the_middle():
    assert output.cut_name("/a/Conv_output_0", 16) == "/a/Conv_output_0"
    assert output.cut_name("/large/first_codes/act_quant/Relu_output_0", 30) == "/large/first_codes/../Relu"
    assert output.cut_name("block.layers.1.weight", 14) == "block...weight"
    assert all(len(output.cut_name("x" * 30, room)) <= room for room in range(3, 40))


@pytest.mark.parametrize(
    ("stem", "library"), [("float", "network_float"), ("main", "network_main"), ("my-net", "my_net")]
)
def test_a_library_has_a_legal_name_whatever_the_file_is_called(stem, library, numbered, tmp_path):
    file = numbered.rename(tmp_path / f"{stem}.onnx")
    assert main(["compile", str(file), "--isa", "neon", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / f"{library}.c").is_file()


def test_a_batch_that_does_not_fit_says_how_to_export_one(reshaped, numbered, tmp_path, capsys):
    argv = "--isa", "neon", "-o", str(tmp_path / "out")
    assert main(["compile", str(reshaped), "--batch", "2", *argv]) == 2
    err = capsys.readouterr().err
    assert "cannot be reshaped to [1, 16]; with --batch 1 the file can be read" in err
    assert "torch.onnx.export(..., dynamic_axes={'x': {0: 'N'}})" in err
    assert main(["inspect", str(reshaped), "--batch", "2", "--reference", "other"]) == 2
    assert main(["compile", str(reshaped), "--batch", str(1 << 21), *argv]) == 2
    err = capsys.readouterr().err
    assert "with --batch 1" not in err
    assert "invalid value for '--batch': must be less than or equal to 1048576" in err
    assert main(["inspect", str(numbered), "--batch", "2"]) == 0
    assert "--batch 2 changes nothing: input x has a batch of 1 in the file" in capsys.readouterr().err
    assert main(["inspect", str(numbered), "--batch", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_missing_peers_are_named_once_and_first(numbered, capsys, monkeypatch):
    monkeypatch.setattr(network_peers, "_is_installed", lambda module: False)
    for module in ("onnxruntime", "onnxruntime.quantization", "openvino", "emx_onnx_cgen.compiler"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "bitsynth.bench.baselines.onnxruntime_baseline", raising=False)
    assert main(["bench", "network", str(numbered), "--rounds", "1"]) == 0
    err = capsys.readouterr().err
    assert err.count("onnxruntime") == 1
    assert (
        "onnxruntime, openvino and emx-onnx-cgen are not installed, so the network is not compared with them: " in err
    )


def test_a_processor_without_a_cost_model_is_told_of(capsys, monkeypatch):
    monkeypatch.setattr(machines, "widest", lambda isa: "avx2")
    monkeypatch.setattr(machines, "cpu_here", lambda table: "")
    assert machines.set_and_processor("auto", "") == ("avx2", "")
    err = capsys.readouterr().err
    assert "has no cost model in avx2: cycles are for zen5; name another with --cpu: skylake, zen4" in err
    monkeypatch.setattr(machines, "cpu_here", lambda table: "zen4")
    assert machines.set_and_processor("auto", "") == ("avx2", "zen4")
    assert machines.set_and_processor("neon", "") == ("neon", "")
    assert capsys.readouterr().err == ""
