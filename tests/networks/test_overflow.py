"""Networks whose sums wrap, or whose bias was cut to an end of int32: the file's results, and a warning of the node."""

import json
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.onnx_files import model, node

from bitsynth.cli import main
from bitsynth.errors import BitsynthWarning
from bitsynth.graph import inspect, read, run

END = (1 << 31) - 1
WRAPS = (
    "QLinearConv conv1: its sums go from -18,360 to 2,147,506,597 and wrap, for int32 does not hold them; check the "
    "bias and the scales that it was quantized by"
)
CUT = (
    "Conv the_Conv: 1 of its 3 biases lie at an end of int32, to which they were probably cut; check the scales that "
    "they were quantized by"
)


def constants(bias):
    """Scales and zero points of codes, weights and biases, and these themselves."""
    given: dict[str, Any] = {"s": np.float32(0.5), "t": np.float32(0.25), "u": np.float32(0.125)}
    weights = np.arange(-12, 15).reshape(3, 1, 3, 3).astype(np.int8)
    return given | {"z": np.uint8(0), "e": np.int8(0), "w": weights, "b": np.array(bias, np.int32)}


def convolution(*bias):
    """A QLinearConv of 3 channels, all codes of 8 bits, between float inputs and outputs."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearConv", "q s z w t e s z b", "c", name="conv1"),
        node("DequantizeLinear", "c s z"),
    ]
    return model(nodes, {"x": (1, 1, 5, 5)}, constants(bias))


def dequantized(*bias):
    """The convolution in floats of codes, weights and biases that are dequantized."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w t e", "v"),
        node("DequantizeLinear", "b u", "a"),
        node("Conv", "d v a"),
    ]
    return model(nodes, {"x": (1, 1, 5, 5)}, constants(bias))


def warned(result):
    """What reading a model warns of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        read(result)
    assert all(w.category is BitsynthWarning for w in found)
    return [str(w.message) for w in found]


def test_a_sum_that_wraps_is_warned_of_and_computed_all_the_same():
    result = convolution(0, 5, END)
    assert warned(result) == [WRAPS]
    with pytest.warns(BitsynthWarning):
        graph = read(result)
    x = np.full((1, 1, 5, 5), 127.5, np.float32)
    (numbers,) = run(graph, {"x": x}).outputs()
    sums = (255 * np.arange(-12, 15).reshape(3, 9).sum(1) + [0, 5, END] + (1 << 31)) % (1 << 32) - (1 << 31)
    want = np.clip(np.rint(sums * np.float32(0.25)), 0, 255)
    assert (numbers == want.reshape(1, 3, 1, 1) * 0.5).all()


def test_a_bias_that_was_cut_is_warned_of_though_nothing_wraps():
    assert warned(dequantized(0, -1 - END, 7)) == [CUT]
    assert warned(dequantized(0, END, 7)) == [CUT]


def test_networks_whose_sums_fit_are_not_warned_of():
    assert warned(convolution(0, 5, END - 100_000)) == []
    assert warned(dequantized(0, 5, END - 1)) == []


def test_integers_of_which_nothing_is_known_are_not_warned_of():
    onnx_model = model(
        [node("Add", "x a")], {"x": (1, 4)}, {"a": np.array([1, 2, 3, 4], np.int32)}, dtype=TensorProto.INT32
    )
    assert warned(onnx_model) == []


@pytest.fixture
def file(tmp_path):
    onnx.save(convolution(0, 5, END), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_commands_say_it_once(file, tmp_path, capsys):
    """Each on standard error, and in what it writes as JSON."""
    out = str(tmp_path / "out")
    for argv in (["inspect", str(file)], ["compile", str(file), "--isa", "neon", "-o", out]):
        assert main(argv) == 0
        assert capsys.readouterr().err.replace("\n", " ").count(WRAPS) == 1
        assert main([*argv, "--json"]) == 0
        output = capsys.readouterr()
        assert output.err.replace("\n", " ").count(WRAPS) == 1
        assert json.loads(output.out)["warnings"] == [WRAPS]


@pytest.mark.toolchains
def test_check_and_bench_say_it_too(file, tmp_path, capsys):
    times = tmp_path / "times.json"
    main(["check", str(file), "--json"])
    output = capsys.readouterr()
    assert output.err.replace("\n", " ").count(WRAPS) == 1
    assert json.loads(output.out)["warnings"] == [WRAPS]
    assert main(["bench", "network", str(file), "--no-peers", "--rounds", "1", "--json", str(times)]) == 0
    assert capsys.readouterr().err.replace("\n", " ").count(WRAPS) == 1
    assert json.loads(times.read_text())["network"]["network"]["warnings"] == [WRAPS]


def test_facts_have_it():
    with pytest.warns(BitsynthWarning):
        assert inspect.inspect_graph(read(convolution(0, 5, END))).warnings == (WRAPS,)
