"""Networks compared with other runtimes: twins without quantizers, times of steps, and what the command writes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, checker, helper, numpy_helper
from support.fusion_cases import Small
from typer.testing import CliRunner

from bitsynth.bench import network, network_peers
from bitsynth.bench.network import NetworkTimes, StepTime
from bitsynth.bench.phase_times import LayerParts
from bitsynth.bench.twins import float_twin
from bitsynth.cli.app import app
from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.network.check import draw
from bitsynth.network.compiling import network_of
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.report import NetworkReport, StepReport
from bitsynth.network.run import Network
from bitsynth.progress import silent


def model(nodes, constants, shape=(1, 4)):
    """A network of these nodes from x to y."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", (1, 3))))
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], held)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.fixture
def qcdq(rng):
    """A dense layer with weights by column, both operands quantized and cut."""
    weight = rng.integers(-3, 4, (4, 3)).astype(np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("Clip", ["q", "low", "high"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["d"]),
        helper.make_node("Clip", ["w", "wl", "wh"], ["wc"]),
        helper.make_node("DequantizeLinear", ["wc", "ws", "wz"], ["wd"], axis=1),
        helper.make_node("MatMul", ["d", "wd"], ["y"]),
    ]
    limits = {"low": np.uint8(0), "high": np.uint8(3), "wl": np.int8(-3), "wh": np.int8(3)}
    scales = {"s": np.float32(0.25), "ws": np.array([0.5, 0.25, 2], np.float32)}
    return model(nodes, {"z": np.uint8(0), "w": weight, "wz": np.zeros(3, np.int8), **scales, **limits})


def test_a_twin_has_no_quantizers_and_the_weights_values(qcdq):
    twin = float_twin(qcdq)
    checker.check_model(twin)
    assert [n.op_type for n in twin.graph.node] == ["MatMul"]
    x = {"x": np.array([[0, 0.25, 0.5, 0.75]], np.float32)}  # codes 0 to 3, so that quantizers change nothing
    quantized, plain = (run(read(m), x).outputs()[0] for m in (qcdq, twin))
    np.testing.assert_array_equal(quantized, plain)


def test_integer_operators_have_no_twin():
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"], name="dynamic")
    with pytest.raises(SpecError, match="DynamicQuantizeLinear dynamic has no twin in floats"):
        float_twin(model([node], {}))


@pytest.mark.slow
def test_the_command_tells_peers_and_steps(qcdq, tmp_path):
    file, figures = tmp_path / "net.onnx", tmp_path / "net.json"
    file.write_bytes(qcdq.SerializeToString())
    options = ["--rounds", "2", "--no-peers", "--json", str(figures), "--plot", str(tmp_path / "net")]
    result = CliRunner().invoke(app, ["bench", "network", str(file), *options])
    assert result.exit_code == 0, result.output
    found = json.loads(figures.read_text())["network"]
    assert [p["name"] for p in found["peers"]] == ["bitsynth"]
    assert sum(s["share"] for s in found["steps"]) == pytest.approx(1)
    assert {s["step"]["kind"] for s in found["steps"]} <= {"layer", "glue", "plain"}
    assert found["float_bytes"] == 4 * 4 * 3
    assert [sum(s["parts"].values()) for s in found["steps"] if s["parts"]] == [pytest.approx(1)]
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert (tmp_path / "net.png").stat().st_size > 0


def test_peers_that_refuse_are_left_out_and_why(qcdq, tmp_path, monkeypatch):
    """A peer that is installed gives a call; one that is not, or a file that it does not take, a reason."""
    file = tmp_path / "net.onnx"
    left_out: dict[str, str] = {}
    file.write_bytes(qcdq.SerializeToString())
    net = network_of(read(qcdq), NetworkTarget("avx2"), 1, silent, {})

    def missing(net, inputs):
        raise ImportError("no such package")

    def made(net, inputs):
        def bound(model):
            if any(node.op_type == "Clip" for node in model.graph.node):
                raise ValueError("Clip is too much\nfor it")
            return lambda: 7

        return bound

    monkeypatch.setattr(network_peers, "bind_onnxruntime", missing)
    monkeypatch.setattr(network_peers, "bind_openvino", missing)
    monkeypatch.setattr(network_peers, "_emx", made)
    found = dict(network_peers.bind_peers(file, net, draw(net.graph, 1)[0], left_out, silent))
    assert found["emx-onnx-cgen, fp32 twin"]() == 7
    assert left_out["onnxruntime"] == "no such package; pip install 'bitsynth[peers]'"
    assert left_out["openvino"] == left_out["onnxruntime"]
    assert left_out["emx-onnx-cgen, same file"] == "Clip is too much"


def test_other_runtimes_are_named_with_their_instructions(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda package: f"{package} 7")
    for arch, features, expected in (
        ("x86_64", {"avx2", "avx512_vnni", "amx_int8"}, "AMX"),
        ("x86_64", {"avx2", "avx512bw"}, "AVX-512"),
        ("aarch64", {"asimd", "asimddp"}, "NEON with dot products"),
        ("arm", {"neon"}, "NEON"),
        ("arm", set(), "unknown"),
    ):
        monkeypatch.setattr(network_peers, "arch", lambda found=arch: found)
        monkeypatch.setattr(network_peers, "features", lambda found=features: frozenset(found))
        named = network_peers.settings(["bitsynth", "openvino, fp32 twin", "openvino, int8 twin"])
        assert named == {"openvino": "openvino 7", "int8 instructions": expected}
    monkeypatch.setenv(network_peers.ONEDNN_LIMIT, "AVX2")
    assert network_peers.settings(["openvino, int8 twin"])[network_peers.ONEDNN_LIMIT] == "AVX2"
    assert network_peers.ONEDNN_LIMIT not in network_peers.settings(["onnxruntime, same file"])
    assert network_peers.settings(["bitsynth"]) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("longest", "rounds"), [(0, 1), (10**12, 3)])
def test_what_takes_long_is_measured_once(qcdq, tmp_path, monkeypatch, longest, rounds):
    file = tmp_path / "net.onnx"
    file.write_bytes(qcdq.SerializeToString())
    monkeypatch.setattr(network, "_LONG_NS", longest)
    net = network_of(read(qcdq), NetworkTarget("avx2"), 1, silent, {})
    (mine,) = network.measure(file, net, 3, silent, peers=False).peers
    assert mine.rounds == rounds
    assert mine.times.median == 1


def test_parts_of_a_step_are_those_of_its_time():
    step = StepReport(("n",), "e", "layer", "avx2 dot", "k", (1,), "int32", 4, 4)
    parts = LayerParts(0.25, 0.5, 0.25)
    plain = [replace(step, kind="plain", method=m) for m in ("conv, relu", "add, div")]
    steps = (StepTime(step, 4.0, 0.4, parts), StepTime(plain[0], 4.0, 0.4), StepTime(plain[1], 2.0, 0.2))
    report = NetworkReport("n", "exact", "avx2", 1, tuple(s.step for s in steps), 0, 0, 0)
    shares = NetworkTimes(report, 1, (), steps, {}, 0).shares
    assert shares == pytest.approx({"layer": 0, "pack": 0.1, "product": 0.6, "epilogue": 0.1, "glue": 0, "plain": 0.2})


def test_no_rounds_are_refused(qcdq, tmp_path):
    file = tmp_path / "net.onnx"
    file.write_bytes(qcdq.SerializeToString())
    result = CliRunner().invoke(app, ["bench", "network", str(file), "--rounds", "0", "--no-peers"])
    assert result.exit_code == 2


def test_random_inputs_lie_on_their_grid():
    small = Small()
    bipolar = small.codes("x", (1, 64), -1, 1, 0.5, step=2)
    net = Network(lower(small.build((small.add("neg", bipolar),)), NetworkTarget("avx2")))
    assert set(draw(net.graph, 1)[0]["x"].reshape(-1).tolist()) == {-0.5, 0.5}
