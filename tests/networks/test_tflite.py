"""TensorFlow Lite files: operators that are read, codes as LiteRT's reference kernels compute them, refused files."""

import itertools
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.case_selection import quick
from support.tflite_cases import CASES, case
from support.tflite_files import Op, Tensor, build, constant

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.operators.pools import leading_zeros, reciprocal
from bitsynth.graph.read.tflite.shared import quantize_multipliers
from bitsynth.graph.types import Integers
from bitsynth.layers.epilogues import MultiplyShift
from bitsynth.network.certificate.checker import evaluate_formula
from bitsynth.network.check import PEERS, check_network, draw
from bitsynth.network.check.peers import TFLITE_PEERS
from bitsynth.network.program import LayerStep, PlainStep

INT8_NETWORKS = {
    "ad01_int8": 10,
    "kws_ref_model": 10,
    "pretrainedResnet_quant": 10,
    "str_ww_ref_model": 9,
    "vww_96_int8": 28,
}
"""The int8 networks of MLPerf Tiny, and their products."""


def write(folder, data):
    path = Path(folder) / "net.tflite"
    path.write_bytes(data)
    return path


def litert(data, inputs):
    """The outputs by LiteRT's reference kernels."""
    package = pytest.importorskip("ai_edge_litert.interpreter")
    running = package.Interpreter(
        model_content=data, experimental_op_resolver_type=package.OpResolverType.BUILTIN_REF, num_threads=1
    )
    running.allocate_tensors()
    for given_input in running.get_input_details():
        running.set_tensor(given_input["index"], inputs[given_input["name"]])
    running.invoke()
    return [running.get_tensor(x["index"]) for x in running.get_output_details()]


# Codes of the reference kernels.


@pytest.mark.parametrize("name", CASES)
def test_operators_give_what_the_reference_kernels_give(name, tmp_path):
    for seed in range(3):
        data, inputs = case(name, seed)
        for got, want in zip(run(read(write(tmp_path, data)), inputs).outputs(), litert(data, inputs), strict=True):
            assert got.shape == want.shape
            if want.dtype == np.float32:
                assert np.allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
            else:
                assert (got == want).all()


@pytest.mark.parametrize("name", ["convolution", "depthwise", "dense", "add", "softmax", "mean", "hard swish"])
def test_compiled_operators_equal_their_reference(name, tmp_path):
    data, _ = case(name, 5)
    net = bitsynth.compile(write(tmp_path, data))
    for inputs in draw(net.graph, 2):
        got, want = net(inputs), run(net.graph, inputs).outputs()
        assert all((a == b).all() for a, b in zip(got if isinstance(got, tuple) else (got,), want, strict=True))


def multiply_by_quantized_multiplier(x, multiplier, exponent):
    """The formula of kernels/internal/common.h and gemmlowp, on Python's integers."""
    product = (x << max(exponent, 0)) * multiplier
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    high = abs(product + nudge) >> 31
    high = high if product + nudge >= 0 else -high
    right = max(-exponent, 0)
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


@settings(max_examples=60)
@given(
    factor=st.floats(2.0**-34, 5.5),
    x=st.lists(st.integers(-(2**27), 2**27), min_size=1, max_size=20),
    tie=st.booleans(),
)
def test_fixed_point_is_that_of_gemmlowp(factor, x, tie):
    factor = 2.0 ** round(math.log2(factor)) if tie else factor
    multiplier, exponent = quantize_multipliers(factor)
    builder = GraphBuilder("one", "tflite")
    given_input = builder.input("x", (len(x),), "int32", Integers.between(-(2**27), 2**27))
    attributes: dict[str, Any] = {"shift": 31 - np.maximum(exponent, 0), "right": np.maximum(-exponent, 0), "zero": 0}
    edge = builder.add(
        "multiply_shift", given_input, multiplier=multiplier, **attributes, low=None, high=None, dtype="int32"
    )
    graph = builder.build((edge,))
    want = [multiply_by_quantized_multiplier(n, int(multiplier), int(exponent)) for n in x]
    assert run(graph, {"x": np.array(x)})[edge].tolist() == want


@given(st.floats(1e-9, 2.0**14, exclude_max=True))
def test_multipliers_have_31_bits(factor):
    multiplier, exponent = quantize_multipliers(factor)
    assert 1 << 30 <= multiplier < 1 << 31
    assert abs(float(multiplier) * 2.0 ** (int(exponent) - 31) / factor - 1) < 2.0**-30


@given(st.integers(1 << 19, (1 << 31) - 1))
def test_reciprocals_of_sums_are_close(total):
    found, zeros = reciprocal(np.array([total]))[0], leading_zeros(np.array([total]))[0]
    assert total << zeros >> 31 == 1
    assert abs(found / 2**31 - 2**31 / (total << zeros)) < 2.0**-27


# Layouts, batches and reading.


def test_transposes_vanish_between_nodes(tmp_path):
    rng = np.random.default_rng(0)
    grid: dict[str, Any] = {"scale": [0.05], "zero": [3]}
    tensors = [Tensor("x", (1, 8, 8, 4), **grid)]
    ops = []
    for source, each in (("x", "y0"), ("y0", "y1"), ("sum", "z")):
        weights = rng.integers(-9, 9, (4, 3, 3, 4))
        tensors.append(constant(f"w{each}", weights, "int8", scale=[0.01] * 4, zero=[0] * 4, axis=0))
        tensors.append(Tensor(each, (1, 8, 8, 4), **grid))
        ops.append(Op("CONV_2D", [source, f"w{each}"], [each], {"StrideW": 1, "StrideH": 1}))
    ops.insert(2, Op("ADD", ["y0", "y1"], ["sum"]))
    tensors.append(Tensor("sum", (1, 8, 8, 4), **grid))
    graph = read(write(tmp_path, build(tensors, ops, ["x"], ["z"])))
    assert [node.op for node in graph.nodes].count("transpose") == 2
    assert "y1.nchw" in graph.edges
    assert graph.edges["z"].shape == (1, 8, 8, 4)


def test_an_open_batch_is_one_unless_it_is_given(tmp_path):
    x = Tensor("x", (1, 16), scale=[0.1], zero=[0], signature=(-1, 16))
    w = constant("w", np.ones((4, 16)), "int8", scale=[0.1], zero=[0])
    y = Tensor("y", (1, 4), scale=[0.1], zero=[0], signature=(-1, 4))
    path = write(tmp_path, build([x, w, y], [Op("FULLY_CONNECTED", ["x", "w"], ["y"])], ["x"], ["y"]))
    assert read(path).edges["x"].shape == (1, 16)
    assert read(path, batch=3).edges["y"].shape == (3, 4)


def test_files_are_known_by_their_first_bytes(tmp_path):
    path = tmp_path / "network.bin"
    path.write_bytes(case("add", 0)[0])
    assert read(path).reference == "tflite"


def test_other_peers_are_those_of_onnx_files():
    assert not PEERS.keys() & TFLITE_PEERS.keys()


def residual_of_wide_sums():
    """Two convolutions of 64 channels, whose sums float32 does not bring to all codes, and their sum."""
    rng = np.random.default_rng(4)
    tensors, ops = [Tensor("x", (1, 6, 6, 64), scale=[0.05], zero=[3])], []
    for name in "ab":
        scale = rng.uniform(1e-3, 4e-3, 16).astype(np.float32)
        weights = rng.integers(-127, 128, (16, 3, 3, 64))
        tensors.append(constant(f"w{name}", weights, "int8", scale=scale, zero=[0] * 16, axis=0))
        tensors.append(Tensor(name, (1, 6, 6, 16), scale=[0.9], zero=[-7]))
        bias = rng.integers(-9000, 9000, 16)
        tensors.append(constant(f"b{name}", bias, scale=scale * np.float32(0.05), zero=[0] * 16))
        ops.append(Op("CONV_2D", ["x", f"w{name}", f"b{name}"], [name], {"StrideW": 1, "StrideH": 1}))
    tensors.append(Tensor("y", (1, 6, 6, 16), scale=[1.3], zero=[5]))
    return build(tensors, [*ops, Op("ADD", ["a", "b"], ["y"])], ["x"], ["y"])


def test_sums_rounded_twice_are_part_of_their_layer(tmp_path, ended):
    data = residual_of_wide_sums()
    path = write(tmp_path, data)
    net = bitsynth.compile(path)
    layers = [step.layer for step in net.program.steps if isinstance(step, LayerStep)]
    assert [type(layer.epilogue) for layer in layers] == [MultiplyShift, MultiplyShift]
    reasons = [step.reason for step in net.program.steps if isinstance(step, PlainStep)]
    assert all(not reason or "transpose" in reason for reason in reasons)
    for inputs in draw(net.graph, 3):
        (want,) = run(net.graph, inputs).outputs()
        assert (net(inputs) == want).all()
        assert (litert(data, inputs)[0] == want).all()
    ended(0, "compile", str(path), "--isa", "avx2", "-o", str(tmp_path / "out"))
    out, _ = ended(0, "verify", str(tmp_path / "out"))
    assert "verified" in out


@given(
    multiplier=st.integers(0, (1 << 31) - 1),
    right=st.integers(0, 31),
    sums=st.lists(st.integers(-(1 << 31) + 1, (1 << 31) - 2), min_size=1, max_size=9),
)
def test_the_checker_evaluates_claims_as_gemmlowp_does(multiplier, right, sums):
    limits = {"zero": 3, "low": 0, "high": 255}
    numbers = {"multiplier": np.array([[multiplier]]), "right": np.array([[right]]), "factor": np.zeros((1, 1))}
    got = evaluate_formula({"by": "multiply_shift", **numbers, **limits, "of_zero": 0}, np.array([sums]), 0)
    want = [min(max(multiply_by_quantized_multiplier(s, multiplier, -right) + 3, 0), 255) for s in sums]
    assert got.tolist() == [want]


@pytest.mark.parametrize("more", [{"multiplier": (1 << 30) + 0.5}, {"right": 0.5}])
def test_the_checker_refuses_multipliers_and_shifts_that_are_not_whole(more):
    claim = {"by": "multiply_shift", "multiplier": 1 << 30, "right": 1, "zero": 3, "low": 0, "high": 255}
    claim |= {"factor": np.zeros((1, 1)), "of_zero": 0}
    assert evaluate_formula(claim, np.array([[5, -5]]), 0).tolist() == [[5, 2]]
    for numbers in (more, {key: np.array([[x]]) for key, x in more.items()}):
        with pytest.raises(AssertionError, match="not whole"):
            evaluate_formula(claim | numbers, np.array([[5, -5]]), 0)


# Certificates.


@pytest.mark.parametrize("name", quick(["convolution", "add"], of=["convolution", "depthwise", "dense", "add"]))
def test_layers_and_sums_are_claimed_and_verified(name, tmp_path, ended):
    path = write(tmp_path, case(name, 1)[0])
    ended(0, "compile", str(path), "--isa", "avx2", "-o", str(tmp_path / "out"))
    out, _ = ended(0, "verify", str(tmp_path / "out"))
    assert "verified" in out


def test_sums_of_codes_are_computed(tmp_path, ended):
    """Factors of codes equal the multipliers in fixed point, so no table of 65,536 pairs is read."""
    path = write(tmp_path, case("add", 1)[0])
    ended(0, "compile", str(path), "--isa", "avx2", "--name", "sum", "-o", str(tmp_path / "out"))
    text = (tmp_path / "out" / "sum.c").read_text(encoding="utf-8")
    assert ".op = BS_ADD" in text
    assert "BS_PAIRS65536" not in text


def test_a_bias_moves_the_range_of_its_channel_alone():
    builder = GraphBuilder("one", "tflite")
    given_input = builder.input("x", (1, 2, 3, 3), "int32", Integers.between(0, 10))
    bias = builder.constant(np.array([5, -900], np.int32).reshape(1, 2, 1, 1))
    kind = builder.edges[builder.add("add", given_input, bias)].integers
    assert kind.low.reshape(-1).tolist() == [5, -900]
    assert kind.high.reshape(-1).tolist() == [15, -890]


# Files that are refused.


def refused(folder, data):
    path = write(folder, data)
    with pytest.raises(SpecError) as error:
        read(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


GRID: dict[str, Any] = {"scale": [0.1], "zero": [0]}
X, Y = Tensor("x", (1, 16), **GRID), Tensor("y", (1, 16), **GRID)


@pytest.mark.parametrize(
    ("tensors", "op", "message"),
    [
        ([X, Y], Op("CUSTOM", ["x"], ["y"], custom="Mine"), "the custom operator Mine is not compiled"),
        ([X, Y], Op("TOPK_V2", ["x"], ["y"]), "TOPK_V2 y: no operator"),
        ([X, Y], Op("WHILE", ["x"], ["y"]), "WHILE y: no operator"),
        (
            [Tensor("x", (1, 16), "int16", **GRID), Tensor("y", (1, 16), "int16", **GRID)],
            Op("LOGISTIC", ["x"], ["y"]),
            "LOGISTIC y: activations of int16 to int16 are not compiled; known: float32 and int8",
        ),
        (
            [
                Tensor("x", (1, 16), "float32"),
                constant("w", np.ones((4, 16)), "int8", **GRID),
                Tensor("y", (1, 4), "float32"),
            ],
            Op("FULLY_CONNECTED", ["x", "w"], ["y"]),
            "FULLY_CONNECTED y: is hybrid",
        ),
        ([Tensor("x", (1, 16)), Y], Op("LOGISTIC", ["x"], ["y"]), "the file does not give its scale"),
        ([X, Tensor("y", (1, 17), **GRID)], Op("LOGISTIC", ["x"], ["y"]), "the file says (1, 17)"),
        ([X, Tensor("y", (1 << 20, 1 << 20), **GRID)], Op("LOGISTIC", ["x"], ["y"]), "too many axes or elements"),
        ([Tensor("x", (1, 16), scale=[float("nan")], zero=[0]), Y], Op("LOGISTIC", ["x"], ["y"]), "a scale is not"),
        ([X, Y], Op("LOGISTIC", ["y"], ["y"]), "depends on its own output"),
        ([X, Y, Tensor("z", (1, 16), **GRID)], Op("LOGISTIC", ["z"], ["y"]), "nothing makes its input z"),
        ([X, Tensor("y", (1, 16), **GRID, is_variable=True)], Op("LOGISTIC", ["x"], ["y"]), "keeps state"),
        ([X, Tensor("y", (1, 16), scale=[0.2], zero=[0])], Op("RESHAPE", ["x"], ["y"]), "RESHAPE y: "),
        ([X, Y], Op("SOFTMAX", ["x"], ["y"]), "not on the scale of 1 / 256"),
    ],
)
def test_files_are_refused_by_the_operator(tensors, op, message, tmp_path):
    assert message in refused(tmp_path, build(tensors, [op], ["x"], ["y"]))


def test_a_constant_must_have_the_bytes_of_its_shape(tmp_path):
    w = Tensor("w", (4, 16), "int8", np.ones((4, 15), np.int8), **GRID)
    data = build([X, w, Tensor("y", (1, 4), **GRID)], [Op("FULLY_CONNECTED", ["x", "w"], ["y"])], ["x"], ["y"])
    assert "tensor w: 60 bytes, where its type and shape need 64" in refused(tmp_path, data)


def test_an_image_of_huge_size_is_refused(tmp_path):
    tensors = [Tensor("x", (1, 4, 4, 8), **GRID), constant("s", [60000, 60000]), Tensor("y", (1, 4, 4, 8), **GRID)]
    data = build(tensors, [Op("RESIZE_BILINEAR", ["x", "s"], ["y"])], ["x"], ["y"])
    assert "RESIZE_BILINEAR y: makes a tensor of shape (1, 60000, 60000, 8), more than" in refused(tmp_path, data)


def test_an_unknown_version_is_refused(tmp_path):
    data = build([X, Y], [Op("LOGISTIC", ["x"], ["y"])], ["x"], ["y"], version=4)
    assert "schema version 4 is not read" in refused(tmp_path, data)


def test_text_is_no_tflite_file(tmp_path):
    assert "not a TensorFlow Lite model" in refused(tmp_path, b"hello")


def test_a_damaged_file_ends_with_one_message(tmp_path, fails):
    path = write(tmp_path, case("convolution", 0)[0][:600])
    assert str(path) in fails(2, "inspect", str(path))


@pytest.mark.parametrize("name", ["convolution", "softmax", "strided slice"])
def test_damaged_bytes_are_refused_or_read(name, tmp_path):
    data, _ = case(name, 0)
    rng = np.random.default_rng(7)
    for _ in range(150):
        damaged = bytearray(data)
        for place in rng.integers(8, len(data), rng.integers(1, 4)):
            damaged[place] = int(rng.integers(0, 256))
        with suppress(SpecError):  # any other exception fails the test
            read(write(tmp_path, bytes(damaged)))


def test_cut_files_are_refused(tmp_path):
    data, _ = case("add", 0)
    for size in itertools.chain(range(0, 64, 7), range(64, len(data) - 8, 97)):
        refused(tmp_path, data[:size])


# The networks of MLPerf Tiny.


@pytest.mark.parametrize("name", INT8_NETWORKS)
def test_mlperf_tiny_int8_networks_equal_the_reference_kernels_at_every_edge(name, network_models):
    pytest.importorskip("ai_edge_litert.interpreter")
    path = network_models / "mlperf_tiny" / f"{name}.tflite"
    graph = read(path)
    assert sum(node.op in ("conv", "matmul") for node in graph.nodes) == INT8_NETWORKS[name]
    inputs = draw(graph, 1)[0]
    values, found = run(graph, inputs), TFLITE_PEERS["litert"](path.read_bytes())(inputs)
    compared = [edge for edge in found if edge in graph.edges and edge not in graph.inputs]
    assert len(compared) >= INT8_NETWORKS[name]
    assert all((values.floats(edge) == found[edge]).all() for edge in compared)


@pytest.mark.parametrize("name", ["ad01_fp32", "pretrainedResnet"])
def test_mlperf_tiny_float_networks_are_close(name, network_models):
    pytest.importorskip("ai_edge_litert.interpreter")
    path = network_models / "mlperf_tiny" / f"{name}.tflite"
    net = bitsynth.compile(path)
    result = check_network(net, path.read_bytes(), draw(net.graph, 1))
    assert result.first is None
    assert "litert" in result.peers
    assert not any(edge.differ.get("litert") for edge in result.edges)


def test_hybrid_networks_are_refused_by_name(network_models):
    with pytest.raises(SpecError, match="is hybrid"):
        read(network_models / "mlperf_tiny" / "kws_ref_model_float32.tflite")
