"""`bitsynth inspect`: its output for a network, and its message for a network that it does not understand."""

import json
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest
from support.onnx_files import QONNX, model, node

from bitsynth.graph import read
from bitsynth.graph.inspect import inspect_graph


def two_layers():
    """A convolution of codes, and a product whose activations are floats."""
    nodes = [
        node("Quant", "x s z b", "q", domain=QONNX, name="input", signed=0, narrow=0),
        node("BipolarQuant", "w one", "v", domain=QONNX),
        node("Conv", "q v", "c", name="first"),
        node("Relu", "c", "r"),
        node("BipolarQuant", "r one", "p", domain=QONNX, name="odd"),
        node("Sigmoid", "c", "f"),
        node("Flatten", "f", "g"),
        node("MatMul", "g m", "y", name="last"),
    ]
    rng = np.random.default_rng(0)
    given = {
        "s": np.float32(0.25),
        "z": np.float32(0),
        "b": np.float32(2),
        "one": np.float32(1),
        "w": rng.normal(size=(4, 3, 2, 2)).astype(np.float32),
        "m": rng.normal(size=(4, 5)).astype(np.float32),
    }
    return model(nodes, {"x": ("N", 3, 2, 2)}, given, outputs="y p")


@pytest.fixture
def path(tmp_path):
    result = tmp_path / "net.onnx"
    result.write_bytes(two_layers().SerializeToString())
    return str(result)


def test_the_table_has_a_row_for_each_node(ended, path):
    out, err = ended(0, "inspect", path, "--batch", "1")
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert lines["q"][1:] == ["quantize", "1x3x2x2", "2-bit", "unsigned", "codes", "x", "0.25", "0", "to", "3"]
    assert lines["c"][1:3] == ["conv", "1x4x1x1"]
    assert lines["c"][-4:] == ["48", "1-bit", "bipolar", "6"]
    assert lines["x"][1:] == ["input", "1x3x2x2", "float32"]
    assert (
        "y: 20 MAC, 29.4 % of all, computed in floats: activations g are float32, on no grid; "
        "put a quantizer between Sigmoid the_Sigmoid and MatMul last"
    ) in out
    assert "p: gives 1 for every input: after Relu all are 0 or more; export it as a Quant of 1 bit, unsigned" in out
    assert "68 MAC; weights 86 bytes packed, 272 in the types of the file" in out
    assert err == ""


@pytest.mark.slow
def test_a_terminal_gets_a_table_that_fits(path, tmp_path):
    command = [sys.executable, "-m", "bitsynth.cli", "inspect", path, "--batch", "1"]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        text = b"".join(iter(lambda: read_all(master), b"")).decode()
    assert process.returncode == 0
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.splitlines()]
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:5] == ["c", "conv", "1x4x1x1", "6-bit", "signed"] for line in lines)


def read_all(master):
    """What comes next; nothing if the other side is closed."""
    try:
        return os.read(master, 1 << 16)
    except OSError:
        return b""


def test_json_has_each_node(ended, path):
    facts = json.loads(ended(0, "inspect", path, "--batch", "2", "--json")[0])
    assert (facts["reference"], facts["macs"], facts["weight_bytes"]) == ("exact", 2 * 68, 272)
    nodes = {n["outputs"][0]["name"]: n for n in facts["nodes"]}
    assert nodes["q"]["source"] == "Quant input"
    assert nodes["q"]["outputs"][0]["shape"] == [2, 3, 2, 2]
    assert nodes["c"]["weights"]["edge"]["encoding"] == "bipolar"
    assert nodes["c"]["outputs"][0]["carries"] == "sums"
    assert nodes["c"]["stays_float"] == ""
    assert nodes["y"]["outputs"][0]["carries"] == "reals"


def test_what_nodes_become(ended, path):
    out, _ = ended(0, "inspect", path, "--batch", "1", "--isa", "avx2")
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert "avx2" in lines["c"]
    assert "plain" in lines["y"]
    facts = json.loads(ended(0, "inspect", path, "--batch", "1", "--isa", "avx2", "--json")[0])
    assert any("c" in step["nodes"] for step in facts["compiled"]["steps"])


def test_a_page_holds_names_as_text(ended, tmp_path):
    onnx_model, page = two_layers(), tmp_path / "net.html"
    hostile = "<script>alert(1)</script>"
    for n in onnx_model.graph.node:
        n.output[:] = [hostile if name == "c" else name for name in n.output]
        n.input[:] = [hostile if name == "c" else name for name in n.input]
    (tmp_path / "net.onnx").write_bytes(onnx_model.SerializeToString())
    ended(0, "inspect", str(tmp_path / "net.onnx"), "--batch", "1", "--isa", "avx2", "--html", str(page))
    text = page.read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "put a quantizer between Sigmoid the_Sigmoid and MatMul last" in text
    assert "arena" in text


def test_ranges_are_reached_by_the_worst_inputs():
    graph = read(two_layers(), batch=1)
    conv = next(n for n in graph.nodes if n.op == "conv")
    weights = graph.constants[conv.inputs[1]].reshape(4, -1)
    kind = graph.edges["c"].integers
    assert (kind.high.reshape(-1) == np.maximum(weights, 0).sum(1) * 3).all()
    assert (kind.low.reshape(-1) == np.minimum(weights, 0).sum(1) * 3).all()


def test_declared_input_codes_are_read(ended, path, tmp_path):
    result = tmp_path / "plain.onnx"
    result.write_bytes(
        model([node("MatMul", "x w")], {"x": (1, 4)}, {"w": np.eye(4, dtype=np.float32)}).SerializeToString()
    )
    codes = ["--input-bits", "3", "--input-scale", "0.5", "--input-encoding", "signed"]
    out, _ = ended(0, "inspect", str(result), *codes)
    assert "3-bit signed codes x 0.5  -4 to 3" in out
    assert "computed in floats" in ended(0, "inspect", str(result))[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "input x: axis 0 is N; fix the batch with --batch N"),
        (["--input-scale", "2"], "--input-scale and --input-encoding say more of the codes of --input-bits"),
        (["--batch", "1", "--input-bits", "99"], "bits must be a whole number from 1 to 8, not 99"),
        (["--batch", "1", "--reference", "torch"], "unknown reference 'torch'"),
        (["--batch", "none"], "invalid value for '--batch'"),
    ],
)
def test_bad_options_are_refused(fails, path, options, why):
    assert why in fails(2, "inspect", path, *options)


def test_a_missing_file_is_reported(fails, tmp_path):
    assert "No such file" in fails(2, "inspect", str(tmp_path / "none.onnx"))
    (tmp_path / "text.onnx").write_text("what is this")
    assert "not an ONNX model" in fails(2, "inspect", str(tmp_path / "text.onnx"))


def test_without_the_package(fails, path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    assert "install it with pip install 'onnx>=1.20,<2'" in fails(4, "inspect", path)


def test_a_row_a_node():
    facts = inspect_graph(read(two_layers(), batch=1))
    assert [n.op for n in facts.nodes] == ["quantize", "conv", "relu", "quantize", "sigmoid", "reshape", "matmul"]
