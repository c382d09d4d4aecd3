"""Products in floats: their share, the node of the file to change, and the messages of commands."""

import json

import numpy as np
import pytest
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.bench.network import NetworkTimes
from bitsynth.cli.commands import bench_network
from bitsynth.cli.reports.network_cells import slow_products
from bitsynth.graph import InputCodes, read
from bitsynth.graph.float_products import find_float_products
from bitsynth.network.report import ProductWork


def two_convolutions(before=(), *, quantized=True):
    """A convolution of the input or of what `before` makes of it, a quantizer, and a convolution of codes."""
    nodes = [
        *before,
        node("BipolarQuant", "w one", "v", domain=QONNX),
        node("Conv", f"{'h' if before else 'x'} {'v' if quantized else 'w'}", "c", name="stem"),
        node("Quant", "c s z b", "q", domain=QONNX, signed=0, narrow=0),
        node("BipolarQuant", "u one", "t", domain=QONNX),
        node("Conv", "q t", "y", name="body"),
    ]
    rng = np.random.default_rng(0)
    numbers = {"s": 0.25, "z": 0, "b": 2, "one": 1, "mean": 0.3}
    weights = {"w": rng.normal(size=(4, 3, 2, 2)), "u": rng.normal(size=(8, 4, 1, 1))}
    given = {k: np.asarray(v, np.float32) for k, v in (numbers | weights).items()}
    return model(nodes, {"x": (1, 3, 3, 3)}, given)


STEM, BODY = 4 * 3 * 2 * 2 * 4, 8 * 4 * 4


def test_an_input_without_a_quantizer():
    (found,) = find_float_products(read(two_convolutions()))
    assert (found.source, found.macs, found.input) == ("Conv stem", STEM, "x")
    assert found.why == "activations x are float32, on no grid"
    assert found.change == (
        "put a quantizer between input x and Conv stem, or, if input x holds codes, say so with --input-bits N"
    )
    assert find_float_products(read(two_convolutions(), codes=InputCodes(8))) == ()


def test_what_moves_elements_is_not_what_to_change():
    before = [node("Transpose", "x", "t0", perm=[0, 1, 3, 2]), node("Transpose", "t0", "h", perm=[0, 1, 3, 2])]
    (found,) = find_float_products(read(two_convolutions(before)))
    assert found.change.startswith("put a quantizer between input x and Conv stem")


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ([node("Sub", "x mean", "h", name="shift")], "put a quantizer between Sub shift and Conv stem"),
        ([node("Sigmoid", "x", "h", name="gate")], "put a quantizer between Sigmoid gate and Conv stem"),
        (
            [node("Sigmoid", "x", "g", name="gate"), node("Transpose", "g", "h", perm=[0, 1, 3, 2])],
            "put a quantizer between Sigmoid gate and Conv stem",
        ),
    ],
)
def test_the_option_is_named_only_where_it_helps(before, change):
    """Numbers that are no multiples of a step, and numbers of a function, are on no grid, whatever the input holds."""
    file = two_convolutions(before)
    (found,) = find_float_products(read(file))
    assert (found.change, found.input) == (change, "")
    assert len(find_float_products(read(file, codes=InputCodes(8, 0.125)))) == 1


def test_weights_in_floats():
    (found,) = find_float_products(read(two_convolutions(quantized=False), codes=InputCodes(8)))
    assert found.why.startswith("weights")
    assert found.change == "quantize the weights of Conv stem"


@pytest.fixture
def path(tmp_path):
    result = tmp_path / "net.onnx"
    result.write_bytes(two_convolutions().SerializeToString())
    return str(result)


SHARE = f"{STEM / (STEM + BODY):.1%}".replace("%", " %")
LINE = f"slow, of {STEM + BODY} MAC: {SHARE} in floats; most in Conv stem, {SHARE}: activations x are float32"


def test_inspect_names_cost_and_node(ended, path):
    out, _ = ended(0, "inspect", path)
    assert f"c: {STEM} MAC, {SHARE} of all, computed in floats: activations x are float32, on no grid; put a" in out
    facts = json.loads(ended(0, "inspect", path, "--json")[0])
    found = next(n for n in facts["nodes"] if n["node"] == "c")
    assert (facts["float_macs"], found["macs"]) == (STEM, STEM)
    assert found["change"].startswith("put a quantizer between input x and Conv stem")
    assert "computed in floats" not in ended(0, "inspect", path, "--input-bits", "8")[0]


def test_compile_says_it_in_one_line(ended, path, tmp_path):
    to = ["--isa", "avx2", "-o", str(tmp_path / "out")]
    lines = ended(0, "compile", path, *to)[0].splitlines()
    (line,) = [line for line in lines if line.startswith("slow")]
    assert line.startswith(LINE)
    assert line.endswith("say so with --input-bits N")
    products = json.loads(ended(0, "compile", path, *to, "--json")[0])["products"]
    assert (products["macs"], products["float_macs"], products["plain_macs"]) == (STEM + BODY, STEM, 0)
    assert products["floats"][0]["input"] == "x"
    assert "slow" not in ended(0, "compile", path, *to, "--input-bits", "8")[0]


def test_bench_says_it_too():
    report = bitsynth.compile(two_convolutions(), isa="avx2").report()
    lines = bench_network._ends(NetworkTimes(report, 1, (), (), {}, 0))
    assert sum(line.startswith(LINE) for line in lines) == 1


def test_products_of_integers_in_plain_c():
    """Weights of 16 bits fit no kernel; what is less than a thousandth of all is not worth a line."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w s wz", "v"),
        node("MatMul", "d v", "y"),
    ]
    numbers = {"s": np.float32(0.5), "z": np.uint8(3), "wz": np.int16(0)}
    weights = {"w": np.arange(-300, 300, 100, dtype=np.int16).reshape(3, 2)}
    file = model(nodes, {"x": (1, 3)}, numbers | weights, opset=21)
    work = bitsynth.compile(file, isa="avx2").report().products
    assert (work.macs, work.float_macs, work.plain_macs) == (6, 0, 6)
    assert slow_products(work) == ["slow, of 6 MAC: 100.0 % in plain C of integers"]
    assert slow_products(ProductWork(10_000, 0, 9)) == []
    assert slow_products(ProductWork()) == []


def test_the_option_is_named_though_another_product_costs_more():
    nodes = [
        node("BipolarQuant", "w one", "v", domain=QONNX),
        node("MatMul", "x v", "a", name="first"),
        node("Sigmoid", "a", "g", name="gate"),
        node("MatMul", "g u", "y", name="second"),
    ]
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(8, 4)).astype(np.float32), "u": rng.normal(size=(4, 24)).astype(np.float32)}
    file = model(nodes, {"x": (1, 8)}, weights | {"one": np.float32(1)})
    (line,) = slow_products(bitsynth.compile(file, isa="avx2").report().products)
    assert line == (
        "slow, of 128 MAC: 100.0 % in floats; most in MatMul second, 75.0 %: activations g are float32, on no grid; "
        "put a quantizer between Sigmoid gate and MatMul second; "
        "--input-bits N, if input x holds codes, spares 25.0 %; "
        "`bitsynth inspect` says this of 1 more"
    )
