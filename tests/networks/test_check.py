"""`bitsynth check`: differences are counted, edge by edge and runtime by runtime."""

import json

import numpy as np
import onnx
import pytest
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import InputCodes, read, run
from bitsynth.graph.types import Integers
from bitsynth.network import check, sample_inputs
from bitsynth.network.check import comparison


@pytest.fixture
def onnx_model():
    """A convolution of codes of 2 bits, its sums through a sigmoid as codes of 3."""
    nodes = [
        node("Quant", "x s z two", "q", domain=QONNX, signed=0, narrow=0),
        node("Conv", "q w", "c"),
        node("Sigmoid", "c", "f"),
        node("Quant", "f t z three", "y", domain=QONNX, signed=0, narrow=0),
    ]
    numbers = {"s": 0.5, "t": 0.125, "z": 0, "two": 2, "three": 3}
    weights = np.arange(-9, 9, dtype=np.float32).reshape(2, 1, 3, 3)
    return model(nodes, {"x": (1, 1, 4, 5)}, {"w": weights} | {k: np.float32(v) for k, v in numbers.items()})


@pytest.fixture
def net(onnx_model, monkeypatch):
    """A network that does not compile, but gives what the reference does, one code of `y` aside."""
    found = bitsynth.compile(onnx_model, isa="avx2")

    def trace(given):
        values = run(found.graph, given)
        codes = values["y"].copy()
        codes[0, 0, 0, 0] ^= 1
        return {"x": given["x"], "q": values["q"], "y": codes}

    monkeypatch.setattr(found, "trace", trace)
    return found


def peer(**edges):
    return lambda model: lambda inputs: {k: v(inputs["x"]) if callable(v) else v for k, v in edges.items()}


def broken(model):
    raise ValueError("no such\nthing")


def missing(model):
    raise ImportError("no package")


def test_what_differs_is_counted(net, onnx_model, monkeypatch):
    found = {
        "onnxruntime": peer(q=lambda x: np.clip(np.rint(x / 0.5), 0, 3) * 0.5, c=np.zeros((1, 2, 2, 3)), y=np.ones(3)),
        "onnx": broken,
        "qonnx": missing,
    }
    monkeypatch.setattr(comparison, "PEERS", found)
    result = check.check_network(net, onnx_model, check.draw(net.graph, 2))
    edges = {e.edge: e for e in result.edges}
    assert result.first == edges["y"]
    assert (edges["y"].differ, edges["y"].elements) == ({"C": 2, "onnxruntime": 24}, 24)
    assert edges["q"].differ == {"C": 0, "onnxruntime": 0}
    assert edges["c"].differ["onnxruntime"] > 0
    assert edges["f"].differ == {}
    assert result.left_out == {"onnx": "ValueError: no such", "qonnx": "not installed"}
    assert result.peers == ("C", "onnxruntime")
    assert not result.as_json()["agrees"]


def test_a_peer_that_ends_is_left_out(net, onnx_model, monkeypatch):
    monkeypatch.setattr(comparison, "PEERS", {"onnx": peer(q=lambda x: x.nothing)})
    result = check.check_network(net, onnx_model, check.draw(net.graph, 1))
    assert "AttributeError" in result.left_out["onnx"]
    assert result.peers == ("C",)


def test_random_inputs_meet_each_code_and_ties(onnx_model):
    graph = read(onnx_model)
    ordinary, tied = check.draw(graph, 2)
    assert ordinary["x"].dtype == tied["x"].dtype == np.float32
    assert {code for inputs in (ordinary, tied) for code in run(graph, inputs)["q"].flat} == {0, 1, 2, 3}
    assert ((tied["x"] / 0.5) % 1 == 0.5).any()
    assert not ((ordinary["x"] / 0.5) % 1 == 0.5).any()
    assert [check.on_ties(graph, inputs) for inputs in (ordinary, tied)] == [False, True]
    weights = {"w": np.ones((4, 2), np.float32)}
    coded = read(model([node("MatMul", "x w")], {"x": (8, 4)}, weights), codes=InputCodes(2, 0.25, "signed"))
    (inputs,) = check.draw(coded, 1)
    assert isinstance(coded.edges["x"].type, Integers)
    assert set(inputs["x"].flat) == {-0.5, -0.25, 0, 0.25}
    assert not check.on_ties(coded, inputs)


def quantized(rounding="ROUND", *, scale=0.1, bits=2, shape=(1, 4000)):
    """A network that quantizes its input alone: QONNX's Quant of a rounding mode, or BipolarQuant."""
    attributes = {"signed": 0, "narrow": 0, "rounding_mode": rounding}
    quant = node("Quant", "x s z b", "y", domain=QONNX, **attributes)
    if rounding == "BIPOLAR":
        quant = node("BipolarQuant", "x s", "y", domain=QONNX)
    numbers = {"s": scale, "z": 0, "b": bits}
    return read(model([quant], {"x": shape}, {k: np.float32(v) for k, v in numbers.items()}))


@pytest.mark.parametrize(
    ("rounding", "ties", "others"),
    [
        ("ROUND", [0.05, 0.25], [0.0, 0.1, 0.35, -0.05, 0.050001]),
        ("HALF_UP", [0.15], [0.2]),
        ("FLOOR", [0.1, 0.3], [0.05, -0.1, 0.4]),
        ("CEIL", [0.2], [0.15]),
        ("BIPOLAR", [0.0], [0.1, -0.1, 0.05]),
    ],
)
def test_a_tie_is_where_a_quantizer_changes_its_code(rounding, ties, others):
    """0.1 and its multiples are rounded in float32: a number next to a tie is on it, one farther off is not."""
    graph = quantized(rounding, shape=(1,))
    found = {x: check.on_ties(graph, {"x": np.array([x], np.float32)}) for x in (*ties, *others)}
    assert found == dict.fromkeys(ties, True) | dict.fromkeys(others, False)


@pytest.mark.parametrize("rounding", ["ROUND", "FLOOR", "BIPOLAR"])
@pytest.mark.parametrize(("scale", "bits"), [(0.1, 2), (0.003, 8), (7.0, 8)])
def test_inputs_are_drawn_with_ties_and_without(rounding, scale, bits):
    graph = quantized(rounding, scale=scale, bits=bits)
    assert [check.on_ties(graph, inputs) for inputs in check.draw(graph, 4)] == [False, True] * 2


@pytest.fixture
def right(onnx_model, monkeypatch):
    """A network that does not compile, but gives what the reference does."""
    found = bitsynth.compile(onnx_model, isa="avx2")

    def trace(given):
        values = run(found.graph, given)
        return {"x": given["x"], **{name: values[name] for name in ("q", "y")}}

    monkeypatch.setattr(found, "trace", trace)
    return found


def rounds_ties_up(inputs):
    """Codes of `q` as a runtime has them that rounds ties up, where the reference rounds them to even."""
    return np.clip(np.floor(inputs["x"] / 0.5 + 0.5), 0, 3) * 0.5


def test_what_differs_on_ties_is_counted_apart(right, onnx_model, monkeypatch):
    monkeypatch.setattr(comparison, "PEERS", {"onnxruntime": lambda model: lambda x: {"q": rounds_ties_up(x)}})
    inputs = check.draw(right.graph, 4)
    result = check.check_network(right, onnx_model, inputs)
    q = {e.edge: e for e in result.edges}["q"]
    wrong = [
        np.count_nonzero(rounds_ties_up(feed) != run(right.graph, feed).floats("q"))
        for feed in inputs
        if check.on_ties(right.graph, feed)
    ]
    assert (result.inputs, result.inputs_on_ties, len(wrong)) == (4, 2, 2)
    assert q.differ == q.on_ties == {"C": 0, "onnxruntime": sum(wrong)}
    assert q.ordinary == {"C": 0, "onnxruntime": 0}
    assert sum(wrong) > 0
    assert result.first is None


def test_a_fault_of_the_c_counts_on_ties_too(net, onnx_model):
    tied = [feed for feed in check.draw(net.graph, 2) if check.on_ties(net.graph, feed)]
    first = check.check_network(net, onnx_model, tied).first
    assert (first.edge, first.differ["C"], first.ordinary["C"]) == ("y", 1, 0)


def test_the_command_reports_ties_apart_and_ends_with_0(right, onnx_model, tmp_path, ended, monkeypatch):
    path = tmp_path / "net.onnx"
    onnx.save(onnx_model, path)
    monkeypatch.setattr("bitsynth.network.compiling.compile", lambda *_, **__: right)
    monkeypatch.setattr(comparison, "PEERS", {"onnxruntime": lambda model: lambda x: {"q": rounds_ties_up(x)}})
    out, _ = ended(0, "check", str(path), "--count", "4")
    lines = out.splitlines()
    assert "onnxruntime: 0 of 40 elements differ on 2 inputs without ties" in lines
    (ties,) = [line for line in lines if line.endswith("elements differ on 2 inputs with numbers on ties")]
    assert ties != "onnxruntime: 0 of 40 elements differ on 2 inputs with numbers on ties"
    assert any(line.startswith("a tie is a number halfway between two codes") for line in lines)
    assert next(line for line in lines if line.startswith("edge")).endswith("onnxruntime on ties")
    out, _ = ended(0, "check", str(path), "--count", "1")
    assert "onnxruntime: 0 of 20 elements differ on 1 input" in out.splitlines()
    assert "ties" not in out
    found = json.loads(ended(0, "check", str(path), "--json")[0])
    q = next(e for e in found["edges"] if e["edge"] == "q")
    assert found["agrees"]
    assert found["inputs_on_ties"] == 2
    assert q["differ"] == q["on_ties"]


def test_numbers_reach_as_far_as_what_limits_integers(rng):
    """Floor tells all numbers apart; the clip behind it does not."""
    nodes = [node("Floor", "x", "f"), node("Clip", "f low high", "y")]
    graph = read(model(nodes, {"x": (1, 999)}, {"low": np.float32(0), "high": np.float32(15)}))
    x = sample_inputs.draw(rng, graph, graph.edges["x"])
    assert set(run(graph, {"x": x})["y"].flat) == {*range(16)}
    assert x.max() < 20


def test_inputs_of_a_file(onnx_model, tmp_path):
    graph, path = read(onnx_model), tmp_path / "x.npz"
    x = np.arange(60, dtype=np.float64).reshape(3, 1, 4, 5)
    np.savez(path, x=x, labels=[1, 0, 2])
    found = check.read_inputs(graph, path)
    assert [f["x"].shape for f in found] == [(1, 1, 4, 5)] * 3
    assert found[2]["x"].tolist() == x[2:].tolist()
    np.savez(path, x=x[0])
    with pytest.raises(SpecError, match=r"x has shape \(1, 4, 5\); it wants \(1, 1, 4, 5\)"):
        check.read_inputs(graph, path)
    np.savez(path, z=x)
    with pytest.raises(SpecError, match="has z; the network's inputs are x"):
        check.read_inputs(graph, path)
    np.save(tmp_path / "x.npy", x)
    assert len(check.read_inputs(graph, tmp_path / "x.npy")) == 3


def test_damaged_inputs_are_refused(onnx_model, tmp_path):
    graph, path = read(onnx_model), tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros((9, 1, 4, 5)))
    whole = path.read_bytes()
    for data in (b"", b"no archive", whole[:-5], whole[:50], whole[:60] + bytes(20) + whole[80:]):
        path.write_bytes(data)
        with pytest.raises(SpecError, match=r"is no .npy or .npz file of plain arrays"):
            check.read_inputs(graph, path)
    np.savez(path, x=np.array([{}], object))
    with pytest.raises(SpecError, match=r"is no .npy or .npz file of plain arrays: it has Python objects"):
        check.read_inputs(graph, path)
    with pytest.raises(SpecError, match=r"cannot read .*: No such file"):
        check.read_inputs(graph, tmp_path / "absent.npz")


def test_bad_input_ends_with_2(onnx_model, tmp_path, fails):
    path = tmp_path / "net.onnx"
    onnx.save(onnx_model, path)
    assert "cannot read" in fails(2, "check", str(path), "--data", str(tmp_path / "none.npz"), "--isa", "avx2")


@pytest.mark.slow
def test_a_network_is_checked(onnx_model, tmp_path, ended):
    path = tmp_path / "net.onnx"
    onnx.save(onnx_model, path)
    out, _ = ended(0, "check", str(path), "--isa", "avx2", "--count", "2")
    assert "C equals the reference" in out
    out, _ = ended(0, "check", str(path), "--isa", "avx2", "--json")
    found = json.loads(out)
    assert found["agrees"]
    assert {e["edge"] for e in found["edges"]} == {"q", "c", "f", "y"}


@pytest.mark.slow
def test_what_differs_ends_with_1(onnx_model, net, tmp_path, ended, monkeypatch):
    path = tmp_path / "net.onnx"
    onnx.save(onnx_model, path)
    monkeypatch.setattr("bitsynth.network.compiling.compile", lambda *_, **__: net)
    _, err = ended(1, "check", str(path), "--count", "1")
    assert "error: y: 1 of 12 codes differ from the reference exact" in err


@pytest.mark.parametrize("array", [np.full((1, 1, 4, 5), "x"), np.zeros((1, 1, 4, 5), np.complex64)])
def test_data_are_numbers(onnx_model, tmp_path, array):
    np.savez(tmp_path / "d.npz", x=array)
    with pytest.raises(SpecError, match=f"x has values of type {array.dtype}; it wants numbers of float32"):
        check.read_inputs(read(onnx_model), tmp_path / "d.npz")


def test_infinite_numbers_lie_on_no_tie(onnx_model):
    assert not sample_inputs.has_ties(read(onnx_model), "x", np.full((1, 1, 4, 5), -np.inf))


def test_errors_of_large_operands_of_softmax_are_rounding(rng):
    """A number near 250 is off by 250 units in the last place of 1, and so is its exponential, relative to itself."""
    nodes = [
        node("Quant", "x s z b", "q", domain=QONNX, signed=1, narrow=0),
        node("Mul", "q m", "r"),
        node("Softmax", "r", "y", axis=-1),
    ]
    numbers = {"s": np.float32(1), "z": np.float32(0), "b": np.float32(16), "m": np.float32(0.0123)}
    onnx_model = model(nodes, {"x": (4, 2000)}, numbers)
    net = bitsynth.compile(onnx_model, isa="avx2")
    x = rng.integers(20000, 21000, (4, 2000)).astype(np.float32)
    assert [edge.differ[comparison.OURS] for edge in comparison.check_network(net, onnx_model, [{"x": x}]).edges] == [
        0,
        0,
    ]
    values = run(net.graph, {"x": x})
    assert comparison._off(values, "y", values.floats("y").astype(np.float64) * (1 + 1e-11)).any()
